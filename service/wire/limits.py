"""How many logits a request may have, and how many numbers its answer."""

from schemas.request import Request
from service.errors import TooLarge
from service.settings import Settings


def check_logits(rows: int, classes: int, settings: Settings) -> None:
    """Refuses more logits than the limits.

    Args:
        rows: of logits (a count).
        classes: of the longest row (a count).
        settings: the limits.

    Raises:
        TooLarge: there are more rows, classes or logits.
    """
    if rows > settings.max_rows:
        raise TooLarge.over(f"logits has {rows:,} rows", "max_rows", settings.max_rows)
    if classes > settings.max_classes:
        message = f"logits has a row of {classes:,} classes"
        raise TooLarge.over(message, "max_classes", settings.max_classes)
    if rows * classes > settings.max_elements:
        message = f"logits has {rows:,} rows × {classes:,} classes"
        raise TooLarge.over(message, "max_elements", settings.max_elements)


def check_answer(
    request: Request, rows: int, classes: int, settings: Settings, *, is_text: bool
) -> None:
    """Refuses a request whose answer is known beforehand to be too large.

    In text every number counts. In binary, outputs of one number a logit cost about what the
    logits do, whose limits bound them: only what can be larger counts.

    Args:
        request: what is asked.
        rows: of logits (a count).
        classes: of the longest row (a count).
        settings: the limits.
        is_text: whether numbers are answered as text.

    Raises:
        TooLarge: the answer would hold more numbers than the limit.
    """
    counted = request.dense_numbers if is_text else request.further_numbers
    check_numbers(counted(rows, classes), request, settings)


def check_numbers(numbers: int, request: Request, settings: Settings) -> None:
    """Refuses an answer of so many numbers, when they are too many.

    Raises:
        TooLarge: they are more than the limit; says what to ask for instead.
    """
    limit = settings.max_output_elements
    if numbers > limit:
        message = f"the answer would hold {numbers:,} numbers; {_smaller(request)}"
        raise TooLarge.over(message, "max_output_elements", limit)


def _smaller(request: Request) -> str:
    """What to ask for when the answer to a request is too large."""
    if "jacobian" in request.wanted() and request.derivatives().form == "dense":
        return 'ask for the Jacobian as "factors", or for products with it ("jvp", "vjp")'
    if request.draws() is not None:
        return "ask for fewer samples, fewer outputs or fewer rows"
    return 'ask for "support" with a support_limit, for fewer outputs or for fewer rows'
