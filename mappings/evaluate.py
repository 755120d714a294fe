"""The one entry point: logits, a mapping and the wanted outputs in, an Evaluation out."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from mappings.base import Mapping, Row
from mappings.errors import InvalidParameter, InvalidRow
from mappings.rows import maximum, row_sum
from mappings.solution import Solution
from mappings.support import Support, joined_supports, supports

Output = Literal[
    "probabilities", "log_probabilities", "support", "normalizer", "entropy", "support_size"
]
OUTPUTS: tuple[Output, ...] = get_args(Output)
"""What can be asked for, in the order answers list it."""

DEFAULT_OUTPUTS: tuple[Output, ...] = ("probabilities",)

InvalidRows = Literal["reject", "report"]

CHUNK_ELEMENTS = 1 << 18
"""Logits evaluated at once on a CPU (a count): intermediate results stay in the cache."""

VALID = "ok"
"""The status of a row that was answered."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The answer to one batch; what was not asked for is None.

    Attributes:
        status: one text a row, "ok" or the reason why a row has no answer. Such a row is NaN in
            every dense output and has an empty support.
        probabilities: (rows, classes), 0 where masked.
        log_probabilities: (rows, classes) in nats, −inf where the probability is exactly 0.
        support: the classes above 0.
        normalizer: (rows,) λ(x); NaN where the mapping has none or it is infinite.
        entropy: (rows,) in nats.
        support_size: (rows,) int64.
    """

    status: list[str]
    probabilities: Tensor | None = None
    log_probabilities: Tensor | None = None
    support: Support | None = None
    normalizer: Tensor | None = None
    entropy: Tensor | None = None
    support_size: Tensor | None = None

    def rows(self, start: int, stop: int) -> "Evaluation":
        """The answers of rows start (included) to stop (excluded), as views."""
        cut: dict[str, Tensor | Support | None] = {}
        for name in OUTPUTS:
            value: Tensor | Support | None = getattr(self, name)
            if isinstance(value, Support):
                cut[name] = value.rows(start, stop)
            elif value is not None:
                cut[name] = value[start:stop]
        return Evaluation(self.status[start:stop], **cut)  # type: ignore[arg-type]


@torch.inference_mode()
def evaluate(
    logits: Tensor,
    mapping: Mapping,
    *,
    outputs: Collection[Output] = DEFAULT_OUTPUTS,
    dtype: torch.dtype | None = None,
    support_limit: int | None = None,
    invalid_rows: InvalidRows = "reject",
    lengths: Sequence[int] | None = None,
) -> Evaluation:
    """Maps every row of logits to a distribution.

    A row's answer is the same, bit for bit, whatever other rows stand beside it.

    Args:
        logits: (rows, classes), or (classes,) for one row, of any floating or integer dtype, on
            any device, of any strides; −inf masks a class. Never written to.
        mapping: the mapping and its parameters, each one value or one a row.
        outputs: what to compute.
        dtype: of the answers, float32 or float64; by default float64 for float64 and integer
            logits, else float32.
        support_limit: at most so many classes a row in `support`; None lists all.
        invalid_rows: "reject" raises InvalidRow for rows without an answer, "report" answers
            the others and says why in `status`.
        lengths: the classes of each row, where shorter rows were padded with −inf.

    Raises:
        InvalidParameter: a parameter does not fit the rows.
        InvalidRow: a row has no answer and `invalid_rows` is "reject".
    """
    logits = torch.atleast_2d(logits)
    if not logits.is_floating_point():
        logits = logits.double()
    rows, classes = logits.shape
    if classes == 0:
        raise InvalidParameter.at(("logits",), "a row has no class; give at least 1 logit a row")
    mapping.check_rows(rows)
    mapping.check_classes([classes] * rows if lengths is None else lengths)
    answer = _Answer(
        rows,
        classes,
        frozenset(outputs),
        dtype or (torch.float64 if logits.dtype == torch.float64 else torch.float32),
        support_limit,
        logits.device,
    )
    row = mapping.bind(rows, logits.device)
    reasons: dict[int, str] = {}
    step = max(1, CHUNK_ELEMENTS // classes) if logits.device.type == "cpu" else max(1, rows)
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        chunk = _computable(logits[start:stop])
        part = {
            name: value[start:stop] if value.shape[0] == rows else value
            for name, value in row.items()
        }
        bad = _invalid(chunk, mapping, part)
        if bad:
            reasons |= {start + index: text for index, text in bad.items()}
            chunk = _without(chunk, list(bad))
        answer.add(start, mapping.solve(chunk, part), list(bad))
    if reasons and invalid_rows == "reject":
        raise InvalidRow(reasons)
    return answer.finished(reasons)


def _computable(logits: Tensor) -> Tensor:
    """Float32 or float64, contiguous; the caller's memory itself where it is that already."""
    wide = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
    return wide.contiguous()


def _invalid(logits: Tensor, mapping: Mapping, row: Row) -> dict[int, str]:
    """Why rows have no answer, by their place in the chunk."""
    top = maximum(logits)
    found: dict[int, str] = {}
    for index in (~top.isfinite()).squeeze(-1).nonzero().flatten().tolist():
        found[index] = _reason(logits[index])
    undefined = mapping.undefined_rows(logits, row)
    if undefined is not None:
        for index in undefined.nonzero().flatten().tolist():
            found.setdefault(index, mapping.undefined)
    return found


def _reason(logits: Tensor) -> str:
    for name, places in (("nan", logits.isnan()), ("+inf", logits == torch.inf)):
        if bool(places.any()):
            return f"{name} at class {int(places.nonzero()[0])}"
    return "no unmasked class"


def _without(logits: Tensor, rows: list[int]) -> Tensor:
    """A copy in which the rows without an answer are a harmless single class."""
    mended = logits.clone()
    mended[rows] = -torch.inf
    mended[rows, 0] = 1.0
    return mended


@dataclass(slots=True)
class _Answer:
    """The outputs being filled, chunk by chunk."""

    rows: int
    classes: int
    wanted: frozenset[Output]
    dtype: torch.dtype
    support_limit: int | None
    device: torch.device
    outputs: dict[str, Tensor] = field(default_factory=dict)
    parts: list[Support] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in self.wanted - {"support"}:
            wide = name in ("probabilities", "log_probabilities")
            shape = (self.rows, self.classes) if wide else (self.rows,)
            dtype = torch.int64 if name == "support_size" else self.dtype
            self.outputs[name] = torch.empty(shape, dtype=dtype, device=self.device)

    def add(self, start: int, solution: Solution, bad: list[int]) -> None:
        """Writes the outputs of the rows from `start` on; `bad` places among them stay blank."""
        rows = slice(start, start + solution.probabilities.shape[0])
        narrowed = solution.probabilities.to(self.dtype)
        if "probabilities" in self.wanted:
            _spread(narrowed, solution.classes, 0.0, self.outputs["probabilities"][rows])
        if "normalizer" in self.wanted:
            given = solution.normalizer
            self.outputs["normalizer"][rows] = torch.nan if given is None else given
        if "support_size" in self.wanted:
            self.outputs["support_size"][rows] = (narrowed > 0).sum(-1)
        if self.wanted & {"log_probabilities", "entropy", "support"}:
            logs = solution.log_probabilities()
            if "log_probabilities" in self.wanted:
                out = self.outputs["log_probabilities"][rows]
                _spread(logs, solution.classes, -torch.inf, out)
            if "entropy" in self.wanted:
                masses = solution.probabilities
                terms = torch.where(masses > 0, masses * logs, 0)
                self.outputs["entropy"][rows] = 0 - row_sum(terms).squeeze(-1).to(self.dtype)
            if "support" in self.wanted:
                if bad:
                    narrowed = narrowed.clone()
                    narrowed[bad] = 0
                self.parts.append(supports(narrowed, logs, solution.classes, self.support_limit))
        for name, value in self.outputs.items():
            value[[start + place for place in bad]] = 0 if name == "support_size" else torch.nan

    def finished(self, reasons: dict[int, str]) -> Evaluation:
        """The Evaluation of all that was added."""
        return Evaluation(
            [reasons.get(row, VALID) for row in range(self.rows)],
            **self.outputs,
            support=joined_supports(self.parts) if "support" in self.wanted else None,
        )


def _spread(values: Tensor, classes: Tensor | None, empty: float, out: Tensor) -> None:
    """Writes kept values to their classes' places; the other places get `empty`."""
    if classes is None:
        out.copy_(values)
        return
    out.fill_(empty)
    row, slot = (classes >= 0).nonzero(as_tuple=True)
    out[row, classes[row, slot]] = values[row, slot].to(out.dtype)
