"""Measure the thresholds of clustered layers on the queries of a document's last tokens, for each budget.

Only some attentions use them: by default each step finds its own (cpu_kernels/methods/squeezed.py).

Lookup in one level (Squeezed Attention, Hooper et al. 2024, section 3.2): the paper has one threshold for all heads,
`threshold=global`. With `threshold=head` each head has its own, so that all heads read the same share of their rows. A
common threshold gives most of a budget to heads that spread their attention, and little to heads that focus it, where a
mean key says least about the important key (docs/methods.md has the cost).

Lookup in two levels (section 3.3): each level has its own thresholds. Coarse thresholds do not depend on the budget.
Fine thresholds are measured as they are used: among the clusters that the coarse level keeps.

A `Calibration` selects the way to measure. A budget always means the average that steps read: a threshold from mean
importance also measures its selection under each of the queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from ...cpu_kernels.layout.scores import COARSE_KEPT
from .index import Calibration, Index, IndexLayer, ThresholdCurve
from .stored_rows import capped_scores

#: Shares of the rows at which thresholds are measured; thresholds between them are interpolated.
_SHARES = np.concatenate([[0.0], np.geomspace(1 / 4096, 1.0, 128)])

#: Added to the logarithm of a threshold, so that rows with equal shares of attention are read, not left out.
_BELOW = np.log(1 - 1e-4)

#: The smallest importance: only this threshold selects rows of less.
_TINY = np.finfo(np.float32).tiny

#: Factors by which thresholds of mean importance extend beyond the largest and the smallest.
_ABOVE = np.exp(np.linspace(0, 12, 60)[:0:-1])

#: Bins of the logarithm of importance, to find common thresholds of all heads.
_BINS, _RANGE = 1 << 14, (float(np.log(_TINY)), 0.0)


@dataclass(frozen=True)
class NodeQueries:
    """The queries of a document's last tokens in one attention node, and the layer that they attend to.

    Parameters
    ----------
    layer : IndexLayer
        All rows of the document, including those of the last tokens.
    first_head : int
        Number, in the cache, of the layer's first KV head.
    queries : float32 array, shape (n_kv_head, n_queries, group, head_dim)
        The queries, already scaled, of the KV heads in the layer's arrays.
    softcap : float
        Soft cap of the scores; 0 for none.
    """

    layer: IndexLayer
    first_head: int
    queries: np.ndarray
    softcap: float


#: The queries of one KV head in each node that reads it, (n_queries, group, head_dim) f32, and the node's softcap.
HeadQueries = list[tuple[np.ndarray, float]]


class _Head(NamedTuple):
    """A KV head that a node reads: its number in the cache, its layer, its number in the layer, and all its queries."""

    in_cache: int
    layer: IndexLayer
    number: int
    queries: HeadQueries


class _Importance(NamedTuple):
    """The importance of one head's clusters under each of the queries."""

    each: np.ndarray  # (n_queries, n_clusters): a cluster above the threshold is selected
    mean: np.ndarray  # (n_clusters,): the same from the mean S_i of all queries
    sizes: np.ndarray  # (n_clusters,), or (n_queries, n_clusters): keys; a cluster of size 0 takes no part
    n_rows: int  # keys of all queries, the whole that shares refer to

    def under(self, queries: str) -> tuple[np.ndarray, np.ndarray, float]:
        """Return importance and sizes, both (n, n_clusters), and the whole: under each query, or under their mean."""
        sizes = np.broadcast_to(self.sizes, self.each.shape)
        if queries == "each":
            return self.each, sizes, self.n_rows
        return self.mean[None], sizes.mean(axis=0)[None], self.n_rows / len(self.each)


class _AllHeads:
    """Keys of all heads by the logarithm of their clusters' importance."""

    def __init__(self) -> None:
        self._bytes, self._total = np.zeros(_BINS), 0.0

    def add(self, importance: np.ndarray, sizes: np.ndarray, n_rows: float, row_bytes: int) -> None:
        """Add the keys of one head: what `_Importance.under` returns."""
        logarithms = np.log(np.maximum(importance, _TINY)).ravel()
        self._bytes += row_bytes * np.histogram(logarithms, _BINS, _RANGE, weights=sizes.ravel())[0]
        self._total += row_bytes * n_rows

    def thresholds(self, shares: np.ndarray) -> np.ndarray:
        """Return the thresholds that select these shares of the bytes; falling."""
        above = np.concatenate([np.cumsum(self._bytes[::-1])[::-1], [0.0]])
        logarithms = np.interp(-shares * self._total, -above, np.linspace(*_RANGE, _BINS + 1))
        return np.where(shares > 0, np.exp(logarithms + _BELOW), 1.0)


def measured_curve(index: Index, calibration: Calibration) -> ThresholdCurve | None:
    """Return a document's thresholds, measured on first use; None for a document without clusters."""
    if calibration not in index.curves:
        if index.n_exact == len(index.tokens):
            return None
        n_heads = np.array([layer.n_kv_head for layer in index.layers])
        first_heads = np.cumsum(n_heads) - n_heads
        nodes = [
            NodeQueries(index.layers[of.layer], int(first_heads[of.layer]), of.queries.astype(np.float32), of.softcap)
            for of in index.queries
        ]
        measure = two_level_curve if calibration.levels == 2 else one_level_curve
        index.curves[calibration] = measure(nodes, int(n_heads.sum()), calibration)
    return index.curves[calibration]


def one_level_curve(nodes: Sequence[NodeQueries], n_heads: int, how: Calibration) -> ThresholdCurve:
    """Measure the thresholds of a lookup in one level.

    Parameters
    ----------
    nodes : sequence of NodeQueries
        The attention nodes whose layers have clusters.

    Returns
    -------
    ThresholdCurve
        The thresholds of each head for each budget; 1 for heads that no node reads.
    """

    def importance_of(head: _Head) -> _Importance:
        sizes = np.diff(head.layer.cluster_starts[head.number])
        return _importance(head.queries, head.layer.centroids[head.number], sizes, how)

    shares, thresholds = _thresholds(list(_heads(nodes)), n_heads, _SHARES, importance_of, how)
    lookup = sum(node.layer.centroids.nbytes for node in nodes) / _kv_bytes(nodes)
    return ThresholdCurve(_budgets(shares, lookup, nodes), thresholds)


def two_level_curve(nodes: Sequence[NodeQueries], n_heads: int, how: Calibration) -> ThresholdCurve:
    """Measure the thresholds of a lookup in two levels: coarse ones that keep COARSE_KEPT of the keys, then fine ones.

    All query heads of a group select together. A budget counts all coarse centroids and, on average, the centroids in
    the coarse clusters that are kept.

    Returns
    -------
    ThresholdCurve
        The coarse threshold of each head, and its fine thresholds for each budget.
    """
    heads, lookup_bytes = list(_heads(nodes)), 0.0

    def coarse_importance(head: _Head) -> _Importance:
        starts, coarse_starts = head.layer.cluster_starts[head.number], head.layer.coarse_starts[head.number]
        return _importance(head.queries, head.layer.coarse_centroids[head.number], np.diff(starts[coarse_starts]), how)

    def kept_clusters(head: _Head) -> np.ndarray:
        above = coarse_importance(head).each > coarse_thresholds[head.in_cache]
        return np.repeat(above, np.diff(head.layer.coarse_starts[head.number]), axis=1)

    def importance_of(head: _Head) -> _Importance:
        sizes = np.diff(head.layer.cluster_starts[head.number])
        among_kept = _importance(head.queries, head.layer.centroids[head.number], kept_clusters(head) * sizes, how)
        return among_kept._replace(n_rows=len(among_kept.each) * int(sizes.sum()))

    kept_shares, of_coarse = _thresholds(heads, n_heads, np.array([COARSE_KEPT]), coarse_importance, how)
    nearest = int(np.abs(kept_shares - COARSE_KEPT).argmin())
    coarse_thresholds = of_coarse[:, nearest]
    for head in heads:
        layer, kept = head.layer, kept_clusters(head).mean()
        n_bytes = layer.coarse_centroids[head.number].nbytes + kept * layer.centroids[head.number].nbytes
        lookup_bytes += len(head.queries) * n_bytes
    shares, thresholds = _thresholds(heads, n_heads, kept_shares[nearest] * _SHARES, importance_of, how)
    return ThresholdCurve(_budgets(shares, lookup_bytes / _kv_bytes(nodes), nodes), thresholds, coarse_thresholds)


def _thresholds(
    heads: Sequence[_Head],
    n_heads: int,
    shares: np.ndarray,
    importance_of: Callable[[_Head], _Importance],
    how: Calibration,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the shares of bytes selected, (n,) rising, and the thresholds of all heads, (n_heads, n) falling.

    Those are the given `shares`, unless thresholds come from mean importance, which varies less than importance under
    single queries: then they are shares measured at each threshold, and thresholds extend proportionally beyond those
    of `shares`.
    """
    if how.queries == "each":
        thresholds = np.ones((n_heads, len(shares)))
        for head, _, selecting in _selecting(heads, shares, importance_of, how):
            thresholds[head.in_cache] = selecting
        return shares, thresholds
    thresholds, selected, total = np.ones((0, 0)), np.zeros(1), 0
    for head, found, selecting in _selecting(heads, shares[shares > 0], importance_of, how):
        row_bytes, sizes = _token_bytes(head.layer), np.broadcast_to(found.sizes, found.each.shape)
        beyond = [[1.0], np.minimum(selecting[0] * _ABOVE, 1.0), selecting, selecting[-1] / _ABOVE[::-1], [_TINY]]
        of_head = np.concatenate(beyond)
        thresholds = np.ones((n_heads, len(of_head))) if not thresholds.size else thresholds
        thresholds[head.in_cache] = of_head
        selected = selected + row_bytes * _n_above(found.each, sizes, of_head)
        total += row_bytes * found.n_rows
    return selected / total, thresholds


def _selecting(
    heads: Sequence[_Head], shares: np.ndarray, importance_of: Callable[[_Head], _Importance], how: Calibration
) -> Iterator[tuple[_Head, _Importance, np.ndarray]]:
    """Yield each head, its importance, and the thresholds that select shares of its keys, or of all keys."""
    together = _AllHeads()
    if how.threshold == "global":
        for head in heads:
            together.add(*importance_of(head).under(how.queries), _token_bytes(head.layer))
    common = together.thresholds(shares)
    if how.queries == "mean":
        common = common[common > _TINY]  # no threshold selects more than all clusters
    for head in heads:
        found = importance_of(head)
        importance, sizes, n_rows = found.under(how.queries)
        yield head, found, common if how.threshold == "global" else _quantiles(importance, sizes, shares * n_rows)


def _token_bytes(layer: IndexLayer) -> int:
    """Return the bytes of a key and its value in one head."""
    return int(layer.keys[0, 0].nbytes + layer.values[0, 0].nbytes)


def _heads(nodes: Sequence[NodeQueries]) -> Iterator[_Head]:
    """Yield each KV head that a node reads."""
    by_layer = sorted(nodes, key=lambda node: node.first_head)
    for first_head, group in groupby(by_layer, key=lambda node: node.first_head):
        sharing = list(group)
        for head in range(len(sharing[0].queries)):
            queries = [(node.queries[head], node.softcap) for node in sharing]
            layer = sharing[0].layer
            yield _Head(first_head + layer.heads[head], layer, head, queries)


def _importance(queries: HeadQueries, centroids: np.ndarray, sizes: np.ndarray, how: Calibration) -> _Importance:
    """Return the importance of clusters for the queries of one node after another, as the query heads select."""
    parts = np.split(sizes, len(queries)) if sizes.ndim == 2 else [sizes] * len(queries)
    pairs = zip(queries, parts, strict=True)
    of_heads = np.concatenate([query_head_importance(of_node, centroids, part, cap) for (of_node, cap), part in pairs])
    n_rows = len(of_heads) * int(sizes.sum())
    if how.select == "head":  # a row is read if any query head selects it
        return _Importance(of_heads.max(axis=1), of_heads.mean(axis=0).max(axis=0), sizes, n_rows)
    of_group = of_heads.mean(axis=1)
    return _Importance(of_group, of_group.mean(axis=0), sizes, n_rows)


def _quantiles(importance: np.ndarray, sizes: np.ndarray, n_rows: np.ndarray | float) -> np.ndarray:
    """Return the thresholds of importance that select n_rows rows of all queries: falling, of the shape of n_rows.

    importance : (n_queries, n_clusters) sizes : the same shape, or (n_clusters,)
    """
    counts, order = np.broadcast_to(sizes, importance.shape).ravel(), np.argsort(-importance, axis=None)
    order = order[counts[order] > 0]
    selected = np.cumsum(counts[order])
    logarithms = np.log(np.maximum(importance.ravel()[order], _TINY))
    wanted = np.asarray(n_rows)
    return np.where(wanted > 0, np.exp(np.interp(wanted, selected, logarithms) + _BELOW), 1.0)


def _n_above(importance: np.ndarray, sizes: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Count the rows of all queries above each threshold. importance, sizes : (n_queries, n_clusters)"""
    order = np.argsort(importance, axis=None)
    above = np.concatenate([np.cumsum(sizes.ravel()[order][::-1])[::-1], [0]])
    selected: np.ndarray = above[np.searchsorted(importance.ravel()[order], thresholds, "right")]
    return selected


def _budgets(shares: np.ndarray, lookup: float, nodes: Sequence[NodeQueries]) -> np.ndarray:
    """Return the share of a document's bytes that a step reads, for shares of the clustered rows."""
    layer = nodes[0].layer
    n_tokens, clustered = layer.keys.shape[1], int(layer.cluster_starts[0, -1])
    budgets: np.ndarray = (shares * clustered + n_tokens - clustered) / n_tokens + lookup
    return budgets


def _kv_bytes(nodes: Sequence[NodeQueries]) -> int:
    """Return the bytes of keys and values that all nodes read together if they read everything."""
    return sum(node.layer.n_bytes for node in nodes)


def query_head_importance(queries: np.ndarray, centroids: np.ndarray, sizes: np.ndarray, softcap: float) -> np.ndarray:
    """Compute S_i = exp(q.C_i) / sum_j N_j exp(q.C_j) for each query head.

    Parameters
    ----------
    queries : float32 array, shape (n_queries, group, head_dim)
        Queries, already scaled.
    centroids : array, shape (n_clusters, head_dim)
        Mean keys.
    sizes : int array, shape (n_clusters,) or (n_queries, n_clusters)
        Keys in each cluster. A cluster of size 0 takes no part.
    softcap : float
        Soft cap of the scores; 0 for none.

    Returns
    -------
    float32 array, shape (n_queries, group, n_clusters)
        The importance of each cluster's keys.
    """
    scores = capped_scores(queries, centroids.astype(np.float32), softcap)
    scores = np.where(sizes[..., None, :] > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=np.finfo(np.float32).min))
    total = np.maximum(weights @ sizes.astype(np.float32)[..., None], 1)  # the best cluster's weight is 1, if any is
    importance: np.ndarray = weights / total
    return importance
