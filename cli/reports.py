"""Render reports: how long they take, and their tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .render import markdown_table, notice, print_json

if TYPE_CHECKING:
    from ..evaluation.report import Part, Report
    from ..evaluation.report_tables import Table


def say_how_long(report: Report, part: Part) -> None:
    """Say what is missing of a part of a report, and how long that takes, before it starts."""
    missing, every = report.missing(part), report.pieces(part)
    if missing:
        minutes = max(round(report.seconds_left(part) / 60), 1)
        of_them = f"{len(missing)} of {len(every)}" if len(missing) < len(every) else f"{len(every)}"
        notice(
            f"The {part} of this report lacks {of_them} measurements: about {minutes} minutes, if no other program "
            f"uses the cores. {report.path} keeps each; interrupted, the same command continues."
        )


def print_report(report: Report, table: Table, output: str) -> None:
    """Print a table of a report, or all of it as JSON."""
    headings, rows = table
    if output == "json":
        print_json(report.content)
    else:
        click.echo(markdown_table(headings, rows, n_left=1))
    notice(f"The report is {report.path}. docs/measured/README.md says how to share it.")
