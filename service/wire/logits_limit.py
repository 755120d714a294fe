"""How many logits a request may have."""

from service.errors import TooLarge
from service.settings import Settings


def check_logits(rows: int, classes: int, settings: Settings) -> None:
    """Raises TooLarge for more rows, classes or logits than the limits.

    Args:
        rows: of logits (a count).
        classes: of the longest row (a count).
        settings: the limits.
    """
    if rows > settings.max_rows:
        raise TooLarge.over(f"logits has {rows:,} rows", "max_rows", settings.max_rows)
    if classes > settings.max_classes:
        message = f"logits has a row of {classes:,} classes"
        raise TooLarge.over(message, "max_classes", settings.max_classes)
    if rows * classes > settings.max_elements:
        message = f"logits has {rows:,} rows × {classes:,} classes"
        raise TooLarge.over(message, "max_elements", settings.max_elements)
