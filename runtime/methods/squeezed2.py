"""Squeezed2: `squeezed` with a lookup in two levels (Squeezed Attention, Hooper et al. 2024, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

from ...cpu_kernels.methods.squeezed2 import HOOKS, STATE
from ..cache.index import Index
from .method import Heads
from .squeezed import Squeezed, follow_budget


@dataclass(frozen=True)
class Squeezed2(Squeezed):
    """Look up the clusters of a document in coarse clusters first; the tail's clusters as `squeezed` does."""

    name = "squeezed2"
    hooks = HOOKS
    state = STATE
    document_arrays = (*Squeezed.document_arrays, "coarse_centroids", "coarse_starts")
    document_counts = (*Squeezed.document_counts, "n_coarse")

    def start(self, heads: Heads, index: Index | None) -> None:
        """Set the thresholds of both levels for each head."""
        if index is not None and index.two_level is not None:
            levels = index.two_level
            coarse = levels.coarse_thresholds[heads.numbers] if self.budget < 1 else -1.0
            heads.state["coarse_threshold"] = coarse
            heads.state["threshold"] = levels.curve.at(self.budget, heads.numbers, heads.scale)

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Without a document's thresholds, have them follow the budget."""
        if index is None or index.two_level is None:
            follow_budget(heads, self.budget, n_tokens)
