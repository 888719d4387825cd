"""Measure, on the queries of a document's last tokens, which thresholds spend which budget, and what each row got.

One level (Squeezed Attention, section 3.3), but a threshold for each head where the paper has one for all: with it each
head reads the same share of its rows. One for all gives most of a budget to heads that spread their attention, and
little to those that focus it, where a mean says least about the key that matters: with it SmolLM2 found .1 of the pass
keys at 2,000 tokens and a half of the bytes, where dense attention finds .5, and this .45 (docs/evaluation.md).
Two levels (section 3.4): each has thresholds of its own, the quantile of what each key's cluster gets; those of the
coarse level do not depend on the others. The clusters are measured as they are looked up, among those that the coarse
level keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from ..cpu_kernels.spans import ANY_ORDER
from ..runtime.cache.index import IndexLayer, ThresholdCurve, TwoLevelCurve
from ..runtime.cache.rows import as_floats
from .clusters import ClusterSettings

#: Share of the clustered keys that the coarse level keeps; the default of the authors' code. To keep less costs
#: quality where the budget would allow more; to keep more costs a larger lookup.
COARSE_KEPT = 0.5

#: Shares of the rows whose thresholds are measured; between them they are interpolated.
_SHARES = np.concatenate([[0.0], np.geomspace(1 / 4096, 1.0, 128)])

#: Rows with equal shares of attention are read rather than left out: thresholds are as much lower.
_BELOW = np.log(1 - 1e-4)


@dataclass(frozen=True)
class Attention:
    """What the last tokens ask in one attention node, and the rows that it reads.

    Parameters
    ----------
    layer : all rows of the document, these tokens' included
    first_head : number of its first KV head among those of the cache
    queries : (n_kv_head, n_queries, group, head_dim) f32, scaled
    softcap : of the scores; 0 for none
    """

    layer: IndexLayer
    first_head: int
    queries: np.ndarray
    softcap: float


#: What one KV head is asked by each attention that reads it: (n_queries, group, head_dim) f32, and the softcap.
Asked = list[tuple[np.ndarray, float]]


def one_level_curve(
    attentions: Sequence[Attention], n_heads: int, n_tokens: int, settings: ClusterSettings
) -> ThresholdCurve:
    """Thresholds of a cache's n_heads KV heads as a function of the budget, of which each head reads as much."""
    thresholds = np.ones((n_heads, len(_SHARES)))
    for number, layer, head, asked in _heads(attentions):
        sizes = np.diff(layer.cluster_starts[head])
        importance = _importance(asked, layer.centroids[head], sizes)
        thresholds[number] = _quantiles(importance, sizes, _SHARES * len(importance) * sizes.sum())
    lookup = sum(attention.layer.centroids.nbytes for attention in attentions) / _kv_bytes(attentions)
    return ThresholdCurve(_budgets(_SHARES, lookup, n_tokens, settings), thresholds)


def two_level_curve(
    attentions: Sequence[Attention], n_heads: int, n_tokens: int, settings: ClusterSettings
) -> TwoLevelCurve:
    """The coarse thresholds that keep COARSE_KEPT of the keys, and given these the fine ones as those of one level.

    The budget counts all coarse centroids and, on average, the centroids in the coarse clusters that are kept.
    """
    shares, lookup_bytes = COARSE_KEPT * _SHARES, 0.0
    coarse_thresholds, thresholds = np.ones(n_heads), np.ones((n_heads, len(shares)))
    for number, layer, head, asked in _heads(attentions):
        starts, coarse_starts = layer.cluster_starts[head], layer.coarse_starts[head]
        sizes = np.diff(starts[coarse_starts])
        importance = _importance(asked, layer.coarse_centroids[head], sizes)
        n_rows = len(importance) * sizes.sum()
        coarse_thresholds[number] = _quantiles(importance, sizes, COARSE_KEPT * n_rows)
        kept = np.repeat(importance > coarse_thresholds[number], np.diff(coarse_starts), axis=1)
        sizes = kept * np.diff(starts)
        importance = _importance(asked, layer.centroids[head], sizes)
        thresholds[number] = _quantiles(importance, sizes, shares * n_rows)
        lookup_bytes += len(asked) * (layer.coarse_centroids[head].nbytes + kept.mean() * layer.centroids[head].nbytes)
    budgets = _budgets(shares, lookup_bytes / _kv_bytes(attentions), n_tokens, settings)
    return TwoLevelCurve(coarse_thresholds, ThresholdCurve(budgets, thresholds))


def _heads(attentions: Sequence[Attention]) -> Iterator[tuple[int, IndexLayer, int, Asked]]:
    """Each KV head that is asked: its number, its layer, its place there, and what all attentions ask it."""
    by_layer = sorted(attentions, key=lambda attention: attention.first_head)
    for first_head, group in groupby(by_layer, key=lambda attention: attention.first_head):
        sharing = list(group)
        for head in range(len(sharing[0].queries)):
            asked = [(attention.queries[head], attention.softcap) for attention in sharing]
            yield first_head + head, sharing[0].layer, head, asked


def _importance(asked: Asked, centroids: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """`cluster_importance` of all that is asked, one after another: (n_queries, n_clusters)."""
    parts = np.split(sizes, len(asked)) if sizes.ndim == 2 else [sizes] * len(asked)
    each = zip(asked, parts, strict=True)
    return np.concatenate([cluster_importance(queries, centroids, part, cap) for (queries, cap), part in each])


def _quantiles(importance: np.ndarray, sizes: np.ndarray, n_rows: np.ndarray | float) -> np.ndarray:
    """The thresholds of importance that select n_rows rows of all queries: the shape of n_rows, falling.

    importance : (n_queries, n_clusters)    sizes : the same shape, or (n_clusters,)
    """
    counts, order = np.broadcast_to(sizes, importance.shape).ravel(), np.argsort(-importance, axis=None)
    order = order[counts[order] > 0]
    selected = np.cumsum(counts[order])
    logarithms = np.log(np.maximum(importance.ravel()[order], np.finfo(np.float32).tiny))
    wanted = np.asarray(n_rows)
    return np.where(wanted > 0, np.exp(np.interp(wanted, selected, logarithms) + _BELOW), 1.0)


def _budgets(shares: np.ndarray, lookup: float, n_tokens: int, settings: ClusterSettings) -> np.ndarray:
    """Share of a document's bytes that is read where these shares of its clustered rows are."""
    clustered = settings.n_clustered(n_tokens)
    return (shares * clustered + n_tokens - clustered) / n_tokens + lookup


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
