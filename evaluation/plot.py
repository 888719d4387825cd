"""Draw the result of `octavo eval`: quality over the share read, by position in the text, and errors by layer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np

from ..runtime.methods import AUTO, DENSE, words
from .pictures import new_figure, save
from .tasks.needle import Needle, Passkey
from .tasks.niah import MultiKeyNiah, SingleNiah
from .tasks.prediction import Agreement

Row = dict[str, Any]

#: Tasks whose scores are drawn by position: they hide something at even distances in a text.
_HIDING = (Passkey.name, Needle.name, SingleNiah.name, MultiKeyNiah.name)


class Style(NamedTuple):
    """How to draw an attention."""

    colour: str
    marker: str
    line: str
    hollow: bool

    @property
    def marked(self) -> dict[str, Any]:
        """Return the style as arguments of matplotlib."""
        face = "white" if self.hollow else self.colour
        return {"color": self.colour, "marker": self.marker, "linestyle": self.line, "markerfacecolor": face}


#: Dense attention: a line without markers.
_DENSE_STYLE = Style("#555555", "", "--", hollow=False)

#: Lines of a method with other parameters: of the first that is drawn, the second, ...
_LINES = ("-", "--", ":", "-.")

#: Colours and markers of the other methods, by their position in the table of names.
_PALETTE = (
    *(("#e69f00", "s"), ("#56b4e9", "v"), ("#0072b2", "o"), ("#009e73", "^"), ("#d55e00", "D"), ("#cc79a7", "P")),
    *(("#ad1457", "p"), ("#17becf", ">"), ("#b2df8a", "d"), ("#6a3d9a", "X"), ("#8c6d31", "<"), ("#000000", "*")),
    ("#7f7f00", "h"),
)

#: Values to draw over the share read: key of the value, and of its standard error.
_SCORE, _DIVERGENCE = ("score", "standard_error"), ("kl_divergence", None)
_MOST_COLUMNS = 3  # of the panels of depths
_MOST_MAPS = 10  # columns of heat maps, one for each attention; with more, the picture has none
_PANEL, _MAP, _LINE, _LETTER = (3.7, 3.0), (1.7, 1.9), 0.2, 0.09  # inches; of a line of text, and of a letter
_GRID, _NOT_MEASURED = "#e5e5e5", "#bbbbbb"


def write_plot(result: dict[str, Any], path: Path) -> None:
    """Draw the result of an evaluation as a PNG file (check first with `pictures.check_plot`).

    Raise OctavoError if writing fails.
    """
    save(draw(result), path)


def draw(result: dict[str, Any]) -> Any:
    """Draw the scores over the share of bytes read, and below them the scores by position or the errors by layer."""
    rows: list[Row] = result["results"]
    styles, depths = styles_of(row["attention"] for row in rows), _depths(rows)
    with_positions = [row for row in rows if "by_position" in row] if result["task"] in _HIDING else []
    if len(styles) > _MOST_MAPS:
        with_positions = []
    errors = layer_errors(rows) if result["task"] == Agreement.name else {}
    columns = min(len(depths), _MOST_COLUMNS)
    width, heights = max(6.5, columns * _PANEL[0]), [-(-len(depths) // columns) * _PANEL[1] + 0.3]
    if with_positions:
        grid_rows, maps = np.max(list(map_places(with_positions).values()), axis=0) + 1
        title_lines = max(map_title(row["attention"], row["budget"]).count("\n") for row in with_positions)
        width = max(width, maps * _MAP[0] + 1.6)
        heights = [*heights, grid_rows * (_MAP[1] + max(title_lines - 1, 0) * _LINE) + 0.6]
    elif errors:
        heights = [*heights, _PANEL[1]]
    names = int(width / (0.7 + _LETTER * max(map(len, styles))))  # of the legend, in a line
    names = max(min(names, len(styles)), 1)
    heights[0] += -(-len(styles) // names) * _LINE
    figure = new_figure(width, sum(heights) + 0.7)
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    _draw_trade_off(parts[0], result, columns, names, styles)
    if with_positions:
        _draw_heat_maps(parts[1], with_positions, result["metric"])
    elif errors:
        _draw_errors(parts[1], errors, depths[-1], styles)
    figure.suptitle(fill(f"{result['task']}: {result['model']['name']}, {result['data']['name']}", int(width * 10)))
    return figure


def styles_of(attentions: Iterable[str]) -> dict[str, Style]:
    """Choose how to draw each attention.

    The names of `--attention` have the same colours and markers in all pictures; compositions take the remaining ones
    in turn. The same method with other parameters has the same colour and marker, on another line.
    """
    bare = {name: re.sub(r":[^+]*", "", name) for name in attentions}
    chooses_last = sorted(words(), key=AUTO.__eq__)
    order = [name for name in dict.fromkeys([*chooses_last, *bare.values()]) if name != DENSE]
    styles: dict[str, Style] = {}
    for name, method in bare.items():
        number = sum(bare[other] == method for other in styles)
        if name == DENSE:
            styles[name] = _DENSE_STYLE
        else:
            marked = _PALETTE[order.index(method) % len(_PALETTE)]
            styles[name] = Style(*marked, _LINES[number % len(_LINES)], hollow=name != method)
    return styles


def trade_off(rows: list[Row], depth: int) -> dict[str, list[Row]]:
    """Return the rows of one depth by attention, those that read least first."""
    at_depth = [row for row in rows if row["depth"] == depth]
    curves = {
        row["attention"]: [other for other in at_depth if other["attention"] == row["attention"]] for row in at_depth
    }
    return {name: sorted(curve, key=lambda row: row["bytes_read_share"]) for name, curve in curves.items()}


def share_ticks(shares: Iterable[float]) -> list[int]:
    """Choose ticks 1, 1/2, 1/4, ... down to the smallest share; return their denominators, at most seven."""
    least = min((share for share in shares if share > 0), default=1.0)
    n = max(round(-np.log2(least)), 1)
    return [2**i for i in range(0, n + 1, -(-(n + 1) // 7))]


def layer_errors(rows: list[Row]) -> dict[str, list[float]]:
    """Return the errors of each layer by attention, dense left out, at its smallest budget and the largest depth."""
    last = _depths(rows)[-1]
    compared = [row for row in rows if row["depth"] == last and row["attention"] != DENSE and "output_errors" in row]
    smallest = {row["attention"]: row for row in sorted(compared, key=lambda row: -row["budget"])}
    return {name: smallest[name]["output_errors"] for name in dict.fromkeys(row["attention"] for row in compared)}


def position_edges(rows: list[Row]) -> np.ndarray:
    """Choose bins of positions: one for each position if all rows have the same ones, else tenths.

    Parameters
    ----------
    rows : list of dict
        Rows of a result, with scores by position.

    Returns
    -------
    float64 array, shape (n_bins + 1,)
        Edges of the bins, from 0 to 1.
    """
    found = {tuple(sorted({position for position, _ in row["by_position"]})) for row in rows}
    if len(found) > 1:
        return np.arange(11) / 10
    positions = np.array(found.pop())
    return np.concatenate([[0.0], (positions[1:] + positions[:-1]) / 2, [1.0]])


def heat_map(rows: list[Row], depths: list[int], edges: np.ndarray) -> np.ndarray:
    """Compute the mean score of each bin of positions at each depth; NaN for a bin without samples.

    Parameters
    ----------
    rows : list of dict
        Rows of one method and budget, with scores by position.
    edges : float64 array, shape (n_bins + 1,)
        Edges of the bins.

    Returns
    -------
    float64 array, shape (n_bins, n_depths)
    """
    means = np.full((len(edges) - 1, len(depths)), np.nan)
    for row in rows:
        positions, scores = np.array(row["by_position"], np.float64).T
        counts, sums = np.histogram(positions, edges)[0], np.histogram(positions, edges, weights=scores)[0]
        np.divide(sums, counts, out=means[:, depths.index(row["depth"])], where=counts > 0)
    return means


def map_places(rows: list[Row]) -> dict[tuple[str, float], tuple[int, int]]:
    """Return (row, column) of each attention and budget: a column for each attention, a row for each budget.

    An attention without a budget is in the first row.
    """
    runs = dict.fromkeys((row["attention"], row["budget"]) for row in rows)
    names, limited = list(dict.fromkeys(name for name, _ in runs)), {name for name, budget in runs if budget != 1}
    budgets = sorted({budget for name, budget in runs if name in limited}, reverse=True)
    return {run: (budgets.index(run[1]) if run[0] in limited else 0, names.index(run[0])) for run in runs}


def map_title(attention: str, budget: float) -> str:
    """Return the title of a heat map, broken into lines that fit the map. A budget of 1 stands for none."""
    most = int(_MAP[0] / _LETTER)
    breakable = re.sub(r"([:,+])", r"\1 ", attention)
    name = attention if len(attention) <= most else fill(breakable, most, break_on_hyphens=False)
    return name if budget == 1 else f"{name}\nbudget {budget:g}"


def _depths(rows: list[Row]) -> list[int]:
    return sorted({row["depth"] for row in rows})


def _draw_trade_off(figure: Any, result: dict[str, Any], columns: int, names: int, styles: dict[str, Style]) -> None:
    """Draw a panel for each depth, with a line for each attention, and `names` names in a line of the legend."""
    rows, depths = result["results"], _depths(result["results"])
    ticks = share_ticks(row["bytes_read_share"] for row in rows)
    shares = [1 / ticks[-1], *(row["bytes_read_share"] for row in rows if row["bytes_read_share"] > 0)]
    by_divergence = result["task"] == Agreement.name
    value, error_key = _DIVERGENCE if by_divergence else _SCORE
    panels = figure.subplots(-(-len(depths) // columns), columns, sharey=True, squeeze=False)
    handles = {}
    for depth, axes in zip(depths, panels.flat, strict=False):
        axes.set_xscale("log", base=2)
        axes.set_xlim(min(shares) / 1.2, max(1.0, *shares) * 1.2)
        for name, curve in trade_off(rows, depth).items():
            colour = styles[name].colour
            share, score = np.array([[row["bytes_read_share"], row[value]] for row in curve], np.float64).T
            error = np.array([row[error_key] if error_key else 0.0 for row in curve], np.float64)  # None: NaN
            if name == DENSE and by_divergence:
                continue  # 0 has no logarithm
            if name == DENSE:
                if not np.isnan(error[0]):
                    axes.axhspan(score[0] - error[0], score[0] + error[0], color=colour, alpha=0.15, linewidth=0)
                handles[name] = axes.axhline(score[0], color=colour, linestyle="--", label=name)
            else:
                handles[name] = axes.errorbar(share, score, error, capsize=3, label=name, **styles[name].marked)
        axes.set_title(f"{depth:,} tokens", fontsize="medium")
        axes.set_xticks([1 / tick for tick in ticks], labels=["1", *(f"1/{tick}" for tick in ticks[1:])])
        axes.set_xlabel("share of the KV bytes that is read")
        axes.grid(color=_GRID)
        if by_divergence:
            axes.set_yscale("log")
    if len(handles) == 1 and result["higher_is_better"] and not by_divergence:
        axes.set_ylim(-0.02, 1.02)  # panels share it; one line would fill any
    better = "higher" if result["higher_is_better"] else "lower"
    of_task = f"{result['metric']}\n({better} is better)"
    for axes in panels[:, 0]:
        axes.set_ylabel("KL to dense\n(lower is better)" if by_divergence else of_task)
    for axes in panels.flat[len(depths) :]:
        axes.remove()
    figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=names)


def _draw_heat_maps(figure: Any, rows: list[Row], metric: str) -> None:
    """Draw a panel for each method and budget. Only the outermost panels have numbers at their axes."""
    depths, edges, places = _depths(rows), position_edges(rows), map_places(rows)
    used, panels, image = list(places.values()), [], None
    grid = figure.add_gridspec(*(np.max(used, axis=0) + 1))
    for (name, budget), (row, column) in places.items():
        axes = figure.add_subplot(grid[row, column])
        drawn = [entry for entry in rows if (entry["attention"], entry["budget"]) == (name, budget)]
        columns = np.arange(len(depths) + 1) - 0.5
        image = axes.pcolormesh(columns, edges, heat_map(drawn, depths, edges), cmap="RdYlBu", vmin=0, vmax=1)
        axes.set_title(map_title(name, budget), fontsize="medium")
        axes.set_facecolor(_NOT_MEASURED)
        axes.set_ylim(1, 0)  # the beginning of a text is above
        axes.set_yticks([0, 0.5, 1], labels=["0 %", "50 %", "100 %"], fontsize="small")
        labels = [f"{depth:,}" for depth in depths]
        axes.set_xticks(range(len(depths)), labels, rotation=0 if len(depths) <= 2 else 90, fontsize="small")
        axes.tick_params(labelleft=(row, column - 1) not in used, labelbottom=(row + 1, column) not in used)
        panels.append(axes)
    figure.supxlabel("tokens of the text (grey: not measured)", fontsize="medium")
    figure.supylabel("position in the text", fontsize="medium")
    figure.colorbar(image, ax=panels, label=f"{metric}: mean", aspect=30)


def _draw_errors(figure: Any, errors: dict[str, list[float]], depth: int, styles: dict[str, Style]) -> None:
    """Draw a line over the layers for each attention."""
    axes = figure.subplots()
    for name, values in errors.items():
        axes.plot(range(len(values)), values, markersize=4, label=name, **styles[name].marked)
    axes.set_title(f"Each attention at its smallest budget, {depth:,} tokens", fontsize="medium")
    axes.set(xlabel="layer", ylabel="error of attention's output,\nrelative to dense (lower is better)")
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(color=_GRID)
