"""A plan as a picture: how important each layer is, and in which order heads fell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..errors import OctavoError

_NAMES = ("most important", "less important", "least important")
_COLOURS = ("#b2182b", "#ef8a62", "#67a9cf")
_SLIDES = "#bbbbbb"


def check_plot(path: Path) -> None:
    """Raise OctavoError where a picture cannot be written, before anything is measured for it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as problem:
        raise OctavoError('Pictures need matplotlib: pip install "octavo[plot]".') from problem
    if path.suffix.lower() != ".png":
        raise OctavoError(f"{path} is not a PNG file's name: give one that ends in .png.")
    if not path.parent.is_dir():
        raise OctavoError(f"There is no folder {path.parent} to write {path.name} in.")


def new_figure(width: float, height: float) -> Any:
    """An empty picture, so many inches wide and high, that no window shows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, path: Path) -> None:
    """Write a picture as a PNG file. Raises OctavoError where that fails."""
    try:
        figure.savefig(path, dpi=120, format="png")
    except OSError as problem:
        raise OctavoError(f"{path} cannot be written: {problem.strerror or problem}.") from problem


def write_plot(plan: dict[str, Any], path: Path) -> None:
    """Draw a plan as a PNG file. `check_plot` says whether that can be done."""
    layers, heads = plan["layers"], plan["heads"]
    figure = new_figure(max(7.0, 0.28 * len(layers["slides"]) + 2), 6.5)
    above, below = figure.subplots(2, 1, sharex=True)
    _draw_layers(above, layers)
    image = _draw_heads(below, heads, len(layers["slides"]))
    bar = figure.colorbar(image, ax=below, location="bottom", aspect=50, label="order in which heads fell")
    bar.set_ticks([1, len(heads["elimination"])], labels=["first", "last"])
    figure.suptitle(f"{plan['model']['name']}: what was measured ({plan['task']})")
    save(figure, path)


def _draw_layers(axes: Any, layers: dict[str, Any]) -> None:
    """A bar for each layer, in the colour of its group; as long as its attention changes the residual stream."""
    axes.set_ylabel("change by attention\n(1 - cosine similarity)")
    axes.set_title("Layers: how much attention changes the residual stream", fontsize="medium")
    if layers["similarity"] is None:
        axes.text(0.5, 0.5, "not told by this model's graph", transform=axes.transAxes, ha="center")
        return
    change, groups = 1 - np.array(layers["similarity"]), layers["group"]
    last = max((group for group in groups if group is not None), default=0)
    for group in (*range(last + 1), None):
        own = [i for i, other in enumerate(groups) if other == group]
        if not own:
            continue
        if group is None:
            label, colour = "slides: sees its window", _SLIDES
        else:
            scale = layers["budget_scale"][own[0]]
            name = _NAMES[-1] if group == last > 0 else _NAMES[group]
            label, colour = f"{name}: budget x {scale:.2f}", _COLOURS[_NAMES.index(name)]
        axes.bar(own, change[own], color=colour, label=label)
    axes.set_yscale("log")
    axes.legend(fontsize="small")


def _draw_heads(axes: Any, heads: dict[str, Any], n_layers: int) -> Any:
    """A square for each KV head, the darker the later it fell; none where a layer slides."""
    n_heads = 1 + max(head for _, head in heads["elimination"])
    order = np.full((n_heads, n_layers), np.nan)
    for number, (layer, head) in enumerate(heads["elimination"]):
        order[head, layer] = number + 1
    image = axes.imshow(order, cmap="YlGnBu", aspect="auto", interpolation="nearest")
    axes.set_title("KV heads: the darker, the later it fell (retrieval heads)", fontsize="medium")
    axes.set_xlabel("layer")
    axes.set_ylabel("KV head")
    axes.set_yticks(range(n_heads))
    axes.set_xticks(range(0, n_layers, 1 if n_layers <= 20 else 2))
    return image
