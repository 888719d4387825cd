"""Choose which leaves of a document a step looks up the codes of, and estimate the others by their means.

Leaves are blocks of a document's rows that are alike (see tail_codes.py). A step scores their mean keys. It looks up
the codes of as many leaves as the method says, those of most attention. Each of the others is estimated as a cluster
is (see cluster_means.py): by its size, its mean key, the variance within leaves, and its mean value.

What is looked up, and all that is in no leaf, are the candidates of a step: chunk 0, the leaves, then all later rows.
They are numbered one after another, without what is skipped, and the head's scratch holds scores, importance and
`chunk_sums_of` by these numbers: a chunk of candidates is one of rows, or BLOCKS leaves. After them come the leaves: a
score, later a weight, for each, its importance, and the address of its mean value in the list. The list holds the
leaves that are looked up, too, where the addresses of candidates would be.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32, int32, int64

from ..attend.head import CHUNK_ROWS, count_chunks
from ..numba_support.compile import LANES, kernel
from ..numba_support.memory import write_int64
from ..numba_support.vector import add, load, multiply, splat, store
from ..numba_support.views import array_at
from ..rows.rows import dot
from .cluster_means import end_items, expected_weight, leave_items, variance_of_scores
from .product_quantisation import BLOCK_ROWS
from .scores import (
    cap_scores,
    chunk_sums_of,
    exp_scores,
    fill,
    importance_address,
    list_address,
    rest_of,
    scores_address,
    sum_floats,
)
from .tail_codes import BLOCKS, SPREAD, mean_of, mean_value_of, prefetch_means
from .top_k import list_top

#: Chunks by which prefetching of mean keys runs ahead.
_AHEAD = 4


@kernel
def skips(state):
    """Return whether a step does not look up all leaves. If it does, rows are the candidates."""
    return state.n_looked_up < state.n_leaves


@kernel
def skipped_rows(state):
    """Return how many rows a step does not look up."""
    return (state.n_leaves - state.n_looked_up) * BLOCK_ROWS if skips(state) else 0


@kernel
def candidates(head, state):
    """Return how many rows are candidates."""
    return head.n_tail - skipped_rows(state)


@kernel
def first_leaf(head, state):
    """Return where the leaves begin in the head's scratch: after the chunks of candidates."""
    return (count_chunks(head) - skipped_rows(state) // CHUNK_ROWS) * CHUNK_ROWS


@kernel
def looked_up(shape, head, state):
    """View the numbers of the leaves that are looked up, rising, (n_looked_up,) int32."""
    address = list_address(shape, head) + first_leaf(head, state) * 4
    return array_at(address, (state.n_looked_up,), np.int32)


@kernel
def block_of(shape, head, state, place):
    """Return the block of rows that block `place` of the candidates is."""
    if place < BLOCKS or not skips(state):
        return int64(place)
    if place < BLOCKS + state.n_looked_up:
        return BLOCKS + int64(looked_up(shape, head, state)[place - BLOCKS])
    return place + skipped_rows(state) // BLOCK_ROWS


@kernel
def name_rows(shape, head, state, rows):
    """Turn the numbers of candidates, int32, rising, into those of rows."""
    if not skips(state):
        return
    place, shift = int64(-1), int64(0)
    for i in range(len(rows)):
        if int64(rows[i]) // BLOCK_ROWS != place:
            place = int64(rows[i]) // BLOCK_ROWS
            shift = (block_of(shape, head, state, place) - place) * BLOCK_ROWS
        rows[i] = int32(rows[i] + shift)


@kernel
def score_leaves(shape, head, state, query, part, n_parts):
    """Score the mean keys of a share of the leaves: whole chunks."""
    n_chunks = state.n_leaves // BLOCKS
    scores = scores_address(head, 0) + first_leaf(head, state) * 4
    for number in range(n_chunks * part // n_parts, n_chunks * (part + 1) // n_parts):
        if number + _AHEAD < n_chunks:  # its memory is elsewhere: nothing else announces it
            prefetch_means(shape, head, number + 1 + _AHEAD)
        means, own = mean_of(shape, head, (number + 1) * BLOCKS), scores + number * BLOCKS * 4
        dot(shape.of_halves, query, means, BLOCKS, own, head.scratch_items)


@kernel
def choose_leaves(shape, head, state, query):
    """Choose the leaves to look up, those of most attention, summed over the group.

    Scores of leaves become exp(score - the largest), 0 for those that are looked up. What the others have is left in
    `chunk_sums_of` as if they were one more chunk, with the sum of what is expected of them.

    Returns
    -------
    bool
        Whether no score is NaN. If one is, nothing is chosen.
    """
    n, first, sums = state.n_leaves, first_leaf(head, state), chunk_sums_of(shape, head)
    n_chunks, stop, importance = first // CHUNK_ROWS, -(-n // LANES) * LANES, importance_address(head) + first * 4
    fill(importance, 0, stop, float32(0))
    for g in range(shape.group):
        weights = scores_address(head, g) + first * 4
        cap_scores(weights, n, head.softcap)
        fill(weights, n, stop, float32(-np.inf))
        highest = exp_scores(weights, stop)
        variance = variance_of_scores(shape, query, g, head.state + SPREAD)
        sums[n_chunks, 0, g] = highest
        sums[n_chunks, 1, g] = float32(BLOCK_ROWS) * expected_weight(variance)  # of a leaf whose weight is 1
        share = _share(sums, state.n_looked_up // BLOCKS, n_chunks, g, sum_floats(weights, stop))
        if math.isnan(share):
            return False
        for i in range(0, stop, LANES):
            store(importance + i * 4, add(load(importance + i * 4), multiply(load(weights + i * 4), splat(share))))
    fill(importance, n, stop, float32(-1))
    chosen = looked_up(shape, head, state)
    list_top(importance, stop, state.n_looked_up, list_address(shape, head) + first * 4)
    for g in range(shape.group):
        weights = array_at(scores_address(head, g) + first * 4, (stop,), np.float32)
        for i in range(len(chosen)):
            weights[chosen[i]] = float32(0)
        sums[n_chunks, 1, g] *= weights.sum()
    return True


@kernel
def _share(sums, n_leaf_chunks, n_chunks, g, total):
    """Return the share of query head g's attention of a leaf whose weight is 1.

    Parameters
    ----------
    sums : f32 array, shape (chunks, 2, group)
        Of `chunk_sums_of`: of each chunk of candidates, and at n_chunks the leaves' largest score, and what one of them
        of weight 1 is expected to weigh.
    n_leaf_chunks : int64
        Chunks, from number 1 on, that are leaves still to be chosen.
    n_chunks, g : int64
        Chunks of candidates, and the query head.
    total : float32
        Sum of the weights of all leaves.
    """
    largest, own = sums[n_chunks, 0, g], sums[n_chunks, 1, g]
    highest, whole = largest, own * total
    for number in range(n_chunks):
        if not 0 < number <= n_leaf_chunks:
            before, highest = highest, max(highest, sums[number, 0, g])
            whole = whole * float32(math.exp(before - highest))
            whole += sums[number, 1, g] * float32(math.exp(sums[number, 0, g] - highest))
    return own * float32(math.exp(largest - highest)) / whole


@kernel
def leave_leaves(shape, head, state, query):
    """Leave the leaves that are not looked up to the estimate.

    `chunk_sums_of` has for them, as for a chunk, the factor that makes their weights relative to the largest score. To
    `rest_of` their weights are added, and what the true sum is expected to be above all that is estimated.
    """
    n, first, rest, sums = state.n_leaves, first_leaf(head, state), rest_of(shape, head), chunk_sums_of(shape, head)
    stop, listed = -(-n // LANES) * LANES, list_address(shape, head) + first * 8
    for leaf in range(n):
        write_int64(listed + leaf * 8, mean_value_of(shape, head, BLOCKS + leaf, state.n_codes))
    for g in range(shape.group):
        raised, weights = float32(math.exp(rest[2, g])), scores_address(head, g) + first * 4
        factor = splat(float32(BLOCK_ROWS) * sums[first // CHUNK_ROWS, 0, g] * raised)
        for i in range(0, stop, LANES):
            store(weights + i * 4, multiply(load(weights + i * 4), factor))
        rest[2, g] = rest[1, g] * raised
    leave_items(shape, head, query, first, n, stop, 0, head.state + SPREAD)
    end_items(shape, head, first + stop)
