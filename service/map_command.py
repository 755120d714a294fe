"""`probmap map`: logits from the command line or a file, mapped in this process or by a server."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mappings.errors import ProbmapError
from mappings.evaluation import VALID, Evaluation
from probmap_client import Client
from schemas.request import MapRequest
from service.bulk.evaluator import ANSWER_SECONDS, Evaluator, Here, Server
from service.bulk.formats import ARROW, LINES, OUTPUTS, need
from service.bulk.job_source import JobSource
from service.bulk.map_file import Unfinished, map_file
from service.bulk.piece import Item, Piece, Source
from service.engine.devices import devices
from service.engine.job import Job
from service.exit_codes import DONE, INVALID_ROWS, told
from service.files import write_json, write_npz
from service.map_arguments import logit_of
from service.map_run import file_source, identity_of, merging, unlimited_settings
from service.plot import check_plot, write_plot
from service.settings import Settings
from service.tables import SHOWN_ROWS, print_tables
from service.wire.field_places import Fields
from service.wire.json_decode import job_of
from service.wire.number_arrays import parse

STANDARD_OUTPUT = "-"

IN_MEMORY = (".json", STANDARD_OUTPUT)
"""Outputs of which the whole answer is in memory, as one document."""


def run(given: argparse.Namespace) -> int:
    """Runs the command.

    Returns:
        The exit code.

    Raises:
        ProbmapError: the request asks for what cannot be.
        ValueError: the arguments or a file's contents make no sense.
        OSError: a file cannot be read or written, or the server not be reached.
    """
    if given.engine == "ray":
        need("ray", "ray", "--engine ray")
        from service.many_files import run as run_many

        return run_many(given)
    settings = unlimited_settings()
    output = given.output
    suffix = STANDARD_OUTPUT if output == STANDARD_OUTPUT else Path(output or "").suffix
    if output is not None and suffix not in (*OUTPUTS, *IN_MEMORY):
        raise ValueError(f"--output should end in {', '.join(OUTPUTS)} or .json, or be -")
    if suffix in ARROW:
        need("pyarrow", "arrow", f"a {suffix} file")
    source = _source(given, settings, is_table=suffix != LINES)
    if given.plot is not None:
        check_plot(Path(given.plot), source.rows)
    with _evaluator(given, settings) as evaluator:
        if output is None:
            code = _print(source, evaluator)
        elif suffix in IN_MEMORY or (suffix == ".npz" and isinstance(source, JobSource)):
            code = _write(source, evaluator, output, settings)
        else:
            code = _map_file(given, source, evaluator, settings)
        if given.plot is not None:
            _plot(source, evaluator, Path(given.plot))
    return code


def _source(given: argparse.Namespace, settings: Settings, *, is_table: bool) -> Source:
    if given.logits and given.input:
        raise ValueError("give logits or --input, not both")
    merged = merging(given, settings)
    if given.logits:
        row = [logit_of(text.strip()) for text in given.logits]
        return JobSource(job_of(merged({"logits": row}), MapRequest, settings))
    if not given.input:
        raise ValueError("give logits, or a file of them with --input")
    path = Path(given.input)
    if path.suffix == ".json":
        document = parse(bytearray(path.read_bytes()), settings)
        fields: Fields = document if isinstance(document, dict) else {"logits": document}
        return JobSource(job_of(merged(fields), MapRequest, settings))
    return file_source(given, settings, is_table=is_table)


@contextmanager
def _evaluator(given: argparse.Namespace, settings: Settings) -> Iterator[Evaluator]:
    if given.url is None:
        yield Here(devices(given.device)[0])
        return
    # The variable that gives the server its keys gives one to whoever asks it.
    key = settings.api_key[0].get_secret_value() if settings.api_key else None
    with Client(given.url, api_key=key, timeout=ANSWER_SECONDS) as client:
        yield Server(client)


def _print(source: Source, evaluator: Evaluator) -> int:
    job = source.beginning(SHOWN_ROWS)
    evaluation = _evaluated(evaluator, job)
    print_tables(job, evaluation, source.rows)
    return _code(evaluation)


def _write(source: Source, evaluator: Evaluator, output: str, settings: Settings) -> int:
    job = source.beginning(None)
    evaluation = _evaluated(evaluator, job)
    path = Path(output)
    if path.suffix == ".npz":
        write_npz(path, job, evaluation)
    else:
        write_json(None if output == STANDARD_OUTPUT else path, job, evaluation, settings)
    return _code(evaluation)


def _plot(source: Source, evaluator: Evaluator, path: Path) -> None:
    job = source.beginning(None)
    changed = {"outputs": ["probabilities"], "jacobian": None, "invalid_rows": "report"}
    plotted = Job(job.logits, job.request.model_copy(update=changed), job.lengths)
    write_plot(path, plotted, _evaluated(evaluator, plotted))


def _map_file(
    given: argparse.Namespace, source: Source, evaluator: Evaluator, settings: Settings
) -> int:
    output = Path(given.output)
    try:
        failed = map_file(
            source, evaluator, output, identity_of(given), settings, restart=given.restart
        )
    except Unfinished as unfinished:
        found = told(unfinished.reason)
        if found is None:
            raise
        code, message = found
        kept = f"{unfinished.kept:,} rows are kept in {output}.partial; give the same command again"
        sys.stderr.write(f"probmap map: {message}; {kept} to go on\n")
        return code
    return INVALID_ROWS if failed else DONE


def _evaluated(evaluator: Evaluator, job: Job) -> Evaluation:
    """The answer to one job."""
    [(_, [outcome])] = evaluator.answers(iter([Piece([Item(0, None, job)], 1.0)]))
    if isinstance(outcome, ProbmapError):
        raise outcome
    return outcome


def _code(evaluation: Evaluation) -> int:
    return DONE if all(text == VALID for text in evaluation.status) else INVALID_ROWS
