"""Support sets: the classes above 0 of every row, and the Jacobian among them."""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class SupportRow:
    """The classes above 0 of one row, most probable first, ties by lower class id.

    Attributes:
        indices: (size,) class ids.
        probabilities: (size,) of each.
        log_probabilities: (size,) of each (nats).
        truncated: whether a `support_limit` left classes out.
        mass: the probability of those listed.
    """

    indices: NDArray[np.int32]
    probabilities: NDArray[Any]
    log_probabilities: NDArray[Any]
    truncated: bool
    mass: float

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """The classes above 0 of every row; `support[i]` is a row's.

    Row i lies from offsets[i] up to offsets[i + 1], as in a CSR matrix.

    Attributes:
        offsets: (rows + 1,).
        indices: (size of all,) class ids.
        probabilities: (size of all,).
        log_probabilities: (size of all,) (nats).
        classes: in the longest row (a count).
        truncated: (rows,) whether a `support_limit` left classes out; None: there was none.
        mass: (rows,) the probability of those listed; None: there was no `support_limit`.
    """

    offsets: NDArray[np.int64]
    indices: NDArray[np.int32]
    probabilities: NDArray[Any]
    log_probabilities: NDArray[Any]
    classes: int
    truncated: NDArray[np.bool_] | None = None
    mass: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> SupportRow:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        row %= len(self)
        listed = slice(self.offsets[row], self.offsets[row + 1])
        probabilities = self.probabilities[listed]
        return SupportRow(
            self.indices[listed],
            probabilities,
            self.log_probabilities[listed],
            self.truncated is not None and bool(self.truncated[row]),
            float(probabilities.sum() if self.mass is None else self.mass[row]),
        )

    def __iter__(self) -> Iterator[SupportRow]:
        return (self[row] for row in range(len(self)))

    def to_scipy(self) -> Any:
        """The probabilities as a sparse matrix (rows, classes), a `scipy.sparse.csr_array`.

        Raises:
            ImportError: scipy is not installed.
        """
        sparse = importlib.import_module("scipy.sparse")
        shape = (len(self), self.classes)
        return sparse.csr_array((self.probabilities, self.indices, self.offsets), shape=shape)


@dataclass(frozen=True, slots=True, eq=False)
class JacobianBlock:
    """The derivatives of one row among the classes of its support.

    Attributes:
        indices: (size,) class ids, most probable first.
        values: (size, size) ∂p_i/∂x_j.
    """

    indices: NDArray[np.int32]
    values: NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class JacobianFactors:
    """Jacobians as diag(d) − L Rᵀ.

    Attributes:
        diagonal: (rows, classes) d.
        left: (rows, classes, rank) L.
        right: (rows, classes, rank) R.
    """

    diagonal: NDArray[Any]
    left: NDArray[Any]
    right: NDArray[Any]

    def dense(self) -> NDArray[Any]:
        """The Jacobians as matrices, (rows, classes, classes)."""
        classes = self.diagonal.shape[1]
        dense: NDArray[Any] = -(self.left @ self.right.transpose(0, 2, 1))
        dense[:, range(classes), range(classes)] += self.diagonal
        return dense
