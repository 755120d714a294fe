"""A headless Chromium of the system's packages, with the playground of the shared server in it."""

import atexit
import functools
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from server import ROOT, shared_server

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")

AXE = ROOT / "tests" / "browser" / "node_modules" / "axe-core" / "axe.min.js"

SHOWN_MILLISECONDS = 60_000

expect.set_options(timeout=SHOWN_MILLISECONDS)


def present(found: Any, what: str) -> Any:
    """What a test needs; without it the test is skipped, but fails where CI is set."""
    if not found:
        reason = f"{what} is not installed; `make browser` says why it cannot be"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


_opened = ExitStack()
atexit.register(_opened.close)


@functools.cache
def browser() -> Browser:
    """One browser for a module of tests."""
    program = present(next(filter(None, map(shutil.which, PROGRAMS)), None), "Chromium")
    playwright = _opened.enter_context(sync_playwright())
    # Chromium has no sandbox of its own for root, which containers are.
    started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
    _opened.callback(started.close)
    return started


def close_browser() -> None:
    """Ends the browser, if there is one: its client runs an event loop in this very thread."""
    _opened.close()
    browser.cache_clear()
    context.cache_clear()


@functools.cache
def context(width: int, scheme: Any) -> BrowserContext:
    """Where pages of this width and colour scheme are; they share what the browser keeps."""
    made = browser().new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        permissions=["clipboard-read", "clipboard-write"],
    )
    made.set_default_timeout(SHOWN_MILLISECONDS)
    return made


def address(**state: Any) -> str:
    """The URL of a state: a `mapping` of logits, and so on, as the page writes it."""
    return f"{shared_server().url}/#{urlencode(state)}"


@contextmanager
def opened(url: str, *, width: int = 1280, scheme: Any = "light") -> Iterator[Page]:
    """The page at a URL, drawn; afterwards nothing may have been written to its console."""
    page = context(width, scheme).new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(str(error)))
    try:
        page.goto(url)
        drawn(page)
        yield page
        # The browser itself tells of refused requests, whatever the page makes of them.
        assert [line for line in said if "status of 422" not in line] == []
    finally:
        page.close()


def drawn(page: Page) -> None:
    """Waits until the view shows what the server answered."""
    page.locator("#view[aria-busy=false]").wait_for(state="attached")


def numbers(page: Page) -> list[list[str]]:
    """The cells of the first figure's table, row by row."""
    rows: list[list[str]] = page.eval_on_selector_all(
        "#view figure:first-of-type .numbers tbody tr",
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))",
    )
    return rows


def column(page: Page, place: int) -> list[float]:
    """The numbers of one column of that table."""
    return [float(row[place].replace("−", "-")) for row in numbers(page)]
