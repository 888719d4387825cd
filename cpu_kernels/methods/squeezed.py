"""Squeezed: attend to the clusters of keys that matter (Squeezed Attention, Hooper et al. 2024, section 3.2).

The importance of cluster i is S_i = exp(q . C_i) / sum_j N_j exp(q . C_j): the share of attention that an average key
of the cluster would get, where C_i is its centroid and N_j the number of keys in cluster j. Clusters whose S_i is above
a threshold are attended. Centroids are read once, and exp is kept to compare (appendix D).

All query heads of a group select together, by the sum of their S_i; or, by the rule BY_HEAD, each by its own S_i. Then
one token's query heads attend to their own clusters only, and those of a batch to what any of them selects.

All tokens of a batch attend to what any of them selects or, by the rule BATCH_MEAN, to what the mean of their S_i
selects (appendix D).

A document's clusters are made offline. The tail's are made chunk by chunk as it grows (see tail_clusters.py), and
looked up with the document's; or, by the rule EXACT_TAIL, all of the tail is attended (appendix F).

One rule says what the denominator runs over: the keys that the lookup chooses from, those in clusters, wherever they
lie. Keys that are attended in any case take no part. So with EXACT_TAIL it runs over the document's clusters alone, as
in the paper, and a cluster's S_i does not depend on whether it lies in the document or in the tail.

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
    choices_of,
    exp_scores,
    fill,
    importance_of,
    list_address,
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
        ("rules", "i4"),  # a sum of the rules below
    ],
    align=True,
)

#: Rules of a head: a batch selects by the mean of its tokens' S_i; the tail is never clustered; each query head of the
#: group selects by itself.
BATCH_MEAN, EXACT_TAIL, BY_HEAD = 1, 2, 4

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
    head.bytes_read += (state.n_clusters + state.n_clustered_chunks * CHUNK_CLUSTERS) * shape.head_dim * 2
    first_tail, spans, n_spans = first_tail_item(state.n_clusters), spans_to_fill(spans_address), 0
    if state.rules & BY_HEAD:
        if n_tokens == 1:
            _choose_by_head(shape, head, n_items, state.threshold)
            return _add_chosen(shape, head, state, first_tail, spans)
        _raise_by_head(shape, head_address, query, n_tokens, n_items)
    else:
        for token in range(n_tokens):
            if n_tokens > 1:
                score_clusters(shape, head_address, query + token * shape.group * shape.head_dim * 4, 0, 1)
            raise_importance(shape, head, n_items, state.rules & BATCH_MEAN)

    least = state.threshold * summed(shape, state, n_tokens)
    for i in range(state.n_clusters):
        if not importance[i] <= least:  # attend to a NaN, so that it reaches the output
            n_spans = add_cluster(shape, head, starts, i, spans, n_spans)
    n_spans = add_exact_rows(shape, head, state, spans, n_spans)
    return add_tail_clusters(shape, head, state, n_tokens, first_tail, least, spans, n_spans)


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
def summed(shape, state, n_tokens):
    """Return how many S_i `raise_importance` adds up in an item's importance after n_tokens tokens, f32."""
    n_heads = 1 if state.rules & BY_HEAD else shape.group
    return float32(n_heads * n_tokens if state.rules & BATCH_MEAN else n_heads)


@kernel
def raise_importance(shape, head, n, by_mean):
    """Raise the importance of n items by what one token makes of them, from scores and sizes in the head's scratch.

    That is the sum of S_i over the group. It takes the place of the first query head's scores. The importance becomes
    the largest of all tokens' sums or, if `by_mean` is not 0, their sum. A NaN stays.
    """
    importance, sums = importance_of(head), scores_of(head, 0)
    for g in range(shape.group):
        scores, factor = scores_of(head, g), _weigh_items(head, g, n)
        for i in range(n):
            sums[i] = scores[i] * factor + (sums[i] if g > 0 else float32(0))
    if by_mean:
        for i in range(n):
            importance[i] += sums[i]
        return
    for i in range(n):
        importance[i] = importance[i] if sums[i] <= importance[i] else sums[i] + float32(0) * importance[i]


@kernel
def _weigh_items(head, g, n):
    """Turn query head g's scores of n items into exp(q . C_i), but for a factor; return the one that makes them S_i."""
    sizes, end, scores = sizes_of(head), -(-n // LANES) * LANES, scores_of(head, g)
    address = scores_address(head, g)
    cap_scores(address, n, head.softcap)
    for i in range(n):  # an empty cluster takes no part
        scores[i] = scores[i] if sizes[i] > 0 else float32(-np.inf)
    fill(address, n, end, float32(-np.inf))
    exp_scores(address, end)
    total = float32(0)
    for i in range(n):
        total += scores[i] * sizes[i]
    return float32(1) / total


@kernel
def _choose_by_head(shape, head, n, least):
    """Note which query heads select each of n items: those whose own S_i is above `least`.

    The notes take the place of importance and sizes (see `choices_of`). A NaN selects, so that it reaches the output.
    """
    for g in range(shape.group):
        scores, factor = scores_of(head, g), _weigh_items(head, g, n)
        for i in range(n):
            scores[i] *= factor
    choices = choices_of(head)
    for i in range(n):
        choices[i] = 0
    for g in range(shape.group):
        scores = scores_of(head, g)
        for i in range(n):
            if not scores[i] <= least:
                choices[i] |= int64(1) << g


@kernel
def _raise_by_head(shape, head_address, query, n_tokens, n):
    """Raise the importance of n items to the largest S_i of any query head and token of a batch.

    By the rule BATCH_MEAN, to the largest sum over the tokens of a query head's S_i. A NaN stays.
    """
    head = head_at(head_address)
    by_mean, importance = state_of(head).rules & BATCH_MEAN, importance_of(head)
    sums = array_at(list_address(shape, head), (n,), np.float32)
    for g in range(shape.group):
        for i in range(n):
            sums[i] = float32(0)
        for token in range(n_tokens):
            score_clusters(shape, head_address, query + token * shape.group * shape.head_dim * 4, 0, 1)
            scores, factor = scores_of(head, g), _weigh_items(head, g, n)
            for i in range(n):
                share = scores[i] * factor
                if by_mean:
                    sums[i] += share
                elif not share <= sums[i]:
                    sums[i] = share + float32(0) * sums[i]
        for i in range(n):
            importance[i] = importance[i] if sums[i] <= importance[i] else sums[i] + float32(0) * importance[i]


@kernel
def _add_chosen(shape, head, state, first_tail, spans):
    """Append the clusters that query heads chose, for these alone, and all rows that are in no cluster.

    Counts what one token selects of the tail's clusters, in the state. Returns the number of spans.
    """
    choices, starts, n_spans = choices_of(head), starts_of(state), 0
    for i in range(state.n_clusters):
        if choices[i] != 0:
            start, stop = int64(starts[i]), int64(starts[i + 1])
            n_spans = add_document_rows(shape, head, start, stop, ANY_ORDER, spans, n_spans, choices[i])
    n_spans = add_exact_rows(shape, head, state, spans, n_spans)
    state.n_tail_selected = 0
    for chunk in range(state.n_clustered_chunks):
        row, item, starts = chunk * CHUNK_ROWS, first_tail + chunk * ITEMS_STEP, chunk_starts(shape, head, chunk)
        n_spans = add_tail_rows(shape, head, row, row + starts[0], ANY_ORDER, 0, spans, n_spans)
        for i in range(CHUNK_CLUSTERS):
            if choices[item + i] != 0:
                start, stop = row + starts[i], row + starts[i + 1]
                n_spans = add_tail_rows(shape, head, start, stop, ANY_ORDER, 0, spans, n_spans, choices[item + i])
                state.n_tail_selected += stop - start
    return add_tail(shape, head, state.n_clustered_chunks * CHUNK_ROWS, 0, spans, n_spans)


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
    if state.rules & EXACT_TAIL:
        return 0
    while head.n_tail >= (state.n_clustered_chunks + 1) * CHUNK_ROWS + RECENT:
        cluster_chunk(shape, head, state.n_clustered_chunks)
        state.n_clustered_chunks += 1
    return 0


HOOKS = Hooks(select=select_clusters, score=score_clusters, after_step=cluster_tail)
