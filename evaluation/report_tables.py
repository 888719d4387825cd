"""Tables of reports: one row for the speed of each model, machine and depth, and one for the quality."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import sqrt
from typing import Any

from ..runtime.methods import AUTO, DENSE, LLAMA_CPP
from .header import not_default
from .peer_table import PEERS
from .report_quality import ATTENTIONS
from .results import LEAST, widened

Table = tuple[list[str], list[list[str]]]

#: Columns of the first part of each row: model and machine. Who measured follows, in tables of several reports.
_MACHINE = ["model", "CPU", "threads"]

#: Headings of differences to dense attention.
_TO_DENSE = [f"{name} to dense, share read" for name in ATTENTIONS[1:]]

#: Most KL divergence to dense attention of a method or a peer that is named as the fastest.
MOST_KL = 0.05

_NOTHING = "-"


def speed_table(reports: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return the headings and rows of the speed of reports, by who measured them, or of one report, by "".

    A row has octavo's `dense` and `auto`, llama.cpp in the same run, and the method and the peer that decode fastest,
    among rows whose KL divergence is at most MOST_KL or not known. llama.cpp is a peer only where it ran as one.
    """
    headings = [*_machine_and_owner(reports), "depth", "prefill tokens/s: llama.cpp", "dense", "auto"]
    headings += ["decode ms: llama.cpp", "dense", "auto", "fastest method", "fastest peer"]
    rows = []
    for name, report in reports.items():
        for piece in _measured(report["speed"]):
            by_name = {row["attention"]: row for row in piece["result"]["results"] if row["cannot"] is None}
            read, decoded = (
                [_figure(by_name.get(each, {}).get(key), digits) for each in (LLAMA_CPP, DENSE, AUTO)]
                for key, digits in (("prefill_tokens_per_s", 0), ("decode_ms", 1))
            )
            close = [row for row in by_name.values() if (row["kl_divergence"] or 0) <= MOST_KL]
            ours = [row for row in close if row["attention"] not in (LLAMA_CPP, *PEERS)]
            others = [row for row in close if row["attention"] in piece["peers"]]
            fastest = [_fastest(ours), _fastest(others)]
            rows.append([*_who(name, report), f"{piece['depth']:,}", *read, *decoded, *fastest])
    return headings, rows


def quality_table(reports: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return the headings and rows of the quality of reports: means over the tasks of each depth.

    Tasks that dense attention cannot do say nothing of a method: they are only counted. Beside each method are the mean
    difference to dense attention on the same samples, its standard error, and the share of the bytes that it read. A
    method whose share was out of reach in some tasks also has the number of the others, and dense attention's mean over
    these.
    """
    headings = [
        *_machine_and_owner(reports),
        "depth",
        "tasks",
        f"dense below {_figure(LEAST, 1)}",
        "samples each",
        DENSE,
        *_TO_DENSE,
    ]
    rows = []
    for name, report in reports.items():
        depths: dict[int, list[dict[str, Any]]] = {}
        for piece in _measured(report["quality"]):
            depths.setdefault(piece["depth"], []).append(piece)
        for depth, pieces in sorted(depths.items()):
            done = [piece for piece in pieces if _rows_of([piece], DENSE)[0]["score"] >= LEAST]
            counts = sorted({piece["samples"] for piece in pieces})
            cells = [f"{depth:,}" if depth else "own", str(len(done)), str(len(pieces) - len(done))]
            cells += [", ".join(map(str, counts)), _figure(_mean(_rows_of(done, DENSE), "score"), 3)]
            rows.append([*_who(name, report), *cells, *(_of_method(done, method) for method in ATTENTIONS[1:])])
    return headings, rows


def task_table(report: Mapping[str, Any]) -> Table:
    """Return the headings and rows of all tasks of a report: scores, and the differences to dense attention."""
    headings = ["task", "depth", "samples", DENSE, *_TO_DENSE]
    rows = []
    for piece in _measured(report["quality"]):
        of_methods = [_rows_of([piece], method) for method in ATTENTIONS]
        dense = of_methods[0][0]
        cells = [piece["task"], f"{dense['depth']:,}", str(dense["samples"]), _figure(dense["score"], 3)]
        rows.append([*cells, *map(_difference, of_methods[1:])])
    return headings, rows


def _measured(pieces: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [piece for piece in pieces if piece["result"] is not None]


def _machine_and_owner(reports: Iterable[str]) -> list[str]:
    return [*_MACHINE, "measured by"] if any(reports) else _MACHINE


def _who(name: str, report: Mapping[str, Any]) -> list[str]:
    model = ", ".join([report["model"]["name"], *not_default(report)])
    return [model, report["cpu"], str(report["threads"]), *filter(None, [name])]


def _rows_of(pieces: Iterable[dict[str, Any]], method: str) -> list[dict[str, Any]]:
    return [row for piece in pieces for row in piece["result"]["results"] if row["attention"] == method]


def _of_method(pieces: list[dict[str, Any]], method: str) -> str:
    """Return the difference of a method to dense, and the tasks that it is of, if it is not of all."""
    paired = [piece for piece in pieces if _rows_of([piece], method)]
    cell = _difference(_rows_of(paired, method))
    if not paired or len(paired) == len(pieces):
        return cell
    return f"{cell} (tasks: {len(paired)}, dense: {_figure(_mean(_rows_of(paired, DENSE), 'score'), 3)})"


def _difference(rows: list[dict[str, Any]]) -> str:
    """Return the mean difference to dense of independent tasks, its standard error, and the share of bytes read.

    `widened` gives the error of each task: a few equal scores do not prove that there is no difference.
    """
    if not rows:
        return _NOTHING
    errors = [_error(row) for row in rows]
    error = sqrt(sum(each**2 for each in errors)) / len(rows)
    return f"{_mean(rows, 'difference'):+.3f} ± {error:.3f} at {_mean(rows, 'bytes_read_share'):.2f}"


def _error(row: dict[str, Any]) -> float:
    """Return the standard error of a difference. Reports of before do not say how many samples are independent."""
    n = row.get("independent", row["samples"])
    return widened(n, row["difference"], row["difference_standard_error"])[1]


def _mean(rows: list[dict[str, Any]], name: str) -> float | None:
    return sum(row[name] for row in rows) / len(rows) if rows else None


def _fastest(rows: list[dict[str, Any]]) -> str:
    best = min(rows, key=lambda row: row["decode_ms"], default=None)
    return f"{best['attention']} {best['decode_ms']:.1f}" if best else _NOTHING


def _figure(value: float | None, digits: int) -> str:
    return _NOTHING if value is None else f"{value:,.{digits}f}"
