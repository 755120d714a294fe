"""What a mapping's solve returns: a distribution a row, dense or only its few kept classes."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from torch import Tensor

from mappings.compact import named
from mappings.jacobian import Jacobian


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Distributions over all classes of a row, or over the classes kept of it.

    What costs a pass of its own is a function, called only when somebody asked for it.

    Attributes:
        probabilities: (rows, kept) float64; 0 where `classes` is padded.
        log_probabilities: computes (rows, kept) in log space, −inf where p = 0 exactly.
        jacobian: computes ∂p/∂x.
        classes: (rows, kept) int64 class ids, ascending, −1 where padded; None when every class
            is there in its place.
        normalizer: (rows,) λ(x), not finite where there is none; None for mappings without one.
        log_pullback: of weights v (rows, kept) computes Σ_i v_i ∂log p_i/∂x in log space; None
            where only the Jacobian can tell.
        potential: computes (rows, 1) Ω*(z) − max z of the mapping's own Fenchel–Young loss; None
            where the loss is −log p.
        gradients: computes ∂p/∂parameter (rows, kept) by parameter name, where −J x/T is not
            the temperature's.
    """

    probabilities: Tensor
    log_probabilities: Callable[[], Tensor]
    jacobian: Callable[[], Jacobian]
    classes: Tensor | None = None
    normalizer: Tensor | None = None
    log_pullback: Callable[[Tensor], Tensor] | None = None
    potential: Callable[[], Tensor] | None = None
    gradients: dict[str, Callable[[], Tensor]] = field(default_factory=dict)

    def among(self, classes: Tensor | None) -> "Solution":
        """This solution of the classes (rows, kept), −1 where padded, that were kept of a row."""
        if classes is None:
            return self

        def jacobian() -> Jacobian:
            found = self.jacobian()
            return replace(found, classes=named(found.classes, classes))

        return replace(self, classes=named(self.classes, classes), jacobian=jacobian)
