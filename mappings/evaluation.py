"""What can be asked of a batch, and the answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal, get_args

from torch import Tensor

from mappings.jacobian import Form
from mappings.support import Support

MapOutput = Literal[
    "probabilities",
    "log_probabilities",
    "support",
    "normalizer",
    "entropy",
    "support_size",
    "jacobian",
    "parameter_gradients",
]
"""What can be asked of any row."""

SampleOutput = Literal["tokens", "token_log_probabilities", MapOutput]
"""What can be asked where tokens are drawn."""

LossOutput = Literal["loss", "gradient", MapOutput]
"""What can be asked where there are targets."""

Output = Literal["tokens", "token_log_probabilities", "loss", "gradient", MapOutput]
OUTPUTS: tuple[Output, ...] = get_args(Output)
"""What can be asked for, in the order answers list it."""

DEFAULT_OUTPUTS: tuple[Output, ...] = ("probabilities",)

VALID = "ok"
"""The status of a row that was answered."""


@dataclass(frozen=True, slots=True)
class JacobianAnswer:
    """The derivatives ∂p_i/∂x_j in the form asked for; what belongs to other forms is None.

    Attributes:
        form: the form asked for.
        matrix: "dense": (rows, classes, classes).
        product: "jvp", "vjp": (rows, classes).
        diagonal: "factors": (rows, classes) d of diag(d) − L Rᵀ.
        left: "factors": (rows, classes, rank) L.
        right: "factors": (rows, classes, rank) R.
        blocks: "support": for each row its (size, size) derivatives among the support's classes.
        indices: "support": for each row the (size,) class ids, most probable first.
    """

    form: Form
    matrix: Tensor | None = None
    product: Tensor | None = None
    diagonal: Tensor | None = None
    left: Tensor | None = None
    right: Tensor | None = None
    blocks: list[Tensor] | None = None
    indices: list[Tensor] | None = None

    @property
    def numbers(self) -> int:
        """How many numbers it holds."""
        tensors = (self.matrix, self.product, self.diagonal, self.left, self.right)
        whole = sum(tensor.numel() for tensor in tensors if tensor is not None)
        return whole + sum(block.numel() for block in self.blocks or ())

    def split(self, sizes: Sequence[int]) -> list["JacobianAnswer"]:
        """The derivatives of so many rows each, one after the other, as views."""
        return [JacobianAnswer(self.form, **fields) for fields in _split(self, sizes, skip="form")]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The answer to one batch; what was not asked for is None.

    Attributes:
        status: one text a row, "ok" or the reason why a row has no answer. Such a row is NaN in
            every dense output, has an empty support and the tokens −1.
        tokens: (rows, samples) int64 class ids drawn.
        token_log_probabilities: (rows, samples) in nats, under the returned distribution.
        loss: (rows,) in nats; +inf where the target has no probability.
        gradient: (rows, classes) ∂loss/∂x.
        probabilities: (rows, classes), 0 where masked.
        log_probabilities: (rows, classes) in nats, −inf where the probability is exactly 0.
        support: the classes above 0.
        normalizer: (rows,) λ(x); not finite where the mapping has none.
        entropy: (rows,) in nats.
        support_size: (rows,) int64.
        jacobian: ∂p/∂x.
        parameter_gradients: (rows, classes) ∂p/∂parameter by parameter name.
    """

    status: list[str]
    tokens: Tensor | None = None
    token_log_probabilities: Tensor | None = None
    loss: Tensor | None = None
    gradient: Tensor | None = None
    probabilities: Tensor | None = None
    log_probabilities: Tensor | None = None
    support: Support | None = None
    normalizer: Tensor | None = None
    entropy: Tensor | None = None
    support_size: Tensor | None = None
    jacobian: JacobianAnswer | None = None
    parameter_gradients: dict[str, Tensor] | None = None

    def split(self, sizes: Sequence[int]) -> list["Evaluation"]:
        """The answers of so many rows each, one after the other, as views."""
        return [Evaluation(**fields) for fields in _split(self, sizes)]


def _split(
    answer: Evaluation | JacobianAnswer, sizes: Sequence[int], skip: str = ""
) -> list[dict[str, Any]]:
    """The fields of each part that an answer falls into; absent ones are left out."""
    parts: list[dict[str, Any]] = [{} for _ in sizes]
    for name in answer.__slots__:
        value = getattr(answer, name)
        if value is None or name == skip:
            continue
        for part, piece in zip(parts, _pieces(value, sizes), strict=True):
            part[name] = piece
    return parts


def _pieces(value: Any, sizes: Sequence[int]) -> Sequence[Any]:
    if isinstance(value, Tensor):
        tensors: tuple[Tensor, ...] = value.split(list(sizes))
        return tensors
    if isinstance(value, JacobianAnswer):
        return value.split(sizes)
    if isinstance(value, dict):
        columns = [part.split(list(sizes)) for part in value.values()]
        return [dict(zip(value, pieces, strict=True)) for pieces in zip(*columns, strict=True)]
    spans = pairwise(accumulate(sizes, initial=0))
    if isinstance(value, Support):
        return [value.rows(start, stop) for start, stop in spans]
    return [value[start:stop] for start, stop in spans]
