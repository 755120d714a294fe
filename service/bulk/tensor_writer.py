"""Answers as whole tensors, in .safetensors, .npz or .npy."""

import math
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
from torch import Tensor

from mappings.errors import ProbmapError
from mappings.evaluation import VALID, Evaluation
from service.bulk.piece import Item, Outcome, Source
from service.bulk.spool import Spool
from service.bulk.tensor_files import Stored, write_npy, write_npz, write_safetensors
from service.engine.job import Job
from service.wire.safetensors_encode import named_tensors

STATUS = "status"

TEXTS = "texts"
"""The file of the rows' statuses, one a line as JSON."""

FINISHED = "finished"

DENSE = ("gradient", "probabilities", "log_probabilities")
"""Outputs of one number a class."""

RAGGED = "rows differ in length, which no tensor can; write .arrow, .parquet or .jsonl, or ask for "
"""What is said of an output that would have to be filled up."""


class TensorWriter:
    """Writes each tensor to a file of its own, and puts them together at the end.

    The tensors are those of the safetensors wire; see service.bulk.writers.Writer.
    """

    def __init__(self, spool: Spool, source: Source, suffix: str) -> None:
        """Prepares the tensors.

        Raises:
            ValueError: one tensor cannot hold what is asked for.
        """
        self._spool = spool
        self._source = source
        self._suffix = suffix
        asked = source.asked
        wanted = asked.request.wanted()
        if suffix == ".npy" and (len(wanted) != 1 or wanted & {"support", "jacobian"}):
            raise ValueError(
                "a .npy file holds one array, and --outputs asks for "
                f"{', '.join(sorted(wanted))}; write .npz or .safetensors"
            )
        self._has_status = asked.request.invalid_rows == "report" and suffix != ".npy"

    def add(self, item: Item, outcome: Outcome) -> None:
        """Appends the tensors of an item.

        Raises:
            ProbmapError: the item has no answer, for which a tensor has no place.
            ValueError: the answer has another shape than those before.
        """
        if isinstance(outcome, ProbmapError):
            outcome.detail = (
                f"line {item.index}: {outcome.detail}; tensors have no place for an error: write "
                ".jsonl, .arrow or .parquet to have it told in its place"
            )
            raise outcome
        assert isinstance(item.job, Job)
        for name, tensor in self._tensors(item.job, outcome):
            self._append(name, tensor)
        if self._has_status:
            lines = b"".join(orjson.dumps(text) + b"\n" for text in outcome.status)
            self._spool.append(TEXTS, [lines])

    def finished(self) -> Path:
        """The file of all tensors."""
        self._spool.close_files()
        whole = self._spool.folder / FINISHED
        stored = [self._stored(name, *note) for name, note in self._spool.notes.items()]
        if self._suffix == ".npy":
            write_npy(whole, stored[0])
            return whole
        if self._has_status:
            stored.append(self._statuses())
        if self._suffix == ".npz":
            write_npz(whole, stored)
        else:
            write_safetensors(whole, stored, self._answer())
        return whole

    def _tensors(self, job: Job, evaluation: Evaluation) -> Iterator[tuple[str, Tensor]]:
        found = (pair for pair in named_tensors(job, evaluation) if pair[0] != "lengths")
        may_differ = self._source.asked.classes is None and self._suffix != ".npy"
        lengths = job.lengths or [job.classes] * job.rows
        for name, tensor in chain(found, [("lengths", torch.tensor(lengths))] * may_differ):
            if job.lengths is not None and name in DENSE:
                raise ValueError(f"{RAGGED}support")
            yield name, tensor

    def _append(self, name: str, tensor: Tensor) -> None:
        array = tensor.contiguous().numpy()
        note = [array.dtype.str, list(array.shape[1:])]
        known = self._spool.notes.setdefault(name, note)
        if known != note:
            raise ValueError(
                f"{name} has rows of the shape {note[1]} after some of {known[1]}: {RAGGED}support"
            )
        if name.endswith("_offsets") and self._spool.size(name):
            # CSR: rows begin behind what is listed already.
            array = array[1:] + self._listed(name)
        if array.size:
            self._spool.append(name, [array.data.cast("B")])

    def _listed(self, offsets: str) -> int:
        """How many entries the rows have so far (a count)."""
        kept = self._spool.folder / offsets
        with kept.open("rb") as file:
            file.seek(-8, 2)
            return int.from_bytes(file.read(8), "little")

    def _stored(self, name: str, dtype: str, shape: list[int]) -> Stored:
        size = self._spool.size(name)
        one = np.dtype(dtype).itemsize * math.prod(shape)
        rows = size // one if one else self._spool.rows
        return Stored(name, np.dtype(dtype), (rows, *shape), self._spool.folder / name)

    def _statuses(self) -> Stored:
        """The statuses as an array of texts, each as long as the longest."""
        texts = self._spool.folder / TEXTS
        packed = self._spool.folder / STATUS
        is_npz = self._suffix == ".npz"

        def read(line: bytes) -> str | bytes:
            text: str = orjson.loads(line)
            return text if is_npz else text.encode()

        with texts.open("rb") as file:
            longest = max((len(read(line)) for line in file), default=len(VALID))
        dtype = np.dtype(f"<U{longest}" if is_npz else f"S{longest}")
        with texts.open("rb") as file, packed.open("wb") as out:
            for line in file:
                out.write(np.array(read(line), dtype).tobytes())
        if is_npz:
            return Stored(STATUS, dtype, (self._spool.rows,), packed)
        return Stored(STATUS, np.dtype(np.uint8), (self._spool.rows, longest), packed)

    def _answer(self) -> dict[str, Any]:
        """What is told beside the tensors."""
        answer: dict[str, Any] = {"rows": self._spool.rows}
        asked = self._source.asked
        if not self._source.has_lines:
            mapping = asked.request.mapping
            without = {*mapping.per_class_fields(), *asked.by_row}
            answer = {"mapping": mapping.model_dump(exclude=without), **answer}
        return answer
