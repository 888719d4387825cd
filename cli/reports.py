"""Measure the speed or the quality of a report, which `octavo bench --report` and `octavo eval suite` share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..settings import ModelSettings
from . import options
from .render import TaskProgress, markdown_table, notice, print_json, resumable

if TYPE_CHECKING:
    from ..evaluation.report import Part, Piece, Report
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
    how: Piece,
    given: Piece,
    depths: list[int],
    output: str,
) -> None:
    """Measure the speed of a report, or the rest of it, and print its table.

    Parameters
    ----------
    how : dict
        All of a piece of a new report, but its depth.
    given : dict
        The settings of `how` that the user gave: a report that has other ones is refused.
    depths : list of int
        The depths that the user gave, if any: others are not measured.
    """
    from ..evaluation.report import Report
    from ..evaluation.report_speed import measure_speed, speed_pieces
    from ..evaluation.report_tables import speed_table

    report = Report(path, settings, library)
    with resumable(), TaskProgress() as progress:
        _plan(report, "speed", how, given, depths, lambda how, new: speed_pieces(settings, how, new, progress))
        pieces = report.matching("speed", given, depths)
        _say_how_long(report, "speed", pieces)
        report.measure(pieces, lambda piece: measure_speed(settings, library, piece, progress))
    _print_report(report, speed_table({"": report.content}), output)


def measure_suite(
    settings: ModelSettings, path: Path | None, samples: int | None, depths: list[int], output: str
) -> None:
    """Measure the quality of a report, or the rest of it, and print its table."""
    from ..evaluation.report import Report
    from ..evaluation.report_quality import OWN_DEPTH, measure_quality, quality_pieces
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
        given = {} if samples is None else {"samples": samples}

        def pieces_of(how: Piece, new: list[int]) -> list[Piece]:
            return quality_pieces(llama, how["samples"], new, progress, notice)

        _plan(report, "quality", {"samples": samples}, given, depths, pieces_of)
        pieces = report.matching("quality", given, depths and [*depths, OWN_DEPTH])
        _say_how_long(report, "quality", pieces)
        report.measure(pieces, lambda piece: measure_quality(llama, library, piece, progress, notice))
    _print_report(report, task_table(report.content), output)


def _plan(
    report: Report,
    part: Part,
    how: Piece,
    given: Piece,
    depths: list[int],
    pieces_of: Callable[[Piece, list[int]], list[Piece]],
) -> None:
    """Plan a new part of a report, or the depths that it lacks, which are measured as the others."""
    how = report.settings(part, how, given)
    new = [depth for depth in depths if not report.matching(part, given, [depth])]
    if new or not report.pieces(part):
        report.plan(part, pieces_of(how, new))


def _say_how_long(report: Report, part: Part, pieces: list[Piece]) -> None:
    """Say which of these pieces are missing, and how long that takes, before it starts."""
    from ..evaluation.report import missing

    if lacking := missing(pieces):
        minutes = max(round(sum(piece["estimated_s"] for piece in lacking) / 60), 1)
        of_them = f"{len(lacking)} of {len(pieces)}" if len(lacking) < len(pieces) else f"{len(pieces)}"
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
