"""What is asked of the engine, and what it answers."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mappings.evaluate import precision
from mappings.evaluation import Evaluation
from mappings.wanted import Wanted
from schemas.request import Request

NUMBER_BYTES = 8
"""What a number of an answer takes at most (bytes)."""


# Without slots: what is worked out once is kept beside the fields.
@dataclass(frozen=True, eq=False)
class Job:
    """One request, decoded, whatever wire it came by.

    Attributes:
        logits: (rows, classes) on the host, −inf where masked or padded.
        request: what to compute of them.
        lengths: the classes of each row, where shorter rows were padded; None: all the same.
        output_limit: the most numbers a Jacobian may hold; None: any.
    """

    logits: Tensor
    request: Request
    lengths: list[int] | None = None
    output_limit: int | None = None

    @property
    def rows(self) -> int:
        """The rows of logits (a count)."""
        return self.logits.shape[0]

    @property
    def classes(self) -> int:
        """The classes of the longest row (a count)."""
        return self.logits.shape[1]

    @cached_property
    def answer_bytes(self) -> int:
        """The most that the answer will take, as far as the request tells (bytes)."""
        return NUMBER_BYTES * self.request.answer_numbers(self.rows, self.classes)

    @property
    def bytes(self) -> int:
        """What the logits take, and the most that the answer will (bytes)."""
        return self.logits.nbytes + self.answer_bytes

    @cached_property
    def wanted(self) -> Wanted:
        """What to compute."""
        request = self.request
        named = {"float64": torch.float64, "float32": torch.float32}
        return Wanted(
            request.wanted(),
            precision(self.logits) if request.dtype is None else named[request.dtype],
            request.support_limit,
            request.derivatives(),
            request.draws(),
            request.aims(),
            self.output_limit,
        )

    def batch_key(self) -> Hashable:
        """What jobs must agree on to be computed together."""
        request, wanted = self.request, self.wanted
        form, draws, targets = wanted.derivatives.form, wanted.draws, wanted.targets
        # The factors' width is that of the row with the most columns; no row has no batch.
        if self.rows == 0 or ("jacobian" in wanted.outputs and form == "factors"):
            return self
        return (
            self.logits.dtype,
            self.classes,
            request.mapping.batch_key(),
            tuple(processor.batch_key() for processor in request.processors),
            wanted.outputs,
            wanted.dtype,
            wanted.support_limit,
            wanted.output_limit,
            form,
            None if draws is None else draws.batch_key(),
            None if targets is None else (targets.kind, targets.values.ndim, targets.values.dtype),
        )


@dataclass(frozen=True, slots=True)
class Completed:
    """A job's answer, on the host.

    Attributes:
        evaluation: the answer.
        queue_seconds: from submission to the start of the computation that succeeded.
        compute_seconds: of the computation of its batch, transfers included.
    """

    evaluation: Evaluation
    queue_seconds: float
    compute_seconds: float
