"""The application on a real Ray Serve: every wire, a queue that is full, a replica that dies."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml
from tritonclient.http import InferenceServerClient, InferInput
from websockets.sync.client import connect

from line_client import LineClient
from probmap_client import Client
from ray_environment import START_SECONDS, command_of, descendants, needs_ray, ray_on_this_machine
from server import ROOT, RunningServer
from waiting import until

pytestmark = needs_ray

CONFIG = ROOT / "docker" / "ray" / "serve.yaml"
REPLICA = "ray::ServeReplica:{}:probmap"
LOGITS = [0, 0.5, 1]
SPARSEMAX = [0, 0.25, 0.75]
"""By hand: the threshold is 1/4."""

SLOW = {
    "logits": np.random.default_rng(3).normal(size=(64, 4096)).round(3).tolist(),
    "mapping": {"name": "perturb_max", "noise": "logistic"},
    "outputs": ["support_size"],
}
"""What takes a replica a second or so: long enough to be killed over."""


@dataclass
class Cluster(RunningServer):
    """Ray with two applications: probmap at / with two replicas, and `narrow` at /narrow."""

    def replicas(self, application: str) -> set[int]:
        """The processes of an application's replicas that live."""
        title = REPLICA.format(application)
        return {pid for pid in descendants(self.process.pid) if title in command_of(pid)}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def configuration(port: int) -> dict[str, Any]:
    """The file for `serve deploy`, made small enough for this machine; a second application."""
    found: dict[str, Any] = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    found["http_options"] |= {"host": "127.0.0.1", "port": port}
    (application,) = found["applications"]
    application["args"] |= {"device": "cpu", "public": ["live", "ready"]}
    (deployment,) = application["deployments"]
    del deployment["autoscaling_config"]
    deployment |= {"num_replicas": 2, "ray_actor_options": {"num_cpus": 0.5}}
    limits = {"max_ongoing_requests": 1, "max_queued_requests": 1, "num_replicas": 1}
    narrow = {
        **application,
        "name": "narrow",
        "route_prefix": "/narrow",
        "deployments": [{**deployment, **limits}],
    }
    found["applications"].append(narrow)
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    port = free_port()
    config = tmp_path_factory.mktemp("ray") / "serve.yaml"
    config.write_text(yaml.safe_dump(configuration(port)))
    with ray_on_this_machine(config) as (process, log):
        yield Cluster(f"http://127.0.0.1:{port}", process, log)


def test_every_replica_is_a_process_of_its_own(cluster: Cluster) -> None:
    assert len(cluster.replicas("probmap")) == 2
    assert len(cluster.replicas("narrow")) == 1


def test_json_is_answered(cluster: Cluster) -> None:
    body = {"logits": LOGITS, "mapping": "sparsemax"}
    response = httpx.post(f"{cluster.url}/v1/map", json=body, headers={"X-Request-Id": "mine"})
    assert response.status_code == 200
    assert response.json()["probabilities"] == [SPARSEMAX]
    assert response.headers.get_list("x-request-id") == ["mine"]
    assert response.headers["x-content-type-options"] == "nosniff"


def test_an_error_is_the_same_problem_as_without_ray(cluster: Cluster) -> None:
    body = {"logits": LOGITS, "mapping": {"name": "entmax", "alpha": 20}}
    response = httpx.post(f"{cluster.url}/v1/map", json=body)
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["code"] == "invalid_request"


def test_binary_tensors_of_a_vocabulary_are_answered(cluster: Cluster) -> None:
    logits = np.random.default_rng(5).normal(scale=3, size=(8, 128_256)).astype(np.float32)
    client = InferenceServerClient(cluster.url.removeprefix("http://"))
    tensor = InferInput("logits", logits.shape, "FP32").set_data_from_numpy(logits)
    found = client.infer("softmax", [tensor]).as_numpy("probabilities")
    client.close()
    wide = logits.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    np.testing.assert_allclose(found, powers / powers.sum(axis=1, keepdims=True), atol=1e-7)


def test_the_client_reads_and_writes_safetensors(cluster: Cluster) -> None:
    with Client(cluster.url) as client:
        result = client.map(np.array([LOGITS]), "sparsemax", outputs=["probabilities", "support"])
        assert result.probabilities.tolist() == [SPARSEMAX]
        assert result.support[0].indices.tolist() == [2, 1]


def test_a_stream_is_answered_while_it_is_sent(cluster: Cluster) -> None:
    async def exchange() -> list[dict[str, Any]]:
        found = []
        async with asyncio.timeout(60), LineClient(cluster) as client:
            await client.send({"id": 0, "logits": LOGITS, "mapping": "sparsemax"})
            async for answer in client.answers():
                found.append(answer)
                # The next line is written only after the one before was answered.
                if len(found) < 5:
                    await client.send({"id": len(found), "logits": LOGITS, "mapping": "sparsemax"})
                elif len(found) == 5:
                    await client.end()
        return found

    *answers, closing = asyncio.run(exchange())
    assert [answer["id"] for answer in answers] == [0, 1, 2, 3, 4]
    assert all(answer["probabilities"] == [SPARSEMAX] for answer in answers)
    assert closing == {"done": True, "lines": 5, "failed": 0}


def test_a_websocket_is_answered(cluster: Cluster) -> None:
    with connect(f"{cluster.url.replace('http', 'ws')}/v1/ws") as connection:
        connection.send(json.dumps({"logits": LOGITS, "mapping": "sparsemax"}))
        assert json.loads(connection.recv(timeout=30))["probabilities"] == [SPARSEMAX]


def ask(url: str) -> httpx.Response:
    return httpx.post(f"{url}/v1/map", json=SLOW, timeout=120)


def test_what_the_queue_does_not_hold_is_answered_429_at_once(cluster: Cluster) -> None:
    with ThreadPoolExecutor(8) as threads:
        responses = [*threads.map(ask, [f"{cluster.url}/narrow"] * 8)]
    refused = [one for one in responses if one.status_code != 200]
    # One is computed, one waits; another may come in between.
    assert 1 <= len(refused) <= 6
    assert {one.status_code for one in refused} == {429}
    assert {one.headers["retry-after"] for one in refused} == {"1"}
    assert max(one.elapsed for one in refused) < max(one.elapsed for one in responses)


def test_a_lost_replica_loses_no_request(cluster: Cluster) -> None:
    before = cluster.replicas("probmap")
    wanted = ask(cluster.url).json()["support_size"]
    started = {pid: processor_seconds(pid) for pid in before}
    with ThreadPoolExecutor(8) as threads:
        waiting: list[Future[httpx.Response]] = [threads.submit(ask, cluster.url) for _ in range(8)]
        until(lambda: all(processor_seconds(pid) > started[pid] + 0.2 for pid in before))
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        responses = [one.result() for one in waiting]
    lost = [one for one in responses if one.status_code == 503]
    assert lost
    for response in lost:
        assert response.headers["content-type"] == "application/problem+json"
        assert response.headers["retry-after"] == "1"
        assert "ask again" in response.json()["detail"]
    answered = [one for one in responses if one.status_code == 200]
    assert len(answered) + len(lost) == len(responses)
    # Those that were lost are asked again; what was answered is right.
    answered += [ask(cluster.url) for _ in lost]
    assert [one.json()["support_size"] for one in answered] == [wanted] * len(responses)
    until(lambda: len(cluster.replicas("probmap")) == 2, START_SECONDS)
    assert victim not in cluster.replicas("probmap")


def processor_seconds(pid: int) -> float:
    """How long a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


def test_a_client_does_not_notice_that_a_replica_dies(cluster: Cluster) -> None:
    rows = np.random.default_rng(7).normal(size=(40, 4, 2000))
    with Client(cluster.url) as client:
        wanted = [client.map(one, "sparsemax").probabilities for one in rows]
        with ThreadPoolExecutor(6) as threads:
            waiting = [threads.submit(client.map, one, "sparsemax") for one in [*rows] * 5]
            until(lambda: sum(one.done() for one in waiting) > 20)
            os.kill(min(cluster.replicas("probmap")), signal.SIGKILL)
            found = [one.result(60).probabilities for one in waiting]
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted * 5, strict=True))
