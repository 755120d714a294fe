"""The one entry point: logits, a mapping and the wanted outputs in, an Evaluation out."""

from collections.abc import Collection, Generator, Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from mappings.answer import Answer, Chunk
from mappings.base import Mapping
from mappings.chain import Chain
from mappings.compact import whole
from mappings.errors import InvalidParameter, InvalidRow, OutputTooLarge
from mappings.evaluation import DEFAULT_OUTPUTS, Evaluation, Output
from mappings.gibbs import Slope, gibbs
from mappings.losses import Targets
from mappings.parameters import Row
from mappings.processor import Processor
from mappings.sampling import Draws
from mappings.wanted import Derivatives, Wanted

InvalidRows = Literal["reject", "report"]

NARROWED_AT_ONCE = 1 << 22
"""Logits looked through together on a CPU for what matters of them (a count)."""

DEVICE_FACTOR = 64
"""How many times as many logits a GPU takes at once as a CPU does."""

MASSES: frozenset[Output] = frozenset({"probabilities", "support_size", "normalizer", "tokens"})
"""Outputs that need the probabilities alone."""


def evaluate(
    logits: Tensor,
    mapping: Mapping,
    *,
    processors: Sequence[Processor] = (),
    outputs: Collection[Output] = DEFAULT_OUTPUTS,
    dtype: torch.dtype | None = None,
    support_limit: int | None = None,
    invalid_rows: InvalidRows = "reject",
    lengths: Sequence[int] | None = None,
    derivatives: Derivatives | None = None,
    draws: Draws | None = None,
    targets: Targets | None = None,
    output_limit: int | None = None,
) -> Evaluation:
    """Maps every row of logits to a distribution.

    A row's answer is the same, bit for bit, whatever other rows stand beside it.

    Args:
        logits: (rows, classes), or (classes,) for one row, of any floating or integer dtype, on
            any device, of any strides; −inf masks a class. Never written to.
        mapping: the mapping and its parameters, each one value or one a row.
        processors: steps the logits take first, in order.
        outputs: what to compute.
        dtype: of the answers, float32 or float64; by default float64 for float64 and integer
            logits, else float32.
        support_limit: at most so many classes a row in `support`; None lists all.
        invalid_rows: "reject" raises InvalidRow for rows without an answer, "report" answers
            the others and says why in `status`.
        lengths: the classes of each row, where shorter rows were padded with −inf.
        derivatives: for the output "jacobian": its form, and the vector of a product.
        draws: for the outputs "tokens" and "token_log_probabilities".
        targets: for the outputs "loss" and "gradient".
        output_limit: the most numbers a Jacobian may hold; None: any.

    Raises:
        InvalidParameter: a parameter does not fit the rows.
        InvalidRow: a row has no answer and `invalid_rows` is "reject".
        OutputTooLarge: the Jacobian would be larger than `output_limit`.
    """
    wanted = Wanted(
        frozenset(outputs),
        dtype or precision(logits),
        support_limit,
        derivatives or Derivatives(),
        draws,
        targets,
        output_limit,
    )
    steps = in_steps(
        logits, mapping, wanted, processors=processors, invalid_rows=invalid_rows, lengths=lengths
    )
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            answer: Evaluation = finished.value
            return answer


def precision(logits: Tensor) -> torch.dtype:
    """The dtype of answers to these logits, unless another is asked for."""
    wide = logits.dtype == torch.float64 or not logits.is_floating_point()
    return torch.float64 if wide else torch.float32


def suitable(mapping: Mapping, outputs: Collection[Output], device: torch.device) -> int:
    """How many logits a device takes best at a time, for a mapping and outputs (a count)."""
    best = mapping.elements_at_once
    if mapping.masses_at_once is not None and MASSES.issuperset(outputs):
        best = mapping.masses_at_once
    return best if device.type == "cpu" else best * DEVICE_FACTOR


def _narrowed(processors: Sequence[Processor], device: torch.device) -> int:
    """How many logits a device takes best at a time on their way to the mapping (a count)."""
    if device.type != "cpu":
        return Processor.elements_at_once * DEVICE_FACTOR
    return min((processor.elements_at_once for processor in processors), default=NARROWED_AT_ONCE)


@torch.inference_mode()
def in_steps(
    logits: Tensor,
    mapping: Mapping,
    wanted: Wanted,
    *,
    processors: Sequence[Processor] = (),
    invalid_rows: InvalidRows = "reject",
    lengths: Sequence[int] | None = None,
    device: torch.device | None = None,
    at_once: int | None = None,
) -> Generator[int, None, Evaluation]:
    """As `evaluate`, some rows at a time: yields how many rows were just answered.

    Args:
        logits: as for `evaluate`.
        mapping: as for `evaluate`.
        wanted: what to compute.
        processors: as for `evaluate`.
        invalid_rows: as for `evaluate`.
        lengths: as for `evaluate`.
        device: where to compute; only the rows of one step are there at a time. The answer is
            where the logits are. None: there too.
        at_once: about how many logits a step takes, one row at least; None: as many as suit the
            mapping and the device.
    """
    logits = torch.atleast_2d(logits)
    if not logits.is_floating_point():
        logits = logits.double()
    rows, classes = logits.shape
    widths = [classes] * rows if lengths is None else list(lengths)
    _check(wanted, mapping, processors, widths, classes)
    if rows == 0:
        return _nothing(wanted, classes, logits.device)
    device = logits.device if device is None else device
    answer = Answer(rows, classes, logits.device, wanted)
    row = mapping.bind(rows, device)
    steps = [(processor, processor.bind(rows, device)) for processor in processors]
    reasons: dict[int, str] = {}
    solved = at_once or suitable(mapping, wanted.outputs, device)
    step = max(1, (at_once or _narrowed(processors, device)) // classes)
    sloped = not wanted.outputs.isdisjoint({"jacobian", "gradient"})
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        chain = Chain(_computable(logits[start:stop].to(device), wanted.dtype), sloped=sloped)
        for processor, bound in steps:
            chain.step(processor, _part(bound, rows, start, stop))
        chain.arrive(mapping, _part(row, rows, start, stop))
        reasons |= {start + place: reason for place, reason in chain.bad.items()}
        if reasons and invalid_rows == "reject":
            raise InvalidRow(reasons)
        for part in chain.parts(solved):
            first = start + part.start
            own = _part(row, rows, first, first + len(part.logits))
            solution = mapping.solve(part.logits, own)
            answer.add(
                Chunk(
                    start=first,
                    given=part.given,
                    temperature=own["temperature"],
                    slope=part.slope,
                    bad=part.bad,
                    solution=solution.among(part.classes),
                    shift_invariant=mapping.shift_invariant,
                )
            )
            yield len(part.logits)
    return answer.finished(reasons)


def _nothing(wanted: Wanted, classes: int, device: torch.device) -> Evaluation:
    """The answer to no rows: any mapping's answer to none of them, so that outputs have shapes."""
    logits = torch.zeros(0, classes, dtype=torch.float64, device=device)
    none = replace(
        wanted,
        derivatives=replace(wanted.derivatives, vector=logits),
        draws=None if wanted.draws is None else Draws(seed=[], samples=wanted.draws.samples),
        targets=Targets(torch.zeros(0, dtype=torch.int64, device=device)),
    )
    answer = Answer(0, classes, device, none)
    temperature = torch.ones_like(logits[:, :1])
    solution = gibbs(logits, Slope(temperature))
    answer.add(Chunk(0, whole(logits), temperature, None, [], solution, shift_invariant=True))
    return answer.finished({})


def _check(
    wanted: Wanted,
    mapping: Mapping,
    processors: Sequence[Processor],
    widths: list[int],
    classes: int,
) -> None:
    """Raises the error of what does not fit rows of these widths."""
    rows = len(widths)
    if 0 in widths:
        message = f"row {widths.index(0)} has no class; give at least 1 logit a row"
        raise InvalidParameter.at(("logits", widths.index(0)), message)
    mapping.check_rows(rows)
    mapping.check_classes(widths)
    for place, processor in enumerate(processors):
        try:
            processor.check_rows(rows)
            processor.check_classes(widths)
        except InvalidParameter as error:
            raise error.inside("processors", place) from None
    if wanted.draws is not None:
        wanted.draws.check_rows(rows)
    elif wanted.outputs & {"tokens", "token_log_probabilities"}:
        raise InvalidParameter.at(("draws",), "tokens need draws: give samples and a seed")
    if wanted.targets is not None:
        wanted.targets.check(widths, classes)
    elif wanted.outputs & {"loss", "gradient"}:
        raise InvalidParameter.at(("targets",), "a loss needs targets: give one a row")
    form, vector = wanted.derivatives.form, wanted.derivatives.vector
    if "jacobian" not in wanted.outputs:
        return
    if form in ("jvp", "vjp") and (vector is None or vector.shape != (rows, classes)):
        message = f"the form {form} needs a vector of {rows} rows × {classes} classes"
        raise InvalidParameter.at(("jacobian", "vector"), message)
    numbers = rows * classes * classes
    if form == "dense" and wanted.output_limit is not None and numbers > wanted.output_limit:
        raise OutputTooLarge.jacobian(numbers, wanted.output_limit, form)


def _computable(logits: Tensor, dtype: torch.dtype) -> Tensor:
    """Float32 or float64, contiguous; the caller's memory itself where it is that already."""
    wide = torch.promote_types(torch.promote_types(logits.dtype, torch.float32), dtype)
    return logits.to(wide).contiguous()


def _part(row: Row, rows: int, start: int, stop: int) -> Row:
    return {
        name: value[start:stop] if value.shape[0] == rows else value for name, value in row.items()
    }
