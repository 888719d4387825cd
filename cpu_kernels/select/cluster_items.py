"""Share code between lookups in clusters, in one level and in two: a head's state, items, and deferral to an estimate.

The items of the head's scratch are the document's clusters, padded to a multiple of ITEMS_STEP, and then ITEMS_STEP
items for each clustered chunk of the tail. Items that are not clusters have no keys, and take no part.
methods/squeezed.py describes the selection.
"""

from __future__ import annotations

import numpy as np
from numba import float32, int64

from ..layout.head import head_at
from ..layout.scores import ITEMS_STEP, importance_of, scores_address, scores_of, sizes_of
from ..numba_support.compile import kernel
from ..numba_support.views import array_at, record_at
from ..rows.rows import dot
from ..rows.tiles import CHUNK_ROWS
from .cluster_means import add_items, leave_items
from .tail_clusters import CHUNK_CLUSTERS, RECENT, chunk_centroids, chunk_mean_values, chunk_spread, chunk_starts

#: Per-head state, besides rows and the tail's clusters.
STATE = np.dtype(
    [
        ("centroids", "i8"),  # address of the document's centroids, (n_clusters, head_dim) f16
        ("cluster_starts", "i8"),  # address of (n_clusters + 1,) int32: rows of the document, sorted by cluster
        ("n_clusters", "i8"),
        ("n_clustered_chunks", "i8"),  # clustered chunks of the tail, from the first on
        ("n_bytes", "i8"),  # bytes that a step reads, including the lookup; or one of the numbers below
        ("threshold", "f4"),  # of S_i, averaged over the group
        ("least_share", "f4"),  # least share of the clustered rows to select, whatever n_bytes leaves
        ("rules", "i4"),  # a sum of the rules below
        ("mean_values", "i8"),  # address of the clusters' mean values, n_clusters q8_0 rows, for ESTIMATE
        ("spread", "i8"),  # address of the variance of keys within clusters, (head_dim,) f32
        ("n_estimated", "i8"),  # items that this step defers to the estimate
    ],
    align=True,
)

#: In place of a number of bytes: clusters above `threshold`, or all.
BY_THRESHOLD, EVERYTHING = -1, -2

#: Rules of a head: a batch selects by the mean of its tokens' S_i; the tail is never clustered; each query head of the
#: group selects by itself; n_bytes does not include the lookup; a batch attends to the union of its tokens' selections;
#: clusters that one token does not select are estimated.
BATCH_MEAN, EXACT_TAIL, BY_HEAD, LOOKUP_APART, BATCH_UNION, ESTIMATE = 1, 2, 4, 8, 16, 32


@kernel
def state_of(head):
    """View the head's STATE. It is also the beginning of the state of the lookup in two levels (see squeezed2.py)."""
    return record_at(head.state, STATE)


@kernel
def starts_of(state):
    """View the starts and stops of the document's clusters, (n_clusters + 1,) int32."""
    return array_at(state.cluster_starts, (state.n_clusters + 1,), np.int32)


@kernel
def first_tail_item(n_clusters):
    """Return the first item of the tail, after n_clusters clusters of the document."""
    return -(-n_clusters // ITEMS_STEP) * ITEMS_STEP


@kernel
def used_chunks(head, n_tokens):
    """Return how many chunks of the tail a step of n_tokens tokens looks up: those that are due without the step."""
    return min(state_of(head).n_clustered_chunks, max(head.n_tail - n_tokens - RECENT, 0) // CHUNK_ROWS)


@kernel
def score_centroids(shape, head, query, centroids, start, stop):
    """Compute the scores of the items start to stop, whose centroids are adjacent from item 0 on."""
    if start < stop:
        first = centroids + start * shape.head_dim * 2
        dot(shape.of_halves, query, first, stop - start, scores_address(head, 0) + start * 4, head.scratch_items)


@kernel
def score_tail(shape, head, query, first_tail, start, stop):
    """Compute the scores of the items start to stop: whole chunks of the tail, whose first item is `first_tail`."""
    for item in range(start, stop, ITEMS_STEP):
        centroids = chunk_centroids(shape, head, (item - first_tail) // ITEMS_STEP)
        dot(shape.of_halves, query, centroids, CHUNK_CLUSTERS, scores_address(head, 0) + item * 4, head.scratch_items)


@kernel
def lookup_bytes(shape, head, n_centroids, n_spreads, n_chunks, n_tokens):
    """Return the bytes that a step reads of a document's centroids, of n_chunks chunks' centroids, and of spreads."""
    n_centroids += n_chunks * CHUNK_CLUSTERS
    n_bytes = n_centroids * shape.head_dim * 2
    if n_tokens == 1 and state_of(head).rules & ESTIMATE:
        n_bytes += n_centroids * shape.of_bytes.row_bytes + n_spreads * shape.head_dim * 4
    return n_bytes


@kernel
def start_items(shape, head, n_clusters, n_chunks):
    """Write the sizes of all items after n_clusters clusters of the document, and set all importance to 0.

    Returns
    -------
    int64
        Items of the head, a multiple of ITEMS_STEP.
    """
    importance, sizes = importance_of(head), sizes_of(head)
    first_tail = first_tail_item(n_clusters)
    n_items = first_tail + n_chunks * ITEMS_STEP
    for i in range(n_items):
        importance[i] = float32(0)
    for i in range(n_clusters, n_items):
        sizes[i] = float32(0)
    for chunk in range(n_chunks):
        starts, first = chunk_starts(shape, head, chunk), first_tail + chunk * ITEMS_STEP
        for i in range(CHUNK_CLUSTERS):
            sizes[first + i] = float32(starts[i + 1] - starts[i])
    return n_items


@kernel
def clustered_rows(state):
    """Return how many rows of the document are in clusters."""
    return int64(starts_of(state)[state.n_clusters]) if state.n_clusters > 0 else 0


@kernel
def wanted_rows(shape, head, n_chunks, lookup_bytes):
    """Return how many rows of clusters a step should select, f32, by the head's n_bytes."""
    state = state_of(head)
    n_clustered = clustered_rows(state)
    for chunk in range(n_chunks):
        n_clustered += CHUNK_ROWS - chunk_starts(shape, head, chunk)[0]
    n_exact = head.n_document + head.n_tail - n_clustered
    n_bytes = state.n_bytes - (0 if state.rules & LOOKUP_APART else lookup_bytes)
    return float32(max(n_bytes / shape.token_bytes - n_exact, state.least_share * n_clustered))


@kernel
def weigh_rest(shape, head, n, least):
    """Turn one token's scores of n items into weights, times sizes; 0 for selected items."""
    if state_of(head).rules & ESTIMATE == 0:
        return
    importance, sizes = importance_of(head), sizes_of(head)
    for g in range(shape.group):
        scores = scores_of(head, g)
        for i in range(n):
            scores[i] = scores[i] * sizes[i] if importance[i] <= least else float32(0)


@kernel
def leave_tail(shape, head, query, first_tail, n_chunks):
    """Defer clusters of the tail to the estimate, and count its items, including those before `first_tail`."""
    for chunk in range(n_chunks):
        first, values = first_tail + chunk * ITEMS_STEP, chunk_mean_values(shape, head, chunk)
        leave_items(shape, head, query, first, CHUNK_CLUSTERS, ITEMS_STEP, values, chunk_spread(shape, head, chunk))
    state_of(head).n_estimated = first_tail + n_chunks * ITEMS_STEP


@kernel
def estimate_clusters(shape, head_address, partial, part, n_parts):
    """Add a share of the clusters that were not selected to a partial result: an `estimate` hook (see hooks.py)."""
    add_items(shape, head_address, state_of(head_at(head_address)).n_estimated, partial, part, n_parts)
    return 0
