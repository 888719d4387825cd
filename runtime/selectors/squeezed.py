"""Squeezed Attention: attend the clusters of keys that matter (Hooper et al. 2024, sections 3.2 and 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octavo.cpu_kernels.clusters import native_score_clusters, native_select_clusters

from ..document import Document


@dataclass(frozen=True)
class Squeezed:
    """Centroid lookup over a document's clusters; its exact rows and everything after it are always attended.

    Parameters
    ----------
    budget : share of the document's KV bytes that a step reads on average, the lookup included
    """

    budget: float = 0.125

    native_select = staticmethod(native_select_clusters)
    native_score = staticmethod(native_score_clusters)

    def configure(self, heads: np.ndarray, document: Document | None) -> None:
        """Set one threshold for all heads, so that each takes what it needs of the budget."""
        if document is not None and document.curve is not None:
            heads["threshold"] = document.curve.threshold(self.budget)
