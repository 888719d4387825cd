"""Squeezed2: `squeezed` with a lookup in two levels (Squeezed Attention, Hooper et al. 2024, section 3.3).

The lookup ranks first the coarse clusters of a document's clusters, and then the clusters inside those that were kept.
The denominator of the second lookup runs over these alone. Only a document has coarse clusters: the tail's clusters are
looked up on the second level. A batch selects on both levels by the same rule.

If a step finds its own thresholds, it keeps the best coarse clusters, until they hold COARSE_KEPT of the document's
clustered rows. The cost of looking up their clusters is subtracted from the second selection.

In the second lookup, the items of the head's scratch are the clusters that were kept, in place of the document's. By
the rule ESTIMATE, coarse clusters that were not kept are estimated as a whole. They become items after those of the
tail; until then their scores are at the end of the scratch.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32

from ..attend.decode import LOWEST_SCORE, fill_list
from ..layout.head import head_at
from ..layout.hooks import Hooks
from ..layout.scores import (
    COARSE_KEPT,
    LIST_ROOM,
    cap_scores,
    importance_of,
    list_address,
    rest_of,
    scores_address,
    scores_of,
    share_of,
    sizes_of,
)
from ..layout.spans import spans_to_fill
from ..numba_support.compile import kernel
from ..numba_support.memory import write_int64
from ..numba_support.views import array_at, record_at
from ..rows.rows import dot_listed
from ..select import cluster_items
from ..select.cluster_items import (
    ESTIMATE,
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
from ..select.cluster_means import end_items, leave_items, raise_largest
from . import squeezed
from .dense import select_all
from .squeezed import (
    add_cluster,
    add_exact_rows,
    add_tail_clusters,
    cluster_tail,
    least_of_all,
    selects_all,
    take_token,
)

#: Per-head state: first that of the lookup in one level, so that both share its kernels.
STATE = np.dtype(
    [
        *((name, cluster_items.STATE[name]) for name in cluster_items.STATE.names or ()),
        ("coarse_centroids", "i8"),  # address of (n_coarse, head_dim) f16
        ("coarse_starts", "i8"),  # address of (n_coarse + 1,) int32: clusters, sorted by coarse cluster
        ("n_coarse", "i8"),
        ("coarse_threshold", "f4"),  # of a coarse cluster's S_i, averaged over the group
        ("coarse_mean_values", "i8"),  # address of the coarse clusters' mean values, n_coarse q8_0 rows, for ESTIMATE
        ("coarse_spread", "i8"),  # address of the variance of keys within coarse clusters, (head_dim,) f32
    ],
    align=True,
)

#: A chunk's extras are its clusters.
extras_bytes = squeezed.extras_bytes


@kernel
def score_coarse_clusters(shape, head_address, query, part, n_parts):
    """Compute q . C_i for a share of the coarse clusters, and one token: a `score` hook (see hooks.py)."""
    head = head_at(head_address)
    coarse = record_at(head.state, STATE)
    start, stop = share_of(coarse.n_coarse, part, n_parts)
    score_centroids(shape, head, query, coarse.coarse_centroids, start, stop)
    return 0


@kernel
def select_clusters_of_clusters(shape, head_address, query, n_tokens, spans_address):
    """Select the best clusters in the best coarse clusters, and all rows outside: a `select` hook (see hooks.py).

    All of the tail's clusters take part in the second lookup.
    """
    head = head_at(head_address)
    state = state_of(head)
    if selects_all(state, n_tokens):
        return select_all(shape, head_address, query, n_tokens, spans_address)
    starts, n_chunks = starts_of(state), used_chunks(head, n_tokens)
    n_coarse, n_kept = _keep_clusters(shape, head_address, query, n_tokens)
    listed = list_address(shape, head)
    kept = array_at(listed, (n_kept,), np.int64)
    importance, sizes = importance_of(head), sizes_of(head)
    for i in range(n_kept):
        cluster = _number_of(shape, state, kept[i])
        sizes[i] = float32(starts[cluster + 1] - starts[cluster])
    first_tail, n_items = first_tail_item(n_kept), start_items(shape, head, n_kept, n_chunks)
    n_bytes = lookup_bytes(shape, head, n_coarse + n_kept, n_chunks + 2 * (n_coarse > 0), n_chunks, n_tokens)
    head.bytes_read += n_bytes
    wanted = wanted_rows(shape, head, n_chunks, n_bytes)
    for token in range(n_tokens):
        token_query = query + token * shape.group * shape.head_dim * 4
        dot_listed(shape.of_halves, token_query, listed, n_kept, scores_address(head, 0), head.scratch_items)
        score_tail(shape, head, token_query, first_tail, first_tail, n_items)
        take_token(shape, head, n_tokens, n_items, state.threshold, wanted)

    least = least_of_all(shape, head, n_tokens, n_items, state.threshold, wanted)
    spans, n_spans = spans_to_fill(spans_address), 0
    for i in range(n_kept):
        if not importance[i] <= least:  # attend to a NaN, so that it reaches the output
            n_spans = add_cluster(shape, head, starts, _number_of(shape, state, kept[i]), spans, n_spans)
    if n_tokens == 1 and state.rules & ESTIMATE:
        weigh_rest(shape, head, n_items, least)
        _leave_kept(shape, head, query, kept, n_kept, n_chunks)
        _leave_coarse(shape, head, query)
        end_items(shape, head, state.n_estimated)
    n_spans = add_exact_rows(shape, head, state, spans, n_spans)
    return add_tail_clusters(shape, head, n_chunks, first_tail, least, spans, n_spans)


@kernel
def _number_of(shape, state, centroid):
    """Return the number of the cluster whose centroid is at an address."""
    return (centroid - state.centroids) // (shape.head_dim * 2)


@kernel
def _leave_kept(shape, head, query, kept, n_kept, n_chunks):
    """Defer the clusters of the second lookup to the estimate. `kept` becomes the list of their mean values."""
    state, first_tail = state_of(head), first_tail_item(n_kept)
    for i in range(n_kept):
        kept[i] = state.mean_values + _number_of(shape, state, kept[i]) * shape.of_bytes.row_bytes
    if n_kept > 0:
        leave_items(shape, head, query, 0, n_kept, first_tail, 0, state.spread)
    leave_tail(shape, head, query, first_tail, n_chunks)


@kernel
def _leave_coarse(shape, head, query):
    """Defer the coarse clusters that were not kept to the estimate, as items after all others."""
    coarse, state, first = record_at(head.state, STATE), state_of(head), state_of(head).n_estimated
    n_items, saved, rest = first_tail_item(coarse.n_coarse), _saved_item(head), rest_of(shape, head)
    sizes = sizes_of(head)
    for g in range(shape.group):
        scores, largest = scores_of(head, g), float32(LOWEST_SCORE)
        for i in range(n_items):
            scores[saved + i] = scores[saved + i] if sizes[saved + i] > 0 else float32(-np.inf)
            largest = max(largest, scores[saved + i])
        raise_largest(shape, head, g, first, largest)
        for i in range(n_items):
            weight = float32(math.exp(scores[saved + i] - rest[0, g]))
            scores[first + i] = weight * sizes[saved + i] if weight > 0 else float32(0)
    values, spread = coarse.coarse_mean_values, coarse.coarse_spread
    if n_items > 0:
        leave_items(shape, head, query, first, coarse.n_coarse, n_items, values, spread)
    state.n_estimated = first + n_items


@kernel
def _saved_item(head):
    """Return the first item that saves coarse clusters' scores and sizes, at the end of the scratch."""
    return head.scratch_items - first_tail_item(record_at(head.state, STATE).n_coarse)


@kernel
def _save_coarse(shape, head, n_coarse):
    """Save the scores of the coarse clusters, and their sizes."""
    saved, sizes = _saved_item(head), sizes_of(head)
    for i in range(n_coarse):
        sizes[saved + i] = sizes[i]
    for g in range(shape.group):
        scores = scores_of(head, g)
        for i in range(n_coarse):
            scores[saved + i] = scores[i]
        for i in range(n_coarse, first_tail_item(n_coarse)):
            scores[saved + i] = float32(-np.inf)
        cap_scores(scores_address(head, g) + saved * 4, n_coarse, head.softcap)


@kernel
def _keep_clusters(shape, head_address, query, n_tokens):
    """List the addresses of the centroids in the coarse clusters above their threshold.

    Return the number of coarse clusters, and of listed centroids.
    """
    head = head_at(head_address)
    coarse = record_at(head.state, STATE)
    n_coarse, state = coarse.n_coarse, state_of(head)
    starts, coarse_starts = starts_of(state), array_at(coarse.coarse_starts, (n_coarse + 1,), np.int32)
    importance, sizes, n_items = importance_of(head), sizes_of(head), start_items(shape, head, n_coarse, 0)
    for i in range(n_coarse):
        sizes[i] = float32(starts[coarse_starts[i + 1]] - starts[coarse_starts[i]])
    wanted, threshold = float32(COARSE_KEPT * clustered_rows(state)), coarse.coarse_threshold
    estimates = n_tokens == 1 and state.rules & ESTIMATE
    if estimates:
        _save_coarse(shape, head, n_coarse)
    for token in range(n_tokens):
        if n_tokens > 1:
            score_coarse_clusters(shape, head_address, query + token * shape.group * shape.head_dim * 4, 0, 1)
        take_token(shape, head, n_tokens, n_items, threshold, wanted)
    least = least_of_all(shape, head, n_tokens, n_items, threshold, wanted)
    listed, n_kept = list_address(shape, head), 0
    for i in range(n_coarse):
        if not importance[i] <= least:  # keep a NaN, so that it reaches the output
            for cluster in range(coarse_starts[i], coarse_starts[i + 1]):
                write_int64(listed + n_kept * 8, coarse.centroids + cluster * shape.head_dim * 2)
                n_kept += 1
            if estimates:
                sizes[_saved_item(head) + i] = float32(0)
    if n_kept > 0:
        fill_list(listed, n_kept, n_kept + LIST_ROOM)
    return n_coarse, n_kept


HOOKS = Hooks(select=select_clusters_of_clusters, score=score_coarse_clusters, after_step=cluster_tail)
HOOKS_WITH_ESTIMATE = HOOKS._replace(estimate=estimate_clusters)
