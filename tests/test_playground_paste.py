"""Logits that are pasted into the playground: read in many forms, or refused in words."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from browser_page import opened
from server import shared_server


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with opened(shared_server().url) as page:
        yield page


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("json", "[0, null, 0.5]", [0, None, 0.5]),
        ("row", "0 .25 -1e1", [0, 0.25, -10]),
        ("csv", "0,0.25,,0.5", [0, 0.25, None, 0.5]),
        ("column", "0\n−0.25\n0.5\n", [0, -0.25, 0.5]),
        ("headed", "token,logit\na,1\nb,2", [1, 2]),
        ("object", '{"a": 1, "b": 2}', [1, 2]),
        ("request", '{"logits": [[1, 2]]}', [1, 2]),
        ("numbered", "0\t1.5\n1\t2.5", [1.5, 2.5]),
    ],
    ids=["json", "row", "csv", "column", "headed", "object", "request", "numbered"],
)
def test_logits_are_read_as_people_have_them(
    page: Page, name: str, text: str, wanted: list[Any]
) -> None:
    found = page.evaluate(
        "async text => { const main = document.querySelector('script[type=module]').src;"
        "return (await import(new URL('parse.js', main))).parse(text); }",
        text,
    )
    assert found["logits"] == wanted
    assert found["names"] == (["a", "b"] if name in ("headed", "object") else found["names"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0, x, 1", "Class 1 is “x”"),
        ("[0, ", "This is not JSON"),
        ("", "There are no logits"),
        ("[[0, 1], [1, 2]]", "There are 2 rows"),
        ("1 2\n3 4", "should be a number"),
        ("1,2,3\n3,4,5", "paste one row"),
        ("null, null", "Every class is masked"),
        (",".join(["1"] * 1001), "There are 1001 classes; this page takes up to 1000"),
    ],
    ids=["word", "cut", "empty", "rows", "pairs", "grid", "masked", "many"],
)
def test_logits_that_cannot_be_read_are_refused_in_words(page: Page, text: str, said: str) -> None:
    field = page.get_by_label("One row")
    field.fill(text)
    expect(page.locator("#logits-wrong")).to_contain_text(said)
    expect(field).to_have_attribute("aria-invalid", "true")
    field.fill("0, 0.5, 1")
    expect(page.locator("#logits-wrong")).to_have_text("")
