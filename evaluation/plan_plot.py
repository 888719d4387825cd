"""Draw a plan: the importance of each layer, and the order in which heads were eliminated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..convert.plan.layer_importance import GROUP_NAMES, group_name
from .pictures import new_figure, save

_COLOURS = dict(zip(GROUP_NAMES, ("#b2182b", "#ef8a62", "#67a9cf"), strict=True))
_SLIDING = "#bbbbbb"


def write_plot(plan: dict[str, Any], path: Path) -> None:
    """Draw a plan as a PNG file (check first with `pictures.check_plot`). Raise OctavoError if writing fails."""
    layers, heads = plan["layers"], plan["heads"]
    has_heads = bool(heads["elimination"])
    figure = new_figure(max(7.0, 0.28 * len(layers["slides"]) + 2), 6.5 if has_heads else 3.5)
    above, *below = figure.subplots(1 + has_heads, 1, sharex=True, squeeze=False).ravel()
    _draw_layers(above, layers)
    if has_heads:
        image = _draw_heads(below[0], heads, len(layers["slides"]))
        bar = figure.colorbar(image, ax=below[0], location="bottom", aspect=50, label="order of elimination")
        bar.set_ticks([1, len(heads["elimination"])], labels=["first", "last"])
    else:
        above.set_xlabel("layer")
    figure.suptitle(f"{plan['model']['name']}: what was measured ({plan['task']})")
    save(figure, path)


def _draw_layers(axes: Any, layers: dict[str, Any]) -> None:
    """Draw a bar for each layer, in the colour of its group: how much its attention changes the residual stream."""
    axes.set_ylabel("change by attention\n(1 - cosine similarity)")
    axes.set_title("Layers: how much attention changes the residual stream", fontsize="medium")
    if layers["similarity"] is None:
        axes.text(0.5, 0.5, "not told by this model's graph", transform=axes.transAxes, ha="center")
        return
    change, groups = 1 - np.array(layers["similarity"]), layers["group"]
    last = max((group for group in groups if group is not None), default=0)
    for group in (*range(last + 1), None):
        members = [i for i, other in enumerate(groups) if other == group]
        if not members:
            continue
        if group is None:
            label, colour = "slides: sees its window", _SLIDING
        else:
            label = group_name(group, last)
            colour = _COLOURS[label]
        axes.bar(members, change[members], color=colour, label=label)
    axes.set_yscale("log")
    axes.legend(fontsize="small")


def _draw_heads(axes: Any, heads: dict[str, Any], n_layers: int) -> Any:
    """Draw a square for each KV head, darker for heads eliminated later; none for a sliding layer."""
    n_heads = 1 + max(head for _, head in heads["elimination"])
    order = np.full((n_heads, n_layers), np.nan)
    for number, (layer, head) in enumerate(heads["elimination"]):
        order[head, layer] = number + 1
    image = axes.imshow(order, cmap="YlGnBu", aspect="auto", interpolation="nearest")
    axes.set_title("KV heads: the darker, the later eliminated (retrieval heads)", fontsize="medium")
    axes.set_xlabel("layer")
    axes.set_ylabel("KV head")
    axes.set_yticks(range(n_heads))
    axes.set_xticks(range(0, n_layers, 1 if n_layers <= 20 else 2))
    return image
