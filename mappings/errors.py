"""The errors of the mathematics: stable codes, no HTTP.

ProbmapError
├── InvalidParameter     a parameter that no row can be computed with
├── InvalidRow           rows of logits that have no answer
├── UnknownName          a mapping or processor that is not registered
├── OutputTooLarge       an answer larger than the caller's limit allows
└── DerivativesTooLarge  derivatives that take too much memory on the way
"""

from dataclasses import dataclass
from typing import ClassVar

MAX_REPORTED = 10
"""Problems listed in one error (a count): an error stays small however bad the input is."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where it is, and what to do about it."""

    loc: tuple[str | int, ...]
    message: str


class ProbmapError(Exception):
    """The base of every error a caller can cause."""

    code: ClassVar[str] = "error"

    def __init__(self, detail: str, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.problems = problems[:MAX_REPORTED]


class InvalidParameter(ProbmapError):
    """A parameter is outside its bounds, or does not fit the rows."""

    code = "invalid_parameter"

    @classmethod
    def at(cls, loc: tuple[str | int, ...], message: str) -> "InvalidParameter":
        """The error of one parameter, found at `loc`."""
        return cls(message, (Problem(loc, message),))

    def inside(self, *outer: str | int) -> "InvalidParameter":
        """The same error, seen from where its parameter lies."""
        problems = tuple(Problem((*outer, *one.loc), one.message) for one in self.problems)
        return InvalidParameter(self.detail, problems)


class InvalidRow(ProbmapError):
    """Rows of logits with no answer: NaN, +inf, nothing unmasked, or undefined for the mapping."""

    code = "invalid_row"

    def __init__(self, reasons: dict[int, str]) -> None:
        first = list(reasons.items())[:MAX_REPORTED]
        shown = tuple(Problem(("logits", row), f"row {row}: {reason}") for row, reason in first)
        more = " (and other rows)" if len(reasons) > 1 else ""
        super().__init__(
            f'{shown[0].message}{more}; mend it or ask for "invalid_rows": "report"', shown
        )
        self.reasons = reasons


class UnknownName(ProbmapError):
    """No mapping or processor has this name."""

    code = "unknown_name"


class OutputTooLarge(ProbmapError):
    """The answer would hold more numbers than the limit allows."""

    code = "output_too_large"

    def __init__(self, detail: str, limit: int) -> None:
        super().__init__(detail)
        self.limit = limit

    @classmethod
    def jacobian(cls, numbers: int, limit: int, form: str) -> "OutputTooLarge":
        """The error of a Jacobian that does not fit."""
        products = 'products ("jvp", "vjp")'
        cure = products if form == "factors" else f'the form "factors", or for {products}'
        message = f"a {form} Jacobian of these rows holds {numbers:,} numbers"
        return cls(f"{message}, above the limit of {limit:,}; ask for {cure}", limit)


class DerivativesTooLarge(ProbmapError):
    """Derivatives that cannot be held while they are computed."""

    code = "derivatives_too_large"
