"""How large an answer may be, and how to ask for less."""

from schemas.request import Request
from service.errors import TooLarge
from service.settings import Settings


def check_output(elements: int, settings: Settings, cure: str) -> None:
    """Raises TooLarge, which says what to ask for instead, for more numbers than the limit."""
    limit = settings.max_output_elements
    if elements > limit:
        raise TooLarge.over(
            f"the answer would hold {elements:,} numbers; {cure}", "max_output_elements", limit
        )


def smaller(request: Request) -> str:
    """What to ask for when the answer to a request is too large."""
    if "jacobian" in request.wanted() and request.derivatives().form == "dense":
        return 'ask for the Jacobian as "factors", or for products with it ("jvp", "vjp")'
    if request.draws() is not None:
        return "ask for fewer samples, fewer outputs or fewer rows"
    return 'ask for "support" with a support_limit, for fewer outputs or for fewer rows'
