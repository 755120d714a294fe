"""What every mapping is: a frozen model whose fields are its parameters, and a batched solve."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from mappings.compact import Kept, unmasked
from mappings.parameters import NonNegative, Parameters, PerRow, Row
from mappings.solution import Solution


class Mapping(Parameters):
    """A mapping from logits to a distribution, with its parameters.

    A subclass is one file in `mappings/catalogue`: the first line of its docstring says what it
    is, the rest its formula, ties, limits, cost and reference; its fields carry their bounds.
    """

    name: str
    """The mapping's registered name."""
    temperature: PerRow[NonNegative] = 1.0
    """Divides the logits (dimensionless); 0 is the limit, where the maxima share the mass."""

    shift_invariant: ClassVar[bool] = True
    """Whether adding a constant to a row's logits changes nothing."""
    monotone: ClassVar[bool] = True
    """Whether a larger logit never has a smaller probability in its row."""
    sparse: ClassVar[bool] = False
    """Whether the mapping cuts classes off: low ones get exactly zero by design."""
    by_class: ClassVar[bool] = False
    """Whether parameters belong to class ids, so that it must see every class in its place."""
    elements_at_once: ClassVar[int] = 1 << 20
    """Logits solved together on a CPU (a count): what comes between stays in the cache."""
    masses_at_once: ClassVar[int | None] = None
    """As many where nothing is asked for that takes float64 copies of the rows; None: the same."""
    undefined: ClassVar[str] = "the mapping is undefined for this row"
    """What a caller reads of a row that `undefined_rows` picks out."""

    def check_classes(self, classes: Sequence[int]) -> None:
        """Raises InvalidParameter when a parameter does not fit rows of so many classes each."""

    def undefined_rows(self, logits: Tensor, row: Row) -> Tensor | None:
        """Rows (rows,) that have valid logits but no answer under this mapping; None: none."""
        return None

    def candidates(self, logits: Tensor, row: Row) -> Kept | None:
        """The classes that can have a probability; None: every one. Arguments as for `solve`."""
        return None if self.by_class else unmasked(logits)

    @abstractmethod
    def solve(self, logits: Tensor, row: Row) -> Solution:
        """Maps a batch of rows to distributions.

        Args:
            logits: (rows, kept) of the candidates in order of class id, float32 or float64,
                contiguous, −inf where masked; every row has a finite maximum. Never written to.
            row: this mapping's per-row parameters, (rows, 1) each.
        """
