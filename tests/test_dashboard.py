"""What Prometheus collects and warns of, and what Grafana draws: of metrics that there are."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from server import ROOT, map_logits, shared_server
from service.security import PUBLIC
from service.settings import Settings

DOCKER = ROOT / "docker"
PROMETHEUS = yaml.safe_load((DOCKER / "prometheus/prometheus.yml").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((DOCKER / "prometheus/alerts.yml").read_text(encoding="utf-8"))
BOARD = json.loads((DOCKER / "grafana/dashboards/probmap.json").read_text(encoding="utf-8"))
PROVISIONED = DOCKER / "grafana/provisioning"
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))

RULES = {rule["alert"]: rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]}
DRAWN = {
    f"{panel['title']} {target['refId']}": target["expr"]
    for panel in BOARD["panels"]
    for target in panel["targets"]
}
OF_PROMETHEUS = {"up", "job", "instance"}
"""What Prometheus adds itself."""


def parsed(question: str) -> Any:
    # Grafana puts these in.
    question = question.replace("$__rate_interval", "1m").replace("$instance", ".*")
    return promql_parser.parse(question)


def selectors(question: str) -> list[tuple[str, set[str]]]:
    """The samples that a question names, each with the labels that it matches."""
    found = []

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            assert node.name is not None
            found.append((node.name, {one.name for one in node.matchers.matchers}))

    promql_parser.walk(parsed(question), visit)
    return found


def groupings(question: str) -> set[str]:
    """The labels that a question sums by."""
    found: set[str] = set()

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            found.update(node.modifier.labels)

    promql_parser.walk(parsed(question), visit)
    return found


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """Every sample of a server that has computed something, with its labels."""
    assert map_logits(logits=[0, 1], mapping="sparsemax").status_code == 200
    text = httpx.get(f"{shared_server().url}/metrics").text
    samples: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        # Without a GPU it has no samples, but it is announced.
        if family.name == "probmap_device_memory_bytes":
            samples[family.name] = {"device", "kind"}
        for sample in family.samples:
            samples.setdefault(sample.name, set()).update(sample.labels)
    return samples


@pytest.mark.parametrize("question", [*RULES.values(), *DRAWN.values()], ids=[*RULES, *DRAWN])
def test_every_question_is_about_a_metric_that_there_is(
    question: str, exported: dict[str, set[str]]
) -> None:
    named = selectors(question)
    assert named
    labels = set(OF_PROMETHEUS)
    for name, matched in named:
        assert name in exported or name in OF_PROMETHEUS, name
        assert matched <= exported.get(name, set()) | OF_PROMETHEUS, name
        labels |= exported.get(name, set())
    assert groupings(question) <= labels


def test_a_question_about_nothing_is_noticed(exported: dict[str, set[str]]) -> None:
    ((name, matched),) = selectors('sum by (le) (rate(probmap_rows{rout="x"}[1m]))')
    assert (name, matched) == ("probmap_rows", {"rout"})
    assert name not in exported
    with pytest.raises(ValueError, match="unclosed"):
        selectors("rate(probmap_rows")


def test_every_metric_of_ours_is_drawn(exported: dict[str, set[str]]) -> None:
    drawn = {name for question in DRAWN.values() for name, _ in selectors(question)}
    # Of a histogram, the sum, the count or the buckets are enough.
    suffixes = ("_bucket", "_sum", "_count")

    def family(name: str) -> str:
        return next((name.removesuffix(end) for end in suffixes if name.endswith(end)), name)

    ours = {family(name) for name in exported if name.startswith("probmap_")}
    assert ours - {family(name) for name in drawn} == set()


def test_every_legend_is_of_labels_that_are_left() -> None:
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            shown = {part.split("}}")[0] for part in target["legendFormat"].split("{{")[1:]}
            if by := groupings(target["expr"]):
                assert shown <= by, target


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_prometheus_collects_from_the_composed_server_what_needs_no_key() -> None:
    (job,) = PROMETHEUS["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"probmap:{Settings().port}"]}]
    assert "probmap" in COMPOSE["services"]
    assert job.get("metrics_path", "/metrics") in PUBLIC["metrics"]
    assert all((DOCKER / "prometheus" / name).is_file() for name in PROMETHEUS["rule_files"])
    names = {value for question in RULES.values() for value in _jobs(question)}
    assert names == {job["job_name"]}


def _jobs(question: str) -> Iterator[str]:
    found: list[Any] = []
    promql_parser.walk(parsed(question), lambda node: found.append(node))
    for node in found:
        for one in getattr(getattr(node, "matchers", None), "matchers", []):
            if one.name == "job":
                yield one.value


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (Debian: prometheus)")
def test_prometheus_takes_its_configuration() -> None:
    command = ["promtool", "check", "config", str(DOCKER / "prometheus/prometheus.yml")]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert f"{len(RULES)} rules found" in checked.stdout


def test_grafana_finds_its_source_and_its_dashboard() -> None:
    (source,) = yaml.safe_load((PROVISIONED / "datasources/prometheus.yaml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    assert COMPOSE["services"]["prometheus"]["ports"] == ["127.0.0.1:9090:9090"]
    asked = [*BOARD["panels"], *BOARD["templating"]["list"]]
    assert {one["datasource"]["uid"] for one in asked} == {source["uid"]}
    grafana = COMPOSE["services"]["grafana"]
    mounts = dict(volume.split(":")[1::-1] for volume in grafana["volumes"])
    (provider,) = yaml.safe_load((PROVISIONED / "dashboards/probmap.yaml").read_text())["providers"]
    assert mounts[provider["options"]["path"]] == "./grafana/dashboards"
    assert mounts["/etc/grafana/provisioning"] == "./grafana/provisioning"
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{provider['options']['path']}/probmap.json"
