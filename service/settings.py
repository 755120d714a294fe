"""Every setting: a flag of `probmap serve` and a PROBMAP_* environment variable."""

import re
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

DEVICES = r"^(auto|cpu|cuda|cuda:\d+(,cuda:\d+)*)$"
"""What names devices."""

KEY_RULE = "a key is visible ASCII without blanks and commas"

ORIGIN = r"^(\*|https?://[^/\s,]+)$"
"""What names the origin of web pages: a scheme, a host and perhaps a port; * is any."""


def is_key(text: str) -> bool:
    """Whether a text can be sent as a key, and listed among others."""
    return re.fullmatch(r"[!-+\--~]+", text) is not None


def _key(given: SecretStr) -> SecretStr:
    if not is_key(given.get_secret_value()):
        raise ValueError(KEY_RULE)
    return given


def _listed(given: object) -> object:
    """The entries of what was given once or several times, each with commas between."""
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, Iterable):
        return given
    return tuple(
        part.strip()
        for text in given
        for part in (text.split(",") if isinstance(text, str) else (text,))
        if not isinstance(part, str) or part.strip()
    )


def _keys(given: object) -> object:
    keys = _listed(given)
    # A variable that was meant to hold a key must not open the server.
    if keys == () != given:
        raise ValueError("there is no key in it; leave it unset for a server that asks for none")
    return keys


Key = Annotated[SecretStr, AfterValidator(_key)]
Origin = Annotated[str, Field(pattern=ORIGIN)]
Public = Literal["live", "ready", "metrics", "docs", "playground"]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Settings(BaseSettings):
    """How the server runs. Flags win over the environment, the environment over the defaults."""

    model_config = SettingsConfigDict(
        env_prefix="PROBMAP_", frozen=True, use_attribute_docstrings=True
    )

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for every interface."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port to listen on; 0 takes a free one."""
    uds: str | None = None
    """Path of a Unix socket to listen on as well; it is made for the owner and the group."""
    no_tcp: bool = False
    """Listen on the Unix socket alone, not on host and port."""
    device: Annotated[str, Field(pattern=DEVICES)] = "auto"
    """Where to compute: auto (a GPU if there is one), cpu, cuda, or cuda:0,cuda:1."""
    tls_cert: str | None = None
    """File of the certificate, and those that it rests on, to speak HTTPS with (PEM)."""
    tls_key: str | None = None
    """File of the certificate's key, without a password (PEM); where it is not in the same file."""
    api_key: Annotated[tuple[Key, ...], NoDecode, BeforeValidator(_keys)] = ()
    """A key that callers must show; several may be given. Other users of the machine can read
    flags: a variable or a file is safer."""
    api_key_file: str | None = None
    """File of keys that callers must show, one a line; read again when it changes."""
    public: Annotated[tuple[Public, ...], NoDecode, BeforeValidator(_listed)] = ("live", "ready")
    """What needs no key: any of live, ready, metrics, docs, playground."""
    cors_origin: Annotated[tuple[Origin, ...], NoDecode, BeforeValidator(_listed)] = ()
    """Origin of web pages, such as https://example.org, that may ask from a browser; several may
    be given."""
    http_parser: Literal["httptools", "h11"] = "httptools"
    """What reads HTTP: httptools, which is fast, or h11, which is strict and all Python."""
    max_connections: Count = 10_000
    """Most connections at a time (a count); beyond it they are answered 429."""
    max_header_bytes: Annotated[int, Field(ge=1024, le=1 << 20)] = 32 << 10
    """Largest header of a request (bytes)."""
    header_timeout_seconds: Seconds = 10.0
    """Time in which a header has to arrive once it has begun (seconds)."""
    max_body_bytes: Count = 128 << 20
    """Largest request body (bytes)."""
    max_rows: Count = 1 << 16
    """Most rows of logits in one request (a count)."""
    max_classes: Count = 1 << 25
    """Most classes in a row (a count)."""
    max_elements: Count = 1 << 26
    """Most logits in one request, rows × longest row (a count)."""
    max_output_elements: Count = 1 << 24
    """Most numbers in one answer (a count); outputs of one number a logit count only where they
    are text: in binary the limits of the logits bound them."""
    max_inflight_bytes: Count = 1 << 30
    """Most memory that all requests together hold: bodies, logits and answers (bytes); beyond it
    they are answered 429, but for one that is alone."""
    max_inflight_rows: Count = 1 << 17
    """Most rows that wait or are being computed, of all requests together (a count); beyond it
    they are answered 429, but for one that is alone."""
    max_batch_elements: Count = 1 << 22
    """Most logits of different requests that are computed together (a count); how much memory a
    computation takes is bounded apart from it, by computing some rows at a time."""
    max_batch_bytes: Count = 1 << 28
    """Most memory that the logits and answers computed together take (bytes)."""
    max_delay_ms: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)] = 0.0
    """How long a request may wait for others to be computed with (milliseconds); 0 computes what
    is there."""
    stall_seconds: Seconds = 30.0
    """Time after which a worker that does not move is given up and replaced, once (seconds)."""
    body_timeout_seconds: Seconds = 60.0
    """Time in which a request's body has to arrive (seconds)."""
    stream_window: Annotated[int, Field(ge=1, le=4096)] = 64
    """Requests of one stream that are in flight at a time (a count)."""
    stream_idle_seconds: Seconds = 300.0
    """Time after which a stream is ended whose client sends nothing, and any answer whose client
    reads nothing (seconds)."""
    keep_alive_seconds: Annotated[int, Field(ge=1)] = 120
    """Time after which an idle connection is closed (seconds)."""
    grace_seconds: Annotated[int, Field(ge=0)] = 30
    """Time that accepted requests get to finish when the server is told to stop (seconds)."""
    codec_threads: Annotated[int, Field(ge=1, le=64)] = 2
    """Threads that read and write large bodies (a count)."""
    allow_shared_memory: bool = False
    """Whether clients of the Open Inference Protocol may pass tensors by system shared memory."""
    traces: Literal["off", "otlp"] = "off"
    """Where spans of requests go: off, or otlp for a collector of OpenTelemetry, which the
    environment variables OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_SERVICE_NAME name."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe message to log: debug, info, warning or error."""
    log_format: Literal["text", "json"] = "text"
    """How log lines look: text for people, json for machines."""


def shown(value: object) -> str:
    """A setting's value as it is given."""
    return (",".join(map(str, value)) or "none") if isinstance(value, tuple) else str(value)


def is_repeatable(name: str) -> bool:
    """Whether a setting may be given several times."""
    return isinstance(Settings.model_fields[name].default, tuple)


def flag(name: str) -> str:
    """A setting's flag of `probmap serve`."""
    return f"--{name.replace('_', '-')}"


def variable(name: str) -> str:
    """A setting's environment variable."""
    return f"PROBMAP_{name.upper()}"


def raises(name: str) -> str:
    """How to raise a limit."""
    return f"{flag(name)} or {variable(name)} of the server raises it"


def allowance(name: str, value: object) -> str:
    """What to tell a client who went over a limit: the limit and how to raise it."""
    return f"the limit is {value:,} ({raises(name)})"
