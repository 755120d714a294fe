"""What can be asked: requests, each of which knows how to read its answer."""

# So that help() names a type as it is written here, and does not spell out its union.
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from probmap_client.errors import InvalidAnswer, InvalidInput
from probmap_client.fields import in_json, in_tensors
from probmap_client.reply import Reply
from probmap_client.results import LossResult, MapResult, SampleResult
from probmap_client.rows import RaggedRows, logits_of
from probmap_client.safetensors import MEDIA_TYPE
from probmap_client.tensors import Numbers

R_co = TypeVar("R_co", bound=MapResult, covariant=True)

Named: TypeAlias = str | Mapping[str, Any]
"""A mapping or a processor: its name, or an object with its name and parameters."""

Dtype: TypeAlias = Literal["float64", "float32"]
InvalidRows: TypeAlias = Literal["reject", "report"]


class Request(Generic[R_co]):
    """A request that is ready to be sent, and can be sent again.

    Attributes:
        path: where to, such as /v1/map.
        media_type: of the body.
        body: its bytes.
        classes: in the longest row (a count).
        timeout: the time for its answer (seconds); None: the client's.
    """

    method = "POST"
    accept = MEDIA_TYPE

    def __init__(
        self,
        path: str,
        kind: type[R_co],
        logits: Numbers,
        timeout: float | None,
        fields: dict[str, Any],
    ) -> None:
        found = logits_of(logits)
        self.media_type: str | None
        if isinstance(found, RaggedRows):
            self.media_type, self.body = in_json(found, fields)
            self.classes = max(map(len, found.rows))
        else:
            self.media_type, self.body = in_tensors(found, fields)
            self.classes = found.array.shape[-1] if found.array.ndim else 0
        self.path = path
        self.timeout = timeout
        self._kind = kind

    def read(self, reply: Reply) -> R_co:
        """The result that an answer holds.

        Raises:
            InvalidAnswer: it is none.
        """
        found = reply.headers.get("content-type", "")
        if found.partition(";")[0].strip().lower() != MEDIA_TYPE:
            raise InvalidAnswer(f"the answer is {found or 'of no media type'}, not {MEDIA_TYPE}")
        return self._kind.read(reply, self.classes)


class MapRequest(Request[MapResult]):
    """Every row of logits, mapped to a probability distribution.

    Args:
        logits: (rows, classes) or one row (classes,), an array of numpy, torch, jax … or lists;
            −inf, and None in lists, masks a class. Rows of lists may differ in length.
        mapping: its name, such as "entmax", or an object with its name and parameters.
        processors: steps that the logits take first, as names or objects.
        outputs: what to answer; the probabilities unless it says otherwise.
        support_limit: at most so many classes a row in `support`, the most probable first.
        jacobian: the form of the derivatives: "dense", "support", "factors", or an object
            {"form": "jvp" or "vjp", "vector": (rows, classes)}.
        invalid_rows: whether a row without an answer refuses all, or is told in `status`.
        dtype: of the answer; by default float64 for float64, integers and lists, else float32.
        timeout: the time for the answer, all tries together (seconds); None: the client's.
        parameters: of the mapping: one value, or one a row, as a list or an array.
    """

    def __init__(
        self,
        logits: Numbers,
        mapping: Named,
        *,
        processors: Sequence[Named] | None = None,
        outputs: Sequence[str] | None = None,
        support_limit: int | None = None,
        jacobian: str | Mapping[str, Any] | None = None,
        invalid_rows: InvalidRows | None = None,
        dtype: Dtype | None = None,
        timeout: float | None = None,
        **parameters: Any,
    ) -> None:
        fields = _fields(
            mapping,
            parameters,
            processors=processors,
            outputs=outputs,
            support_limit=support_limit,
            jacobian=jacobian,
            invalid_rows=invalid_rows,
            dtype=dtype,
        )
        super().__init__("/v1/map", MapResult, logits, timeout, fields)


class SampleRequest(Request[SampleResult]):
    """Tokens drawn from the distribution of every row, reproducibly from a seed.

    A parameter of the mapping that is also named here, such as the seed of gumbel_softmax, goes
    into the mapping's object: {"name": "gumbel_softmax", "seed": 7}.

    Args:
        logits: as MapRequest takes them; so are the arguments not listed here.
        mapping: its name, or an object with its name and parameters.
        samples: how many tokens to draw from each row (a count).
        seed: what they are drawn from, one for all rows or one a row; the server draws one when
            there is none, and the result tells it.
        replacement: whether a class can be drawn again.
        processors: steps that the logits take first.
        outputs: what to answer; the tokens and their log-probabilities unless it says otherwise.
        support_limit: at most so many classes a row in `support`.
        jacobian: the form of the derivatives.
        invalid_rows: whether a row without an answer refuses all, or is told in `status`.
        dtype: of the answer.
        timeout: the time for the answer, all tries together (seconds); None: the client's.
        parameters: of the mapping: one value, or one a row, as a list or an array.
    """

    def __init__(
        self,
        logits: Numbers,
        mapping: Named,
        *,
        samples: int = 1,
        seed: int | Numbers | None = None,
        replacement: bool = True,
        processors: Sequence[Named] | None = None,
        outputs: Sequence[str] | None = None,
        support_limit: int | None = None,
        jacobian: str | Mapping[str, Any] | None = None,
        invalid_rows: InvalidRows | None = None,
        dtype: Dtype | None = None,
        timeout: float | None = None,
        **parameters: Any,
    ) -> None:
        fields = _fields(
            mapping,
            parameters,
            processors=processors,
            outputs=outputs,
            support_limit=support_limit,
            jacobian=jacobian,
            invalid_rows=invalid_rows,
            dtype=dtype,
            samples=samples,
            seed=seed,
            replacement=replacement,
        )
        super().__init__("/v1/sample", SampleResult, logits, timeout, fields)


class LossRequest(Request[LossResult]):
    """The loss of every row against its target, with its gradient.

    Args:
        logits: as MapRequest takes them; so are the arguments not listed here.
        mapping: its name, or an object with its name and parameters.
        targets: class ids (rows,) as integers, or distributions (rows, classes).
        kind: "natural", the mapping's own loss; "accuracy"; or "stop_gradient".
        processors: steps that the logits take first.
        outputs: what to answer; the loss and its gradient unless it says otherwise.
        support_limit: at most so many classes a row in `support`.
        jacobian: the form of the derivatives.
        invalid_rows: whether a row without an answer refuses all, or is told in `status`.
        dtype: of the answer.
        timeout: the time for the answer, all tries together (seconds); None: the client's.
        parameters: of the mapping: one value, or one a row, as a list or an array.
    """

    def __init__(
        self,
        logits: Numbers,
        mapping: Named,
        targets: Numbers,
        *,
        kind: Literal["natural", "accuracy", "stop_gradient"] = "natural",
        processors: Sequence[Named] | None = None,
        outputs: Sequence[str] | None = None,
        support_limit: int | None = None,
        jacobian: str | Mapping[str, Any] | None = None,
        invalid_rows: InvalidRows | None = None,
        dtype: Dtype | None = None,
        timeout: float | None = None,
        **parameters: Any,
    ) -> None:
        fields = _fields(
            mapping,
            parameters,
            processors=processors,
            outputs=outputs,
            support_limit=support_limit,
            jacobian=jacobian,
            invalid_rows=invalid_rows,
            dtype=dtype,
            targets=targets,
            kind=kind,
        )
        super().__init__("/v1/loss", LossResult, logits, timeout, fields)


def _fields(mapping: Named, parameters: dict[str, Any], **named: Any) -> dict[str, Any]:
    """The fields of a request that are given, with the parameters in the mapping's object."""
    jacobian = named["jacobian"]
    if isinstance(jacobian, str):
        named["jacobian"] = {"form": jacobian}
    given = {name: value for name, value in named.items() if value is not None}
    whole = {"name": mapping} if isinstance(mapping, str) else dict(mapping)
    twice = whole.keys() & parameters.keys()
    if twice:
        raise InvalidInput(f"{', '.join(sorted(twice))} is given twice; give it once")
    return {"mapping": {**whole, **parameters}, **given}
