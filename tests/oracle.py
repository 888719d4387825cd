"""What attention and selection should give, in NumPy float64 and so plainly that nobody doubts it."""

import numpy as np


def attention(queries, keys, values, *, softcap=0.0, sinks=None, visible=None):
    """softmax(queries . keys) . values for one KV head.

    queries : (n_queries, head_dim), scaled    keys, values : (n_rows, head_dim)
    sinks : (n_queries,) scores that take part in the softmax with no value, or None
    visible : (n_queries, n_rows) bool, or None where every query sees every row
    """
    queries, keys, values = (array.astype(np.float64) for array in (queries, keys, values))
    scores = capped(queries @ keys.T, softcap)
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    if sinks is not None:  # a sink is one more row, whose value is 0
        scores = np.column_stack([scores, sinks.astype(np.float64)])
        values = np.vstack([values, np.zeros(values.shape[1])])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ values


def capped(scores, softcap):
    """Scores under a soft cap; 0 is none."""
    return softcap * np.tanh(scores / softcap) if softcap else scores


def visible(query_positions, row_positions, window=0):
    """Which rows each query sees: none that come after it, and of a window only the newest, itself included."""
    distance = query_positions[:, None] - row_positions[None, :]
    return (distance >= 0) & (distance < window) if window else distance >= 0


def centroid_importance(queries, centroids, sizes, softcap=0.0):
    """S_i = exp(q.C_i) / sum_j N_j exp(q.C_j), averaged over all queries: (n_clusters,).

    queries : (..., head_dim), scaled    centroids : (n_clusters, head_dim)    sizes : (n_clusters,), N_j
    """
    queries = queries.reshape(-1, queries.shape[-1]).astype(np.float64)
    scores = capped(queries @ centroids.astype(np.float64).T, softcap)
    scores = np.where(sizes > 0, scores, -np.inf)  # a cluster without keys takes no part
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (weights / (weights @ sizes)[:, None]).mean(axis=0)


def selected_rows(importance, threshold, starts, n_document):
    """Rows of a document, in storage order: the clusters above the threshold, and all rows that are in no cluster."""
    clustered = [
        np.arange(start, stop)
        for start, stop, share in zip(starts, starts[1:], importance, strict=False)
        if share > threshold
    ]
    return np.concatenate([*clustered, np.arange(starts[-1], n_document)]).astype(int)
