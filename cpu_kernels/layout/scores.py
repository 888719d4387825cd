"""Share scratch and scores between methods that score items (pages, rows or clusters) and then select the best.

A head's scratch holds, for `scratch_items` items: their importance and their sizes, f32; a score for each query head,
(group, scratch_items) f32; a list, 8 bytes for each item and LIST_ROOM more; for each query head the remainder for an
estimate, (3, group) f32; and what threads add up together, int64: a histogram (see histogram.py) and a number for each
query head. This file owns that layout.
"""

from __future__ import annotations

import numpy as np
from numba import float32

from ..numba_support.compile import kernel
from ..numba_support.machine_features import LANES
from ..numba_support.memory import borrow, give_back
from ..numba_support.vector import add, exp_difference, load, max_of, maximum, multiply, splat, store, sum_of
from ..numba_support.views import array_at
from ..rows.rows import dot, load_query, query_bytes
from ..rows.tiles import CHUNK_ROWS
from .head import head_at, tail_key

#: Addresses by which a list of rows may extend beyond its end (see rows.py): 32 ahead, padded to a multiple of 8.
LIST_ROOM = 40

#: Share of the clustered keys that the coarse level of a lookup in two levels keeps; the default of Squeezed
#: Attention's code. Less costs quality even if the budget would allow more; more makes the lookup larger.
COARSE_KEPT = 0.5

#: Bins of a histogram.
BINS = 512

#: Most query heads whose sums of a chunk replace the sizes of its items: two f32 each, in place of one of each row.
MOST_SUMMED = CHUNK_ROWS // 2

#: Scores that `exp_rows` takes at once.
EXP_STEP = 4 * LANES

#: A thread scores a multiple of this many items.
ITEMS_STEP = 16


def padded(n_items: int) -> int:
    """Return the capacity for n_items, as scores are computed ITEMS_STEP at a time."""
    return -(-n_items // ITEMS_STEP) * ITEMS_STEP


def selection_scratch_bytes(group: int, n_items: int) -> int:
    """Return the scratch of a head with `group` query heads and n_items items, in bytes."""
    return (8 + 4 * group + 8) * n_items + 8 * LIST_ROOM + 16 * group + 8 * (BINS + 1) + 8 * group


def items_holding(group: int, n_floats: int) -> int:
    """Return the number of items for which the scratch of a head with `group` query heads holds n_floats f32."""
    return -(-4 * n_floats // (8 + 4 * group + 8))


@kernel
def importance_address(head):
    """Return the address of the items' importance."""
    return head.scratch


@kernel
def importance_of(head):
    """View the items' importance, (scratch_items,) f32."""
    return array_at(head.scratch, (head.scratch_items,), np.float32)


@kernel
def sizes_address(head):
    """Return the address of the items' sizes."""
    return head.scratch + 4 * head.scratch_items


@kernel
def sizes_of(head):
    """View the items' sizes, (scratch_items,) f32."""
    return array_at(sizes_address(head), (head.scratch_items,), np.float32)


@kernel
def chunk_sums_address(shape, head, number):
    """Return the address of a chunk's numbers in `chunk_sums_of`."""
    return sizes_address(head) + number * 2 * shape.group * 4


@kernel
def chunk_sums_of(shape, head):
    """View the two numbers that summarise the scores of each chunk of rows, (chunks, 2, group) f32.

    They replace the sizes, which have space for MOST_SUMMED query heads.
    """
    return array_at(sizes_address(head), (head.scratch_items // CHUNK_ROWS, 2, shape.group), np.float32)


@kernel
def choices_of(head):
    """View which query heads chose each item, (scratch_items,) int64: 0 for none, else as in SPAN's `heads`.

    They replace importance and sizes.
    """
    return array_at(head.scratch, (head.scratch_items,), np.int64)


@kernel
def scores_address(head, g):
    """Return the address of query head g's scores, (scratch_items,) f32."""
    return head.scratch + (8 + 4 * g) * head.scratch_items


@kernel
def scores_of(head, g):
    """View query head g's scores, (scratch_items,) f32."""
    return array_at(scores_address(head, g), (head.scratch_items,), np.float32)


@kernel
def list_address(shape, head):
    """Return the address of the head's list."""
    return head.scratch + (8 + 4 * shape.group) * head.scratch_items


@kernel
def rest_of(shape, head):
    """View the remainder that a step leaves to an `estimate` hook, (3, group) f32.

    It has the largest score; the sum of weights, relative to it, or 0 for a step that attends to everything exactly;
    and the logarithm of the expected ratio of the true sum to it.
    """
    return array_at(rest_address(shape, head), (3, shape.group), np.float32)


@kernel
def rest_address(shape, head):
    """Return the address of the remainder for an `estimate` hook: see `rest_of`."""
    return list_address(shape, head) + 8 * (head.scratch_items + LIST_ROOM)


@kernel
def histogram_address(shape, head):
    """Return the address of a head's histogram, (BINS + 1,) int64."""
    return rest_address(shape, head) + 16 * shape.group


@kernel
def left_address(shape, head):
    """Return the address of what threads leave to an `estimate` hook together, (group,) int64."""
    return histogram_address(shape, head) + 8 * (BINS + 1)


@kernel
def clear_added(shape, head):
    """Clear what threads add up together: one thread does, before the others add."""
    first = histogram_address(shape, head)
    array_at(first, ((left_address(shape, head) - first) // 8 + shape.group,), np.int64)[:] = 0


@kernel
def score_tail_rows(shape, head, query, start, stop):
    """Write q . k of the rows start to stop of the tail as the scores of the items of the same numbers.

    `query` is the result of `load_query`.
    """
    row = start
    while row < stop:
        end = min((row // CHUNK_ROWS + 1) * CHUNK_ROWS, stop)
        scores = scores_address(head, 0) + row * 4
        dot(shape, query, tail_key(shape, head, row), end - row, scores, head.scratch_items)
        row = end


@kernel
def share_of(n_items, part, n_parts):
    """Return start and stop of the share of thread `part` of n_parts; inner bounds are multiples of ITEMS_STEP."""
    steps = -(-n_items // ITEMS_STEP)
    return steps * part // n_parts * ITEMS_STEP, min(steps * (part + 1) // n_parts * ITEMS_STEP, n_items)


@kernel
def score_rows(shape, head_address, query, part, n_parts):
    """Score a share of the rows of the tail by their keys, for one token: a `score` hook (see hooks.py)."""
    head = head_at(head_address)
    start, stop = share_of(head.n_tail, part, n_parts)
    room = borrow(query_bytes(shape))
    score_tail_rows(shape, head, load_query(shape, query, room), start, stop)
    give_back(room, query_bytes(shape))
    return 0


@kernel
def cap_scores(scores, n, softcap):
    """Set scores[i] = softcap * tanh(scores[i] / softcap) for n f32 at an address; a softcap of 0 leaves them."""
    if softcap == 0:
        return
    values = array_at(scores, (n,), np.float32)
    for i in range(n):
        values[i] = softcap * np.tanh(values[i] / softcap)


@kernel
def exp_scores(scores, n):
    """Set scores[i] = exp(scores[i] - the largest) for n f32 at an address, a multiple of LANES, -inf where unused.

    Return the largest.
    """
    largest = splat(float32(-1e30))
    for i in range(0, n, LANES):
        largest = maximum(largest, load(scores + i * 4))
    highest = max_of(largest)
    largest = splat(highest)
    for i in range(0, n, LANES):
        store(scores + i * 4, exp_difference(load(scores + i * 4), largest))
    return highest


@kernel
def exp_rows(scores, n):
    """Set scores[i] = exp(scores[i] - the largest) for n f32 at an address, and 0 after them up to EXP_STEP of them.

    It takes four vectors at a time, so that no sum waits for the one before. Return the largest and the sum.
    """
    stop = -(-n // EXP_STEP) * EXP_STEP
    fill(scores, n, stop, float32(-np.inf))
    a = b = c = d = splat(float32(-1e30))
    for i in range(0, stop, EXP_STEP):
        at = scores + i * 4
        a, b = maximum(a, load(at)), maximum(b, load(at + LANES * 4))
        c, d = maximum(c, load(at + LANES * 8)), maximum(d, load(at + LANES * 12))
    highest = max_of(maximum(maximum(a, b), maximum(c, d)))
    largest = splat(highest)
    a = b = c = d = splat(float32(0))
    for i in range(0, stop, EXP_STEP):
        at = scores + i * 4
        w, x = exp_difference(load(at), largest), exp_difference(load(at + LANES * 4), largest)
        y, z = exp_difference(load(at + LANES * 8), largest), exp_difference(load(at + LANES * 12), largest)
        store(at, w)
        store(at + LANES * 4, x)
        store(at + LANES * 8, y)
        store(at + LANES * 12, z)
        a, b, c, d = add(a, w), add(b, x), add(c, y), add(d, z)
    return highest, sum_of(add(add(a, b), add(c, d)))


@kernel
def sum_floats(address, n):
    """Return the sum of n f32 at an address, a multiple of LANES."""
    a = b = c = d = splat(float32(0))
    together = n // EXP_STEP * EXP_STEP
    for i in range(0, together, EXP_STEP):  # no sum waits for the one before
        at = address + i * 4
        a, b = add(a, load(at)), add(b, load(at + LANES * 4))
        c, d = add(c, load(at + LANES * 8)), add(d, load(at + LANES * 12))
    for i in range(together, n, LANES):
        a = add(a, load(address + i * 4))
    return sum_of(add(add(a, b), add(c, d)))


@kernel
def add_shares(scores, n, importance):
    """Add scores[i] / the sum of all scores to importance[i]: n f32 at addresses, a multiple of LANES."""
    factor = splat(float32(1) / sum_floats(scores, n))
    for i in range(0, n, LANES):
        store(importance + i * 4, add(load(importance + i * 4), multiply(load(scores + i * 4), factor)))


@kernel
def sum_attention(shape, head, n):
    """Turn the scores of n items into attention, and sum it over the query heads, as the items' importance.

    Each query head's scores become a softmax over the items, so that no head's scale outweighs another's. The softmax's
    numerators replace the scores. A NaN among a query head's scores makes every item's importance NaN.

    Returns
    -------
    int64
        Number of items with importance: n, padded to a multiple of LANES.
    """
    stop = -(-n // LANES) * LANES
    fill(importance_address(head), 0, stop, float32(0))
    for g in range(shape.group):
        add_attention(head, g, n)
    return stop


@kernel
def add_attention(head, g, n):
    """Add query head g's softmax over the scores of n items to their importance. Return the largest score."""
    stop, scores = -(-n // LANES) * LANES, scores_address(head, g)
    cap_scores(scores, n, head.softcap)
    fill(scores, n, stop, float32(-np.inf))
    largest = exp_scores(scores, stop)
    add_shares(scores, stop, importance_address(head))
    return largest


@kernel
def fill(address, start, stop, value):
    """Set the f32 from index start to stop."""
    values = array_at(address, (stop,), np.float32)
    for i in range(start, stop):
        values[i] = value
