"""Squeezed: attend to the clusters of keys that matter (Squeezed Attention, Hooper et al. 2024, section 3.2).

The importance of cluster i is S_i = exp(q . C_i) / sum_j N_j exp(q . C_j): the share of attention that an average key
of the cluster would get, where C_i is its centroid and N_j the number of keys in cluster j. Clusters whose S_i is above
a threshold are attended. Centroids are read once, and exp is kept to compare (appendix D).

All query heads of a group select together, by the sum of their S_i. All tokens of a batch attend to what any of them
selects. A document's clusters are made offline. The tail's are made chunk by chunk as it grows (see tail_clusters.py),
and looked up with the document's.

The items of the head's scratch are the document's clusters, up to a multiple of ITEMS_STEP, and then ITEMS_STEP items
for each clustered chunk of the tail. Items that are no cluster have no keys, and take no part.

Selection reads 2 * head_dim bytes a centroid.
"""

from __future__ import annotations

import numpy as np
from numba import float32, int64

from .. import tail_clusters
from ..compile import LANES, kernel
from ..head import ANY_ORDER, CHUNK_ROWS, head_at
from ..hooks import Hooks
from ..rows import dot
from ..scores import (
    ITEMS_STEP,
    cap_scores,
    exp_scores,
    fill,
    importance_of,
    scores_address,
    scores_of,
    share_of,
    sizes_of,
)
from ..spans import add_document_rows, add_tail, add_tail_rows, spans_to_fill
from ..tail_clusters import CHUNK_CLUSTERS, RECENT, chunk_centroids, chunk_starts, cluster_chunk
from ..views import array_at, record_at

#: What a head keeps besides its rows and its tail's clusters.
STATE = np.dtype(
    [
        ("centroids", "i8"),  # address of the document's centroids, (n_clusters, head_dim) f16
        ("cluster_starts", "i8"),  # address of (n_clusters + 1,) int32: rows of the document, sorted by cluster
        ("n_clusters", "i8"),
        ("n_clustered_chunks", "i8"),  # chunks of the tail, from the first on, that are clustered
        ("n_tail_selected", "i8"),  # rows that one token selected of the tail's clusters; -1 after a batch
        ("threshold", "f4"),  # of S_i, averaged over the group
    ],
    align=True,
)

#: A chunk's extras are its clusters.
extras_bytes = tail_clusters.extras_bytes


@kernel
def state_of(head):
    """View the head's STATE. It is also the beginning of the state of the lookup in two levels (see squeezed2.py)."""
    return record_at(head.state, STATE)


@kernel
def starts_of(state):
    """View where the document's clusters start and stop, (n_clusters + 1,) int32."""
    return array_at(state.cluster_starts, (state.n_clusters + 1,), np.int32)


@kernel
def first_tail_item(n_clusters):
    """Return the first item of the tail, after n_clusters clusters of the document."""
    return -(-n_clusters // ITEMS_STEP) * ITEMS_STEP


@kernel
def score_clusters(shape, head_address, query, part, n_parts):
    """Compute q . C_i for a share of the clusters, and one token: a `score` hook (see hooks.py)."""
    head = head_at(head_address)
    state = state_of(head)
    first_tail = first_tail_item(state.n_clusters)
    start, stop = share_of(first_tail + state.n_clustered_chunks * ITEMS_STEP, part, n_parts)
    score_centroids(shape, head, query, state.centroids, start, min(stop, state.n_clusters))
    score_tail(shape, head, query, first_tail, max(start, first_tail), stop)
    return 0


@kernel
def score_centroids(shape, head, query, centroids, start, stop):
    """Compute the scores of the items start to stop, whose centroids lie one after another from item 0 on."""
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
def select_clusters(shape, head_address, query, n_tokens, spans_address):
    """Select the clusters above the threshold, and all rows that are in no cluster: a `select` hook (see hooks.py)."""
    head = head_at(head_address)
    state = state_of(head)
    starts, importance, sizes = starts_of(state), importance_of(head), sizes_of(head)
    for i in range(state.n_clusters):
        sizes[i] = float32(starts[i + 1] - starts[i])
    n_items = start_items(shape, head, state, state.n_clusters)
    for token in range(n_tokens):
        if n_tokens > 1:
            score_clusters(shape, head_address, query + token * shape.group * shape.head_dim * 4, 0, 1)
        raise_importance(shape, head, n_items)
    head.bytes_read += (state.n_clusters + state.n_clustered_chunks * CHUNK_CLUSTERS) * shape.head_dim * 2

    least = state.threshold * float32(shape.group)
    spans, n_spans = spans_to_fill(spans_address), 0
    for i in range(state.n_clusters):
        if not importance[i] <= least:  # attend to a NaN, so that it reaches the output
            n_spans = add_cluster(shape, head, starts, i, spans, n_spans)
    n_spans = add_exact_rows(shape, head, state, spans, n_spans)
    return add_tail_clusters(shape, head, state, n_tokens, first_tail_item(state.n_clusters), least, spans, n_spans)


@kernel
def start_items(shape, head, state, n_clusters):
    """Write the sizes of all items after n_clusters clusters of the document, and set all importance to 0.

    Returns
    -------
    int64
        Items of the head.
    """
    importance, sizes = importance_of(head), sizes_of(head)
    first_tail = first_tail_item(n_clusters)
    n_items = first_tail + state.n_clustered_chunks * ITEMS_STEP
    for i in range(n_items):
        importance[i] = float32(0)
    for i in range(n_clusters, n_items):
        sizes[i] = float32(0)
    for chunk in range(state.n_clustered_chunks):
        starts, first = chunk_starts(shape, head, chunk), first_tail + chunk * ITEMS_STEP
        for i in range(CHUNK_CLUSTERS):
            sizes[first + i] = float32(starts[i + 1] - starts[i])
    return n_items


@kernel
def raise_importance(shape, head, n):
    """Raise the importance of n items to what one token makes of them, from scores and sizes in the head's scratch.

    That is the sum of S_i over the group. It takes the place of the first query head's scores. A NaN stays.
    """
    importance, sizes = importance_of(head), sizes_of(head)
    end, sums = -(-n // LANES) * LANES, scores_of(head, 0)
    for g in range(shape.group):
        address, scores = scores_address(head, g), scores_of(head, g)
        cap_scores(address, n, head.softcap)
        for i in range(n):  # an empty cluster takes no part
            scores[i] = scores[i] if sizes[i] > 0 else float32(-np.inf)
        fill(address, n, end, float32(-np.inf))
        exp_scores(address, end)
        total = float32(0)
        for i in range(n):
            total += scores[i] * sizes[i]
        factor = float32(1) / total
        for i in range(n):
            sums[i] = scores[i] * factor + (sums[i] if g > 0 else float32(0))
    for i in range(n):
        importance[i] = importance[i] if sums[i] <= importance[i] else sums[i] + float32(0) * importance[i]


@kernel
def add_cluster(shape, head, starts, cluster, spans, n_spans):
    """Append the rows of one of the document's clusters. Returns the number of spans."""
    start, stop = int64(starts[cluster]), int64(starts[cluster + 1])
    return add_document_rows(shape, head, start, stop, ANY_ORDER, spans, n_spans)


@kernel
def add_exact_rows(shape, head, state, spans, n_spans):
    """Append the document's rows that are in no cluster. Returns the number of spans."""
    first = int64(starts_of(state)[state.n_clusters]) if state.n_clusters > 0 else 0
    return add_document_rows(shape, head, first, head.n_document, ANY_ORDER, spans, n_spans)


@kernel
def add_tail_clusters(shape, head, state, n_tokens, first_tail, least, spans, n_spans):
    """Append the tail's clusters whose importance is above `least`, and its rows that are in no cluster.

    Counts what one token selects of the clusters, in the state. Returns the number of spans.
    """
    importance = importance_of(head)
    state.n_tail_selected = 0
    for chunk in range(state.n_clustered_chunks):
        starts, row, item = chunk_starts(shape, head, chunk), chunk * CHUNK_ROWS, first_tail + chunk * ITEMS_STEP
        stop = row + starts[0]
        n_spans = add_tail_rows(shape, head, row, stop, ANY_ORDER, 0, spans, n_spans)
        for i in range(CHUNK_CLUSTERS):
            if not importance[item + i] <= least:  # attend to a NaN, so that it reaches the output
                start, stop = row + starts[i], row + starts[i + 1]
                n_spans = add_tail_rows(shape, head, start, stop, ANY_ORDER, 0, spans, n_spans)
                state.n_tail_selected += stop - start
    if n_tokens > 1:
        state.n_tail_selected = -1
    return add_tail(shape, head, state.n_clustered_chunks * CHUNK_ROWS, 0, spans, n_spans)


@kernel
def cluster_tail(shape, head_address, n_tokens):
    """Cluster the chunks of the tail that are due: an `after_step` hook (see hooks.py)."""
    head = head_at(head_address)
    state = state_of(head)
    while head.n_tail >= (state.n_clustered_chunks + 1) * CHUNK_ROWS + RECENT:
        cluster_chunk(shape, head, state.n_clustered_chunks)
        state.n_clustered_chunks += 1
    return 0


HOOKS = Hooks(select=select_clusters, score=score_clusters, after_step=cluster_tail)
