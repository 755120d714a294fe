"""The command line: `probmap serve` and `probmap map`."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError

from mappings.errors import ProbmapError
from service.settings import Settings, flag, is_repeatable, shown, variable
from service.version import release

USAGE_ERROR = 2
"""The exit code when what was asked for cannot be."""

FILE_ERROR = 1
"""The exit code when a file cannot be read or written."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog="probmap",
        description="Batched logits to probability distributions.",
        epilog="probmap COMMAND --help tells more.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"probmap {release()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    server = commands.add_parser(
        "serve",
        help="start the HTTP server",
        description="Starts the HTTP server.",
        epilog="Every flag is also an environment variable; a flag wins over its variable.",
        formatter_class=_formatter,
        allow_abbrev=False,
    )
    mapper = commands.add_parser(
        "map",
        help="map logits here and now, without a server",
        description="Maps logits to probabilities here and now, without a server.",
        epilog="examples: probmap map --mapping entmax --alpha 1.5 0 0.25 0.5\n"
        "          probmap map --mapping sparsemax --input logits.npy --output answer.npz",
        formatter_class=_formatter,
        allow_abbrev=False,
    )
    _add_settings(server)
    if given[:1] == ["map"]:
        # Its flags come from the registry, whose import takes seconds: only when they are needed.
        from service import map_command

        map_command.add_arguments(mapper)
        asked = parser.parse_args(map_command.shielded(given))
        return _reported(mapper.prog, lambda: map_command.run(asked))
    return _serve(server.prog, parser.parse_args(given))


def _formatter(prog: str) -> argparse.RawDescriptionHelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=34, width=100)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    for name, field in Settings.model_fields.items():
        meaning = " ".join((field.description or "").split())
        # On its own, the flag of something that is on or off switches it on.
        switch: dict[str, Any] = {"nargs": "?", "const": True} if field.annotation is bool else {}
        if is_repeatable(name):
            switch = {"action": "append"}
        parser.add_argument(
            flag(name),
            dest=name,
            default=argparse.SUPPRESS,
            metavar=name.rpartition("_")[2].upper(),
            help=f"{meaning} [{shown(field.default)}; {variable(name)}]",
            **switch,
        )


def _serve(program: str, given: argparse.Namespace) -> int:
    flags = {name: value for name, value in vars(given).items() if name != "command"}
    try:
        settings = Settings(**flags)
    except ValidationError as error:
        for entry in error.errors(include_url=False):
            name = str(entry["loc"][0])
            print(f"{program}: {flag(name)} ({variable(name)}): {entry['msg']}", file=sys.stderr)
        return USAGE_ERROR
    # torch's idle threads would spin beside the event loop; it reads this once, when imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Imports torch, which takes seconds: not for --help.
    from service.server import serve

    return _reported(program, lambda: serve(settings))


def _reported(program: str, command: Callable[[], int | None]) -> int:
    """Runs a command; what the user can mend is a message, not a traceback."""
    try:
        return command() or 0
    except ProbmapError as error:
        print(f"{program}: {error.detail}", file=sys.stderr)
    except ValueError as error:
        print(f"{program}: {error}", file=sys.stderr)
    except OSError as error:
        print(f"{program}: {error.filename or ''}: {error.strerror}", file=sys.stderr)
        return FILE_ERROR
    return USAGE_ERROR


if __name__ == "__main__":
    sys.exit(main())
