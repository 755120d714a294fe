"""HTTPS, of a real server with a certificate made here."""

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from websockets.sync.client import connect

import probmap_client
from server import RunningServer, running_server
from service.settings import Settings
from service.tls import tls_context

REQUEST = {"logits": [0, 0.5, 1], "mapping": "sparsemax"}


@dataclass
class Files:
    """Of a certificate: its chain, its key, both in one, and whom to trust."""

    chain: str
    key: str
    both: str
    authority: str

    @property
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.authority)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    names = {name: str(folder / name) for name in ("chain", "key", "both")}
    Path(names["chain"]).write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(names["key"])
    issued.private_key_and_cert_chain_pem.write_to_path(names["both"])
    return Files(**names, authority=authority.cert_pem.bytes().decode())


@pytest.fixture(scope="module")
def server(files: Files) -> Iterator[RunningServer]:
    with running_server("--tls-cert", files.chain, "--tls-key", files.key) as started:
        yield started


def test_requests_are_answered_encrypted(server: RunningServer, files: Files) -> None:
    assert server.url.startswith("https://")
    response = httpx.post(f"{server.url}/v1/map", json=REQUEST, verify=files.trust)
    assert response.json()["probabilities"] == [[0.0, 0.25, 0.75]]
    with probmap_client.Client(server.url, verify=files.trust) as client:
        answer = client.map(np.array([[0, 0.5, 1]]), "sparsemax")
        np.testing.assert_array_equal(answer.probabilities, [[0, 0.25, 0.75]])
    with connect(f"wss{server.url[5:]}/v1/ws", ssl=files.trust) as talking:
        talking.send('{"logits": [0, 0.5, 1], "mapping": "sparsemax"}')
        assert "[[0.0,0.25,0.75]]" in str(talking.recv(30))


def test_who_does_not_trust_the_certificate_does_not_connect(server: RunningServer) -> None:
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{server.url}/health")


def test_what_is_not_encrypted_is_not_answered(server: RunningServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            answer = connection.recv(65536)
        except ConnectionResetError:
            answer = b""
    assert not answer.startswith(b"HTTP")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions_from_1_2_on_are_spoken(
    server: RunningServer, files: Files, version: ssl.TLSVersion
) -> None:
    context = ssl.create_default_context(cadata=files.authority)
    context.minimum_version = context.maximum_version = version
    assert httpx.get(f"{server.url}/health", verify=context).status_code == 200


def test_older_versions_are_refused(server: RunningServer) -> None:
    # The beginning of a handshake of TLS 1.1: a record, a client's hello, two ciphers.
    hello = b"\x03\x02" + bytes(32) + b"\0" + b"\0\x04\xc0\x13\0\x2f" + b"\x01\0"
    record = b"\x01" + len(hello).to_bytes(3) + hello
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(b"\x16\x03\x01" + len(record).to_bytes(2) + record)
        # An alert or nothing, but no handshake (RFC 5246, 6.2.1).
        assert connection.recv(1) in (b"\x15", b"")


def test_the_key_may_be_in_the_certificates_file(files: Files) -> None:
    with running_server(PROBMAP_TLS_CERT=files.both) as server:
        assert httpx.get(f"{server.url}/health", verify=files.trust).status_code == 200


def test_what_is_no_certificate_and_its_key_is_refused(files: Files, tmp_path: Path) -> None:
    other = tmp_path / "other"
    trustme.CA().issue_cert("localhost").private_key_pem.write_to_path(str(other))
    none = tmp_path / "none"
    none.write_text("none")
    for given, words in (
        ({"tls_key": files.key}, "--tls-key needs --tls-cert"),
        ({"tls_cert": files.chain}, "no certificate and its key"),
        ({"tls_cert": files.chain, "tls_key": str(other)}, "KEY_VALUES_MISMATCH"),
        ({"tls_cert": str(none), "tls_key": files.key}, "no certificate and its key"),
    ):
        with pytest.raises(ValueError, match=words):
            tls_context(Settings.model_validate(given))
    with pytest.raises(FileNotFoundError) as missing:
        tls_context(Settings(tls_cert=str(tmp_path / "absent")))
    assert missing.value.filename == str(tmp_path / "absent")


def test_a_key_with_a_password_is_refused_and_none_is_asked_for(
    files: Files, tmp_path: Path
) -> None:
    locked = tmp_path / "locked"
    key = load_pem_private_key(Path(files.key).read_bytes(), None)
    form = (Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    locked.write_bytes(key.private_bytes(*form))
    with pytest.raises(ValueError, match="without a password"):
        tls_context(Settings(tls_cert=files.chain, tls_key=str(locked)))
