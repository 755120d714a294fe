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
        kept = torch.diag_embed(self.diagonal) - self.left.transpose(1, 2) @ self.right
        if self.classes is None:
            return kept
        out = kept.new_zeros(kept.shape[0], classes, classes)
        for places, values, whole in zip(self.classes, kept, out, strict=True):
            ids = places[places >= 0]
            whole[ids.unsqueeze(-1), ids] = values[: ids.numel(), : ids.numel()]
        return out

    def restricted(self, support: Support) -> Iterator[Tensor]:
        """The derivatives among each row's support, (size, size) in the support's order."""
        for row, ids in enumerate(support.lists()):
            places = ids.long()
            if self.classes is not None:
                known = self.classes[row]
                places = torch.searchsorted(known[known >= 0], places)
            left, right = self.left[row][:, places], self.right[row][:, places]
            yield torch.diag(self.diagonal[row][places]) - left.T @ right


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
