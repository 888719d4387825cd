"""What the compiled halves of all selectors share, and the simplest of them: dense attention.

A selector has up to three compiled functions, called by address (see spans.py for what they read and write):
  score(head, query, part, n_parts) : scores a share of a head's items (clusters, pages, rows) for one token, so that
      all threads work on all heads; leaves them in the head's scratch
  select(head, query, n_tokens, spans) : turns the scores into spans, one thread for each head. For more than one token
      it scores by itself
  settle(head, n_tokens, 0, 0) : after a step of n_tokens tokens that nothing interrupted, tends what is stored:
      evicts, or clusters
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import carray, float32, int64

from .compile import LANES, Shape, kernel, native_callback
from .memory import pointer
from .spans import ANY_ORDER, add_document_rows, add_tail, first_visible_row, head_at, spans_at
from .vector import add, exp, load, max_of, maximum, multiply, splat, store, subtract, sum_of

#: More spans than any head has: the arrays over them are only views.
MANY = 1 << 40

#: What `score` and `select` are as native functions.
SIGNATURE = int64(int64, int64, int64, int64)


#: A list of rows goes on for at most so many (see rows.py): 32 ahead, and up to a multiple of 8.
LIST_ROOM = 40

#: Items that a thread scores are a multiple of this.
ITEMS_STEP = 16


def padded(n_items: int) -> int:
    """Scores are computed some at a time: what n_items of them need room for."""
    return -(-n_items // ITEMS_STEP) * ITEMS_STEP


def selection_scratch_bytes(group: int, n_items: int) -> int:
    """Scratch of a head: each item's importance, its size, a score for each query head, and a list of items."""
    return (8 + 4 * group + 8) * n_items + 8 * LIST_ROOM


@kernel
def scores_of(head):
    """Address of a head's scores: (group, scratch_items) f32, after the items' importance and sizes."""
    return head.scratch + 8 * head.scratch_items


@kernel
def list_of(shape, head):
    """Address of a head's list: 8 bytes for each item."""
    return head.scratch + (8 + 4 * shape.group) * head.scratch_items


@kernel
def select_all(shape, head_address, query, n_tokens, spans_address):
    """Every row that the step's tokens may see: dense attention, inside the layer's window."""
    head, spans = head_at(head_address)[0], spans_at(spans_address, MANY)
    first_visible = first_visible_row(head, n_tokens, head.window)
    position, first_row = head.document_position, 0
    if position != ANY_ORDER:
        first_row = max(0, first_visible + head.tail_position - position)
        position += first_row
    n_spans = add_document_rows(head, shape.row_bytes, first_row, head.n_document, position, spans, 0)
    return add_tail(head, shape.row_bytes, max(0, first_visible), head.window, spans, n_spans)


# One function for each selector: a shared one would hold the selector in its closure, and Numba's cache on disk
# never finds a function again whose closure holds a compiled one.
@cache
def native_select_all(shape: Shape) -> Any:
    """`select_all` for one shape as a native function; its `address` goes into a HEAD record."""

    @native_callback(SIGNATURE)
    def call(head, query, n_tokens, spans):
        return select_all(shape, head, query, n_tokens, spans)

    return call


@kernel
def share_of(n_items, part, n_parts):
    """Items of thread `part` of n_parts: start and stop, multiples of ITEMS_STEP inside."""
    steps = -(-n_items // ITEMS_STEP)
    return steps * part // n_parts * ITEMS_STEP, min(steps * (part + 1) // n_parts * ITEMS_STEP, n_items)


@kernel
def cap_scores(scores, n, softcap):
    """scores[i] = softcap * tanh(scores[i] / softcap) for n f32 at an address; softcap 0 leaves them."""
    if softcap == 0:
        return
    values = carray(pointer(scores), (n,), np.float32)
    for i in range(n):
        values[i] = softcap * np.tanh(values[i] / softcap)


@kernel
def exp_scores(scores, n):
    """scores[i] = exp(scores[i] - the largest), for n f32 at an address, a multiple of LANES, -inf where unused."""
    largest = splat(float32(-1e30))
    for i in range(0, n, LANES):
        largest = maximum(largest, load(scores + i * 4))
    largest = splat(max_of(largest))
    for i in range(0, n, LANES):
        store(scores + i * 4, exp(subtract(load(scores + i * 4), largest)))


@kernel
def add_shares(scores, n, importance):
    """importance[i] += scores[i] / the sum of scores: n f32 at addresses, a multiple of LANES."""
    total = splat(float32(0))
    for i in range(0, n, LANES):
        total = add(total, load(scores + i * 4))
    factor = splat(float32(1) / sum_of(total))
    for i in range(0, n, LANES):
        store(importance + i * 4, add(load(importance + i * 4), multiply(load(scores + i * 4), factor)))


@kernel
def fill(address, start, stop, value):
    """Set the f32 from index start to stop."""
    values = carray(pointer(address), (stop,), np.float32)
    for i in range(start, stop):
        values[i] = value
