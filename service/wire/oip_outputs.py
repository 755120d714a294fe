"""The outputs of the Open Inference Protocol: their names, datatypes, shapes and values."""

from collections.abc import Callable, Iterable
from collections.abc import Mapping as Dict
from dataclasses import dataclass

import torch
from torch import Tensor

from mappings.evaluation import Evaluation, Output
from mappings.support import Support
from schemas.errors import unknown_fields
from schemas.request import Request
from service.wire.oip_fields import refuse
from service.wire.oip_message import Message, RequestedOutput

PROBABILITIES = "probabilities"
STATUS = "status"
"""Texts: of each row "ok", or why it has no answer."""


@dataclass(frozen=True, slots=True)
class OutputKind:
    """An output that can be asked for.

    Attributes:
        needs: what is to be evaluated for it.
        datatype: its datatype for FP32 logits.
        shape: its dimensions; −1 where they depend on the request.
        value: takes it out of an evaluation; None where its items are texts.
    """

    needs: Output
    datatype: str
    shape: tuple[int, ...]
    value: Callable[[Evaluation], Tensor | None] | None


def _support(part: Callable[[Support], Tensor]) -> Callable[[Evaluation], Tensor | None]:
    return lambda evaluation: None if evaluation.support is None else part(evaluation.support)


OUTPUT_KINDS = {
    PROBABILITIES: OutputKind("probabilities", "FP32", (-1, -1), lambda one: one.probabilities),
    "log_probabilities": OutputKind(
        "log_probabilities", "FP32", (-1, -1), lambda one: one.log_probabilities
    ),
    "normalizer": OutputKind("normalizer", "FP32", (-1,), lambda one: one.normalizer),
    "entropy": OutputKind("entropy", "FP32", (-1,), lambda one: one.entropy),
    "support_size": OutputKind("support_size", "INT64", (-1,), lambda one: one.support_size),
    "support_offsets": OutputKind("support", "INT64", (-1,), _support(lambda one: one.offsets)),
    "support_indices": OutputKind("support", "INT32", (-1,), _support(lambda one: one.indices)),
    "support_probabilities": OutputKind(
        "support", "FP32", (-1,), _support(lambda one: one.probabilities)
    ),
    "tokens": OutputKind("tokens", "INT64", (-1, -1), lambda one: one.tokens),
    "token_log_probabilities": OutputKind(
        "token_log_probabilities", "FP32", (-1, -1), lambda one: one.token_log_probabilities
    ),
    STATUS: OutputKind("support_size", "BYTES", (-1,), None),
}
"""What can be asked for, by name."""

DRAWN = ("tokens", "token_log_probabilities")
"""Those that only a request for tokens has."""

TEXT_NUMBERS = 4
"""How many numbers a class written as a text is as much work as (a count)."""


def chosen(message: Message, *, is_drawn: bool) -> dict[str, RequestedOutput]:
    """The outputs to answer, by name and in order: those asked for, or the default ones.

    Args:
        message: what was sent.
        is_drawn: whether tokens are among the default ones.

    Raises:
        InvalidRequest: an output is none of the model's.
        MalformedBody: a classification is asked of an output that can have none.
    """
    unknown = [name for name in message.outputs if name not in OUTPUT_KINDS]
    if unknown:
        raise unknown_fields(unknown, tuple(OUTPUT_KINDS), ("outputs",), "the model")
    for name, output in message.outputs.items():
        if output.classes is not None and name != PROBABILITIES:
            refuse(output.loc, f"has a classification, which only {PROBABILITIES} can have")
    defaults = (PROBABILITIES, *DRAWN) if is_drawn else (PROBABILITIES,)
    plain = {name: RequestedOutput((), name, message.is_binary) for name in defaults}
    return message.outputs or plain


def counted_numbers(
    outputs: Dict[str, RequestedOutput], request: Request, rows: int, classes: int
) -> int:
    """The numbers of an answer that its limit counts, as far as the request tells.

    As in the other formats: what is written as text, and in binary what can be larger than the
    logits.
    """
    per_row = 0
    for name, output in outputs.items():
        if output.classes is not None:
            per_row += TEXT_NUMBERS * min(output.classes, classes)
        elif output.is_text and name in (PROBABILITIES, "log_probabilities"):
            per_row += classes
    return request.further_numbers(rows, classes) + rows * per_row


def evaluated(names: Iterable[str]) -> tuple[Output, ...]:
    """What is to be evaluated for some outputs, each once."""
    return tuple(dict.fromkeys(OUTPUT_KINDS[name].needs for name in names))


def value_of(name: str, evaluation: Evaluation) -> Tensor:
    """The tensor of an output that was evaluated."""
    read = OUTPUT_KINDS[name].value
    tensor = None if read is None else read(evaluation)
    return torch.empty(0) if tensor is None else tensor
