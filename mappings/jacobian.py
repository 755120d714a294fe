"""Jacobians as a diagonal minus a product of two thin factors: J = diag(d) − L Rᵀ.

Every mapping has this form with one or two columns (perturb_max with one a quadrature node), so
that a product with a vector costs O(n) and no vocabulary is ever squared unless asked for.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mappings.compact import along
from mappings.rows import column_sum, row_sum
from mappings.support import Support

THIN = 2
"""Columns up to which the factors of a whole batch are multiplied out at once (a count)."""

Form = Literal["dense", "support", "factors", "jvp", "vjp"]


@dataclass(frozen=True, slots=True)
class Jacobian:
    """The derivatives ∂p_i/∂x_j of each row, over the kept classes.

    Attributes:
        diagonal: (rows, kept) d.
        left: (rows, rank, kept) the columns of L, one after the other.
        right: (rows, rank, kept) the columns of R.
        classes: (rows, kept) class ids, ascending, −1 where padded; None: all in order.
    """

    diagonal: Tensor
    left: Tensor
    right: Tensor
    classes: Tensor | None = None

    def chained(self, slope: Tensor) -> "Jacobian":
        """This Jacobian after an elementwise change of the logits with `slope` (rows, classes)."""
        kept = along(slope, self.classes)
        return Jacobian(
            self.diagonal * kept, self.left, self.right * kept.unsqueeze(1), self.classes
        )

    def jvp(self, vector: Tensor) -> Tensor:
        """J v of each row's vector (rows, classes), in the kept classes' places."""
        return self._product(self.left, self.right, along(vector, self.classes))

    def vjp(self, vector: Tensor) -> Tensor:
        """Jᵀ v of each row's vector (rows, classes), in the kept classes' places."""
        return self._product(self.right, self.left, along(vector, self.classes))

    def _product(self, outer: Tensor, inner: Tensor, vector: Tensor) -> Tensor:
        weights = row_sum(inner * vector.unsqueeze(1))
        return self.diagonal * vector - column_sum(outer * weights)

    def dense(self, classes: int) -> Tensor:
        """All derivatives, (rows, classes, classes)."""
        if self.classes is None and self.left.shape[1] <= THIN:
            whole = torch.diag_embed(self.diagonal)
            for left, right in zip(self.left.unbind(1), self.right.unbind(1), strict=True):
                whole -= left.unsqueeze(-1) * right.unsqueeze(-2)
            return whole
        whole = self.diagonal.new_zeros(self.diagonal.shape[0], classes, classes)
        for row, out in enumerate(whole):
            if self.classes is None:
                out.copy_(self._among(row, slice(None)))
            else:
                known = self.classes[row] >= 0
                ids = self.classes[row][known]
                out[ids.unsqueeze(-1), ids] = self._among(row, known)
        return whole

    def restricted(self, support: Support) -> Iterator[Tensor]:
        """The derivatives among each row's support, (size, size) in the support's order."""
        for row, ids in enumerate(support.lists()):
            places = ids.to(self.diagonal.device).long()
            if self.classes is not None:
                known = self.classes[row]
                places = torch.searchsorted(known[known >= 0], places)
            yield self._among(row, places)

    def _among(self, row: int, places: Tensor | slice) -> Tensor:
        """The derivatives of one row among some kept classes.

        A matrix product's bits depend on its shape: columns that are padding stay out of it.
        """
        columns = (self.left[row] != 0).any(dim=-1)
        left, right = self.left[row][columns][:, places], self.right[row][columns][:, places]
        return torch.diag(self.diagonal[row][places]) - left.T @ right


def without_cancellation(weights: Tensor, pace: Tensor, classes: Tensor | None) -> Jacobian:
    """The Jacobian (diag(s) − s sᵀ/Σs)/T, exact also where one s outweighs all others.

    With k the largest s, c = s_k/Σs, and s′ the others, it is
    diag(s′ + c Σs′ e_k) − (s′/Σs + c e_k) s′ᵀ − s′ (c e_k)ᵀ: nothing is subtracted at k.

    Args:
        weights: (rows, kept) s, at least 0.
        pace: (rows, 1) 1/T.
        classes: (rows, kept) class ids, or None for all in order.
    """
    place = weights.argmax(dim=-1, keepdim=True)
    others = weights.scatter(-1, place, 0.0)
    rest = row_sum(others)
    share = 1 / (1 + rest / weights.gather(-1, place))
    top = torch.zeros_like(weights).scatter(-1, place, share)
    first = others / (weights.gather(-1, place) + rest) + top
    return Jacobian(
        (others + top * rest) * pace,
        torch.stack([first, others], 1),
        torch.stack([others * pace, top * pace], 1),
        classes,
    )


def zero_where(still: Tensor, jacobian: Jacobian) -> Jacobian:
    """The Jacobian with the rows `still` (rows, 1) set to zero: piecewise constant there."""
    if not bool(still.any()):
        return jacobian
    return Jacobian(
        torch.where(still, 0, jacobian.diagonal),
        torch.where(still.unsqueeze(1), 0, jacobian.left),
        torch.where(still.unsqueeze(1), 0, jacobian.right),
        jacobian.classes,
    )
