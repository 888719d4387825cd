"""Squeezed2: `squeezed` with a lookup in two levels (Squeezed Attention, Hooper et al. 2024, section 3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...cpu_kernels.methods.squeezed2 import HOOKS, STATE
from ..cache.index import ThresholdCurve
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
    levels = 2
    document_arrays = (*Squeezed.document_arrays, "coarse_centroids", "coarse_starts")
    document_counts = (*Squeezed.document_counts, "n_coarse")

    @property
    def clustering(self) -> dict[str, Any]:
        """Return how a document's keys have to be clustered, where that is not as usual."""
        return super().clustering | ({"coarse_share": self.coarse} if self.coarse != 0.01 else {})

    def set_thresholds(self, heads: Heads, curve: ThresholdCurve, shares: np.ndarray) -> None:
        """Set the thresholds of both levels."""
        super().set_thresholds(heads, curve, shares)
        if curve.coarse_thresholds is not None:
            heads.state["coarse_threshold"] = np.where(shares < 1, curve.coarse_thresholds[heads.numbers], -1.0)
