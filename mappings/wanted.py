"""What is asked of a batch, beside its mapping."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mappings.evaluation import Output
from mappings.jacobian import Form
from mappings.losses import Targets
from mappings.sampling import Draws


@dataclass(frozen=True, slots=True)
class Derivatives:
    """Which derivatives are asked for.

    Attributes:
        form: how the Jacobian is answered.
        vector: (rows, classes) what "jvp" and "vjp" are taken with.
    """

    form: Form = "dense"
    vector: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a batch is asked, beside its mapping; see `mappings.evaluate.evaluate`."""

    outputs: frozenset[Output]
    dtype: torch.dtype
    support_limit: int | None = None
    derivatives: Derivatives = Derivatives()
    draws: Draws | None = None
    targets: Targets | None = None
    output_limit: int | None = None
