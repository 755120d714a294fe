"""What is wrong with a request, in words a client can act on."""

import difflib
from collections.abc import Sequence

from pydantic import ValidationError

from mappings.errors import MAX_REPORTED, Problem, ProbmapError

MAX_NAME = 64
"""Characters of a caller's own name that an error repeats (a count)."""

Loc = tuple[str | int, ...]

_UNION_TAGS = {"one", "rows"}


class InvalidRequest(ProbmapError):
    """A well-formed request that asks for something that cannot be."""

    code = "invalid_request"

    @classmethod
    def of(cls, problems: Sequence[Problem], total: int) -> "InvalidRequest":
        """The error of the first problems of `total`; its detail is the first of them."""
        more = f" (and {total - 1} more)" if total > 1 else ""
        return cls(problems[0].message + more, tuple(problems))

    @classmethod
    def at(cls, loc: Loc, message: str) -> "InvalidRequest":
        """The error of one problem."""
        return cls.of([Problem(loc, message)], 1)


def invalid(error: ValidationError, prefix: Loc = ()) -> InvalidRequest:
    """The error of what pydantic found, without the input it found it in."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    problems = []
    for entry in found[:MAX_REPORTED]:
        loc = entry["loc"]
        # A field of one value or one a row is a union; its tags are ours, not the client's.
        loc = (*prefix, *loc[:1], *(part for part in loc[1:2] if part not in _UNION_TAGS), *loc[2:])
        problems.append(Problem(loc, _message(loc, entry["type"], entry["msg"])))
    return InvalidRequest.of(problems, len(found))


def unknown_fields(
    names: Sequence[str], choices: Sequence[str], loc: Loc, about: str
) -> InvalidRequest:
    """The error of names that nothing has, with what is known and what may have been meant."""
    problems = []
    for name in names[:MAX_REPORTED]:
        near = difflib.get_close_matches(name[:MAX_NAME], choices, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        message = f"unknown field {shortened(name)}; {meant}{about} takes {', '.join(choices)}"
        problems.append(Problem((*loc, name[:MAX_NAME]), message))
    return InvalidRequest.of(problems, len(names))


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
    if kind == "model_type":
        return f"{path(loc)} should be an object"
    words = text.removeprefix("Value error, ").replace(" after validation", "")
    for start in ("Input should ", "List should ", "Value should "):
        if words.startswith(start):
            return f"{path(loc)} should {words.removeprefix(start)}"
    return f"{path(loc)}: {words}"
