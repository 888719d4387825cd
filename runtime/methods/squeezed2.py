"""Squeezed2: `squeezed` with a lookup in two levels (Squeezed Attention, Hooper et al. 2024, section 3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...cpu_kernels.methods.squeezed2 import HOOKS, STATE
from ..cache.index import Index, ThresholdCurve
from .method import Heads
from .parameters import parameter
from .squeezed import Squeezed


@dataclass(frozen=True)
class Squeezed2(Squeezed):
    """Look up the clusters of a document in coarse clusters first; the tail's clusters as `squeezed` does.

    Parameters
    ----------
    coarse : float
        Coarse clusters of a document, as a share of its tokens.
    select : str
        The query heads of a group select together.
    """

    select: str = parameter("group", choices=("group",))
    coarse: float = parameter(0.01, above=0, most=0.5)

    name = "squeezed2"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper": {**Squeezed.presets["paper"], "select": "group"}}
    hooks = HOOKS
    state = STATE
    document_arrays = (*Squeezed.document_arrays, "coarse_centroids", "coarse_starts")
    document_counts = (*Squeezed.document_counts, "n_coarse")

    @property
    def clustering(self) -> dict[str, Any]:
        """Return how a document's keys have to be clustered, where that is not as usual."""
        return super().clustering | ({"coarse_share": self.coarse} if self.coarse != 0.01 else {})

    def curve_of(self, index: Index | None) -> ThresholdCurve | None:
        """Return the fine thresholds that were measured on a document; None without a clustered one."""
        levels = index.two_level_of(self.calibration) if index is not None else None
        return levels.curve if levels is not None else None

    def start(self, heads: Heads, index: Index | None) -> None:
        """Set the rules, and the thresholds of both levels for each head."""
        heads.state["rules"] = self.rules
        levels = index.two_level_of(self.calibration) if index is not None else None
        if index is not None and levels is not None:
            share = self.share_of(index, levels.curve)
            heads.state["coarse_threshold"] = levels.coarse_thresholds[heads.numbers] if share < 1 else -1.0
            heads.state["threshold"] = levels.curve.at(share, heads.numbers, heads.scale)

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Without a document's thresholds, have them follow the budget."""
        if index is None or index.two_level is None:
            self.follow_budget(heads, n_tokens)
