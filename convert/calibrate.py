"""Calibrate the one global threshold on a document's last tokens (Squeezed Attention, section 3.3)."""

from __future__ import annotations

import numpy as np

from octavo.runtime.document import DocumentLayer, ThresholdCurve

from .clusters import ClusterSettings

#: Importance is counted in bins of its logarithm: e^-64 is far below the share of any key that could matter.
_LOWEST, _BINS = -64.0, 8192


class Calibration:
    """Counts how important the clusters of all heads are to the last tokens' queries.

    A threshold then reads, of all clustered rows, the share whose clusters lie above it, averaged over layers, heads
    and queries; so heads that spread their attention get more of the budget than those that focus it.
    """

    def __init__(self) -> None:
        self._rows = np.zeros(_BINS)
        self._centroid_bytes = self._kv_bytes = 0

    def add(self, queries: np.ndarray, layer: DocumentLayer, softcap: float) -> None:
        """Count one attention node.

        queries : (n_kv_head, n_queries, group, head_dim) f32, scaled
        """
        self._centroid_bytes += layer.centroids.nbytes
        self._kv_bytes += layer.n_bytes
        for head in range(queries.shape[0]):
            sizes = np.diff(layer.cluster_starts[head])
            importance = cluster_importance(queries[head], layer.centroids[head], sizes, softcap)
            with np.errstate(divide="ignore"):
                bins = (np.log(importance) - _LOWEST) * (_BINS / -_LOWEST)
            bins = np.clip(bins, 0, _BINS - 1).astype(np.int64)
            weights = np.broadcast_to(sizes, importance.shape)
            self._rows += np.bincount(bins.ravel(), weights.ravel(), _BINS)

    def curve(self, n_tokens: int, settings: ClusterSettings) -> ThresholdCurve:
        """Budget as a function of the threshold, for a document of n_tokens tokens."""
        above = np.cumsum(self._rows[::-1]) / max(self._rows.sum(), 1)
        thresholds = np.exp(_LOWEST + np.arange(_BINS)[::-1] * (-_LOWEST / _BINS))
        lookup = self._centroid_bytes / self._kv_bytes
        clustered = settings.n_clustered(n_tokens)
        budgets = (above * clustered + n_tokens - clustered) / n_tokens + lookup
        steps = np.flatnonzero(np.diff(budgets, prepend=-1.0) > 0)
        return ThresholdCurve(budgets[steps], thresholds[steps])


def cluster_importance(queries: np.ndarray, centroids: np.ndarray, sizes: np.ndarray, softcap: float) -> np.ndarray:
    """S_i = exp(q.C_i) / sum_j N_j exp(q.C_j), averaged over a group's query heads: (n_queries, n_clusters) f32.

    queries : (n_queries, group, head_dim) f32, scaled    centroids : (n_clusters, head_dim)    sizes : (n_clusters,)
    """
    scores = queries @ centroids.astype(np.float32).T
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    scores[..., sizes == 0] = -np.inf  # an empty cluster takes no part
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares = weights / (weights @ sizes.astype(np.float32))[..., None]
    average: np.ndarray = shares.mean(axis=1)
    return average
