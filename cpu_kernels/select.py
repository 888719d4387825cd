"""The compiled half of the selectors: each turns a query group into spans of rows (see spans.py)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import carray, float32, int64

from .blocks import dot
from .compile import LANES, Shape, kernel, native_callback
from .memory import pointer
from .spans import ANY_ORDER, add_document_rows, add_tail, first_visible_position, head_at, spans_at
from .vector import exp, load, max_of, maximum, splat, store, subtract

#: More spans than any head has: the arrays over them are only views.
_MANY = 1 << 40


@kernel
def select_all(shape, head_address, query, n_tokens, spans_address):
    """Every row that the step's tokens may see: dense attention, inside the layer's window."""
    head, spans = head_at(head_address)[0], spans_at(spans_address, _MANY)
    first_visible = first_visible_position(head, n_tokens)
    position, first_row = head.document_position, 0
    if position != ANY_ORDER:
        first_row = max(0, first_visible - position)
        position += first_row
    n_spans = add_document_rows(head, shape.head_dim, first_row, head.n_document, position, spans, 0)
    return add_tail(head, shape.head_dim, first_visible, spans, n_spans)


def padded_clusters(n_clusters: int) -> int:
    """Scores are computed LANES at a time: room for n_clusters of them."""
    return -(-n_clusters // LANES) * LANES


@kernel
def score_clusters(shape, query, n_tokens, centroids, starts, n_clusters, softcap, scratch, importance):
    """importance[i] = exp(q . C_i) / sum_j N_j exp(q . C_j), summed over the group's heads and the tokens.

    The share of attention that an average key of cluster i would get, where N_j is the number of keys in cluster j
    (Squeezed Attention, section 3.3).

    query : address of (n_tokens * group, head_dim) f32, scaled    centroids : address of (n_clusters, head_dim) f16
    starts : (n_clusters + 1,) int32, where clusters start and stop    importance : (n_clusters,) f32
    scratch : address of group * (n_clusters rounded up to LANES) f32
    """
    padded = -(-n_clusters // LANES) * LANES
    scores = carray(pointer(scratch), (shape.group * padded,), np.float32)
    for i in range(n_clusters):
        importance[i] = float32(0)
    for token in range(n_tokens):
        dot(shape, query + token * shape.group * shape.head_dim * 4, centroids, n_clusters, scratch, padded)
        for g in range(shape.group):
            first = g * padded
            for i in range(n_clusters, padded):
                scores[first + i] = float32(-np.inf)
            cap_scores(scratch + first * 4, n_clusters, softcap)
            for i in range(n_clusters):  # an empty cluster takes no part
                scores[first + i] = scores[first + i] if starts[i] < starts[i + 1] else float32(-np.inf)
            largest = splat(float32(-1e30))
            for i in range(0, padded, LANES):
                largest = maximum(largest, load(scratch + (first + i) * 4))
            largest = splat(max_of(largest))
            for i in range(0, padded, LANES):
                place = scratch + (first + i) * 4
                store(place, exp(subtract(load(place), largest)))
            total = float32(0)
            for i in range(n_clusters):
                total += scores[first + i] * float32(starts[i + 1] - starts[i])
            share = float32(1) / total
            for i in range(n_clusters):
                importance[i] += scores[first + i] * share


@kernel
def cap_scores(scores, n, softcap):
    """scores[i] = softcap * tanh(scores[i] / softcap) for n f32 at an address; softcap 0 leaves them."""
    if softcap == 0:
        return
    values = carray(pointer(scores), (n,), np.float32)
    for i in range(n):
        values[i] = softcap * np.tanh(values[i] / softcap)


@kernel
def select_clusters(shape, head_address, query, n_tokens, spans_address):
    """The document's clusters whose importance is above the threshold, its exact rows, and the tail.

    Squeezed Attention, section 3.3: one global threshold, so that each head takes what it needs.
    """
    head, spans = head_at(head_address)[0], spans_at(spans_address, _MANY)
    n_clusters = head.n_clusters
    starts = carray(pointer(head.cluster_starts), (n_clusters + 1,), np.int32)
    importance = carray(pointer(head.scratch), (n_clusters,), np.float32)
    scratch = head.scratch + n_clusters * 4
    score_clusters(shape, query, n_tokens, head.centroids, starts, n_clusters, head.softcap, scratch, importance)
    head.bytes_read += n_clusters * shape.head_dim * 2
    least = head.threshold * float32(shape.group * n_tokens)
    n_spans = 0
    for i in range(n_clusters):
        if importance[i] > least:
            n_spans = add_document_rows(
                head, shape.head_dim, int64(starts[i]), int64(starts[i + 1]), ANY_ORDER, spans, n_spans
            )
    exact = int64(starts[n_clusters]) if n_clusters > 0 else 0
    n_spans = add_document_rows(head, shape.head_dim, exact, head.n_document, ANY_ORDER, spans, n_spans)
    return add_tail(head, shape.head_dim, first_visible_position(head, n_tokens), spans, n_spans)


# One function for each selector: a shared one would hold the selector in its closure, and Numba's cache on disk
# never finds a function again whose closure holds a compiled one.
_SIGNATURE = int64(int64, int64, int64, int64)


@cache
def native_select_all(shape: Shape) -> Any:
    """`select_all` for one shape as a native function; its `address` goes into a HEAD record."""

    @native_callback(_SIGNATURE)
    def call(head, query, n_tokens, spans):
        return select_all(shape, head, query, n_tokens, spans)

    return call


@cache
def native_select_clusters(shape: Shape) -> Any:
    """`select_clusters` for one shape as a native function; its `address` goes into a HEAD record."""

    @native_callback(_SIGNATURE)
    def call(head, query, n_tokens, spans):
        return select_clusters(shape, head, query, n_tokens, spans)

    return call
