"""Measure the speed or the quality of a report, which `octavo bench --report` and `octavo eval suite` share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..settings import ModelSettings
from . import options
from .render import TaskProgress, markdown_table, notice, print_json, resumable

if TYPE_CHECKING:
    from ..evaluation.bench import BenchSettings
    from ..evaluation.report import Part, Report
    from ..evaluation.report_tables import Table
    from ..runtime.store.model_library import Library

#: Options that would change what a report measures.
_NOT_IN_A_REPORT = ("doc", "fill", "attention", "budget", "plan", "retrieval_heads", "draft", "programs", "plot")


def refuse_with_report(threads: list[int], cache_types: list[str], output: str) -> None:
    """Refuse options that --report does not take: all reports measure the same."""
    _refuse("--report measures all methods over octavo's own text", _NOT_IN_A_REPORT, output)
    if len(threads) > 1 or len(cache_types) > 1:
        raise click.UsageError("--report takes one number of threads and one type of keys and values.")


def _refuse(reason: str, names: Iterable[str], output: str) -> None:
    """Refuse parameters of the command line, with a reason, and an output that reports do not have."""
    options.refuse(reason, names)
    if output == "csv":
        raise click.UsageError("--report prints -o md or json.")


def measure_speed_of_report(
    path: Path,
    settings: ModelSettings,
    library: Library,
    how: BenchSettings,
    depths: list[int] | None,
    peers: list[str],
    output: str,
) -> None:
    """Measure the speed of a report, or the rest of it, and print its table."""
    from ..evaluation.report import Report
    from ..evaluation.report_speed import measure_speed, speed_pieces
    from ..evaluation.report_tables import speed_table

    report = Report(path, settings, library)
    with resumable(), TaskProgress() as progress:
        if not all(report.has("speed", depth=depth, peers=peers or None) for depth in depths or (None,)):
            report.plan("speed", speed_pieces(settings, how, peers, depths, progress))
        _say_how_long(report, "speed")
        report.measure("speed", lambda piece: measure_speed(settings, library, piece, progress))
    _print_report(report, speed_table({"": report.content}), output)


def measure_suite(
    settings: ModelSettings, path: Path | None, samples: int | None, depths: list[int] | None, output: str
) -> None:
    """Measure the quality of a report, or the rest of it, and print its table."""
    from ..evaluation.report import Report
    from ..evaluation.report_quality import measure_quality, quality_pieces
    from ..evaluation.report_tables import task_table
    from ..runtime.load_model import load_model, locate_model

    if path is None:
        raise click.UsageError("suite keeps its results in a file: name it with --report FILE.json.")
    refused = ("attention", "budgets", "seed", "data", "plan", "scheduler", "plot")
    _refuse("suite measures the same for all owners", refused, output)
    located, library = locate_model(settings, notice)
    report = Report(path, located, library)
    with resumable(), TaskProgress() as progress:
        llama = load_model(located, notice, measures=True)
        if not all(report.has("quality", depth=depth, samples=samples) for depth in depths or (None,)):
            report.plan("quality", quality_pieces(llama, samples, depths, progress, notice))
        _say_how_long(report, "quality")
        report.measure("quality", lambda piece: measure_quality(llama, library, piece, progress, notice))
    _print_report(report, task_table(report.content), output)


def _say_how_long(report: Report, part: Part) -> None:
    """Say what is missing of a part of a report, and how long that takes, before it starts."""
    missing, every = report.missing(part), report.pieces(part)
    if missing:
        minutes = max(round(report.seconds_left(part) / 60), 1)
        of_them = f"{len(missing)} of {len(every)}" if len(missing) < len(every) else f"{len(every)}"
        notice(
            f"The {part} of this report lacks {of_them} measurements: about {minutes} min, if no other program "
            f"uses the cores. {report.path} keeps each; interrupted, the same command continues."
        )


def _print_report(report: Report, table: Table, output: str) -> None:
    """Print a table of a report, or all of it as JSON."""
    headings, rows = table
    if output == "json":
        print_json(report.content)
    else:
        click.echo(markdown_table(headings, rows, n_left=1))
    notice(f"The report is {report.path}. docs/measured/README.md says how to share it.")
