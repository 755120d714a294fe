"""Methods that take what a request takes: each signature is written once."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def takes_what(make: Callable[..., Any]) -> Callable[[F], F]:
    """Gives a method the name, the signature and the words of the request it makes."""

    def dressed(method: F) -> F:
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        signature = inspect.signature(make)
        whole = [own, *signature.parameters.values()]
        vars(method)["__signature__"] = signature.replace(
            parameters=whole, return_annotation=inspect.Signature.empty
        )
        method.__doc__ = make.__doc__
        return method

    return dressed
