"""Centroid lookup: the clusters of keys that get more than a threshold (Squeezed Attention).

One level (section 3.3): S_i = exp(q . C_i) / sum_j N_j exp(q . C_j), the share of attention that an average key of
cluster i would get, where N_j is the number of keys in cluster j; clusters with S_i above a threshold are attended.
Two levels (section 3.4): first a lookup of coarse clusters of a document's clusters, then one of the clusters in those
that were kept, whose denominator runs over these alone. Centroids are read once, and exp is kept to compare
(appendix D). The tail's clusters (see online.py) are looked up with the document's; on two levels, on the second.

All query heads of a group select together, by the sum of their S_i; all tokens of a batch attend what any of them
selects (on two levels, among the clusters of coarse clusters that any of them keeps). The clusters are items of the
head's scratch: the document's, or those that were kept, up to a multiple of ITEMS_STEP, and then ITEMS_STEP for each
clustered chunk of the tail. Items that are no cluster have no keys, and take no part.
Reads 2 * head_dim bytes for each centroid.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import carray, float32, int64

from ..compile import LANES, Shape, kernel, native_callback
from ..decode import fill_list
from ..memory import pointer, write_int64
from ..rows import dot, dot_listed
from ..scores import ITEMS_STEP, LIST_ROOM, MANY, SIGNATURE, cap_scores, exp_scores, fill, list_of, scores_of, share_of
from ..spans import ANY_ORDER, CHUNK_ROWS, add_document_rows, add_tail, add_tail_rows, head_at, spans_at
from ..tail_clusters import CHUNK_CLUSTERS, chunk_centroids, chunk_starts


@kernel
def _tail_items(n_before):
    """The first item of the tail, after n_before clusters."""
    return -(-n_before // ITEMS_STEP) * ITEMS_STEP


@kernel
def score_clusters(shape, head_address, query, part, n_parts):
    """q . C_i for this thread's share of the clusters, and one token."""
    head = head_at(head_address)[0]
    tail = _tail_items(head.n_clusters)
    start, stop = share_of(tail + head.n_clustered * ITEMS_STEP, part, n_parts)
    _score(shape, head, query, head.centroids, start, min(stop, head.n_clusters))
    _score_tail(shape, head, query, tail, max(start, tail), stop)
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
def _score_tail(shape, head, query, tail, start, stop):
    """The items start to stop, whole chunks of the tail, whose first item is `tail`."""
    for item in range(start, stop, ITEMS_STEP):
        centroids = chunk_centroids(head, (item - tail) // ITEMS_STEP)
        dot(shape.of_halves, query, centroids, CHUNK_CLUSTERS, scores_of(head) + item * 4, head.scratch_items)


@kernel
def select_clusters(shape, head_address, query, n_tokens, spans_address):
    """The clusters whose importance is above the threshold, and all rows that are in no cluster."""
    head = head_at(head_address)[0]
    n_clusters = head.n_clusters
    starts = carray(pointer(head.cluster_starts), (n_clusters + 1,), np.int32)
    importance, sizes = _items(head)
    for i in range(n_clusters):
        sizes[i] = float32(starts[i + 1] - starts[i])
    n_items = _add_tail_items(shape, head, n_clusters)
    for token in range(n_tokens):
        if n_tokens > 1:
            score_clusters(shape, head_address, query + token * shape.group * shape.head_dim * 4, 0, 1)
        _raise_importance(shape, head, n_items)
    head.bytes_read += (n_clusters + head.n_clustered * CHUNK_CLUSTERS) * shape.head_dim * 2

    least = head.threshold * float32(shape.group)
    spans, n_spans = spans_at(spans_address, MANY), 0
    for i in range(n_clusters):
        if not importance[i] <= least:  # a NaN is attended, where it shows
            n_spans = _add_cluster(shape, head, starts, i, spans, n_spans)
    n_spans = _add_exact_rows(shape, head, starts, spans, n_spans)
    return _add_tail(shape, head, n_tokens, _tail_items(n_clusters), least, spans, n_spans)


@kernel
def select_clusters_of_clusters(shape, head_address, query, n_tokens, spans_address):
    """`select_clusters` among the clusters of the coarse clusters whose importance is above the coarse threshold.

    Coarse clusters are of a document alone: all clusters of the tail are among those that were kept.
    """
    head = head_at(head_address)[0]
    n_clusters, n_coarse = head.n_clusters, head.n_coarse
    starts = carray(pointer(head.cluster_starts), (n_clusters + 1,), np.int32)
    coarse_starts = carray(pointer(head.coarse_starts), (n_coarse + 1,), np.int32)
    importance, sizes = _items(head)
    for i in range(n_coarse):
        importance[i] = float32(0)
        sizes[i] = float32(starts[coarse_starts[i + 1]] - starts[coarse_starts[i]])
    for token in range(n_tokens):
        if n_tokens > 1:
            score_coarse_clusters(shape, head_address, query + token * shape.group * shape.head_dim * 4, 0, 1)
        _raise_importance(shape, head, n_coarse)

    least = head.coarse_threshold * float32(shape.group)
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
        sizes[i] = float32(starts[cluster + 1] - starts[cluster])
    tail, n_items = _tail_items(n_kept), _add_tail_items(shape, head, n_kept)
    for token in range(n_tokens):
        token_query = query + token * shape.group * shape.head_dim * 4
        dot_listed(shape.of_halves, token_query, listed, n_kept, scores_of(head), head.scratch_items)
        _score_tail(shape, head, token_query, tail, tail, n_items)
        _raise_importance(shape, head, n_items)
    head.bytes_read += (n_coarse + n_kept + head.n_clustered * CHUNK_CLUSTERS) * centroid_bytes

    least = head.threshold * float32(shape.group)
    spans, n_spans = spans_at(spans_address, MANY), 0
    for i in range(n_kept):
        if not importance[i] <= least:  # a NaN is attended, where it shows
            cluster = (kept[i] - head.centroids) // centroid_bytes
            n_spans = _add_cluster(shape, head, starts, cluster, spans, n_spans)
    n_spans = _add_exact_rows(shape, head, starts, spans, n_spans)
    return _add_tail(shape, head, n_tokens, tail, least, spans, n_spans)


@kernel
def _items(head):
    """Importance and size of each item, f32: they lie in the head's scratch before the scores."""
    importance = carray(pointer(head.scratch), (head.scratch_items,), np.float32)
    return importance, carray(pointer(head.scratch + head.scratch_items * 4), (head.scratch_items,), np.float32)


@kernel
def _add_tail_items(shape, head, n_before):
    """Sizes of the items after n_before clusters: the tail's clusters. Returns how many items there are.

    No item has any importance yet.
    """
    importance, sizes = _items(head)
    tail = _tail_items(n_before)
    n_items = tail + head.n_clustered * ITEMS_STEP
    for i in range(n_items):
        importance[i] = float32(0)
    for i in range(n_before, n_items):
        sizes[i] = float32(0)
    for chunk in range(head.n_clustered):
        starts, first = chunk_starts(shape, head, chunk), tail + chunk * ITEMS_STEP
        for i in range(CHUNK_CLUSTERS):
            sizes[first + i] = float32(starts[i + 1] - starts[i])
    return n_items


@kernel
def _raise_importance(shape, head, n):
    """Raise the importance of n items to what one token makes of them, from scores and sizes in the head's scratch.

    That is the sum of S_i over the group, which takes the place of the first query head's scores. A NaN stays.
    """
    importance, sizes = _items(head)
    end = -(-n // LANES) * LANES
    sums = carray(pointer(scores_of(head)), (n,), np.float32)
    for g in range(shape.group):
        place = scores_of(head) + g * head.scratch_items * 4
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
            sums[i] = scores[i] * factor + (sums[i] if g > 0 else float32(0))
    for i in range(n):
        importance[i] = importance[i] if sums[i] <= importance[i] else sums[i] + float32(0) * importance[i]


@kernel
def _add_cluster(shape, head, starts, cluster, spans, n_spans):
    start, stop = int64(starts[cluster]), int64(starts[cluster + 1])
    return add_document_rows(head, shape.row_bytes, start, stop, ANY_ORDER, spans, n_spans)


@kernel
def _add_exact_rows(shape, head, starts, spans, n_spans):
    """The document's rows that are in no cluster."""
    first = int64(starts[head.n_clusters]) if head.n_clusters > 0 else 0
    return add_document_rows(head, shape.row_bytes, first, head.n_document, ANY_ORDER, spans, n_spans)


@kernel
def _add_tail(shape, head, n_tokens, tail, least, spans, n_spans):
    """The tail's clusters whose importance is above `least`, and its rows that are in none.

    tail : the tail's first item    Counts what it selects for one token; for more, n_selected becomes -1.
    """
    importance, _ = _items(head)
    head.n_selected = 0
    for chunk in range(head.n_clustered):
        starts, row, item = chunk_starts(shape, head, chunk), chunk * CHUNK_ROWS, tail + chunk * ITEMS_STEP
        stop = row + starts[0]
        n_spans = add_tail_rows(head, shape.row_bytes, row, stop, ANY_ORDER, 0, spans, n_spans)
        for i in range(CHUNK_CLUSTERS):
            if not importance[item + i] <= least:  # a NaN is attended, where it shows
                start, stop = row + starts[i], row + starts[i + 1]
                n_spans = add_tail_rows(head, shape.row_bytes, start, stop, ANY_ORDER, 0, spans, n_spans)
                head.n_selected += stop - start
    if n_tokens > 1:
        head.n_selected = -1
    return add_tail(head, shape.row_bytes, head.n_clustered * CHUNK_ROWS, 0, spans, n_spans)


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
