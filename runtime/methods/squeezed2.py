"""Squeezed2: `squeezed` with a lookup in two levels (Squeezed Attention, Hooper et al. 2024, section 3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...cpu_kernels.layout.hooks import Hooks
from ...cpu_kernels.layout.scores import COARSE_KEPT, padded
from ...cpu_kernels.methods.squeezed2 import HOOKS, HOOKS_WITH_ESTIMATE, STATE
from ..document.index import Index, ThresholdCurve
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
    coarse_of : str
        Whether the centroid of a coarse cluster is the mean of its keys, or of the centroids of its clusters.
    select : str
        The query heads of a group select together.
    """

    select: str = parameter("group", choices=("group",))
    coarse: float = parameter(0.01, above=0, most=0.5)
    coarse_of: str = parameter("keys", choices=("keys", "centroids"))

    name = "squeezed2"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {**Squeezed.presets["paper"], "select": "group", "coarse_of": "centroids"}
    }
    lookup_hooks: ClassVar[Hooks] = HOOKS
    rest_hooks: ClassVar[Hooks] = HOOKS_WITH_ESTIMATE
    state = STATE
    levels = 2
    lookup_arrays = (*Squeezed.lookup_arrays, "coarse_centroids", "coarse_starts")
    rest_arrays = (*Squeezed.rest_arrays, "coarse_mean_values", "coarse_spread")
    document_counts = (*Squeezed.document_counts, "n_coarse")

    @property
    def clustering(self) -> dict[str, Any]:  # type: ignore[override]
        wanted = {"coarse_share": (self.coarse, 0.01), "coarse_of": (self.coarse_of, "keys")}
        return super().clustering | {name: value for name, (value, usual) in wanted.items() if value != usual}

    def n_items(self, heads: Heads) -> int:
        """Return the number of clusters to score in one head, and of coarse ones, whose scores an estimate keeps."""
        return super().n_items(heads) + (padded(int(heads.state["n_coarse"].max(initial=0))) if self.estimates else 0)

    def looked_up(self, index: Index | None) -> float:
        """Return the number of centroids that a step reads of a document, on both levels."""
        return index.n_coarse + COARSE_KEPT * index.n_clusters if index is not None else 0.0

    def most_share(self, heads: Heads, index: Index | None, n_tokens: int) -> float:
        """Return the largest share below 1 that a step reads: two levels do not see all of a document."""
        of_document, of_tail = self.clustered_rows(index, n_tokens)
        lookup = float(self.lookup_share(heads, index, n_tokens).max())
        return lookup + (COARSE_KEPT * of_document + of_tail) / n_tokens

    def start(self, heads: Heads, index: Index | None) -> None:
        """Set the rules, and the measured thresholds of both levels for the budget."""
        heads.state["coarse_threshold"] = -1
        super().start(heads, index)

    def set_thresholds(self, heads: Heads, curve: ThresholdCurve, shares: np.ndarray) -> None:
        """Set the thresholds of both levels."""
        super().set_thresholds(heads, curve, shares)
        if curve.coarse_thresholds is not None:
            heads.state["coarse_threshold"] = np.where(shares < 1, curve.coarse_thresholds[heads.numbers], -1.0)
