"""What a mapping's solve returns: a distribution a row, dense or only its few kept classes."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Solution:
    """Distributions over all classes of a row, or over the classes kept of it.

    Attributes:
        probabilities: (rows, kept) float64; 0 where `classes` is padded.
        log_probabilities: computes (rows, kept) in log space, −inf where p = 0 exactly.
        classes: (rows, kept) int64 class ids, ascending, −1 where padded; None when every class
            is there in its place.
        normalizer: (rows,) λ(x), NaN where it is infinite; None for mappings without one.
    """

    probabilities: Tensor
    log_probabilities: Callable[[], Tensor]
    classes: Tensor | None = None
    normalizer: Tensor | None = None
