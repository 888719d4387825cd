"""Measure, on the queries of a document's last tokens, which threshold spends which budget, and what each row got.

One level (Squeezed Attention, section 3.3): one threshold for all heads, so that heads that spread their attention get
more of the budget than those that focus it. Two levels (section 3.4): the authors' code takes a threshold of its own
for each level, the quantile of what each key's cluster gets; that of the coarse level does not depend on the other's.
So does this, but the clusters are measured as they are looked up, among those that the coarse level keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from octavo.cpu_kernels.spans import ANY_ORDER
from octavo.runtime.document import DocumentLayer, ThresholdCurve, TwoLevelCurve
from octavo.runtime.rows import as_floats

from .clusters import ClusterSettings

#: Share of the clustered keys that the coarse level keeps; the default of the authors' code. To keep less costs
#: quality where the budget would allow more; to keep more costs a larger lookup.
COARSE_KEPT = 0.5

#: Importance is counted in bins of its logarithm: e^-64 is far below the share of any key that could matter.
_LOWEST, _BINS = -64.0, 8192
_THRESHOLDS = np.exp(_LOWEST + np.arange(_BINS)[::-1] * (-_LOWEST / _BINS))  # falling


@dataclass(frozen=True)
class Attention:
    """What the last tokens ask in one attention node, and the rows that it reads.

    Parameters
    ----------
    layer : all rows of the document, these tokens' included
    queries : (n_kv_head, n_queries, group, head_dim) f32, scaled
    softcap : of the scores; 0 for none
    """

    layer: DocumentLayer
    queries: np.ndarray
    softcap: float


def one_level_curve(attentions: Sequence[Attention], n_tokens: int, settings: ClusterSettings) -> ThresholdCurve:
    """Budget as a function of the threshold, averaged over layers, heads and queries."""
    rows = _Importance()
    for attention in attentions:
        layer = attention.layer
        for head, queries in enumerate(attention.queries):
            sizes = np.diff(layer.cluster_starts[head])
            rows.add(cluster_importance(queries, layer.centroids[head], sizes, attention.softcap), sizes)
    lookup = sum(attention.layer.centroids.nbytes for attention in attentions) / _kv_bytes(attentions)
    return _curve(rows.above() / rows.total, lookup, n_tokens, settings)


def two_level_curve(attentions: Sequence[Attention], n_tokens: int, settings: ClusterSettings) -> TwoLevelCurve:
    """The coarse threshold that keeps COARSE_KEPT of the keys, and given that the budget as a function of the fine one.

    The budget counts all coarse centroids and, on average, the centroids in the coarse clusters that are kept.
    """
    all_rows, coarse_importance = _Importance(), []
    for attention in attentions:
        layer = attention.layer
        for head, queries in enumerate(attention.queries):
            sizes = np.diff(layer.cluster_starts[head][layer.coarse_starts[head]])
            importance = cluster_importance(queries, layer.coarse_centroids[head], sizes, attention.softcap)
            all_rows.add(importance, sizes)
            coarse_importance.append(importance)
    coarse_threshold = _THRESHOLDS[np.searchsorted(all_rows.above(), COARSE_KEPT * all_rows.total)]

    rows, lookup_bytes, of_heads = _Importance(), 0.0, iter(coarse_importance)
    for attention in attentions:
        layer = attention.layer
        lookup_bytes += layer.coarse_centroids.nbytes
        for head, queries in enumerate(attention.queries):
            kept = np.repeat(next(of_heads) > coarse_threshold, np.diff(layer.coarse_starts[head]), axis=1)
            sizes = kept * np.diff(layer.cluster_starts[head])
            rows.add(cluster_importance(queries, layer.centroids[head], sizes, attention.softcap), sizes)
            lookup_bytes += kept.mean() * layer.centroids[head].nbytes
    lookup = lookup_bytes / _kv_bytes(attentions)
    return TwoLevelCurve(float(coarse_threshold), _curve(rows.above() / all_rows.total, lookup, n_tokens, settings))


class _Importance:
    """Counts rows by the importance of their cluster."""

    def __init__(self) -> None:
        self._rows = np.zeros(_BINS)

    def add(self, importance: np.ndarray, sizes: np.ndarray) -> None:
        """Count one head's rows: importance (n_queries, n_clusters), sizes the same shape or (n_clusters,)."""
        with np.errstate(divide="ignore"):
            bins = (np.log(importance) - _LOWEST) * (_BINS / -_LOWEST)
        bins = np.clip(bins, 0, _BINS - 1).astype(np.int64)
        self._rows += np.bincount(bins.ravel(), np.broadcast_to(sizes, bins.shape).ravel(), _BINS)

    @property
    def total(self) -> float:
        """All rows, counted once for each query."""
        return float(self._rows.sum())

    def above(self) -> np.ndarray:
        """How many rows each of _THRESHOLDS selects, rising."""
        counts: np.ndarray = np.cumsum(self._rows[::-1])
        return counts


def _curve(selected: np.ndarray, lookup: float, n_tokens: int, settings: ClusterSettings) -> ThresholdCurve:
    """The curve of a document of n_tokens tokens, whose thresholds select these shares of the clustered rows."""
    clustered = settings.n_clustered(n_tokens)
    budgets = (selected * clustered + n_tokens - clustered) / n_tokens + lookup
    steps = np.flatnonzero(np.diff(budgets, prepend=-1.0) > 0)
    return ThresholdCurve(budgets[steps], _THRESHOLDS[steps])


def _kv_bytes(attentions: Sequence[Attention]) -> int:
    return sum(attention.layer.n_bytes for attention in attentions)


def cluster_importance(queries: np.ndarray, centroids: np.ndarray, sizes: np.ndarray, softcap: float) -> np.ndarray:
    """S_i = exp(q.C_i) / sum_j N_j exp(q.C_j), averaged over a group's query heads: (n_queries, n_clusters) f32.

    queries : (n_queries, group, head_dim) f32, scaled    centroids : (n_clusters, head_dim)
    sizes : (n_clusters,), or (n_queries, n_clusters); a cluster whose size is 0 takes no part
    """
    scores = _scores(queries, centroids.astype(np.float32), softcap)
    scores = np.where(sizes[..., None, :] > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=np.finfo(np.float32).min))
    total = np.maximum(weights @ sizes.astype(np.float32)[..., None], 1)  # the best cluster's weight is 1, if any is
    average: np.ndarray = (weights / total).mean(axis=1)
    return average


def attention_mass(attention: Attention) -> np.ndarray:
    """What each row got of the softmax of queries that see it, in the rows' order: (n_kv_head, n_rows) f32.

    Added up over the last tokens and the group's query heads. A sink that the model has learned takes no part.
    """
    layer = attention.layer
    n_rows, n_queries = layer.keys.shape[1], attention.queries.shape[1]
    first = n_rows - n_queries
    mass = np.zeros(layer.mass.shape, np.float32)
    for head, of_head in enumerate(attention.queries):
        keys = as_floats(layer.keys[head])
        positions = layer.order[head] if layer.position == ANY_ORDER else np.arange(n_rows)
        late = np.flatnonzero(positions > first)  # not seen by all of the queries
        unseen = positions[late] > first + np.arange(n_queries)[:, None]
        for queries in of_head.swapaxes(0, 1):
            scores = _scores(queries, keys, attention.softcap)
            scores[:, late] = np.where(unseen, -np.inf, scores[:, late])
            scores -= scores.max(axis=1, keepdims=True)
            np.exp(scores, out=scores)
            mass[head] += (1 / scores.sum(axis=1)) @ scores
    return mass


def _scores(queries: np.ndarray, keys: np.ndarray, softcap: float) -> np.ndarray:
    scores: np.ndarray = queries @ keys.T
    return softcap * np.tanh(scores / softcap) if softcap else scores
