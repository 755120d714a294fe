"""How large an answer may be, and how to ask for less."""

from schemas.request import Request
from service.errors import TooLarge
from service.settings import Settings


def answer_numbers(request: Request, rows: int, classes: int) -> int:
    """How many numbers the dense outputs of an answer hold, as far as the request tells."""
    wanted, jacobian = request.wanted(), request.derivatives()
    wide = {"probabilities", "log_probabilities", "gradient"} & wanted
    per_row = classes * len(wide)
    if "parameter_gradients" in wanted:
        per_row += 2 * classes
    if "jacobian" in wanted:
        per_row += classes * (classes if jacobian.form == "dense" else 1)
    draws = request.draws()
    if draws is not None:
        per_row += 2 * draws.samples
    return rows * per_row


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
