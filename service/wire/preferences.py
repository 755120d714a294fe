"""What a client prefers: the lists in Accept and Accept-Encoding (RFC 9110, 12.4.2)."""

import math


def preferences(header: str) -> list[tuple[str, float]]:
    """Every name in such a header, in lower case, and its weight, from 0 to 1.

    A name without a weight has 1; one whose weight cannot be read has 0, and changes nothing for
    the others.
    """
    entries = ([part.strip() for part in entry.split(";")] for entry in header.lower().split(","))
    return [(name, _weight(parameters)) for name, *parameters in entries if name]


def _weight(parameters: list[str]) -> float:
    digits = next((text[2:] for text in parameters if text.startswith("q=")), "1")
    try:
        weight = float(digits)
    except ValueError:
        return 0.0
    return 0.0 if math.isnan(weight) else min(1.0, max(0.0, weight))
