"""The playground in a browser: presets, parameters, links and errors, seen in its bars."""

import json
import re
import shlex
import subprocess
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from browser_page import address, column, drawn, numbers, opened
from server import map_logits, shared_server


def probabilities(page: Page) -> list[float]:
    drawn(page)
    return column(page, 2)


def figure(page: Page, name: str) -> list[str]:
    """One of the figures above the bars: of the mapping, and of softmax."""
    drawn(page)
    row = page.locator("[data-part=figures] tr", has_text=name)
    return row.locator("td").all_inner_texts()


def test_the_page_begins_with_the_worked_example() -> None:
    with opened(shared_server().url) as page:
        assert probabilities(page) == pytest.approx([1 / 12, 1 / 3, 7 / 12], abs=1e-12)
        assert figure(page, "classes above zero") == ["3 of 3", "3 of 3"]
        assert figure(page, "normalizer") == ["−0.08333", "1.369"]
        expect(page.locator("#live")).to_contain_text("sparsemax: 3 of 3 classes above zero")


def test_temperature_one_half_on_close_takes_one_class_to_zero() -> None:
    with opened(shared_server().url) as page:
        page.get_by_role("button", name="Separated").click()
        page.get_by_role("button", name="Close").click()
        page.get_by_role("spinbutton", name="temperature").fill("0.5")
        expect(page.locator("[data-part=figures] td").first).to_have_text("2 of 3")
        assert probabilities(page) == [0, 0.25, 0.75]
        assert numbers(page)[0][2] == "0"


def test_separated_leaves_one_active_class() -> None:
    with opened(shared_server().url) as page:
        page.get_by_role("button", name="Separated").click()
        expect(page.locator("[data-part=figures] td").first).to_have_text("1 of 3")
        assert probabilities(page) == [0, 0, 1]


def test_a_link_shows_the_same_picture() -> None:
    with opened(shared_server().url) as page:
        page.get_by_label("One row").fill("3, null, 1\t2")
        page.get_by_label("One row").fill("cat\t3\ndog\tnull\nowl\t2.5")
        page.get_by_label("Mapping", exact=True).select_option("entmax")
        page.get_by_role("spinbutton", name="alpha").fill("1.25")
        page.get_by_label("Next step").select_option("temperature")
        page.get_by_role("button", name="Add").click()
        page.get_by_role("spinbutton", name="value").fill("2")
        expect(page).to_have_url(re.compile(r"processors\.0\.value=2"))
        drawn(page)
        link, shown = page.url, numbers(page)
    wanted = map_logits(
        logits=[3, None, 2.5],
        mapping={"name": "entmax", "alpha": 1.25},
        processors=[{"name": "temperature", "value": 2}],
    ).json()["probabilities"][0]
    assert [row[0] for row in shown] == ["cat", "dog", "owl"]
    assert [float(row[2]) for row in shown] == pytest.approx(wanted, abs=1e-11)
    with opened(link) as page:
        assert numbers(page) == shown
        expect(page.get_by_label("Mapping", exact=True)).to_have_value("entmax")
        expect(page.get_by_role("spinbutton", name="alpha")).to_have_value("1.25")


def test_a_new_link_in_the_same_tab_is_shown() -> None:
    with opened(shared_server().url) as page:
        page.goto(address(logits="0,0.5,1", mapping="sparsemax"))
        expect(page.locator("#live")).to_contain_text("2 of 3")
        assert probabilities(page) == [0, 0.25, 0.75]


def test_what_a_link_tells_and_cannot_be_read_is_said() -> None:
    state: dict[str, Any] = {"logits": "0,a", "mapping": "softmin", "processors.0": "bottom_k"}
    with opened(address(view="pie", **state)) as page:
        notice = page.locator(".notice[role=alert]")
        for part in ("logits could not be read", "“softmin”", "“bottom_k”", "“pie”"):
            expect(notice).to_contain_text(part)
        assert probabilities(page) == pytest.approx([1 / 12, 1 / 3, 7 / 12], abs=1e-12)


def test_the_slider_of_a_class_moves_its_logit() -> None:
    with opened(shared_server().url) as page:
        page.get_by_role("slider", name="Logit of class 2").press("End")
        expect(page).to_have_url(re.compile("0,0.25,5"))
        assert probabilities(page) == [0, 0, 1]


def test_an_error_stands_beside_the_control_that_caused_it() -> None:
    with opened(address(mapping="entmax")) as page:
        alpha = page.get_by_role("spinbutton", name="alpha")
        alpha.fill("0.01")
        field = page.locator("[data-field=alpha]")
        expect(field.get_by_role("alert")).to_contain_text("greater than or equal to 0.1")
        expect(alpha).to_have_attribute("aria-invalid", "true")
        expect(page.locator("#failure")).to_contain_text("see alpha")
        alpha.fill("1.5")
        expect(field.get_by_role("alert")).to_have_text("")
        expect(page.locator("#failure")).to_have_text("")


def test_a_slow_answer_shows_progress() -> None:
    with opened(shared_server().url) as page:
        waiting: list[Any] = []
        page.route("**/v1/stream", lambda route: waiting.append(route))
        page.get_by_role("button", name="Equal").click()
        expect(page.locator("#progress")).to_be_visible()
        expect(page.locator("#view")).to_have_attribute("aria-busy", "true")
        waiting[0].continue_()
        expect(page.locator("#progress")).to_be_hidden()
        assert probabilities(page) == pytest.approx([1 / 3] * 3)


def test_the_copied_curl_gives_the_numbers_of_the_page() -> None:
    with opened(address(mapping="sparsemax", **{"mapping.temperature": 0.5})) as page:
        page.get_by_role("button", name="Copy as curl").click()
        expect(page.locator("#live")).to_have_text("curl code copied")
        command = shlex.split(page.evaluate("navigator.clipboard.readText()"))
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert column(page, 2) == pytest.approx(answers[0]["probabilities"][0], abs=1e-11)
        assert column(page, 3) == pytest.approx(answers[1]["probabilities"][0], abs=1e-11)
        assert answers[0]["probabilities"] == [[0, 0.25, 0.75]]
