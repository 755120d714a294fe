"""What is in docker/ray: known to Ray, in agreement with the server, valid pods."""

import json
import subprocess
import sys
from copy import deepcopy
from typing import Any

import kubernetes_validate
import pytest
import yaml

from ray_environment import ENVIRONMENT, needs_ray
from server import ROOT
from service.settings import Settings

FOLDER = ROOT / "docker" / "ray"
CONFIG = yaml.safe_load((FOLDER / "serve.yaml").read_text(encoding="utf-8"))
SERVICE = yaml.safe_load((FOLDER / "rayservice.yaml").read_text(encoding="utf-8"))
IN_SERVICE = yaml.safe_load(SERVICE["spec"]["serveConfigV2"])
CLUSTER = SERVICE["spec"]["rayClusterConfig"]
(WORKERS,) = CLUSTER["workerGroupSpecs"]
PODS = {"head": CLUSTER["headGroupSpec"]["template"], "worker": WORKERS["template"]}
VERSIONS = ("1.34", kubernetes_validate.latest_version())

each_config = pytest.mark.parametrize("config", [CONFIG, IN_SERVICE], ids=["serve", "rayservice"])
each_pod = pytest.mark.parametrize("pod", PODS.values(), ids=PODS)


def kept_by_ray(config: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "tests" / "ray_schema.py")],
        input=json.dumps(config),
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=60,
        check=False,
    )


@needs_ray
@each_config
def test_ray_knows_every_field(config: dict[str, Any]) -> None:
    found = kept_by_ray(config)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) == config


@needs_ray
def test_a_field_that_ray_does_not_know_would_be_seen() -> None:
    misspelt = deepcopy(CONFIG)
    (deployment,) = misspelt["applications"][0]["deployments"]
    deployment["max_queue_requests"] = deployment.pop("max_queued_requests")
    assert json.loads(kept_by_ray(misspelt).stdout) != misspelt
    deployment["max_ongoing_requests"] = 0
    assert "max_ongoing_requests" in kept_by_ray(misspelt).stderr


@each_config
def test_every_argument_is_a_setting_with_a_value_that_it_takes(config: dict[str, Any]) -> None:
    (application,) = config["applications"]
    settings = Settings.model_validate(application["args"])
    # Serve kills a replica that takes longer than Kubernetes waits for its pod.
    seconds = WORKERS["template"]["spec"]["terminationGracePeriodSeconds"]
    assert settings.grace_seconds + 5 <= seconds
    assert config["http_options"]["keep_alive_timeout_s"] == Settings().keep_alive_seconds


def test_both_deploy_the_same() -> None:
    without = deepcopy(IN_SERVICE)
    del without["applications"][0]["args"]["api_key_file"]
    assert without == CONFIG


@pytest.mark.parametrize("version", VERSIONS)
@each_pod
def test_the_pods_are_valid(pod: dict[str, Any], version: str) -> None:
    whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, **pod}
    kubernetes_validate.validate(whole, version, strict=True)


@each_pod
def test_the_pods_may_do_little_and_find_keys_and_middleware(pod: dict[str, Any]) -> None:
    (container,) = pod["spec"]["containers"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    given = {entry["name"]: entry["value"] for entry in container["env"]}
    assert given.items() <= ENVIRONMENT.items()
    keys = IN_SERVICE["applications"][0]["args"]["api_key_file"]
    assert any(keys.startswith(f"{one['mountPath']}/") for one in container["volumeMounts"])
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports["serve"] == IN_SERVICE["http_options"]["port"]


def test_the_cluster_has_room_for_the_most_replicas() -> None:
    (deployment,) = IN_SERVICE["applications"][0]["deployments"]
    (container,) = PODS["worker"]["spec"]["containers"]
    assert WORKERS["maxReplicas"] >= deployment["autoscaling_config"]["max_replicas"]
    # Ray takes the pod's CPU limit for what it has; a replica takes one of them.
    assert int(container["resources"]["limits"]["cpu"]) >= 1


def test_the_version_of_ray_is_the_one_that_is_tested() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert f"ray=={CLUSTER['rayVersion']}" in pins
