"""Squeezed Attention: attend the clusters of keys that matter (Hooper et al. 2024, sections 3.2 to 3.4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...cpu_kernels.methods.squeezed import (
    native_score_clusters,
    native_score_coarse_clusters,
    native_select_clusters,
    native_select_clusters_of_clusters,
)
from ...cpu_kernels.scores import ITEMS_STEP
from ...cpu_kernels.spans import CHUNK_ROWS
from ...cpu_kernels.tail_clusters import CHUNK_CLUSTERS, native_cluster_chunks
from ...metal.records import Method
from ..cache.index import Index
from .method import Heads, Keeps

#: Without a document: the share of its logarithmic error that a threshold makes good with each step, and the largest
#: error that it believes, a factor; how far it may go from an even share of attention; and the least share of their
#: budget that clusters get, where the rows that are always read take up all of it.
_GAIN, _BELIEVED, _REACH, _LEAST = 0.3, 4.0, 1e6, 0.25


class _Clusters:
    """What one and two levels share."""

    keeps = Keeps.DOCUMENT
    beside = ("cluster_offset",)
    chunk_items = ITEMS_STEP
    native_settle = staticmethod(native_cluster_chunks)


@dataclass(frozen=True)
class Squeezed(_Clusters):
    """Centroid lookup over the clusters of a document, and of the tail, whose chunks are clustered as they fill.

    The document's first and last rows, and the newest of the tail, are always attended.

    Parameters
    ----------
    budget : share of the KV bytes that a step reads on average, the lookup included
    """

    budget: float = 0.125

    metal = Method.CLUSTERS
    native_score = staticmethod(native_score_clusters)
    native_select = staticmethod(native_select_clusters)

    def prepare(self, own: Heads, n_tokens: int, document: Index | None) -> None:
        """Set a threshold for each head, with which all read the same share (see convert/calibrate.py)."""
        if document is not None and document.curve is not None:
            own.set(threshold=document.curve.at(self.budget, own.numbers, own.scale))
        else:
            _follow_budget(own, self.budget, n_tokens)


@dataclass(frozen=True)
class Squeezed2(_Clusters):
    """`Squeezed` with two levels: a document's clusters are looked up in coarse clusters first (section 3.4)."""

    budget: float = 0.125

    metal = Method.COARSE
    native_score = staticmethod(native_score_coarse_clusters)
    native_select = staticmethod(native_select_clusters_of_clusters)

    def prepare(self, own: Heads, n_tokens: int, document: Index | None) -> None:
        """Set the thresholds of both levels."""
        if document is not None and document.two_level is not None:
            levels = document.two_level
            own.set(coarse_threshold=levels.coarse_thresholds[own.numbers] if self.budget < 1 else -1.0)
            own.set(threshold=levels.curve.at(self.budget, own.numbers, own.scale))
        else:
            _follow_budget(own, self.budget, n_tokens)


def _follow_budget(own: Heads, budget: float, n_tokens: int) -> None:
    """Without a document to calibrate on: for each head a threshold in proportion to an even share of attention.

    It is raised while the head reads more of its clusters than the budget leaves for them, and lowered while it reads
    less. The error is of the last step, so it is all there is to remember; a batch, whose tokens attend what any of
    them selects, has none.
    """
    stored, n_chunks = own.get("n_document") + own.get("n_tail"), own.get("n_clustered")
    clustered = CHUNK_ROWS * n_chunks
    row_bytes = own.get("value_offset") // CHUNK_ROWS  # a chunk's values follow its keys
    lookup = n_chunks * CHUNK_CLUSTERS * own.head_dim / row_bytes  # in rows: of a key and a value each
    spare = np.maximum(budget * own.scale * stored - (stored - clustered) - lookup, _LEAST * budget * clustered)
    n_selected = own.get("n_selected")
    error = np.where((clustered > 0) & (n_selected >= 0), n_selected / np.maximum(spare, 1), 1.0)
    error = np.clip(error, 1 / _BELIEVED, _BELIEVED)
    factor = np.where(clustered, np.clip(own.get("threshold") * stored * error**_GAIN, 1 / _REACH, _REACH), 1.0)
    own.set(threshold=factor / n_tokens if budget < 1 else -1.0)
