"""The classification extension: the most probable classes of each row, as texts."""

from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from torch import Tensor


def classification(probabilities: Tensor, count: int) -> list[bytes]:
    """Texts "value:index" of the largest values of each row, row after row.

    Args:
        probabilities: (rows, classes); of equal values the lower class id comes first. A row of
            NaN, which has no answer, is written as "nan:index".
        count: texts a row, at most as many as there are classes.
    """
    texts: list[bytes] = []
    for row in probabilities.numpy():
        places = _largest(row, count)
        # Shortest exact decimals; orjson has no NaN.
        written = orjson.dumps(row[places], option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")
        values = [b"nan" if text == b"null" else text for text in written]
        pairs = zip(values, places.tolist(), strict=True)
        texts += [b"%b:%d" % (value, place) for value, place in pairs]
    return texts


def _largest(row: NDArray[Any], count: int) -> NDArray[np.intp]:
    """The places of the largest values, descending, of equal ones the first."""
    ranks = np.where(np.isnan(row), -np.inf, row)
    last = np.partition(ranks, len(ranks) - count)[len(ranks) - count]
    kept = np.flatnonzero(ranks >= last)
    return kept[np.argsort(-ranks[kept], kind="stable")[:count]]
