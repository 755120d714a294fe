"""The outputs of a batch being filled, chunk by chunk."""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import pad

from mappings.compact import Kept, put, spread
from mappings.errors import OutputTooLarge
from mappings.evaluation import VALID, Evaluation, JacobianAnswer, Output
from mappings.gibbs import inverse
from mappings.jacobian import Form
from mappings.losses import loss
from mappings.rows import maximum, row_sum
from mappings.solution import Solution
from mappings.support import Support, joined_supports, supports
from mappings.wanted import Wanted

LOGARITHMIC: frozenset[Output] = frozenset(
    {"log_probabilities", "entropy", "support", "token_log_probabilities"}
)
"""Outputs that need the log-probabilities."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of the batch, solved.

    Attributes:
        start: the first row's place in the batch.
        given: the logits that the mapping was given.
        temperature: (rows, 1) of the mapping.
        slope: how those logits move with the caller's; None: by as much.
        bad: places of rows without an answer.
        solution: what the mapping said.
        shift_invariant: whether the mapping is.
    """

    start: int
    given: Kept
    temperature: Tensor
    slope: Tensor | None
    bad: list[int]
    solution: Solution
    shift_invariant: bool

    def whole(self, classes: int) -> Tensor:
        """The logits of all classes, (rows, classes), −inf where masked."""
        return spread(self.given.values, self.given.classes, classes, -torch.inf)


@dataclass(slots=True)
class Answer:
    """Collects the outputs of chunks that follow each other, on a device of its own."""

    rows: int
    classes: int
    device: torch.device
    wanted: Wanted
    outputs: dict[str, Tensor] = field(default_factory=dict)
    supports: list[Support] = field(default_factory=list)
    blocks: list[Tensor] = field(default_factory=list)

    def add(self, chunk: Chunk) -> None:
        """Writes the outputs of some rows."""
        asked, solution = self.wanted.outputs, chunk.solution
        masses = solution.probabilities.to(self.wanted.dtype)
        if chunk.bad:
            masses = masses.clone()
            masses[chunk.bad] = 0
        if "probabilities" in asked:
            is_all = solution.classes is None and len(masses) == self.rows
            if is_all and not chunk.bad and masses.device == self.device:
                self.outputs["probabilities"] = masses
            else:
                self._put("probabilities", chunk, masses, solution.classes)
        if "support_size" in asked:
            self._put("support_size", chunk, (masses > 0).sum(-1))
        if "normalizer" in asked:
            given = solution.normalizer
            self._put("normalizer", chunk, masses[:, 0] * torch.nan if given is None else given)
        places = None
        if asked & {"tokens", "token_log_probabilities"}:
            places = self._drawn(chunk, masses)
            tokens = places if solution.classes is None else solution.classes.gather(-1, places)
            self._put("tokens", chunk, tokens)
        if asked & LOGARITHMIC or self._by_support():
            self._add_logarithms(chunk, masses, solution.log_probabilities(), places)
        if asked & {"loss", "gradient"}:
            self._add_loss(chunk)
        if "jacobian" in asked:
            self._add_jacobian(chunk)
        if "parameter_gradients" in asked:
            self._add_parameter_gradients(chunk)

    def _add_logarithms(
        self, chunk: Chunk, masses: Tensor, logs: Tensor, places: Tensor | None
    ) -> None:
        asked, solution = self.wanted.outputs, chunk.solution
        if "log_probabilities" in asked:
            self._put("log_probabilities", chunk, logs, solution.classes, empty=-torch.inf)
        if "entropy" in asked:
            held = solution.probabilities
            terms = torch.where(held > 0, held * logs, 0)
            self._put("entropy", chunk, 0 - row_sum(terms).squeeze(-1))
        if "support" in asked or self._by_support():
            limit = self.wanted.support_limit
            listed = supports(masses, logs, solution.classes, limit)
            self.supports.append(listed.to(self.device))
        if places is not None:
            self._put("token_log_probabilities", chunk, logs.gather(-1, places))

    def _drawn(self, chunk: Chunk, masses: Tensor) -> Tensor:
        draws = self.wanted.draws
        assert draws is not None
        rows = masses.shape[0]
        row = draws.take(chunk.start, chunk.start + rows).bind(rows, masses.device)
        logs, classes = chunk.solution.log_probabilities, chunk.solution.classes
        return draws.draw(masses, logs, classes, row, chunk.start, chunk.bad)

    def _add_loss(self, chunk: Chunk) -> None:
        targets = self.wanted.targets
        assert targets is not None
        logits = chunk.whole(self.classes)
        stop = chunk.start + logits.shape[0]
        target = targets.rows(chunk.start, stop, self.classes).to(logits.device)
        found = loss(chunk.solution, logits, chunk.temperature, target, targets.kind)
        if "loss" in self.wanted.outputs:
            self._put("loss", chunk, found.value.squeeze(-1))
        if "gradient" in self.wanted.outputs:
            gradient = found.gradient()
            self._put(
                "gradient", chunk, gradient if chunk.slope is None else gradient * chunk.slope
            )

    def _by_support(self) -> bool:
        return "jacobian" in self.wanted.outputs and self.wanted.derivatives.form == "support"

    def _add_jacobian(self, chunk: Chunk) -> None:
        jacobian = chunk.solution.jacobian()
        if chunk.slope is not None:
            jacobian = jacobian.chained(chunk.slope)
        form, vector = self.wanted.derivatives.form, self.wanted.derivatives.vector
        if form == "support":
            listed = self.supports[-1]
            self._within(int((listed.offsets.diff() ** 2).sum()), form)
            blocks = jacobian.restricted(listed)
            self.blocks += [block.to(self.device, self.wanted.dtype) for block in blocks]
        elif form == "dense":
            self._put("matrix", chunk, jacobian.dense(self.classes))
        elif form == "factors":
            rank = jacobian.left.shape[1]
            self._within(self.rows * self.classes * (1 + 2 * rank), form)
            self._put("diagonal", chunk, jacobian.diagonal, jacobian.classes)
            for name, columns in (("left", jacobian.left), ("right", jacobian.right)):
                placed = [spread(c, jacobian.classes, self.classes, 0.0) for c in columns.unbind(1)]
                self._put_ranked(name, chunk, torch.stack(placed, dim=-1))
        else:
            assert vector is not None
            piece = vector[chunk.start : chunk.start + len(chunk.given.values)]
            moved = piece.to(chunk.given.values.device, torch.float64)
            product = jacobian.jvp if form == "jvp" else jacobian.vjp
            self._put("product", chunk, product(moved), jacobian.classes)

    def _add_parameter_gradients(self, chunk: Chunk) -> None:
        solution = chunk.solution
        for name, gradient in solution.gradients.items():
            self._put(f"d {name}", chunk, gradient(), solution.classes)
        if "temperature" in solution.gradients:
            return
        logits = chunk.whole(self.classes).double()
        centred = logits - maximum(logits) if chunk.shift_invariant else logits
        moves = torch.where(logits == -torch.inf, 0, -centred * inverse(chunk.temperature))
        jacobian = solution.jacobian()
        self._put("d temperature", chunk, jacobian.jvp(moves), jacobian.classes)

    def _within(self, numbers: int, form: Form) -> None:
        limit = self.wanted.output_limit
        if limit is not None and numbers > limit:
            raise OutputTooLarge.jacobian(numbers, limit, form)

    def _put(
        self,
        name: str,
        chunk: Chunk,
        values: Tensor,
        classes: Tensor | None = None,
        empty: float = 0.0,
    ) -> None:
        """Writes the rows of one output; kept values go to their classes' places."""
        shape = (self.classes,) if classes is not None else values.shape[1:]
        whole = values.dtype == torch.int64
        if name not in self.outputs:
            dtype = torch.int64 if whole else self.wanted.dtype
            self.outputs[name] = torch.empty((self.rows, *shape), dtype=dtype, device=self.device)
        place = self.outputs[name][chunk.start : chunk.start + values.shape[0]]
        out = (
            place if values.device == self.device else torch.empty_like(place, device=values.device)
        )
        if classes is None:
            out.copy_(values)
        else:
            put(out.fill_(empty), values, classes)
        if chunk.bad:
            out[chunk.bad] = (-1 if name == "tokens" else 0) if whole else torch.nan
        if out is not place:
            place.copy_(out)

    def _put_ranked(self, name: str, chunk: Chunk, values: Tensor) -> None:
        """Writes factors, widening what is there when these have more columns."""
        known = self.outputs.get(name)
        rank = values.shape[-1] if known is None else max(known.shape[-1], values.shape[-1])
        if known is not None and known.shape[-1] < rank:
            self.outputs[name] = pad(known, (0, rank - known.shape[-1]))
        self._put(name, chunk, pad(values, (0, rank - values.shape[-1])))

    def finished(self, reasons: dict[int, str]) -> Evaluation:
        """The Evaluation of all that was added; `reasons` says why rows have none."""
        found, asked = self.outputs, self.wanted.outputs
        listed = joined_supports(self.supports) if self.supports or "support" in asked else None
        jacobian = None
        if "jacobian" in asked:
            names = ("matrix", "product", "diagonal", "left", "right")
            by_row = self._by_support() and listed is not None
            jacobian = JacobianAnswer(
                self.wanted.derivatives.form,
                **{name: found[name] for name in names if name in found},
                blocks=self.blocks if by_row else None,
                indices=listed.lists() if by_row and listed is not None else None,
            )
        slopes = {name[2:]: value for name, value in found.items() if name.startswith("d ")}
        return Evaluation(
            status=[reasons.get(row, VALID) for row in range(self.rows)],
            support=listed if "support" in asked else None,
            jacobian=jacobian,
            parameter_gradients=slopes if "parameter_gradients" in asked else None,
            **{name: value for name, value in found.items() if name in asked},
        )
