"""What methods share that score items (pages, rows or clusters) and then select the best.

A head's scratch holds, for `scratch_items` items: their importance and their sizes, f32; a score for each query head,
(group, scratch_items) f32; and a list, 8 bytes an item and LIST_ROOM more. This file owns that layout.
"""

from __future__ import annotations

import numpy as np
from numba import float32

from .compile import LANES, kernel
from .vector import add, exp, load, max_of, maximum, multiply, splat, store, subtract, sum_of
from .views import array_at

#: Addresses that a list of rows may go on for after its end (see rows.py): 32 ahead, up to a multiple of 8.
LIST_ROOM = 40

#: The items that a thread scores are a multiple of this.
ITEMS_STEP = 16


def padded(n_items: int) -> int:
    """Return the items to have room for, as scores are computed ITEMS_STEP at a time."""
    return -(-n_items // ITEMS_STEP) * ITEMS_STEP


def selection_scratch_bytes(group: int, n_items: int) -> int:
    """Return the scratch of a head with `group` query heads and n_items items, in bytes."""
    return (8 + 4 * group + 8) * n_items + 8 * LIST_ROOM


@kernel
def importance_address(head):
    """Return the address of the items' importance."""
    return head.scratch


@kernel
def importance_of(head):
    """View the items' importance, (scratch_items,) f32."""
    return array_at(head.scratch, (head.scratch_items,), np.float32)


@kernel
def sizes_of(head):
    """View the items' sizes, (scratch_items,) f32."""
    return array_at(head.scratch + 4 * head.scratch_items, (head.scratch_items,), np.float32)


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
def share_of(n_items, part, n_parts):
    """Return where the share of thread `part` of n_parts starts and stops: inside, multiples of ITEMS_STEP."""
    steps = -(-n_items // ITEMS_STEP)
    return steps * part // n_parts * ITEMS_STEP, min(steps * (part + 1) // n_parts * ITEMS_STEP, n_items)


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
    """Set scores[i] = exp(scores[i] - the largest) for n f32 at an address, a multiple of LANES, -inf where unused."""
    largest = splat(float32(-1e30))
    for i in range(0, n, LANES):
        largest = maximum(largest, load(scores + i * 4))
    largest = splat(max_of(largest))
    for i in range(0, n, LANES):
        store(scores + i * 4, exp(subtract(load(scores + i * 4), largest)))


@kernel
def add_shares(scores, n, importance):
    """Add scores[i] / the sum of all scores to importance[i]: n f32 at addresses, a multiple of LANES."""
    total = splat(float32(0))
    for i in range(0, n, LANES):
        total = add(total, load(scores + i * 4))
    factor = splat(float32(1) / sum_of(total))
    for i in range(0, n, LANES):
        store(importance + i * 4, add(load(importance + i * 4), multiply(load(scores + i * 4), factor)))


@kernel
def sum_attention(shape, head, n):
    """Turn the scores of n items into attention, and sum it over the query heads, into the items' importance.

    Each query head's scores become a softmax over the items, so that no head's scale outweighs another's. The softmax's
    numerators stay in the place of the scores. A NaN among a query head's scores makes every item's importance NaN.

    Returns
    -------
    int64
        Items of which importance was written: n, up to a multiple of LANES.
    """
    stop = -(-n // LANES) * LANES
    fill(importance_address(head), 0, stop, float32(0))
    for g in range(shape.group):
        add_attention(head, g, n)
    return stop


@kernel
def add_attention(head, g, n):
    """Add query head g's softmax over the scores of n items to the items' importance."""
    stop, scores = -(-n // LANES) * LANES, scores_address(head, g)
    cap_scores(scores, n, head.softcap)
    fill(scores, n, stop, float32(-np.inf))
    exp_scores(scores, stop)
    add_shares(scores, stop, importance_address(head))


@kernel
def fill(address, start, stop, value):
    """Set the f32 from index start to stop."""
    values = array_at(address, (stop,), np.float32)
    for i in range(start, stop):
        values[i] = value
