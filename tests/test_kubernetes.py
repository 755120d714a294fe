"""The manifests: valid by Kubernetes' schemas, and in agreement with the server they start."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from server import ROOT
from service.runtime import Runtime
from service.security import PUBLIC
from service.settings import Settings, variable

VERSIONS = ("1.34", kubernetes_validate.latest_version())


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


MANIFESTS = {
    f"{path.stem}-{found['kind']}-{found['metadata']['name']}": found
    for path in sorted((ROOT / "docker" / "k8s").glob("*.yaml"))
    for found in documents(path)
}
(INFERENCE,) = documents(ROOT / "docker" / "kserve" / "inference.yaml")
PREDICTOR = INFERENCE["spec"]["predictor"]

OF_PODS = ("automountServiceAccountToken", "enableServiceLinks", "securityContext", "containers")


def of_kind(kind: str) -> dict[str, Any]:
    return next(found for found in MANIFESTS.values() if found["kind"] == kind)


DEPLOYMENT = of_kind("Deployment")
POD = DEPLOYMENT["spec"]["template"]["spec"]
CONTAINERS = [*POD["containers"], *PREDICTOR["containers"]]
each_container = pytest.mark.parametrize("container", CONTAINERS, ids=["deployment", "kserve"])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS)
def test_every_manifest_is_valid(manifest: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_a_manifest_that_is_not_valid_is_noticed() -> None:
    broken = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(broken, VERSIONS[0], strict=True)


def test_the_predictor_is_a_valid_pod() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "predictor"},
        "spec": {name: PREDICTOR[name] for name in OF_PODS},
    }
    kubernetes_validate.validate(pod, VERSIONS[0], strict=True)


@each_container
def test_every_variable_is_a_setting_with_a_value_that_it_takes(container: dict[str, Any]) -> None:
    given = {entry["name"]: entry["value"] for entry in container["env"]}
    known = {variable(name): name for name in Settings.model_fields}
    ours = {known[name]: value for name, value in given.items() if name.startswith("PROBMAP_")}
    assert Settings.model_validate(ours).host == "0.0.0.0"
    assert container["ports"][0]["containerPort"] == Settings().port


@each_container
def test_every_probe_needs_no_key(container: dict[str, Any]) -> None:
    probes = [found["httpGet"]["path"] for name, found in container.items() if "Probe" in name]
    assert set(probes) == {"/v2/health/live", "/v2/health/ready"}
    opened = {path for name in Settings().public for path in PUBLIC[name]}
    assert set(probes) <= opened


@each_container
def test_every_container_may_do_little(container: dict[str, Any]) -> None:
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("spec", [POD, PREDICTOR], ids=["deployment", "kserve"])
def test_no_service_sets_settings_by_its_name(spec: dict[str, Any]) -> None:
    assert spec["enableServiceLinks"] is False
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True


def test_a_pod_has_time_to_stop() -> None:
    (container,) = POD["containers"]
    given = {entry["name"]: entry["value"] for entry in container["env"]}
    waits = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    grace = int(given["PROBMAP_GRACE_SECONDS"])
    # 5: SENDING_SECONDS of service/server.py.
    assert POD["terminationGracePeriodSeconds"] >= waits + grace + 5


def test_the_keys_are_where_the_secret_is_mounted() -> None:
    (container,) = POD["containers"]
    given = {entry["name"]: entry["value"] for entry in container["env"]}
    (mount,) = container["volumeMounts"]
    assert given["PROBMAP_API_KEY_FILE"].startswith(mount["mountPath"] + "/")
    assert "subPath" not in mount


def selected() -> Iterator[dict[str, str]]:
    yield DEPLOYMENT["spec"]["selector"]["matchLabels"]
    yield of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"]
    for found in MANIFESTS.values():
        if found["kind"] == "Service":
            yield found["spec"]["selector"]


def test_everything_selects_the_same_pods() -> None:
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert len(found := list(selected())) == 4
    assert all(one == labels for one in found)


def test_the_autoscaler_looks_at_a_metric_that_there_is() -> None:
    scaler = of_kind("HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"]["name"] == DEPLOYMENT["metadata"]["name"]
    names = {found.name for found in Runtime(Settings(device="cpu")).metrics.registry.collect()}
    assert {one["pods"]["metric"]["name"] for one in scaler["metrics"]} <= names
