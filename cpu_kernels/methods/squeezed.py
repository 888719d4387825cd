"""Squeezed: attend to the clusters of keys that matter (Squeezed Attention, Hooper et al. 2024, section 3.2).

The importance of cluster i is S_i = exp(q . C_i) / sum_j N_j exp(q . C_j): the share of attention that an average key
of the cluster would get, where C_i is its centroid and N_j the number of keys in cluster j. Clusters with S_i above a
threshold are attended. Centroids are read once, and exp is kept for the comparison (appendix D).

Each step finds the threshold by which the head reads its budget: it takes the best clusters until their rows fill the
part of `n_bytes` that the lookup and the rows outside clusters leave. So the sequence and the settings alone determine
what a step reads. If `n_bytes` is BY_THRESHOLD, the threshold is given, as in the paper.

All query heads of a group select together, by the sum of their S_i; or, by the rule BY_HEAD, each by its own S_i. Then
the query heads of one token attend only to their own clusters, and those of a batch to the union. The threshold is
common: it is found on the largest S_i of each cluster.

A batch attends to everything; by the rule BATCH_UNION, to the union of its tokens' selections; by BATCH_MEAN, to the
selection by the mean of their S_i (appendix D).

A document's clusters are made offline. The tail's are made chunk by chunk as it grows (see tail_clusters.py), and
looked up with the document's; or, by the rule EXACT_TAIL, the whole tail is attended (appendix F). After a truncation,
some clustered chunks may not be due yet in a sequence of that length: all of their rows are attended.

The denominator always runs over the keys that the lookup chooses from: those in clusters, wherever they are. Keys that
are always attended take no part. So with EXACT_TAIL it runs over the document's clusters alone, as in the paper, and a
cluster's S_i is the same in the document and in the tail.

The items of the head's scratch are clusters (see cluster_items.py).

By the rule ESTIMATE, the mean values of clusters that are not selected estimate their attention (see cluster_means.py),
which log-sum-exp merges with the attended rows.

Selection reads 2 * head_dim bytes for each centroid, and the estimate value_dim + 4 more, and 4 * head_dim for a
spread.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32, int64

from ..layout.head import ANY_ORDER, head_at
from ..layout.hooks import Hooks
from ..layout.scores import (
    ITEMS_STEP,
    cap_scores,
    choices_of,
    exp_scores,
    fill,
    importance_address,
    importance_of,
    list_address,
    rest_of,
    scores_address,
    scores_of,
    share_of,
    sizes_address,
    sizes_of,
)
from ..layout.spans import add_document_rows, add_tail, add_tail_rows, spans_to_fill
from ..numba_support.compile import kernel
from ..numba_support.machine_features import LANES
from ..numba_support.views import array_at
from ..rows.tiles import CHUNK_ROWS
from ..select import cluster_items, tail_clusters
from ..select.cluster_items import (
    BATCH_MEAN,
    BATCH_UNION,
    BY_HEAD,
    BY_THRESHOLD,
    ESTIMATE,
    EVERYTHING,
    EXACT_TAIL,
    clustered_rows,
    estimate_clusters,
    first_tail_item,
    leave_tail,
    lookup_bytes,
    score_centroids,
    score_tail,
    start_items,
    starts_of,
    state_of,
    used_chunks,
    wanted_rows,
    weigh_rest,
)
from ..select.cluster_means import end_items, leave_items
from ..select.tail_clusters import CHUNK_CLUSTERS, RECENT, chunk_starts, cluster_chunk
from ..select.top_k import find_least
from .dense import select_all

#: Per-head state, besides rows and the tail's clusters.
STATE = cluster_items.STATE

#: A chunk's extras are its clusters.
extras_bytes = tail_clusters.extras_bytes


@kernel
def selects_all(state, n_tokens):
    """Return whether a step of n_tokens tokens attends to everything: a batch without a rule of its own."""
    return n_tokens > 1 and state.rules & (BATCH_MEAN | BATCH_UNION) == 0


@kernel
def score_clusters(shape, head_address, query, part, n_parts):
    """Compute q . C_i for a share of the clusters, and one token: a `score` hook (see hooks.py)."""
    head = head_at(head_address)
    state = state_of(head)
    first_tail = first_tail_item(state.n_clusters)
    start, stop = share_of(first_tail + used_chunks(head, 1) * ITEMS_STEP, part, n_parts)
    score_centroids(shape, head, query, state.centroids, start, min(stop, state.n_clusters))
    score_tail(shape, head, query, first_tail, max(start, first_tail), stop)
    return 0


@kernel
def select_clusters(shape, head_address, query, n_tokens, spans_address):
    """Select the best clusters, and all rows outside clusters: a `select` hook (see hooks.py)."""
    head = head_at(head_address)
    state = state_of(head)
    if selects_all(state, n_tokens):
        return select_all(shape, head_address, query, n_tokens, spans_address)
    starts, sizes, n_chunks = starts_of(state), sizes_of(head), used_chunks(head, n_tokens)
    for i in range(state.n_clusters):
        sizes[i] = float32(starts[i + 1] - starts[i])
    n_items = start_items(shape, head, state.n_clusters, n_chunks)
    n_bytes = lookup_bytes(shape, head, state.n_clusters, n_chunks + (state.n_clusters > 0), n_chunks, n_tokens)
    head.bytes_read += n_bytes
    wanted = wanted_rows(shape, head, n_chunks, n_bytes)
    first_tail, spans, n_spans = first_tail_item(state.n_clusters), spans_to_fill(spans_address), 0
    if n_tokens == 1 and state.rules & BY_HEAD:
        _choose_by_head(shape, head, n_items, wanted)
        _leave_clusters(shape, head, query, n_chunks)
        return _add_chosen(shape, head, n_chunks, first_tail, spans)
    if state.rules & BY_HEAD and state.rules & BATCH_MEAN:
        _sum_by_head(shape, head_address, query, n_tokens, n_items)
    else:
        for token in range(n_tokens):
            if n_tokens > 1:
                score_clusters(shape, head_address, query + token * shape.group * shape.head_dim * 4, 0, 1)
            take_token(shape, head, n_tokens, n_items, state.threshold, wanted)

    importance, least = importance_of(head), least_of_all(shape, head, n_tokens, n_items, state.threshold, wanted)
    if n_tokens == 1:
        weigh_rest(shape, head, n_items, least)
        _leave_clusters(shape, head, query, n_chunks)
    for i in range(state.n_clusters):
        if not importance[i] <= least:  # attend to a NaN, so that it reaches the output
            n_spans = add_cluster(shape, head, starts, i, spans, n_spans)
    n_spans = add_exact_rows(shape, head, state, spans, n_spans)
    return add_tail_clusters(shape, head, n_chunks, first_tail, least, spans, n_spans)


@kernel
def _leave_clusters(shape, head, query, n_chunks):
    """Defer the clusters that one token does not select to the estimate, starting from their weights."""
    state = state_of(head)
    if state.rules & ESTIMATE:
        first_tail = first_tail_item(state.n_clusters)
        if state.n_clusters > 0:
            leave_items(shape, head, query, 0, state.n_clusters, first_tail, state.mean_values, state.spread)
        leave_tail(shape, head, query, first_tail, n_chunks)
        end_items(shape, head, state.n_estimated)


@kernel
def least_of(head, values, n, threshold, wanted):
    """Return the number above which n values select: `wanted` rows, those above `threshold`, or all."""
    n_bytes = state_of(head).n_bytes
    if n_bytes == EVERYTHING:
        return float32(-1)
    return threshold if n_bytes == BY_THRESHOLD else find_least(values, sizes_address(head), n, wanted)


@kernel
def least_of_all(shape, head, n_tokens, n, threshold, wanted):
    """Return the number above which the importance of n items selects, after `take_token` took n_tokens tokens."""
    rules = state_of(head).rules
    if rules & BATCH_UNION and n_tokens > 1:
        return float32(0)
    n_summed = (1 if rules & BY_HEAD else shape.group) * (n_tokens if rules & BATCH_MEAN else 1)
    return least_of(head, importance_address(head), n, threshold * float32(n_summed), wanted)


@kernel
def take_token(shape, head, n_tokens, n, threshold, wanted):
    """Add one token to the importance of n items, from the scores and sizes in the head's scratch.

    It adds the sum of S_i over the group or, by BY_HEAD, the largest S_i. In a batch, the first query head's scores are
    replaced by that. By BATCH_UNION the importance of a batch becomes infinite where the token selects. Other scores
    become exp(q . C_i), up to a factor.

    Parameters
    ----------
    n_tokens, n : int64
        Tokens of the step; and items, a multiple of LANES.
    threshold, wanted : float32
        Threshold of S_i, averaged over the group; and rows to select instead (see `least_of`).
    """
    importance, rules = importance_of(head), state_of(head).rules
    sums = scores_of(head, 0) if n_tokens > 1 else importance
    for g in range(shape.group):
        scores, factor = scores_of(head, g), _weigh_items(shape, head, g, n)
        for i in range(n):
            share = scores[i] * factor
            if g == 0:
                sums[i] = share
            elif rules & BY_HEAD:
                sums[i] = larger(sums[i], share)
            else:
                sums[i] += share
    if n_tokens == 1:
        return
    if rules & BATCH_UNION:
        n_summed = float32(1 if rules & BY_HEAD else shape.group)
        least = least_of(head, scores_address(head, 0), n, threshold * n_summed, wanted)
        for i in range(n):
            importance[i] = importance[i] if sums[i] <= least else float32(np.inf)
    else:
        for i in range(n):
            importance[i] += sums[i]


@kernel
def larger(x, y):
    """Return the larger of two f32, or a NaN if either is one."""
    return x if y <= x else y + float32(0) * x


@kernel
def _weigh_items(shape, head, g, n):
    """Turn query head g's scores of n items into exp(q . C_i), up to a factor; return the factor that makes them S_i.

    The remainder for an estimate starts as empty, relative to the largest score.
    """
    sizes, end, scores, rest = sizes_of(head), -(-n // LANES) * LANES, scores_of(head, g), rest_of(shape, head)
    address = scores_address(head, g)
    cap_scores(address, n, head.softcap)
    for i in range(n):  # an empty cluster takes no part
        scores[i] = scores[i] if sizes[i] > 0 else float32(-np.inf)
    fill(address, n, end, float32(-np.inf))
    rest[0, g], rest[1, g], rest[2, g] = exp_scores(address, end), float32(0), float32(0)
    total = float32(0)
    for i in range(n):
        total += scores[i] * sizes[i]
    return float32(1) / total


@kernel
def _choose_by_head(shape, head, n, wanted):
    """Record which query heads select each of n items: those whose own S_i is above the threshold.

    The records replace importance and sizes (see `choices_of`). A NaN selects, so that it reaches the output. Scores
    become weights, 0 where a query head selects.
    """
    importance, sizes, rest = importance_of(head), sizes_of(head), rest_of(shape, head)
    for g in range(shape.group):
        scores, factor = scores_of(head, g), _weigh_items(shape, head, g, n)
        rest[0, g] -= float32(math.log(factor))
        for i in range(n):
            scores[i] *= factor
            importance[i] = larger(importance[i], scores[i])
    least = least_of(head, importance_address(head), n, state_of(head).threshold, wanted)
    for g in range(shape.group):
        scores = scores_of(head, g)
        for i in range(n):
            scores[i] = scores[i] * sizes[i] if scores[i] <= least else float32(-1)
    choices = choices_of(head)
    for i in range(n):
        choices[i] = 0
    for g in range(shape.group):
        scores = scores_of(head, g)
        for i in range(n):
            if scores[i] < 0:
                choices[i] |= int64(1) << g
                scores[i] = float32(0)


@kernel
def _sum_by_head(shape, head_address, query, n_tokens, n):
    """Set the importance of n items to the largest sum over tokens of a query head's S_i. A NaN stays."""
    head = head_at(head_address)
    importance, sums = importance_of(head), array_at(list_address(shape, head), (n,), np.float32)
    for g in range(shape.group):
        for i in range(n):
            sums[i] = float32(0)
        for token in range(n_tokens):
            score_clusters(shape, head_address, query + token * shape.group * shape.head_dim * 4, 0, 1)
            scores, factor = scores_of(head, g), _weigh_items(shape, head, g, n)
            for i in range(n):
                sums[i] += scores[i] * factor
        for i in range(n):
            importance[i] = larger(importance[i], sums[i])


@kernel
def _add_chosen(shape, head, n_chunks, first_tail, spans):
    """Append each query head's clusters, for these heads only, and all rows outside clusters.

    Return the number of spans.
    """
    state, choices, n_spans = state_of(head), choices_of(head), 0
    of_document = starts_of(state)
    for i in range(state.n_clusters):
        if choices[i] != 0:
            start, stop = int64(of_document[i]), int64(of_document[i + 1])
            n_spans = add_document_rows(shape, head, start, stop, ANY_ORDER, spans, n_spans, choices[i])
    n_spans = add_exact_rows(shape, head, state, spans, n_spans)
    for chunk in range(n_chunks):
        row, item, starts = chunk * CHUNK_ROWS, first_tail + chunk * ITEMS_STEP, chunk_starts(shape, head, chunk)
        n_spans = add_tail_rows(shape, head, row, row + starts[0], ANY_ORDER, 0, spans, n_spans)
        for i in range(CHUNK_CLUSTERS):
            if choices[item + i] != 0:
                start, stop = row + starts[i], row + starts[i + 1]
                n_spans = add_tail_rows(shape, head, start, stop, ANY_ORDER, 0, spans, n_spans, choices[item + i])
    return _add_exact_chunks(shape, head, n_chunks, spans, n_spans)


@kernel
def add_cluster(shape, head, starts, cluster, spans, n_spans):
    """Append the rows of one of the document's clusters. Return the new number of spans."""
    start, stop = int64(starts[cluster]), int64(starts[cluster + 1])
    return add_document_rows(shape, head, start, stop, ANY_ORDER, spans, n_spans)


@kernel
def add_exact_rows(shape, head, state, spans, n_spans):
    """Append the document's rows outside clusters. Return the new number of spans."""
    return add_document_rows(shape, head, clustered_rows(state), head.n_document, ANY_ORDER, spans, n_spans)


@kernel
def add_tail_clusters(shape, head, n_chunks, first_tail, least, spans, n_spans):
    """Append the clusters of the tail's first n_chunks chunks with importance above `least`, and all other rows.

    Return the new number of spans.
    """
    importance = importance_of(head)
    for chunk in range(n_chunks):
        starts, row, item = chunk_starts(shape, head, chunk), chunk * CHUNK_ROWS, first_tail + chunk * ITEMS_STEP
        n_spans = add_tail_rows(shape, head, row, row + starts[0], ANY_ORDER, 0, spans, n_spans)
        for i in range(CHUNK_CLUSTERS):
            if not importance[item + i] <= least:  # attend to a NaN, so that it reaches the output
                start, stop = row + starts[i], row + starts[i + 1]
                n_spans = add_tail_rows(shape, head, start, stop, ANY_ORDER, 0, spans, n_spans)
    return _add_exact_chunks(shape, head, n_chunks, spans, n_spans)


@kernel
def _add_exact_chunks(shape, head, n_chunks, spans, n_spans):
    """Append the rows of all chunks of the tail after the first n_chunks. Return the new number of spans.

    Rows of a chunk that is clustered, but not due yet, are unordered.
    """
    n_clustered = state_of(head).n_clustered_chunks
    for chunk in range(n_chunks, n_clustered):
        row = chunk * CHUNK_ROWS
        n_spans = add_tail_rows(shape, head, row, row + CHUNK_ROWS, ANY_ORDER, 0, spans, n_spans)
    return add_tail(shape, head, n_clustered * CHUNK_ROWS, 0, spans, n_spans)


@kernel
def cluster_tail(shape, head_address, n_tokens):
    """Cluster the chunks of the tail that are due: an `after_step` hook (see hooks.py)."""
    head = head_at(head_address)
    state = state_of(head)
    if state.rules & EXACT_TAIL:
        return 0
    while head.n_tail >= (state.n_clustered_chunks + 1) * CHUNK_ROWS + RECENT:
        cluster_chunk(shape, head, state.n_clustered_chunks, state.rules & ESTIMATE != 0)
        state.n_clustered_chunks += 1
    return 0


HOOKS = Hooks(select=select_clusters, score=score_clusters, after_step=cluster_tail)
HOOKS_WITH_ESTIMATE = HOOKS._replace(estimate=estimate_clusters)
