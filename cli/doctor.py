"""`octavo doctor`: check that octavo, and its kernels for Apple GPUs, run on this machine as they should."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ..errors import OctavoError
from ..settings import ModelSettings
from . import options
from .render import TaskProgress, notice, print_json
from .table import table

#: How the states of findings are printed.
_MARKS = {"ok": "ok", "note": "note", "broken": "BROKEN"}


@click.command()
@click.option(
    "--metal",
    is_flag=True,
    help="Examine the kernels for Apple GPUs on this Mac, and time a model's steps on CPU and GPU; takes some minutes.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    default="octavo-metal.json",
    show_default=True,
    help="Write all that --metal finds there, to be sent along with a question.",
)
@options.model
@options.index_dir
@options.output_option("text", "json")
def doctor(metal: bool, report: Path, model: Path | None, index_dir: Path | None, output: str) -> None:
    """Check that octavo can run on this machine, and how well.

    Looks at versions, the CPU and llama.cpp's build for it, kernels, models, memory, disk and tesseract. With --metal,
    compiles every shader, compares every method with the CPU, and times every kernel, and the steps of a model: from
    then on --device auto takes the faster device for that model. Ends with exit code 1 where something is broken.
    """
    if metal:
        _examine_metal(report, ModelSettings(model=model, index_dir=index_dir), output)
        return
    if options.is_on_command_line("report"):
        raise click.UsageError("--report goes with --metal: give both.")
    from ..evaluation.checkup import examine

    findings = list(examine(model, index_dir))
    if output == "json":
        print_json([asdict(finding) for finding in findings])
    else:
        rows = [[_MARKS[finding.state], finding.subject, finding.found] for finding in findings]
        table(["", "checked", "found"], rows, folded={"found"})
    if any(finding.state == "broken" for finding in findings):
        raise click.exceptions.Exit(1)


def _examine_metal(report: Path, model: ModelSettings, output: str) -> None:
    """Examine the kernels for Apple GPUs, and write a report."""
    from ..evaluation.doctor import EXAMINATION, Doctor
    from ..runtime.load_model import locate_model
    from ..system.files import disk_errors

    timed: ModelSettings | None = None
    try:
        timed, _ = locate_model(model, notice)
    except OctavoError as problem:
        if model.model is not None:
            raise
        notice(f"No steps of a model are timed: {problem}")
    with TaskProgress() as progress:
        examiner = Doctor(progress, EXAMINATION, timed)
        with disk_errors(report):
            report.touch()
        found = examiner.run()
    with disk_errors(report):
        report.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    if output == "json":
        print_json(found)
    else:
        _show(found)
    notice(f"The report is {report}")
    if not found["ok"]:
        raise click.exceptions.Exit(1)


def _show(found: dict[str, Any]) -> None:
    machine = found["machine"]
    click.echo(f"{machine['gpu']}, {machine['system']}: reads {found['read_bandwidth_gb_s']:.0f} GB/s\n")
    wrong = [row for row in found["kernels"] + found["comparisons"] if row["problem"]]
    for row in wrong:
        subject = row.get("kernel") or f"{row['attention']}, {row['tokens']} tokens"
        click.echo(f"head_dim {head_dim(row)}, group {row['group']}, {row['kv_type']}: {subject}: {row['problem']}")
    compared = [row["largest_error"] for row in found["comparisons"] if "largest_error" in row]
    click.echo(f"{len(found['kernels'])} kernels compiled, {len(compared)} steps compared, {len(wrong)} problems.")
    if compared:
        click.echo(f"The largest error is {max(compared):.1e} of an output's largest element.\n")
    columns = ["attention", "head_dim", "stored as", "rows", "kernel", "ms", "of read bandwidth"]
    table(
        columns,
        [_cells(row) for row in found["times"]],
        frozenset(columns[3:]) - {"kernel"},
        folded={"attention", "kernel"},
    )
    if found["steps"]:
        click.echo(f"\nA wait for the GPU takes {found['wait_us']:.0f} us. A step of the model, over random rows:\n")
        columns = ["device", "attention", "depth", "ms", "over nothing, ms"]
        rows = [[str(value) for value in row.values()] for row in found["steps"]]
        table(columns, rows, frozenset(columns[2:]), folded={"attention"})


def head_dim(row: dict[str, Any]) -> str:
    """Return the length of a row's keys, and that of values if it is another."""
    if row["head_dim"] == row["value_dim"]:
        return str(row["head_dim"])
    return f"{row['head_dim']}, {'of which values' if row['latent'] else 'values'} {row['value_dim']}"


def _cells(row: dict[str, Any]) -> list[str]:
    share = row.get("share_of_read_bandwidth")
    return [
        row["attention"],
        head_dim(row),
        row["kv_type"],
        f"{row['rows']:,}",
        row["kernel"],
        f"{row['ms']:.3f}",
        "-" if share is None else f"{share:.2f}",
    ]
