"""The image's parts: the Dockerfile, its context, its health check and the compose files."""

import json
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pathspec
import pytest
import trustme
import yaml
from dockerfile_parse import DockerfileParser

from server import ROOT, running_server, shared_server
from service.settings import Settings, variable

DOCKER = ROOT / "docker"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PARSED = DockerfileParser(str(DOCKER / "Dockerfile"), env_replace=False)
STEPS = [(found["instruction"], found["value"]) for found in PARSED.structure]
LAST_STAGE = STEPS[max(at for at, (name, _) in enumerate(STEPS) if name == "FROM") :]
IGNORED = pathspec.PathSpec.from_lines(
    "gitignore", (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
)
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
SERVER = COMPOSE["services"]["probmap"]
COMMANDS = Path(sys.executable).parent


def values(instruction: str, steps: list[tuple[str, str]] = STEPS) -> list[str]:
    return [value for name, value in steps if name == instruction]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_dockerfile_is_clean() -> None:
    linted = run(COMMANDS / "hadolint", DOCKER / "Dockerfile")
    assert (linted.returncode, linted.stdout) == (0, "")


def test_the_image_is_built_in_stages() -> None:
    names = [value.split()[-1] for value in values("FROM")]
    assert names == ["wheel", "torch", "server"]
    # Of the stage that built the wheel, the wheel alone is in the image.
    assert values("FROM")[-1].split()[0] == "torch"
    between = [value for value in values("COPY") if "--from" in value]
    assert between == ["--from=wheel /wheels /opt/dist"]


def test_the_server_is_run_as_nobody_who_may_write() -> None:
    (user,) = values("USER")
    deployment = yaml.safe_load((DOCKER / "k8s" / "deployment.yaml").read_text(encoding="utf-8"))
    context = deployment["spec"]["template"]["spec"]["securityContext"]
    assert user == f"{context['runAsUser']}:{context['runAsGroup']}"
    # Nothing after it belongs to the user, or is made by it.
    after = LAST_STAGE[[name for name, _ in LAST_STAGE].index("USER") :]
    assert not {"RUN", "COPY", "ADD"} & {name for name, _ in after}
    assert "--chown" not in PARSED.content


def test_signals_reach_the_server() -> None:
    (entry,), (command,) = values("ENTRYPOINT"), values("CMD")
    # JSON, so that no shell stands between; and a command of ours, not a wrapper.
    (program,) = json.loads(entry)
    assert program in PROJECT["project"]["scripts"]
    assert json.loads(command) == ["serve"]


def test_the_health_check_needs_no_shell_and_no_curl() -> None:
    (check,) = values("HEALTHCHECK")
    program, script = json.loads(check.partition("CMD ")[2])
    assert program == "python3"
    assert script in [value.split()[-1] for value in values("COPY", LAST_STAGE)]


def test_every_version_is_pinned() -> None:
    installs = [line for line in values("RUN") for _ in range(line.count(" install "))]
    assert len(installs) == 3
    torch, server = (value for value in values("RUN") if " install " in value)
    # torch alone comes from another index, without dependencies: only its version is read there.
    assert torch.index("--no-deps") < torch.index("--index-url") < torch.index("--constraint")
    assert torch.count("--constraint") == server.count("--constraint") == 1
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert len([line for line in constraints if line.startswith("torch==")]) == 1


def test_the_image_installs_extras_that_there_are() -> None:
    (extras,) = (value.split("=")[1] for value in values("ARG") if value.startswith("EXTRAS="))
    assert set(extras.split(",")) <= PROJECT["project"]["optional-dependencies"].keys()


def test_no_secret_stays_in_the_image() -> None:
    named = " ".join(values("ARG") + values("ENV")).upper()
    assert not [word for word in ("KEY", "TOKEN", "PASSWORD", "SECRET") if word in named]
    # Whose index needs a password shows it as a mount, which leaves nothing behind.
    fetching = [value for value in values("RUN") if "pip" in value]
    assert all("--mount=type=secret,id=pip" in value for value in fetching)


def test_everything_that_is_copied_is_in_the_context() -> None:
    sent_in = [value for value in values("COPY") if "--from" not in value]
    sources = [name for value in sent_in for name in value.split()[:-1]]
    assert {"constraints.txt", "service"} <= set(sources)
    for name in sources:
        found = ROOT / name
        inside = [one for one in found.rglob("*") if one.is_file()] if found.is_dir() else [found]
        sent = [one for one in inside if not IGNORED.match_file(str(one.relative_to(ROOT)))]
        assert sent, name
        assert all("__pycache__" in one.parts for one in inside if one not in sent), name


def test_what_the_wheel_is_made_of_is_copied() -> None:
    copied = {name for value in values("COPY") for name in value.split()[:-1]}
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    said = [PROJECT["project"]["readme"], *PROJECT["project"]["license-files"], "pyproject.toml"]
    assert {*packages, *said} <= copied


@pytest.mark.parametrize(
    "name",
    [
        ".git/config",
        ".venv/bin/python",
        "tests/server.py",
        ".env",
        "keys.txt",
        "docker/compose.yaml",
    ],
)
def test_what_the_image_is_not_made_of_is_not_sent(name: str) -> None:
    assert IGNORED.match_file(name)


def test_the_context_is_small() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    files = [ROOT / name for name in listed.stdout.splitlines()] or list(ROOT.glob("*/**/*"))
    sent = [one for one in files if not IGNORED.match_file(str(one.relative_to(ROOT)))]
    assert 0 < sum(one.stat().st_size for one in sent if one.is_file()) < 2_000_000


def test_the_variables_of_the_image_are_settings() -> None:
    given = dict(pair.split("=", 1) for value in values("ENV") for pair in value.split())
    known = {variable(name): name for name in Settings.model_fields}
    ours = {known[name]: value for name, value in given.items() if name.startswith("PROBMAP_")}
    assert Settings.model_validate(ours).host == "0.0.0.0"
    assert values("EXPOSE") == [str(Settings().port)]


def health(**environment: str) -> int:
    command = [sys.executable, "-I", str(DOCKER / "healthcheck.py")]
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode


def test_a_server_that_is_ready_is_healthy() -> None:
    port = str(shared_server().port)
    assert health(PROBMAP_PORT=port) == 0
    assert health(PROBMAP_PORT=port, PROBMAP_HOST="0.0.0.0") == 0


def test_a_server_with_a_certificate_or_on_a_socket_is_healthy(tmp_path: Path) -> None:
    certificate, path = tmp_path / "cert.pem", str(tmp_path / "probmap.sock")
    trustme.CA().issue_cert("example.org").private_key_and_cert_chain_pem.write_to_path(
        str(certificate)
    )
    with running_server(
        "--device", "cpu", "--uds", path, PROBMAP_TLS_CERT=str(certificate)
    ) as server:
        over_tls = {"PROBMAP_TLS_CERT": str(certificate)}
        assert health(PROBMAP_PORT=str(server.port), **over_tls) == 0
        assert health(PROBMAP_UDS=path, **over_tls) == 0
        assert health(PROBMAP_PORT=str(server.port)) == 1


@pytest.fixture
def unready() -> Iterator[str]:
    """The port of a server that answers 503."""

    class Unready(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(503)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Unready) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield str(server.server_port)
        server.shutdown()
        thread.join()


def test_a_server_that_is_not_ready_or_not_there_is_not_healthy(unready: str) -> None:
    assert health(PROBMAP_PORT=unready) == 1
    assert health(PROBMAP_UDS="/nonexistent/probmap.sock") == 1


def valid_compose(*paths: Path) -> subprocess.CompletedProcess[str]:
    return run(COMMANDS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", *paths)


def test_the_compose_files_are_valid(tmp_path: Path) -> None:
    checked = valid_compose(*sorted(DOCKER.glob("compose*.yaml")))
    assert checked.returncode == 0, checked.stdout
    broken = tmp_path / "compose.yaml"
    broken.write_text(yaml.safe_dump({**COMPOSE, "servics": {}}), encoding="utf-8")
    assert "servics" in valid_compose(broken).stdout


def test_the_composed_server_is_confined_and_has_time_to_stop() -> None:
    assert SERVER["read_only"] is True
    for service in COMPOSE["services"].values():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    known = {variable(name): name for name in Settings.model_fields}
    given = {known[name]: value for name, value in SERVER["environment"].items()}
    settings = Settings.model_validate(given)
    # Prometheus shows no key; 5: SENDING_SECONDS of service/server.py.
    assert "metrics" in settings.public
    assert int(SERVER["stop_grace_period"].removesuffix("s")) >= settings.grace_seconds + 5


def test_the_compose_files_name_what_there_is() -> None:
    build = SERVER["build"]
    assert (DOCKER / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).samefile(DOCKER / "Dockerfile")
    taken = {value.split("=")[0] for value in values("ARG")}
    assert build["args"].keys() <= taken
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (DOCKER / source).is_dir() if source[0] == "." else source in COMPOSE["volumes"]
    cuda = yaml.safe_load((DOCKER / "compose.cuda.yaml").read_text(encoding="utf-8"))
    assert cuda["services"].keys() <= COMPOSE["services"].keys()
