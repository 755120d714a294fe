"""What is asked of the engine, and what it answers."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mappings.evaluation import Evaluation
from schemas.request import Request


@dataclass(frozen=True, slots=True)
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

    @property
    def dtype(self) -> torch.dtype | None:
        """The precision asked for; None: that of the logits."""
        names = {"float64": torch.float64, "float32": torch.float32}
        return None if self.request.dtype is None else names[self.request.dtype]


@dataclass(frozen=True, slots=True)
class Completed:
    """A job's answer, on the host.

    Attributes:
        evaluation: the answer.
        queue_seconds: from submission to the start of the computation.
        compute_seconds: of the computation, transfers to and from the device included.
    """

    evaluation: Evaluation
    queue_seconds: float
    compute_seconds: float
