"""A client of probmap, which turns logits into probabilities: httpx and numpy, and nothing else.

    with Client("http://127.0.0.1:8000") as client:
        result = client.map(logits, "entmax", alpha=1.5, outputs=["probabilities", "support"])

`Client` blocks, `AsyncClient` is for asyncio; both take arrays of numpy, torch, jax … or lists,
and answer with numpy arrays, which travel without becoming text.
"""

from probmap_client.async_client import AsyncClient
from probmap_client.client import Client
from probmap_client.descriptions import (
    MappingDescription,
    ParameterDescription,
    ProcessorDescription,
)
from probmap_client.errors import (
    DeadlineExceeded,
    Disconnected,
    InvalidAnswer,
    InvalidInput,
    Overloaded,
    Problem,
    ProbmapError,
    Refused,
    TimedOut,
    Unauthorized,
)
from probmap_client.requests import LossRequest, MapRequest, Request, SampleRequest
from probmap_client.results import LossResult, MapResult, SampleResult
from probmap_client.retries import Retries
from probmap_client.support import JacobianBlock, JacobianFactors, Support, SupportRow
from probmap_client.tensors import BFloat16

__all__ = [
    "AsyncClient",
    "BFloat16",
    "Client",
    "DeadlineExceeded",
    "Disconnected",
    "InvalidAnswer",
    "InvalidInput",
    "JacobianBlock",
    "JacobianFactors",
    "LossRequest",
    "LossResult",
    "MapRequest",
    "MapResult",
    "MappingDescription",
    "Overloaded",
    "ParameterDescription",
    "Problem",
    "ProbmapError",
    "ProcessorDescription",
    "Refused",
    "Request",
    "Retries",
    "SampleRequest",
    "SampleResult",
    "Support",
    "SupportRow",
    "TimedOut",
    "Unauthorized",
]
