"""`probmap map`: logits from the command line or a file, mapped in this process."""

import argparse
import contextlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from mappings.evaluate import InvalidRows
from mappings.evaluation import MapOutput
from mappings.registry import MAPPINGS
from schemas.description import ParameterDescription, parameters
from schemas.read import read_request
from schemas.request import Dtype, MapRequest
from service.engine.devices import devices
from service.engine.engine import run as evaluate_job
from service.engine.job import Job
from service.errors import MalformedBody
from service.files import write_json, write_npz
from service.settings import Settings
from service.tables import print_tables
from service.wire.json_decode import job_of
from service.wire.number_arrays import parse

PREFIX = "parameter:"
"""Begins the names under which argparse keeps the mappings' parameters."""

TABLE_OUTPUTS = ["probabilities", "log_probabilities", "normalizer", "entropy", "support_size"]
"""What a table shows."""

UNLIMITED = 1 << 62


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags: those of a request, and every parameter of every registered mapping."""
    parser.add_argument(
        "logits", nargs="*", metavar="LOGIT", help="one row of logits; null or -inf masks a class"
    )
    add = parser.add_argument
    add("--mapping", metavar="NAME", help=f"one of {', '.join(MAPPINGS)} [softmax]")
    add(
        "--processors",
        metavar="JSON",
        help='steps before the mapping, in order: [{"name": "top_k", "k": 50}, "p_less"]',
    )
    add("--input", metavar="FILE", help="logits from .npy, or logits or a request from .json")
    add("--output", metavar="FILE", help="write the answer to .npz or .json, or - for JSON here")
    add(
        "--outputs",
        metavar="NAMES",
        help=f"what to compute, with commas: {', '.join(get_args(MapOutput))}",
    )
    add("--support-limit", metavar="COUNT", type=int, help="at most so many classes in a support")
    add("--invalid-rows", choices=get_args(InvalidRows), help="what to do with rows of NaN and so")
    add("--dtype", choices=get_args(Dtype), help="the precision of the answer")
    add("--device", default="auto", help="auto, cpu, cuda or cuda:0 [auto]")
    group = parser.add_argument_group("parameters of the mappings")
    for name, uses in _parameters().items():
        _add_parameter(group, name, uses)


def shielded(arguments: Sequence[str]) -> list[str]:
    """The arguments with a space before every negative number.

    argparse takes -1e5, -inf and the like for flags; with a space in front it does not.
    """
    return [f" {text}" if text[:1] == "-" and _is_number(text) else text for text in arguments]


def run(given: argparse.Namespace) -> None:
    """Runs the command.

    Raises:
        ProbmapError: the request asks for what cannot be.
        ValueError: the arguments or a file's contents make no sense.
        OSError: a file cannot be read or written.
    """
    job = _job(given)
    output = Path(given.output) if given.output not in (None, "-") else None
    if output is not None and output.suffix not in (".npz", ".json"):
        raise ValueError("--output should end in .npz or .json")
    completed = evaluate_job(job, devices(given.device)[0])
    if given.output is None:
        print_tables(job, completed.evaluation)
    elif output is not None and output.suffix == ".npz":
        write_npz(output, job, completed.evaluation)
    else:
        write_json(output, job, completed.evaluation, _settings())


def _job(given: argparse.Namespace) -> Job:
    options = _options(given)
    defaults: dict[str, Any] = {"mapping": "softmax"}
    if given.output is None:
        defaults["outputs"] = TABLE_OUTPUTS
    if given.logits and given.input:
        raise ValueError("give logits or --input, not both")
    if given.logits:
        row = [_logit(text.strip()) for text in given.logits]
        return job_of({**defaults, **options, "logits": row}, MapRequest, _settings())
    if not given.input:
        raise ValueError("give logits, or a file of them with --input")
    path = Path(given.input)
    if path.suffix == ".npy":
        with path.open("rb") as file:
            array = np.load(file, allow_pickle=False)
        if array.ndim not in (1, 2) or array.dtype.kind not in "fiu":
            raise ValueError(f"{path} should hold numbers, rows × classes or one row")
        logits = torch.from_numpy(np.atleast_2d(array))
        widths = [logits.shape[1]] * len(logits)
        request = read_request(MapRequest, {**defaults, **options}, widths=widths)
        return Job(logits, request)
    if path.suffix != ".json":
        raise ValueError("--input should end in .npy or .json")
    document = parse(bytearray(path.read_bytes()), _settings())
    if not isinstance(document, dict):
        document = {"logits": document}
    return job_of({**defaults, **document, **options}, MapRequest, _settings())


def _options(given: argparse.Namespace) -> dict[str, Any]:
    """The request's fields that were given as flags."""
    options: dict[str, Any] = {
        name: value
        for name in ("mapping", "support_limit", "invalid_rows", "dtype")
        if (value := getattr(given, name)) is not None
    }
    if given.processors is not None:
        try:
            options["processors"] = parse(bytearray(given.processors.encode()), _settings())
        except MalformedBody:
            raise ValueError("--processors should be JSON: a list of names or objects") from None
    if given.outputs is not None:
        options["outputs"] = [name.strip() for name in given.outputs.split(",")]
    for name, value in vars(given).items():
        if name.startswith(PREFIX) and value is not None:
            options[name.removeprefix(PREFIX)] = value
    return options


def _parameters() -> dict[str, dict[str, ParameterDescription]]:
    """Every parameter's description by its name, and by the mapping that has it."""
    found: dict[str, dict[str, ParameterDescription]] = {}
    for mapping, kind in MAPPINGS.items():
        for parameter in parameters(kind):
            found.setdefault(parameter.name, {})[mapping] = parameter
    return found


def _add_parameter(group: Any, name: str, uses: dict[str, ParameterDescription]) -> None:
    first = next(iter(uses.values()))
    where = "every mapping" if len(uses) == len(MAPPINGS) else ", ".join(uses)
    choices = sorted({str(choice) for use in uses.values() for choice in use.choices or ()})
    listed = f" {', '.join(choices)}." if choices else ""
    keywords: dict[str, Any] = {
        "dest": PREFIX + name,
        "help": f"{first.description}{listed} [{where}]".replace("%", "%%"),
    }
    flag = f"--{name.replace('_', '-')}"
    if first.type == "boolean":
        group.add_argument(flag, action=argparse.BooleanOptionalAction, **keywords)
    elif first.type == "string":
        group.add_argument(flag, metavar="NAME", **keywords)
    else:
        metavar = {"per_row": "X[,X…]", "per_class": "X,X…", "static": "X"}[first.kind]
        read = _weights if first.kind == "per_class" else _values
        group.add_argument(flag, metavar=metavar, type=read, **keywords)


def _values(text: str) -> Any:
    """A number, or a list of numbers between commas."""
    try:
        values = [_number(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return values if "," in text else values[0]


def _weights(text: str) -> Any:
    """Numbers between commas, or a .npy file of them."""
    if not text.endswith(".npy"):
        values = _values(text)
        return values if isinstance(values, list) else [values]
    try:
        with open(text, "rb") as file:
            return np.load(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from None


def _number(text: str) -> int | float:
    with contextlib.suppress(ValueError):
        return int(text)
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text.strip()!r} is not a number") from None
    if not math.isfinite(value):
        raise ValueError(f"{text.strip()!r} is not a finite number")
    return value


def _logit(text: str) -> int | float | None:
    return None if text in ("null", "-inf") else _number(text)


def _is_number(text: str) -> bool:
    try:
        float(text.partition(",")[0])
    except ValueError:
        return False
    return True


def _settings() -> Settings:
    """Settings without limits: here nobody is to be protected from anybody."""
    return Settings(
        max_rows=UNLIMITED,
        max_classes=UNLIMITED,
        max_elements=UNLIMITED,
        max_output_elements=UNLIMITED,
    )
