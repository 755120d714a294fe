"""The command line: `probmap serve` and `probmap map`."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError

from service.exit_codes import MEANINGS, USAGE_ERROR, told
from service.heap import keep_freed_memory
from service.settings import Settings, flag, is_repeatable, shown, variable
from service.version import release


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
        help="map logits here and now, or whole files of them",
        description="Maps logits to probabilities, here and now or, with --url, by a server.\n"
        "Files are read and written some rows at a time; a run that was ended goes on where it\n"
        "stopped when the same command is given again.",
        epilog=_map_epilog(),
        formatter_class=_formatter,
        allow_abbrev=False,
    )
    _add_settings(server)
    if given[:1] == ["map"]:
        # Its flags come from the registry, whose import takes seconds: only when they are needed.
        from service import map_arguments, map_command

        map_arguments.add_arguments(mapper)
        asked = parser.parse_args(map_arguments.shielded(given))
        return _reported(mapper.prog, lambda: map_command.run(asked))
    return _serve(server.prog, parser.parse_args(given))


def _map_epilog() -> str:
    codes = [f"  {code:<4} {meaning}" for code, meaning in MEANINGS.items()]
    return "\n".join(
        [
            "examples:",
            "  probmap map --mapping entmax --alpha 1.5 0 0.25 0.5",
            "  probmap map --mapping sparsemax --input logits.npy --output answer.npz",
            "  probmap map --input requests.jsonl --output answers.jsonl --url http://127.0.0.1:8000",
            "  probmap map --engine ray 'in/*.parquet' out/ --mapping sparsemax --outputs support",
            "",
            "exit codes:",
            *codes,
        ]
    )


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
    keep_freed_memory()
    # Imports torch, which takes seconds: not for --help.
    from service.server import serve

    return _reported(program, lambda: serve(settings))


def _reported(program: str, command: Callable[[], int | None]) -> int:
    """Runs a command; what the user can mend is a message, not a traceback."""
    try:
        return command() or 0
    except (Exception, KeyboardInterrupt) as error:
        found = told(error)
        if found is None:
            raise
        code, message = found
        print(f"{program}: {message}", file=sys.stderr)
        return code


if __name__ == "__main__":
    sys.exit(main())
