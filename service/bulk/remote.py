"""Jobs as requests of the client, and its results as evaluations."""

from typing import Any

import torch
from torch import Tensor

import probmap_client
from mappings.errors import Problem, ProbmapError
from mappings.evaluation import OUTPUTS, Evaluation, JacobianAnswer
from mappings.parameters import Parameters
from mappings.support import Support
from schemas.request import LossRequest, SampleRequest
from service.engine.job import Job
from service.errors import STATUS, Internal

GRADIENTS = "parameter_gradients_"
"""Begins the names of the tensors of derivatives by a parameter."""


class Refusal(ProbmapError):
    """A server's error, as one of our own."""

    def __init__(self, refused: probmap_client.Refused) -> None:
        problems = tuple(Problem(one.loc, one.message) for one in refused.problems)
        super().__init__(refused.detail, problems)
        known = refused.code in STATUS
        self.code = refused.code if known else Internal.code  # type: ignore[misc]


def request_of(job: Job) -> probmap_client.Request[Any]:
    """The request of a job, whose rows are told apart when they are answered."""
    request = job.request
    fields: dict[str, Any] = {
        "processors": [_fields(processor) for processor in request.processors],
        "outputs": list(request.outputs),
        "support_limit": request.support_limit,
        # So that both faces of this command say the same of a row that has no answer.
        "invalid_rows": "report",
        "dtype": "float64" if job.wanted.dtype == torch.float64 else "float32",
    }
    if request.jacobian is not None:
        asked = {"form": request.jacobian.form, "vector": request.jacobian.vector}
        fields["jacobian"] = {name: value for name, value in asked.items() if value is not None}
    mapping = _fields(request.mapping)
    # Where rows differ in length they are filled with masks, which are answered the same.
    if isinstance(request, SampleRequest):
        draws = {name: getattr(request, name) for name in ("samples", "seed", "replacement")}
        return probmap_client.SampleRequest(job.logits, mapping, **draws, **fields)
    if isinstance(request, LossRequest):
        kind = request.kind
        return probmap_client.LossRequest(job.logits, mapping, request.targets, kind=kind, **fields)
    return probmap_client.MapRequest(job.logits, mapping, **fields)


def _fields(parameters: Parameters) -> dict[str, Any]:
    """The parameters that are given; weights behind a row's end as 0, as anything will do there."""
    given = parameters.model_dump(exclude_none=True)
    return {
        name: value.clamp(min=0) if isinstance(value, Tensor) else value
        for name, value in given.items()
    }


def evaluation_of(result: probmap_client.MapResult) -> Evaluation:
    """The evaluation that a result tells."""
    tensors = {name: torch.from_numpy(array) for name, array in result.tensors.items()}
    named: dict[str, Any] = {
        name: tensors[name] for name in OUTPUTS if name in tensors and name != "jacobian"
    }
    slopes = {
        name.removeprefix(GRADIENTS): value
        for name, value in tensors.items()
        if name.startswith(GRADIENTS)
    }
    if slopes:
        named["parameter_gradients"] = slopes
    if "support_offsets" in tensors:
        named["support"] = _support(tensors)
    if any(name.startswith("jacobian") for name in tensors):
        named["jacobian"] = _jacobian(tensors, result)
    return Evaluation(status=result.status, **named)


def _support(tensors: dict[str, Tensor]) -> Support:
    offsets = tensors["support_offsets"]
    counts = offsets.diff()
    cut = tensors.get("support_truncated")
    mass = tensors.get("support_mass")
    return Support(
        offsets,
        tensors["support_indices"],
        tensors["support_probabilities"],
        tensors["support_log_probabilities"],
        # Of a support that was cut only that is known: it is larger.
        counts if cut is None else counts + cut,
        torch.ones(len(counts), dtype=torch.float64) if mass is None else mass,
    )


def _jacobian(tensors: dict[str, Tensor], result: probmap_client.MapResult) -> JacobianAnswer:
    if "jacobian_offsets" in tensors:
        blocks = result.jacobian_blocks
        return JacobianAnswer(
            "support",
            blocks=[torch.from_numpy(block.values) for block in blocks],
            indices=[torch.from_numpy(block.indices) for block in blocks],
        )
    if "jacobian" in tensors:
        whole = tensors["jacobian"]
        if whole.ndim == 3:
            return JacobianAnswer("dense", matrix=whole)
        return JacobianAnswer("vjp", product=whole)
    diagonal, left, right = (tensors[f"jacobian_{name}"] for name in ("diagonal", "left", "right"))
    return JacobianAnswer("factors", diagonal=diagonal, left=left, right=right)
