"""What is wrong with a request, in words a client can act on."""

from collections.abc import Iterable

from pydantic import BaseModel, ValidationError

from mappings.base import Parameters
from mappings.errors import MAX_REPORTED, Problem, ProbmapError

MAX_NAME = 64
"""Characters of a caller's own name that an error repeats (a count)."""

Loc = tuple[str | int, ...]

_UNION_TAGS = {"one", "rows"}


class InvalidRequest(ProbmapError):
    """A well-formed request that asks for something that cannot be."""

    code = "invalid_request"

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> "InvalidRequest":
        """The error of one or more problems; its detail is the first, and how many more."""
        listed = tuple(problems)
        more = f" (and {len(listed) - 1} more)" if len(listed) > 1 else ""
        return cls(listed[0].message + more, listed)

    @classmethod
    def at(cls, loc: Loc, message: str) -> "InvalidRequest":
        """The error of one problem."""
        return cls.of([Problem(loc, message)])


def problems_of(error: ValidationError, model: type[BaseModel], prefix: Loc = ()) -> list[Problem]:
    """The problems pydantic found in `model`, without the input it found them in.

    Only the first few are kept, so that an error stays small however much is wrong.
    """
    per_row = model.per_row_fields() if issubclass(model, Parameters) else ()
    found = error.errors(include_url=False, include_context=False, include_input=False)
    problems = []
    for entry in found[:MAX_REPORTED]:
        loc = entry["loc"]
        if len(loc) > 1 and loc[0] in per_row and loc[1] in _UNION_TAGS:
            loc = (loc[0], *loc[2:])
        loc = (*prefix, *loc)
        problems.append(Problem(loc, _message(loc, entry["type"], entry["msg"])))
    return problems


def path(loc: Loc) -> str:
    """A location as a reader writes it: mapping.alpha[1]."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return text.removeprefix(".")


def shortened(name: str) -> str:
    """A caller's own name, quoted and of bounded length."""
    return repr(name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…")


def _message(loc: Loc, kind: str, text: str) -> str:
    if kind == "missing":
        return f"{path(loc)} is missing; it has no default"
    words = text.removeprefix("Value error, ")
    for start in ("Input should ", "List should ", "Value should "):
        if words.startswith(start):
            return f"{path(loc)} should {words.removeprefix(start)}"
    return f"{path(loc)}: {words}"
