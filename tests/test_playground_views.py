"""The playground's views in a browser: each draws each mapping, and says how to get it by code."""

import contextlib
import io
import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from browser_page import AXE, address, column, drawn, numbers, opened, present
from mappings.registry import MAPPINGS
from server import map_logits, shared_server

VIEWS = ("bars", "simplex", "curves", "jacobian", "worked", "compare", "own")
REQUIRED: dict[str, dict[str, Any]] = {
    "gumbel_softmax": {"mapping.seed": 7},
    "margin_softmax": {"mapping.target": 1},
    "weighted_softmax": {"mapping.weights": "[1,2,0]"},
}
each_view = pytest.mark.parametrize("view", VIEWS)


def state(view: str, mapping: str, **more: Any) -> dict[str, Any]:
    return {"view": view, "mapping": mapping, **REQUIRED.get(mapping, {}), **more}


def go(page: Page, **wanted: Any) -> None:
    """Shows another state in the same tab, as a link would."""
    page.evaluate("fragment => { location.hash = fragment }", urlencode(wanted))
    shown = page.locator(f"#view[data-shows='{wanted['view']} {wanted['mapping']}']")
    shown.and_(page.locator("[aria-busy=false]")).wait_for(state="attached")


@each_view
def test_every_view_draws_every_mapping(view: str) -> None:
    with opened(address(**state(view, "softmax"))) as page:
        for mapping in MAPPINGS:
            go(page, **state(view, mapping))
            expect(page.locator("#failure")).to_have_text("")
            expect(page.locator("#view .plot svg").first).to_be_attached()
            label = page.locator("#view .plot").first.get_attribute("aria-label")
            assert label
            assert page.locator("#view table").count() >= 1


def test_the_worked_example_says_its_numbers() -> None:
    with opened(address(**state("worked", "sparsemax"))) as page:
        expect(page.locator("#threshold")).to_have_text("−1/12 = −0.0833333")
        expect(page.locator("#answer")).to_have_text("[1/12, 1/3, 7/12]")
        steps = page.locator("[data-part=steps] tbody tr").all_inner_texts()
        assert [step.split("\t")[4] for step in steps] == [
            "−1/2 = −0.5",
            "−1/8 = −0.125",
            "−1/12 = −0.0833333",
        ]
        page.get_by_role("button", name="Separated").click()
        expect(page.locator("#answer")).to_have_text("[0, 0, 1]")
        expect(page.locator("[data-part=steps]")).to_contain_text("no: stop ✕")


def test_the_triangle_shows_the_projection_where_there_is_one() -> None:
    with opened(address(**state("simplex", "sparsemax"))) as page:
        expect(page.locator("figcaption").first).to_contain_text("Euclidean projection")
        go(page, **state("simplex", "entmax", **{"mapping.alpha": 2}))
        expect(page.locator("figcaption").first).to_contain_text("Euclidean projection")
        go(page, **state("simplex", "softmax"))
        expect(page.locator("figcaption").first).not_to_contain_text("Euclidean projection")


def test_the_way_through_the_triangle_ends_where_temperatures_lead() -> None:
    ends = {"sweep.of": "temperature", "sweep.from": 0.25, "sweep.to": 1000}
    with opened(address(**state("simplex", "sparsemax", **ends))) as page:
        rows = numbers(page)
        assert rows[2] == ["temperature = 0.25", "0", "0", "1"]
        assert [float(cell) for cell in rows[-1][1:]] == pytest.approx([1 / 3] * 3, abs=1e-3)


def test_other_numbers_of_classes_are_told_in_words() -> None:
    with opened(address(**state("simplex", "softmax", logits="5,1,2,3"))) as page:
        expect(page.locator("#view")).to_contain_text("takes three classes; the row has 4")
        page.get_by_role("button", name="Take its three largest").click()
        expect(page.locator("#view .plot svg").first).to_be_attached()
        assert numbers(page)[0][0] == "softmax"


def test_curves_are_what_the_server_answers() -> None:
    sweep = {"sweep.of": "logit.0", "sweep.from": 0, "sweep.to": 2}
    with opened(address(**state("curves", "sparsemax", **sweep))) as page:
        at, first = column(page, 0), column(page, 1)
    assert (at[0], at[-1], len(at)) == (0, 2, 201)
    answer = map_logits(logits=[[x, 0.25, 0.5] for x in at], mapping="sparsemax").json()
    assert first == pytest.approx([row[0] for row in answer["probabilities"]], abs=1e-5)


def test_a_sweep_that_the_mapping_does_not_take_is_told_beside_it() -> None:
    sweep = {"sweep.of": "alpha", "sweep.from": -1, "sweep.to": 2}
    with opened(address(**state("curves", "entmax", **sweep))) as page:
        expect(page.locator("#sweep-wrong")).to_contain_text("greater than or equal to 0.1")
        page.get_by_label("from", exact=True).fill("3")
        expect(page.locator("#sweep-wrong")).to_contain_text("should go up")
        page.get_by_label("from", exact=True).fill("1")
        expect(page.locator("#sweep-wrong")).to_have_text("")
        expect(page.locator("#view .plot svg").first).to_be_attached()


@pytest.mark.parametrize("classes", [3, 60])
def test_the_jacobian_has_its_sums(classes: int) -> None:
    logits = [round(0.1 * (place % 7) + 0.003 * place, 3) for place in range(classes)]
    text = ",".join(map(str, logits))
    with opened(address(**state("jacobian", "spherical_softmax", logits=text))) as page:
        rows = numbers(page)
        expect(page.locator("[data-part=sums]")).to_contain_text("Column sums are zero; row sums")
    answer = map_logits(
        logits=logits,
        mapping="spherical_softmax",
        outputs=["jacobian"],
        jacobian={"form": "dense"},
    ).json()["jacobian"][0]
    ids = [int(row[0]) for row in rows[:-1]]
    assert len(ids) == min(classes, 50)
    for at, place in enumerate(ids):
        cells = [float(cell.replace("−", "-")) for cell in rows[at][1:]]
        assert cells[:-1] == pytest.approx([answer[place][other] for other in ids], rel=1e-3)
        assert cells[-1] == pytest.approx(sum(answer[place]), rel=1e-3, abs=1e-12)


def test_a_mapping_that_has_no_answer_says_so_in_its_own_picture() -> None:
    with opened(address(**state("compare", "softmax", logits="0,0,0"))) as page:
        expect(page.locator(".multiple")).to_have_count(len(MAPPINGS))
        said = page.locator("[data-part=card-spherical_softmax] .complaint")
        expect(said).to_contain_text("give epsilon > 0")
        page.get_by_role("button", name="sparsemax", exact=True).click()
        expect(page.get_by_label("Mapping", exact=True)).to_have_value("sparsemax")


def test_long_rows_show_their_fifty_largest_classes() -> None:
    text = ",".join(str(round((place * 37 % 1000) / 200, 3)) for place in range(1000))
    chain = {"processors.0": "top_k", "processors.0.k": 10}
    with opened(address(**state("own", "softmax", logits=text, **chain))) as page:
        expect(page.locator("[data-part=chain]")).to_contain_text("10 of 1000 classes above zero")
        expect(page.locator("[data-part=own-table] tbody tr")).to_have_count(50)
        page.get_by_role("button", name="Move down top_k").click()
        page.get_by_role("button", name="Remove top_k").click()
        expect(page.locator("[data-part=chain]")).to_contain_text("1000 of 1000 classes above zero")


def answers_of(text: str) -> list[Any]:
    return [line for line in map(json.loads, text.splitlines()) if "done" not in line]


@each_view
def test_the_code_of_a_view_gets_its_numbers(view: str, tmp_path: Path) -> None:
    chain = {"processors.0": "top_k", "processors.0.k": 2, "processors.0.ties": "all"}
    with opened(address(**state(view, "entmax", **chain, **{"mapping.alpha": 1.5}))) as page:
        with page.expect_response("**/v1/*") as asked:
            page.get_by_role("spinbutton", name="alpha").fill("1.75")
        shown = answers_of(asked.value.text())
        drawn(page)
        code = {
            language: page.locator(f"[data-language={language}] code").text_content() or ""
            for language in ("curl", "Python", "JavaScript")
        }
    done = subprocess.run(
        shlex.split(code["curl"]), capture_output=True, text=True, timeout=60, check=True
    )
    assert answers_of(done.stdout) == shown
    script = tmp_path / "view.mjs"
    script.write_text(code["JavaScript"])
    node = present(shutil.which("node"), "node")
    done = subprocess.run([node, script], capture_output=True, text=True, timeout=60, check=True)
    assert answers_of(done.stdout) == shown
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code["Python"], {})
    printed = [
        json.loads(line.partition(" ")[2])
        for line in output.getvalue().splitlines()
        if line.startswith("probabilities ")
    ]
    assert printed == [answer["probabilities"] for answer in shown]


# Colours are those of the scheme and places those of the width: no pair has any of its own.
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_nothing_stands_in_the_way_of_anybody(width: int, scheme: str) -> None:
    """By axe-core; and nothing is wider than a phone."""
    source = present(AXE.exists() and AXE.read_text(encoding="utf-8"), "axe-core")
    with opened(address(**state("bars", "entmax")), width=width, scheme=scheme) as page:
        page.evaluate(source)
        for view in VIEWS:
            go(page, **state(view, "entmax"))
            for summary in page.locator("#view summary").all()[:1]:
                summary.click()
            found = page.evaluate("axe.run(document)")
            assert {
                rule["id"]: [node["html"] for node in rule["nodes"]]
                for rule in found["violations"]
                if rule["impact"] in ("serious", "critical")
            } == {}
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_all_of_it_can_be_reached_and_changed_by_keyboard() -> None:
    with opened(shared_server().url) as page:
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the controls")).to_be_focused()
        page.get_by_role("tab", name="Bars").focus()
        for name in ("Simplex", "Curves"):
            page.keyboard.press("ArrowRight")
            expect(page.get_by_role("tab", name=name)).to_be_focused()
            expect(page.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
        page.keyboard.press("End")
        expect(page.get_by_role("tab", name="Your own")).to_be_focused()
        expect(page.locator("#view-title")).to_have_text("Your own")
        drawn(page)
