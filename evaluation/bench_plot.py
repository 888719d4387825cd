"""Draw the result of `octavo bench`: a token's time over the depth, and over the bytes that it reads."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

from ..errors import OctavoError
from .pictures import new_figure, save
from .plot import styles_of

Row = dict[str, Any]


def write_plot(result: dict[str, Any], path: Path) -> None:
    """Draw a result as a PNG file (check first with `pictures.check_plot`).

    Raises
    ------
    OctavoError
        No engine has measured anything, or writing fails.
    """
    save(draw(result), path)


def draw(result: dict[str, Any]) -> Any:
    """Draw a line for each engine, and in the second panel one for what the memory's bandwidth allows."""
    rows: list[Row] = [row for row in result["results"] if row["decode_ms"] is not None and row["cannot"] is None]
    if not rows:
        raise OctavoError("There is nothing to draw: no engine has decoded all tokens.")
    figure = new_figure(9.5, 4.2)
    over_depth, over_bytes = figure.subplots(1, 2, sharey=True)
    styles = styles_of(row["attention"] for row in rows)
    ordered = sorted(rows, key=lambda row: (_name(row, rows), row["depth"]))
    for name, group in groupby(ordered, key=lambda row: _name(row, rows)):
        engine = list(group)
        ms = [row["decode_ms"] for row in engine]
        spread = [  # never below 0: of drafts `decode_ms` is a mean, which may lie beyond the percentiles
            [max(row["decode_ms"] - row["decode_ms_p10"], 0) for row in engine],
            [max(row["decode_ms_p90"] - row["decode_ms"], 0) for row in engine],
        ]
        marked = styles[engine[0]["attention"]].marked
        over_depth.errorbar([row["depth"] for row in engine], ms, yerr=spread, capsize=2, label=name, **marked)
        known = [row for row in engine if row["bytes_read_per_token"] is not None]
        megabytes = [row["bytes_read_per_token"] / 1e6 for row in known]
        over_bytes.plot(megabytes, [row["decode_ms"] for row in known], **marked)
    _draw_bandwidth(over_bytes, rows)
    over_depth.set(xlabel="tokens in the cache", ylabel="milliseconds a token (p10, median, p90)", ylim=(0, None))
    over_bytes.set(xlabel="MB of keys and values that a token reads")
    for axes in (over_depth, over_bytes):
        axes.grid(color="#e5e5e5")
        axes.set_xlim(0, None)
    over_depth.legend(fontsize=8)
    over_bytes.legend(fontsize=8)
    figure.suptitle(f"{result['model']['file']}, {result['machine']['cpu']}, octavo {result['software']['octavo']}")
    return figure


def _draw_bandwidth(axes: Any, rows: list[Row]) -> None:
    """Draw the time of the fastest step over nothing, and of the bytes at the speed at which this machine reads."""
    base = min(row["step_without_context_ms"] or row["decode_ms"] for row in rows)
    widest = max(row["bytes_read_per_token"] or 0 for row in rows)
    speed = max(row["read_bandwidth_gb_s"] for row in rows)
    ends = [base, base + widest / speed / 1e6]
    axes.plot([0, widest / 1e6], ends, color="#999999", linestyle=":", label=f"memory: {speed:g} GB/s")


def _name(row: Row, rows: list[Row]) -> str:
    """Return the name of an engine, with threads and type where rows differ in them."""
    swept = [key for key in ("threads", "cache_type") if len({other[key] for other in rows}) > 1]
    return ", ".join([row["attention"], *(f"{row[key]} {key.replace('_', ' ')}" for key in swept)])
