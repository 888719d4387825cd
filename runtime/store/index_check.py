"""Check that the content of an index's files can be an index, whatever the bytes, before a kernel reads it.

Kernels trust the positions of clusters and rows in the arrays, so each of them is checked. Stored numbers are not: a
NaN key makes the answer NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...cpu_kernels.layout.head import ANY_ORDER
from ...cpu_kernels.numba_support.shape import FLAT_Q8_0, llama_cpp_name
from ...errors import OctavoError
from ..document.cache_layer import CacheLayer
from ..document.index import ClusterMeans, Index, IndexLayer, LastQueries, StreamingRows, ThresholdCurve
from ..document.kept_state import check_state
from ..document.stored_rows import is_format, kv_type_of, row_format, rows_format


class ImpossibleError(ValueError):
    """Arrays contradict one another, or the model."""


def check_index(index: Index) -> None:
    """Check the arrays of an index.

    Raises
    ------
    ImpossibleError
        The arrays cannot be an index.
    """
    tokens = index.tokens
    _expect(tokens, np.int32, (len(tokens),) if tokens.ndim else (1,), "tokens")
    _demand(len(tokens) > 0 and int(tokens.min()) >= 0, "tokens")
    _demand(bool(index.layers), "layers")
    for layer in index.layers:
        check_layer(layer, len(tokens))
    clustered = [layer for layer in index.layers if layer.n_clusters and len(layer.keys)]
    _demand(len({int(layer.cluster_starts[0, -1]) for layer in clustered}) <= 1, "clusters")
    for queries in index.queries:
        _check_queries(queries, index.layers)
    ends = [state.n_tokens for state in index.states]
    _demand(not ends or ends[-1] == len(tokens), "states")
    for state in index.states:
        check_state(state.arrays)


def check_curve(curve: ThresholdCurve, index: Index) -> None:
    """Check thresholds (see `check_index`)."""
    budgets, n_heads = curve.budgets, sum(layer.n_kv_head for layer in index.layers)
    _expect(budgets, np.float64, (len(budgets),) if budgets.ndim else (1,), "budgets")
    _demand(len(budgets) > 0 and bool(np.isfinite(budgets).all() and (np.diff(budgets) >= 0).all()), "budgets")
    _expect(curve.thresholds, np.float64, (n_heads, len(budgets)), "thresholds")
    if curve.coarse_thresholds is not None:
        _expect(curve.coarse_thresholds, np.float64, (n_heads,), "coarse_thresholds")


def check_fits(index: Index, layers: Sequence[CacheLayer], n_vocab: int) -> None:
    """Check that an index belongs to a model.

    Raises
    ------
    OctavoError
        The index has other layers, heads or tokens.
    """
    try:
        _demand(len(index.layers) == len(layers) and int(index.tokens.max()) < n_vocab, "layers or tokens")
        for stored, layer in zip(index.layers, layers, strict=True):
            rows = stored if len(stored.keys) or not stored.streaming else stored.streaming
            _, lengths = rows_format(layer.shape)
            own_type = llama_cpp_name(kv_type_of(rows.keys))  # rows of q8_0 may have either format
            _demand((own_type, stored.n_kv_head) == (layer.kv_type, layer.n_kv_head), "heads")
            _demand((rows.keys.shape[2], rows.values.shape[2], stored.split) == (*lengths, layer.split), "heads")
            _demand(stored.centroids.shape[2] == layer.head_dim, "centroids")
            n_tokens, n_rows = len(index.tokens), stored.keys.shape[1]
            shown = {n_tokens, layer.window, layer.window - 1} if layer.window else {n_tokens}
            _demand(n_rows in shown and n_rows >= min(n_tokens, layer.window - 1), "rows")
    except ImpossibleError as problem:
        raise OctavoError(f"The index was made with another model: it has other {problem}.") from problem


def check_layer(layer: IndexLayer, n_tokens: int) -> None:
    """Check one layer of a document of n_tokens tokens (see `check_index`)."""
    keys, in_order = layer.keys, layer.position != ANY_ORDER
    _demand(keys.ndim == 3 and is_format(keys), "keys")
    n_heads, n_rows = keys.shape[:2]
    _demand(layer.values.ndim == 3 and layer.split >= 0, "values")
    _expect(layer.values, keys.dtype, (n_heads, n_rows, 0 if layer.split else layer.values.shape[2]), "values")
    _demand(layer.centroids.ndim == 3 and layer.coarse_centroids.ndim == 3, "centroids")
    n_clusters, head_dim = layer.centroids.shape[1:]
    n_coarse = layer.coarse_centroids.shape[1]
    _demand(layer.split <= head_dim, "values")
    _expect(layer.centroids, np.float16, (n_heads, n_clusters, head_dim), "centroids")
    _expect(layer.coarse_centroids, np.float16, (n_heads, n_coarse, head_dim), "coarse_centroids")
    _expect(layer.mass, np.float32, (n_heads, n_rows), "mass")
    _expect(layer.order, np.int32, (n_heads, 0 if in_order else n_rows), "order")
    _check_starts(layer.cluster_starts, n_heads, n_clusters, n_rows, "cluster_starts")
    _check_starts(layer.coarse_starts, n_heads, n_coarse, n_clusters, "coarse_starts")
    if in_order:
        _demand(layer.position == n_tokens - n_rows and not n_clusters, "position")
    else:
        _demand(n_rows == n_tokens and all(_is_permutation(order) for order in layer.order), "order")
        _demand(len(set(layer.cluster_starts[:, -1].tolist())) <= 1, "cluster_starts")
        _demand(n_coarse == 0 or bool((layer.coarse_starts[:, -1] == n_clusters).all()), "coarse_starts")
    if layer.streaming is not None:
        _check_streaming(layer.streaming, layer, n_tokens)
    if layer.known_means is not None:
        _check_means(layer.known_means, layer)


def _check_starts(starts: np.ndarray, n_heads: int, n_runs: int, n_items: int, what: str) -> None:
    """Check that runs follow one another from 0 on, and lie within the items."""
    _expect(starts, np.int32, (n_heads, n_runs + 1), what)
    rises = starts.size == 0 or bool((starts[:, 0] == 0).all() and (starts[:, 1:] >= starts[:, :-1]).all())
    _demand(rises and int(starts.max(initial=0)) <= n_items, what)


def _is_permutation(order: np.ndarray) -> bool:
    """Return whether an array has each number below its length exactly once."""
    if len(order) == 0 or int(order.min()) < 0 or int(order.max()) >= len(order):
        return len(order) == 0
    return bool(np.bincount(order, minlength=len(order)).max() == 1)


def _check_streaming(streaming: StreamingRows, layer: IndexLayer, n_tokens: int) -> None:
    heads, keys = streaming.heads, streaming.keys
    _demand(all(0 <= head < layer.n_kv_head for head in heads) and sorted(set(heads)) == list(heads), "streaming")
    _demand(keys.ndim == 3 and keys.dtype == layer.keys.dtype, "streaming_keys")
    n_rows = keys.shape[1]
    _expect(keys, layer.keys.dtype, (len(heads), n_rows, layer.keys.shape[2]), "streaming_keys")
    _expect(streaming.values, keys.dtype, (len(heads), n_rows, layer.values.shape[2]), "streaming_values")
    _demand(0 <= streaming.n_sinks <= n_rows <= n_tokens, "streaming_sinks")


def _check_means(means: ClusterMeans, layer: IndexLayer) -> None:
    n_heads, n_clusters, head_dim = layer.centroids.shape
    n_coarse = layer.coarse_centroids.shape[1]
    dtype, length = row_format(layer.value_dim, FLAT_Q8_0)
    _expect(means.mean_values, dtype, (n_heads, n_clusters, length), "mean_values")
    _expect(means.coarse_mean_values, dtype, (n_heads, n_coarse, length), "coarse_mean_values")
    _expect(means.spread, np.float32, (n_heads, head_dim), "spread")
    _expect(means.coarse_spread, np.float32, (n_heads, head_dim), "coarse_spread")


def _check_queries(queries: LastQueries, layers: Sequence[IndexLayer]) -> None:
    _demand(0 <= queries.layer < len(layers) and queries.queries.ndim == 4, "queries")
    layer, shape = layers[queries.layer], queries.queries.shape
    _demand(
        layer.n_clusters > 0 and len(layer.keys) > 0 and bool(np.isfinite(queries.softcap)) and queries.softcap >= 0,
        "queries",
    )
    _expect(queries.queries, np.float16, (len(layer.keys), *shape[1:3], layer.centroids.shape[2]), "queries")


def _expect(array: np.ndarray, dtype: object, shape: tuple[int, ...], what: str) -> None:
    _demand(array.dtype == dtype and array.shape == shape, what)


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise ImpossibleError(what)
