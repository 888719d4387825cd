"""Calibrate clustered layers on the queries of a document's last tokens: thresholds for each budget, mass of each row.

Lookup in one level (Squeezed Attention, Hooper et al. 2024, section 3.2): the paper has one threshold for all heads,
and here each head has its own, so that all heads read the same share of their rows. One threshold for all gives most
of a budget to heads that spread their attention, and little to heads that focus it, where a mean key says least about
the key that matters. With it SmolLM2 found .1 of the pass keys at 2,000 tokens and half of the bytes; with a threshold
for each head it found .45, and dense attention finds .5 (docs/evaluation.md).

Lookup in two levels (section 3.3): each level has thresholds of its own. Those of the coarse level come first and do
not depend on the budget. Those of the fine level are measured as they are used: among the clusters that the coarse
level keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from ..cpu_kernels.head import ANY_ORDER
from ..runtime.cache.index import Index, IndexLayer, ThresholdCurve, TwoLevelCurve
from ..runtime.cache.rows import as_floats
from ..runtime.llama import Llama
from .clusters import ClusterSettings, no_mass

#: Share of the clustered keys that the coarse level keeps; the default of the authors' code. To keep less costs
#: quality where the budget would allow more; to keep more costs a larger lookup.
COARSE_KEPT = 0.5

#: Shares of the rows whose thresholds are measured; between them thresholds are interpolated.
_SHARES = np.concatenate([[0.0], np.geomspace(1 / 4096, 1.0, 128)])

#: Added to the logarithm of a threshold, so that rows with equal shares of attention are read rather than left out.
_BELOW = np.log(1 - 1e-4)


@dataclass(frozen=True)
class NodeQueries:
    """The queries of a document's last tokens in one attention node, and the layer that they attend to.

    Parameters
    ----------
    layer : IndexLayer
        All rows of the document, those of the last tokens included.
    first_head : int
        Number of the layer's first KV head among those of the cache.
    queries : float32 array, shape (n_kv_head, n_queries, group, head_dim)
        The queries, already scaled.
    softcap : float
        Soft cap of the scores; 0 for none.
    """

    layer: IndexLayer
    first_head: int
    queries: np.ndarray
    softcap: float


#: The queries of one KV head, for each node that reads it: (n_queries, group, head_dim) f32, and the node's softcap.
HeadQueries = list[tuple[np.ndarray, float]]


def calibrate(
    llama: Llama,
    layers: Sequence[IndexLayer],
    queries: list[np.ndarray],
    tokens: list[int],
    settings: ClusterSettings,
) -> Index:
    """Make the index of a document from its layers.

    Parameters
    ----------
    llama : Llama
        The model, for its attention nodes and the layers of its cache.
    layers : sequence of IndexLayer
        The document's layers, clustered or whole. Their mass is measured anew.
    queries : list of float32 arrays, shape (n_kv_head, n_queries, group, head_dim)
        For each attention node the queries of the document's last tokens, as `Context.captured_queries` gives them.
    tokens : list of int
        The document's tokens, the prompt's head included.
    settings : ClusterSettings
        How the layers were clustered.

    Returns
    -------
    Index
        The index in memory, with the mass of its rows and, if there are clusters, the thresholds for each budget.
    """
    n_heads = [layer.n_kv_head for layer in llama.context.cache.layers]
    clustered: list[NodeQueries] = []
    mass = [no_mass(layer.keys) for layer in layers]
    for node, captured in zip(llama.context.nodes, queries, strict=True):
        if llama.context.cache.layers[node.kv_layer].window:
            continue
        first_head = sum(n_heads[: node.kv_layer])
        of_node = NodeQueries(layers[node.kv_layer], first_head, captured, node.softcap)
        mass[node.kv_layer] += attention_mass(of_node)
        if of_node.layer.n_clusters:
            clustered.append(of_node)
    measured = [replace(layer, mass=each) for layer, each in zip(layers, mass, strict=True)]
    curve = one_level_curve(clustered, sum(n_heads), len(tokens), settings) if clustered else None
    two_level = two_level_curve(clustered, sum(n_heads), len(tokens), settings) if clustered else None
    return Index(np.asarray(tokens, np.int32), measured, curve, two_level)


def one_level_curve(
    nodes: Sequence[NodeQueries], n_heads: int, n_tokens: int, settings: ClusterSettings
) -> ThresholdCurve:
    """Measure the thresholds of a lookup in one level, with which all heads read the same share of their rows.

    Parameters
    ----------
    nodes : sequence of NodeQueries
        The attention nodes whose layers have clusters.
    n_heads : int
        Number of all KV heads of the cache.
    n_tokens : int
        Length of the document in tokens.
    settings : ClusterSettings
        How the layers were clustered.

    Returns
    -------
    ThresholdCurve
        The thresholds of each head for each budget; 1 for heads that no node reads.
    """
    thresholds = np.ones((n_heads, len(_SHARES)))
    for number, layer, head, queries in _heads(nodes):
        sizes = np.diff(layer.cluster_starts[head])
        importance = _importance(queries, layer.centroids[head], sizes)
        thresholds[number] = _quantiles(importance, sizes, _SHARES * len(importance) * sizes.sum())
    lookup = sum(node.layer.centroids.nbytes for node in nodes) / _kv_bytes(nodes)
    return ThresholdCurve(_budgets(_SHARES, lookup, n_tokens, settings), thresholds)


def two_level_curve(
    nodes: Sequence[NodeQueries], n_heads: int, n_tokens: int, settings: ClusterSettings
) -> TwoLevelCurve:
    """Measure the thresholds of a lookup in two levels: coarse ones that keep COARSE_KEPT of the keys, then fine ones.

    A budget counts all coarse centroids and, on average, the centroids in the coarse clusters that are kept.

    Parameters
    ----------
    nodes, n_heads, n_tokens, settings
        As in `one_level_curve`.

    Returns
    -------
    TwoLevelCurve
        The coarse threshold of each head, and its fine thresholds for each budget.
    """
    shares, lookup_bytes = COARSE_KEPT * _SHARES, 0.0
    coarse_thresholds, thresholds = np.ones(n_heads), np.ones((n_heads, len(shares)))
    for number, layer, head, queries in _heads(nodes):
        starts, coarse_starts = layer.cluster_starts[head], layer.coarse_starts[head]
        sizes = np.diff(starts[coarse_starts])
        importance = _importance(queries, layer.coarse_centroids[head], sizes)
        n_rows = len(importance) * sizes.sum()
        coarse_thresholds[number] = _quantiles(importance, sizes, COARSE_KEPT * n_rows)
        kept = np.repeat(importance > coarse_thresholds[number], np.diff(coarse_starts), axis=1)
        sizes = kept * np.diff(starts)
        importance = _importance(queries, layer.centroids[head], sizes)
        thresholds[number] = _quantiles(importance, sizes, shares * n_rows)
        n_bytes = layer.coarse_centroids[head].nbytes + kept.mean() * layer.centroids[head].nbytes
        lookup_bytes += len(queries) * n_bytes
    budgets = _budgets(shares, lookup_bytes / _kv_bytes(nodes), n_tokens, settings)
    return TwoLevelCurve(coarse_thresholds, ThresholdCurve(budgets, thresholds))


def _heads(nodes: Sequence[NodeQueries]) -> Iterator[tuple[int, IndexLayer, int, HeadQueries]]:
    """Each KV head that a node reads: its number in the cache, its layer, its number there, and all its queries."""
    by_layer = sorted(nodes, key=lambda node: node.first_head)
    for first_head, group in groupby(by_layer, key=lambda node: node.first_head):
        sharing = list(group)
        for head in range(len(sharing[0].queries)):
            yield first_head + head, sharing[0].layer, head, [(node.queries[head], node.softcap) for node in sharing]


def _importance(queries: HeadQueries, centroids: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """`cluster_importance` for the queries of one node after another: (n_queries, n_clusters)."""
    parts = np.split(sizes, len(queries)) if sizes.ndim == 2 else [sizes] * len(queries)
    each = zip(queries, parts, strict=True)
    return np.concatenate([cluster_importance(of_node, centroids, part, cap) for (of_node, cap), part in each])


def _quantiles(importance: np.ndarray, sizes: np.ndarray, n_rows: np.ndarray | float) -> np.ndarray:
    """Thresholds of importance that select n_rows rows of all queries: falling, of the shape of n_rows.

    importance : (n_queries, n_clusters)    sizes : the same shape, or (n_clusters,)
    """
    counts, order = np.broadcast_to(sizes, importance.shape).ravel(), np.argsort(-importance, axis=None)
    order = order[counts[order] > 0]
    selected = np.cumsum(counts[order])
    logarithms = np.log(np.maximum(importance.ravel()[order], np.finfo(np.float32).tiny))
    wanted = np.asarray(n_rows)
    return np.where(wanted > 0, np.exp(np.interp(wanted, selected, logarithms) + _BELOW), 1.0)


def _budgets(shares: np.ndarray, lookup: float, n_tokens: int, settings: ClusterSettings) -> np.ndarray:
    """The share of a document's bytes that a step reads if it reads these shares of the clustered rows."""
    clustered = settings.n_clustered(n_tokens)
    return (shares * clustered + n_tokens - clustered) / n_tokens + lookup


def _kv_bytes(nodes: Sequence[NodeQueries]) -> int:
    """Bytes of keys and values that all nodes read together if they read everything."""
    return sum(node.layer.n_bytes for node in nodes)


def cluster_importance(queries: np.ndarray, centroids: np.ndarray, sizes: np.ndarray, softcap: float) -> np.ndarray:
    """Compute S_i = exp(q.C_i) / sum_j N_j exp(q.C_j), averaged over a group's query heads.

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
    float32 array, shape (n_queries, n_clusters)
        The importance of each cluster's keys.
    """
    scores = _scores(queries, centroids.astype(np.float32), softcap)
    scores = np.where(sizes[..., None, :] > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=np.finfo(np.float32).min))
    total = np.maximum(weights @ sizes.astype(np.float32)[..., None], 1)  # the best cluster's weight is 1, if any is
    average: np.ndarray = (weights / total).mean(axis=1)
    return average


def attention_mass(node: NodeQueries) -> np.ndarray:
    """Add up the attention that each row gets from the queries that see it.

    A sink that the model has learned takes no part in the softmax.

    Parameters
    ----------
    node : NodeQueries
        The queries of the last tokens, and the rows.

    Returns
    -------
    float32 array, shape (n_kv_head, n_rows)
        The sum over the last tokens and the group's query heads, for each row in stored order.
    """
    layer = node.layer
    n_rows, n_queries = layer.keys.shape[1], node.queries.shape[1]
    first = n_rows - n_queries
    mass = np.zeros(layer.mass.shape, np.float32)
    for head, of_head in enumerate(node.queries):
        keys = as_floats(layer.keys[head])
        positions = layer.order[head] if layer.position == ANY_ORDER else np.arange(n_rows)
        late = np.flatnonzero(positions > first)  # not seen by all of the queries
        unseen = positions[late] > first + np.arange(n_queries)[:, None]
        for queries in of_head.swapaxes(0, 1):
            scores = _scores(queries, keys, node.softcap)
            scores[:, late] = np.where(unseen, -np.inf, scores[:, late])
            scores -= scores.max(axis=1, keepdims=True)
            np.exp(scores, out=scores)
            mass[head] += (1 / scores.sum(axis=1)) @ scores
    return mass


def _scores(queries: np.ndarray, keys: np.ndarray, softcap: float) -> np.ndarray:
    """Scores of keys, under the soft cap."""
    scores: np.ndarray = queries @ keys.T
    return softcap * np.tanh(scores / softcap) if softcap else scores
