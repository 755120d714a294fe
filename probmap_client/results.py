"""What is answered: a result has an array for every output that was asked for."""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from probmap_client.errors import InvalidAnswer
from probmap_client.reply import Reply
from probmap_client.safetensors import read
from probmap_client.support import JacobianBlock, JacobianFactors, Support

VALID = "ok"
"""The status of a row that was answered."""


class MapResult:
    """One distribution a row; an output that was not asked for raises AttributeError.

    A row without an answer is NaN, has an empty support and the tokens −1. Numbers are float64
    where the logits were float64, integers or lists, else float32, unless `dtype` asked.

    Attributes:
        mapping: the mapping that was applied, with its parameters but those of one value a class.
        rows: how many there are (a count).
        classes: in the longest row (a count).
        lengths: (rows,) the classes of each row; None: all have as many. Outputs of rows × classes
            hold no class behind a row's end: 0, in log-probabilities −inf.
        status: of each row "ok", or, where `invalid_rows` is "report", why it has no answer.
        timing: what the server took for each step (seconds), such as "queue" and "compute".
        request_id: what finds the request in the server's log.
        tensors: every array of the answer, by its name on the wire.
        index: in a stream, the place of its request.
    """

    def __init__(
        self,
        tensors: dict[str, NDArray[Any]],
        answer: Mapping[str, Any],
        headers: Mapping[str, str],
        classes: int,
    ) -> None:
        self.tensors = tensors
        self.mapping: dict[str, Any] = answer["mapping"]
        self.rows = int(answer["rows"])
        self.classes = classes
        self.lengths: NDArray[np.int64] | None = tensors.get("lengths")
        self.status: list[str] = answer.get("status") or [VALID] * self.rows
        self.timing = _timing(headers.get("server-timing", ""))
        self.request_id = headers.get("x-request-id", "")
        self.index = 0
        self._answer = answer

    @classmethod
    def read(cls, reply: Reply, classes: int) -> Self:
        """The result in an answer to logits of so many classes.

        Raises:
            InvalidAnswer: there is none in it.
        """
        tensors, texts = read(reply.body)
        try:
            return cls(tensors, json.loads(texts["answer"]), reply.headers, classes)
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidAnswer(f"the answer does not say what it is: {error}") from error

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in self.tensors.items())
        return f"<{type(self).__name__} of {self.mapping.get('name')}: {shapes}>"

    @property
    def probabilities(self) -> NDArray[Any]:
        """(rows, classes); a masked class has exactly 0."""
        return self._per_class("probabilities", 0)

    @property
    def log_probabilities(self) -> NDArray[Any]:
        """(rows, classes) in nats; −inf where the probability is exactly 0."""
        return self._per_class("log_probabilities", -np.inf)

    @property
    def support(self) -> Support:
        """The classes above 0 of each row."""
        names = ("offsets", "indices", "probabilities", "log_probabilities")
        offsets, indices, *numbers = (self._tensor(f"support_{name}", "support") for name in names)
        cut = self.tensors.get("support_truncated"), self.tensors.get("support_mass")
        return Support(offsets, indices, numbers[0], numbers[1], self.classes, *cut)

    @property
    def normalizer(self) -> NDArray[Any]:
        """(rows,) λ(x): a log partition function, or a threshold; NaN where there is none."""
        return self._tensor("normalizer")

    @property
    def entropy(self) -> NDArray[Any]:
        """(rows,) in nats."""
        return self._tensor("entropy")

    @property
    def support_size(self) -> NDArray[np.int64]:
        """(rows,) how many classes are above 0 (a count)."""
        return self._tensor("support_size")

    @property
    def jacobian(self) -> NDArray[Any]:
        """(rows, classes, classes) in the form "dense"; (rows, classes) in "jvp" and "vjp"."""
        found = self._tensor("jacobian")
        return self._per_class("jacobian", 0) if found.ndim == 2 else found

    @property
    def jacobian_factors(self) -> JacobianFactors:
        """The Jacobians in the form "factors"."""
        names = ("diagonal", "left", "right")
        return JacobianFactors(*(self._tensor(f"jacobian_{name}", "jacobian") for name in names))

    @property
    def jacobian_blocks(self) -> list[JacobianBlock]:
        """The Jacobian of each row in the form "support"."""
        indices = self._tensor("jacobian_indices", "jacobian")
        values = self._tensor("jacobian_values", "jacobian")
        offsets = self._tensor("jacobian_offsets", "jacobian").tolist()
        blocks, stop = [], 0
        for first, last in pairwise(offsets):
            start, size = stop, last - first
            stop = start + size * size
            blocks.append(
                JacobianBlock(indices[first:last], values[start:stop].reshape(size, size))
            )
        return blocks

    @property
    def parameter_gradients(self) -> dict[str, NDArray[Any]]:
        """∂p/∂parameter (rows, classes), by the parameter's name."""
        prefix = "parameter_gradients_"
        names = [name.removeprefix(prefix) for name in self.tensors if name.startswith(prefix)]
        if not names:
            self._tensor("parameter_gradients")
        return {name: self._per_class(prefix + name, 0) for name in names}

    def _tensor(self, name: str, output: str = "") -> NDArray[Any]:
        if name not in self.tensors:
            there_are = ", ".join(self.tensors)
            asked = f'ask for "{output or name}" in `outputs`'
            raise AttributeError(f"{name} is not in this answer, which has {there_are}; {asked}")
        return self.tensors[name]

    def _per_class(self, name: str, nothing: float) -> NDArray[Any]:
        """A tensor (rows, classes) that is filled behind the rows' ends."""
        found = self._tensor(name)
        if self.lengths is not None:
            found[np.arange(found.shape[1]) >= self.lengths[:, None]] = nothing
        return found


class SampleResult(MapResult):
    """Tokens a row, and what else was asked for."""

    @property
    def seed(self) -> int | list[int]:
        """What the draws were made from: the request's, or the server's own."""
        found: int | list[int] = self._answer["seed"]
        return found

    @property
    def tokens(self) -> NDArray[np.int64]:
        """(rows, samples) class ids."""
        return self._tensor("tokens")

    @property
    def token_log_probabilities(self) -> NDArray[Any]:
        """(rows, samples) in nats, under the distribution that they are drawn from."""
        return self._tensor("token_log_probabilities")


class LossResult(MapResult):
    """A loss a row with its gradient, and what else was asked for."""

    @property
    def loss(self) -> NDArray[Any]:
        """(rows,) in nats; +inf where the target has no probability."""
        return self._tensor("loss")

    @property
    def gradient(self) -> NDArray[Any]:
        """(rows, classes) ∂loss/∂logits."""
        return self._per_class("gradient", 0)


def _timing(header: str) -> dict[str, float]:
    """The seconds of each step that a Server-Timing header tells in milliseconds."""
    found = {}
    for step in header.split(","):
        name, _, milliseconds = step.strip().partition(";dur=")
        if milliseconds:
            found[name] = float(milliseconds) / 1000
    return found
