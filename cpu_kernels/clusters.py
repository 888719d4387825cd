"""Centroid lookup: the clusters of a document's keys that get more than a threshold (Squeezed Attention).

One level (section 3.3): S_i = exp(q . C_i) / sum_j N_j exp(q . C_j), the share of attention that an average key of
cluster i would get, where N_j is the number of keys in cluster j; clusters with S_i above a threshold are attended.
Two levels (section 3.4): first a lookup of coarse clusters of clusters, then one of the clusters in those that were
kept, whose denominator runs over these alone. Centroids are read once, and exp is kept to compare (appendix D).

All query heads of a group, and all tokens of a batch, select together: by the sum of their S_i.
Reads 2 * head_dim bytes for each centroid.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import carray, float32, int64

from .compile import LANES, Shape, kernel, native_callback
from .decode import fill_list
from .memory import pointer, write_int64
from .rows import dot, dot_listed
from .select import LIST_ROOM, MANY, SIGNATURE, cap_scores, exp_scores, fill, list_of, scores_of, share_of
from .spans import ANY_ORDER, add_document_rows, add_tail, first_visible_position, head_at, spans_at


@kernel
def score_clusters(shape, head_address, query, part, n_parts):
    """q . C_i for this thread's share of the clusters, and one token."""
    head = head_at(head_address)[0]
    _score(shape, head, query, head.centroids, *share_of(head.n_clusters, part, n_parts))
    return 0


@kernel
def score_coarse_clusters(shape, head_address, query, part, n_parts):
    """q . C_i for this thread's share of the coarse clusters, and one token."""
    head = head_at(head_address)[0]
    _score(shape, head, query, head.coarse_centroids, *share_of(head.n_coarse, part, n_parts))
    return 0


@kernel
def _score(shape, head, query, centroids, start, stop):
    if start < stop:
        first = centroids + start * shape.head_dim * 2
        dot(shape.of_halves, query, first, stop - start, scores_of(head) + start * 4, head.scratch_items)


@kernel
def select_clusters(shape, head_address, query, n_tokens, spans_address):
    """The document's clusters whose importance is above the threshold, its exact rows, and the tail."""
    head = head_at(head_address)[0]
    n_clusters = head.n_clusters
    starts = carray(pointer(head.cluster_starts), (n_clusters + 1,), np.int32)
    importance = carray(pointer(head.scratch), (n_clusters,), np.float32)
    sizes = carray(pointer(head.scratch + head.scratch_items * 4), (n_clusters,), np.float32)
    for i in range(n_clusters):
        importance[i] = float32(0)
        sizes[i] = float32(starts[i + 1] - starts[i])
    for token in range(n_tokens):
        if n_tokens > 1:
            score_clusters(shape, head_address, query + token * shape.group * shape.head_dim * 4, 0, 1)
        _add_importance(shape, head, n_clusters)
    head.bytes_read += n_clusters * shape.head_dim * 2
    least = head.threshold * float32(shape.group * n_tokens)
    spans, n_spans = spans_at(spans_address, MANY), 0
    for i in range(n_clusters):
        if not importance[i] <= least:  # a NaN is attended, where it shows
            n_spans = _add_cluster(shape, head, starts, i, spans, n_spans)
    return _add_exact_rows(shape, head, starts, n_tokens, spans, n_spans)


@kernel
def select_clusters_of_clusters(shape, head_address, query, n_tokens, spans_address):
    """`select_clusters` among the clusters of the coarse clusters whose importance is above the coarse threshold."""
    head = head_at(head_address)[0]
    n_clusters, n_coarse = head.n_clusters, head.n_coarse
    starts = carray(pointer(head.cluster_starts), (n_clusters + 1,), np.int32)
    coarse_starts = carray(pointer(head.coarse_starts), (n_coarse + 1,), np.int32)
    importance = carray(pointer(head.scratch), (n_clusters,), np.float32)
    sizes = carray(pointer(head.scratch + head.scratch_items * 4), (n_clusters,), np.float32)
    for i in range(n_coarse):
        importance[i] = float32(0)
        sizes[i] = float32(starts[coarse_starts[i + 1]] - starts[coarse_starts[i]])
    for token in range(n_tokens):
        if n_tokens > 1:
            score_coarse_clusters(shape, head_address, query + token * shape.group * shape.head_dim * 4, 0, 1)
        _add_importance(shape, head, n_coarse)

    least = head.coarse_threshold * float32(shape.group * n_tokens)
    centroid_bytes = shape.head_dim * 2
    listed, n_kept = list_of(shape, head), 0
    for i in range(n_coarse):
        if not importance[i] <= least:  # a NaN is attended, where it shows
            for cluster in range(coarse_starts[i], coarse_starts[i + 1]):
                write_int64(listed + n_kept * 8, head.centroids + cluster * centroid_bytes)
                n_kept += 1
    kept = carray(pointer(listed), (n_kept,), np.int64)
    if n_kept > 0:
        fill_list(listed, n_kept, n_kept + LIST_ROOM)
    for i in range(n_kept):
        cluster = (kept[i] - head.centroids) // centroid_bytes
        importance[i] = float32(0)
        sizes[i] = float32(starts[cluster + 1] - starts[cluster])
    for token in range(n_tokens):
        token_query = query + token * shape.group * shape.head_dim * 4
        dot_listed(shape.of_halves, token_query, listed, n_kept, scores_of(head), head.scratch_items)
        _add_importance(shape, head, n_kept)
    head.bytes_read += (n_coarse + n_kept) * centroid_bytes

    least = head.threshold * float32(shape.group * n_tokens)
    spans, n_spans = spans_at(spans_address, MANY), 0
    for i in range(n_kept):
        if not importance[i] <= least:  # a NaN is attended, where it shows
            cluster = (kept[i] - head.centroids) // centroid_bytes
            n_spans = _add_cluster(shape, head, starts, cluster, spans, n_spans)
    return _add_exact_rows(shape, head, starts, n_tokens, spans, n_spans)


@kernel
def _add_importance(shape, head, n):
    """Add one token's S_i of n clusters, from their scores and sizes in the head's scratch, to their importance."""
    items = head.scratch_items
    importance = carray(pointer(head.scratch), (n,), np.float32)
    sizes = carray(pointer(head.scratch + items * 4), (n,), np.float32)
    end = -(-n // LANES) * LANES
    for g in range(shape.group):
        place = scores_of(head) + g * items * 4
        scores = carray(pointer(place), (n,), np.float32)
        cap_scores(place, n, head.softcap)
        for i in range(n):  # an empty cluster takes no part
            scores[i] = scores[i] if sizes[i] > 0 else float32(-np.inf)
        fill(place, n, end, float32(-np.inf))
        exp_scores(place, end)
        total = float32(0)
        for i in range(n):
            total += scores[i] * sizes[i]
        factor = float32(1) / total
        for i in range(n):
            importance[i] += scores[i] * factor


@kernel
def _add_cluster(shape, head, starts, cluster, spans, n_spans):
    start, stop = int64(starts[cluster]), int64(starts[cluster + 1])
    return add_document_rows(head, shape.row_bytes, start, stop, ANY_ORDER, spans, n_spans)


@kernel
def _add_exact_rows(shape, head, starts, n_tokens, spans, n_spans):
    """The document's rows that are in no cluster, and the tail."""
    first = int64(starts[head.n_clusters]) if head.n_clusters > 0 else 0
    n_spans = add_document_rows(head, shape.row_bytes, first, head.n_document, ANY_ORDER, spans, n_spans)
    return add_tail(head, shape.row_bytes, first_visible_position(head, n_tokens), spans, n_spans)


@cache
def native_score_clusters(shape: Shape) -> Any:
    """`score_clusters` for one shape as a native function."""

    @native_callback(SIGNATURE)
    def call(head, query, part, n_parts):
        return score_clusters(shape, head, query, part, n_parts)

    return call


@cache
def native_select_clusters(shape: Shape) -> Any:
    """`select_clusters` for one shape as a native function."""

    @native_callback(SIGNATURE)
    def call(head, query, n_tokens, spans):
        return select_clusters(shape, head, query, n_tokens, spans)

    return call


@cache
def native_score_coarse_clusters(shape: Shape) -> Any:
    """`score_coarse_clusters` for one shape as a native function."""

    @native_callback(SIGNATURE)
    def call(head, query, part, n_parts):
        return score_coarse_clusters(shape, head, query, part, n_parts)

    return call


@cache
def native_select_clusters_of_clusters(shape: Shape) -> Any:
    """`select_clusters_of_clusters` for one shape as a native function."""

    @native_callback(SIGNATURE)
    def call(head, query, n_tokens, spans):
        return select_clusters_of_clusters(shape, head, query, n_tokens, spans)

    return call
