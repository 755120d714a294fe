"""The JSON answers, as the documentation shows them."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class SupportRow(BaseModel):
    """The classes of one row with a probability above 0, most probable first."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    indices: list[int]
    """Class ids by descending probability, ties by lower id."""
    probabilities: list[float]
    """The probability of each."""
    log_probabilities: list[float]
    """Its logarithm (nats), computed without rounding through the probability."""
    truncated: bool | None = None
    """Present and true where support_limit left classes out."""
    mass: float | None = None
    """With truncated: the probability of the classes listed."""


class MapAnswer(BaseModel):
    """One distribution a row; rows without an answer are null in every output."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    mapping: dict[str, Any]
    """The mapping that was applied, with all its parameters but per-class ones."""
    rows: int
    """The rows answered."""
    status: list[str] | None = None
    """With "invalid_rows": "report": "ok", or why the row has no answer."""
    probabilities: list[list[float] | None] | None = None
    """rows × classes; a masked class has 0."""
    log_probabilities: list[list[float | None] | None] | None = None
    """rows × classes (nats); null where the probability is 0."""
    support: list[SupportRow | None] | None = None
    """The classes above 0 of each row."""
    normalizer: list[float | None] | None = None
    """λ(x) of each row; null where the mapping has none."""
    entropy: list[float | None] | None = None
    """Of each row (nats)."""
    support_size: list[int | None] | None = None
    """The classes above 0 of each row (a count)."""
    jacobian: list[Any] | dict[str, Any] | None = None
    """dense: rows × n × n; support: indices and values a row; factors: diagonal (rows × n), left
    and right (rows × n × rank) of diag(d) − L Rᵀ; jvp and vjp: rows × n."""
    parameter_gradients: dict[str, list[list[float | None] | None]] | None = None
    """∂p/∂parameter, rows × n, by the parameter's name."""


class SampleAnswer(MapAnswer):
    """Tokens a row, and what else was asked for."""

    seed: int | list[int]
    """What the draws were made from: the request's, or the server's own."""
    tokens: list[list[int] | None] | None = None
    """rows × samples class ids."""
    token_log_probabilities: list[list[float] | None] | None = None
    """rows × samples (nats), under the returned distribution."""


class LossAnswer(MapAnswer):
    """A loss a row with its gradient, and what else was asked for."""

    loss: list[float | None] | None = None
    """Of each row (nats); null where it is infinite, as the target has no probability."""
    gradient: list[list[float | None] | None] | None = None
    """∂loss/∂x, rows × classes."""
