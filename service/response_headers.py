"""Headers that tell browsers to take an answer for what it is, and pages to load only from here."""

import base64
import hashlib
import re
from collections.abc import Sequence

ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)

CONTENT_POLICY = b"content-security-policy"

DATA_POLICY = b"default-src 'none'; frame-ancestors 'none'"
"""The policy of what is no page: nothing is loaded, and no page shows it."""

Header = tuple[bytes, bytes]


def secured(headers: Sequence[Header]) -> list[Header]:
    """The headers of an answer and those that are missing."""
    found = [*headers, *ALWAYS]
    names = dict(headers)
    if CONTENT_POLICY not in names:
        is_page = names.get(b"content-type", b"").startswith(b"text/html")
        found.append((CONTENT_POLICY, page_policy() if is_page else DATA_POLICY))
    return found


def page_policy(html: str = "") -> bytes:
    """The policy of a page: everything comes from here, and of scripts inside it only these run.

    Args:
        html: the page, where it has scripts inside.
    """
    inside = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in inside]
    scripts = " ".join(["'self'", *(f"'sha256-{text}'" for text in hashes)])
    return (
        f"default-src 'self'; script-src {scripts}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ).encode()
