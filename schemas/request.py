"""What a request can ask for, whatever the wire it came by."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from mappings.base import Mapping
from mappings.evaluate import InvalidRows
from mappings.evaluation import LossOutput, MapOutput, Output, SampleOutput
from mappings.jacobian import Form
from mappings.losses import Kind, Targets
from mappings.parameters import PerRow, Seed
from mappings.processor import Processor
from mappings.registry import MAPPINGS, PROCESSORS
from mappings.sampling import MAX_SAMPLES, Draws
from mappings.wanted import Derivatives
from schemas.documented import Registered, Rows

Dtype = Literal["float64", "float32"]

MAX_PROCESSORS = 32
"""The longest chain of processors (a count)."""


ONE_A_LOGIT: frozenset[Output] = frozenset({"probabilities", "log_probabilities", "gradient"})
"""Outputs of one number for each logit."""


class JacobianRequest(BaseModel):
    """Which derivatives ∂p_i/∂x_j to answer."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    form: Form = "dense"
    """dense: rows × n × n; support: among the support's classes; factors: diag(d) − L Rᵀ; jvp
    and vjp: J v and Jᵀ v."""
    vector: Annotated[Tensor, Rows] | None = None
    """rows × classes: v of jvp and vjp."""


DENSE = Derivatives()
"""The form of a Jacobian for which none is named."""


class Request(BaseModel):
    """What to compute of the logits, whatever the endpoint."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    mapping: Annotated[Mapping, Registered(Mapping, MAPPINGS)]
    """The mapping: an object with its name and parameters, or just its name; with just a name,
    its parameters may stand beside it in the request."""
    processors: Annotated[
        list[Annotated[Processor, Registered(Processor, PROCESSORS)]],
        Field(max_length=MAX_PROCESSORS),
    ] = []
    """Steps the logits take before the mapping, in this order."""
    outputs: Sequence[Output]
    """What to answer."""
    support_limit: Annotated[int, Field(ge=1)] | None = None
    """At most so many classes a row in `support`, the most probable first (a count)."""
    jacobian: JacobianRequest | None = None
    """The form of the output "jacobian", which is then answered also when it is not listed."""
    invalid_rows: InvalidRows = "reject"
    """Whether rows without an answer (NaN, +inf, nothing unmasked) refuse the request, or are
    reported in `status` while the others are answered."""
    dtype: Dtype | None = None
    """The precision of the answer; by default that of the logits, which for JSON is float64."""

    def wanted(self) -> frozenset[Output]:
        """All the outputs asked for."""
        named = frozenset(self.outputs)
        return named if self.jacobian is None else named | {"jacobian"}

    def derivatives(self) -> Derivatives:
        """The form of the Jacobian."""
        if self.jacobian is None:
            return DENSE
        return Derivatives(self.jacobian.form, self.jacobian.vector)

    def answer_numbers(self, rows: int, classes: int) -> int:
        """How many numbers the answer for so many rows of so many classes can hold at most."""
        dense = self.dense_numbers(rows, classes)
        if "support" not in self.outputs:
            return dense
        listed = classes if self.support_limit is None else min(self.support_limit, classes)
        return dense + rows * 3 * listed

    def dense_numbers(self, rows: int, classes: int) -> int:
        """How many numbers its dense outputs hold, as far as the request tells."""
        wanted = self.wanted()
        per_logit = len(ONE_A_LOGIT & wanted)
        if "parameter_gradients" in wanted:
            per_logit += 2
        if "jacobian" in wanted and self.derivatives().form != "dense":
            per_logit += 1
        return rows * classes * per_logit + self.further_numbers(rows, classes)

    def further_numbers(self, rows: int, classes: int) -> int:
        """How many of them are not one for each logit: those of dense Jacobians, and tokens."""
        per_row = 0
        if "jacobian" in self.wanted() and self.derivatives().form == "dense":
            per_row += classes * classes
        draws = self.draws()
        if draws is not None:
            per_row += 2 * draws.samples
        return rows * per_row

    def draws(self) -> Draws | None:
        """The draws to make."""
        return None

    def aims(self) -> Targets | None:
        """The targets of a loss."""
        return None


class MapRequest(Request):
    """What /v1/map computes of the logits."""

    outputs: Annotated[list[MapOutput], Field(min_length=1, fail_fast=True)] = ["probabilities"]
    """What to answer."""


class SampleRequest(Request):
    """What /v1/sample computes of the logits."""

    outputs: Annotated[list[SampleOutput], Field(min_length=1, fail_fast=True)] = [
        "tokens",
        "token_log_probabilities",
    ]
    """What to answer."""
    samples: Annotated[int, Field(ge=1, le=MAX_SAMPLES)] = 1
    """Tokens drawn from each row (a count)."""
    seed: PerRow[Seed] | None = None
    """What the draws are made from, one for all rows or one a row (unsigned 64-bit); without it
    the server draws one, and returns it."""
    replacement: bool = True
    """Whether a class can be drawn again."""

    def draws(self) -> Draws:
        """The draws to make; the seed must be there by now."""
        assert self.seed is not None
        return Draws(seed=self.seed, samples=self.samples, replacement=self.replacement)


class LossRequest(Request):
    """What /v1/loss computes of the logits."""

    outputs: Annotated[list[LossOutput], Field(min_length=1, fail_fast=True)] = ["loss", "gradient"]
    """What to answer."""
    targets: Annotated[Tensor, Rows]
    """Class ids, one a row, or rows × classes distributions."""
    kind: Kind = "natural"
    """natural: the mapping's own loss; accuracy: −p of the target; stop_gradient:
    ⟨p − target, x⟩ with p held constant."""

    def aims(self) -> Targets:
        """The targets of the loss."""
        return Targets(self.targets, self.kind)


class _Logits(BaseModel):
    """What a JSON body has beside the request."""

    model_config = ConfigDict(
        json_schema_extra={"additionalProperties": True}, use_attribute_docstrings=True
    )

    logits: list[float | None] | list[list[float | None]]
    """rows × classes, or one flat row; rows may differ in length; null masks a class."""


class MapBody(_Logits, MapRequest):
    """The JSON body of /v1/map: the request and its logits."""


class SampleBody(_Logits, SampleRequest):
    """The JSON body of /v1/sample: the request and its logits."""


class LossBody(_Logits, LossRequest):
    """The JSON body of /v1/loss: the request and its logits."""
