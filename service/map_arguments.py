"""The flags of `probmap map`: those of a request, and every parameter of every mapping."""

import argparse
import contextlib
import math
from collections.abc import Sequence
from functools import cache
from typing import Any, get_args

import numpy as np

from mappings.evaluate import InvalidRows
from mappings.evaluation import MapOutput
from mappings.registry import MAPPINGS
from schemas.description import ParameterDescription, parameters
from schemas.request import Dtype
from service.errors import MalformedBody
from service.settings import Settings
from service.wire.number_arrays import parse

PREFIX = "parameter:"
"""Begins the names under which argparse keeps the mappings' parameters."""


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
    add(
        "--input",
        metavar="FILE",
        help="logits: .npy, .safetensors (tensor logits), .parquet, .arrow or .arrows (column "
        "logits), .jsonl (a request a line), .json (logits, or a request)",
    )
    add(
        "--output",
        metavar="FILE",
        help="answers: .npy (one output), .npz, .safetensors, .parquet, .arrow, .arrows (a "
        "stream), .jsonl, .json, or - for JSON here; without it, a table of the first rows",
    )
    add(
        "--outputs",
        metavar="NAMES",
        help=f"what to compute, with commas: {', '.join(get_args(MapOutput))}",
    )
    add("--support-limit", metavar="COUNT", type=int, help="at most so many classes in a support")
    add("--invalid-rows", choices=get_args(InvalidRows), help="what to do with rows of NaN and so")
    add("--dtype", choices=get_args(Dtype), help="the precision of the answer")
    add("--device", default="auto", help="auto, cpu, cuda or cuda:0 [auto]")
    add(
        "--engine",
        choices=("here", "ray"),
        default="here",
        help="ray: map many files on many machines; give patterns of files, and a folder [here]",
    )
    add("--url", metavar="URL", help="the server to ask; its key is in PROBMAP_API_KEY")
    add(
        "--columns",
        metavar="NAMES",
        help="columns or tensors beside the logits that are parameters a row, with commas; '' is "
        "none [all there are]",
    )
    add("--batch-rows", metavar="COUNT", type=_count, help="rows computed together [as suits]")
    add("--restart", action="store_true", help="forget what an interrupted run left")
    add("--plot", metavar="FILE", help="draw the probabilities of a few rows, .png or .html")
    group = parser.add_argument_group("parameters of the mappings")
    for name, uses in _parameters().items():
        _add_parameter(group, name, uses)


def shielded(arguments: Sequence[str]) -> list[str]:
    """The arguments with a space before every negative number.

    argparse takes -1e5, -inf and the like for flags; with a space in front it does not.
    """
    return [f" {text}" if text[:1] == "-" and _is_number(text) else text for text in arguments]


def options_of(given: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """The request's fields that were given as flags."""
    options: dict[str, Any] = {
        name: value
        for name in ("mapping", "support_limit", "invalid_rows", "dtype")
        if (value := getattr(given, name)) is not None
    }
    if given.processors is not None:
        try:
            options["processors"] = parse(bytearray(given.processors.encode()), settings)
        except MalformedBody:
            raise ValueError("--processors should be JSON: a list of names or objects") from None
    if given.outputs is not None:
        options["outputs"] = [name.strip() for name in given.outputs.split(",")]
    for name, value in vars(given).items():
        if name.startswith(PREFIX) and value is not None:
            options[name.removeprefix(PREFIX)] = value
    return options


@cache
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


def _count(text: str) -> int:
    """A whole number of at least 1."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text.strip()!r} is no count; give at least 1")
    return int(text)


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


def logit_of(text: str) -> int | float | None:
    """A logit; None masks the class."""
    return None if text in ("null", "-inf") else _number(text)


def _is_number(text: str) -> bool:
    try:
        float(text.partition(",")[0])
    except ValueError:
        return False
    return True
