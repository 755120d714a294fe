"""The problem document every error is answered with (RFC 9457)."""

from pydantic import BaseModel, ConfigDict


class ProblemEntry(BaseModel):
    """One thing that is wrong."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    loc: list[str | int]
    """Where in the request: names and places, such as ["mapping", "alpha", 1]."""
    message: str
    """What is wrong and what to do about it."""


class ProblemDocument(BaseModel):
    """Why a request was refused; never holds what was sent."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    type: str
    """A URI that names the kind of problem."""
    title: str
    """The kind of problem in words."""
    status: int
    """The HTTP status."""
    detail: str
    """What is wrong with this request and what to do about it."""
    code: str
    """The kind of problem as a stable word, for programs."""
    error: str
    """The same as detail, where clients of the Open Inference Protocol look for it."""
    request_id: str
    """The request's X-Request-Id, also in the server's log."""
    errors: list[ProblemEntry] = []
    """Each thing that is wrong, the first few of them."""
