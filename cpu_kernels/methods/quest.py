"""Page bounds: the pages of keys that could score highest (Quest, algorithm 1).

A page is PAGE_ROWS neighbouring rows, and its bounds are the smallest and the largest element of its keys for each of
the head_dim columns: f16, (2, head_dim), the smallest first. No key of the page scores above
sum_i max(q_i * smallest_i, q_i * largest_i), which is the dot product of (min(q, 0), max(q, 0)) with the bounds, and
is computed as such. (Of q8_0 keys, bounds are rounded to f16: by less than the keys were.) Pages are of the tail:
a document's rows are copied there, in order.

For one query head the pages with the highest bounds are selected. For a group the bounds of each head become shares by
a softmax over all pages, and their sums count, so that no head's scale outweighs another's.
Reads 4 * head_dim bytes for each page.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, float32, int64, types
from numba.extending import intrinsic

from ..compile import LANES, Shape, kernel, native_callback
from ..memory import pointer, read_float, read_int64, stack_floats
from ..rows import dot, load_row, width
from ..scores import (
    ITEMS_STEP,
    MANY,
    SIGNATURE,
    add_shares,
    cap_scores,
    exp_scores,
    fill,
    list_of,
    scores_of,
    select_all,
    share_of,
)
from ..spans import ANY_ORDER, CHUNK_ROWS, add_tail_rows, head_at, spans_at
from ..top_k import list_top
from ..vector import HALF, Emit

#: Rows of a page (Quest, section 4.1).
PAGE_ROWS = 16

#: A chunk's pages are scored together.
assert CHUNK_ROWS == PAGE_ROWS * ITEMS_STEP


@intrinsic
def _bound(typing: Any, shape: Any, key: Any, bounds: Any, is_first: Any) -> Any:
    """Take a stored key into the bounds of its page; the first key of a page sets them."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, key, bounds, is_first = args
        emit, head_dim = Emit(builder, width(shape.shape)), shape.shape.head_dim
        halves = ir.VectorType(HALF, emit.lanes)
        for column, value in load_row(emit, shape.shape, key, range(0, head_dim, emit.lanes)).items():
            is_nan = builder.fcmp_unordered("uno", value, value)
            for first, sign in ((0, "<"), (head_dim, ">")):
                place = builder.bitcast(emit.pointer(bounds, HALF, first + column), halves.as_pointer())
                before = emit.load_half(bounds, first + column)
                beyond = builder.or_(is_nan, builder.fcmp_ordered(sign, value, before))  # a NaN stays
                bound = builder.select(is_first, value, builder.select(beyond, value, before))
                builder.store(builder.fptrunc(bound, halves), place).align = 2
        return context.get_dummy_value()

    return types.void(shape, types.int64, types.int64, types.boolean), generate


@kernel
def append_to_page(shape, key, bounds, row):
    """Take the stored key at an address into the bounds at an address; `row` counts from the first page's."""
    _bound(shape, key, bounds + row // PAGE_ROWS * shape.head_dim * 4, row % PAGE_ROWS == 0)


@kernel
def _count_pages(head):
    return -(-head.n_tail // PAGE_ROWS)


@kernel
def score_pages(shape, head_address, query, part, n_parts):
    """The upper bounds of this thread's share of the pages, for one token."""
    head = head_at(head_address)[0]
    start, stop = share_of(_count_pages(head), part, n_parts)
    pairs = stack_floats(shape)
    _split_signs(shape, query, pairs)
    for page in range(start, stop, ITEMS_STEP):
        bounds = read_int64(head.tail_chunks + page // ITEMS_STEP * 8) + head.page_offset
        count = min(ITEMS_STEP, stop - page)
        dot(shape.of_pairs, pairs, bounds, count, scores_of(head) + page * 4, head.scratch_items)
    return 0


@kernel
def _split_signs(shape, query, pairs):
    """For each query head (min(q, 0), max(q, 0))."""
    head_dim = shape.head_dim
    source = carray(pointer(query), (shape.group, head_dim), np.float32)
    target = carray(pointer(pairs), (shape.group, 2 * head_dim), np.float32)
    for g in range(shape.group):
        for i in range(head_dim):
            target[g, i] = min(source[g, i], float32(0))
            target[g, head_dim + i] = max(source[g, i], float32(0))


@kernel
def select_pages(shape, head_address, query, n_tokens, spans_address):
    """The n_selected best pages, the newest always among them. A batch of more than one token attends everything."""
    if n_tokens > 1:
        return select_all(shape, head_address, query, n_tokens, spans_address)
    head, spans = head_at(head_address)[0], spans_at(spans_address, MANY)
    end = _count_pages(head)
    stop = -(-end // LANES) * LANES
    fill(head.scratch, 0, stop, float32(0))
    for g in range(shape.group):
        scores = scores_of(head) + g * head.scratch_items * 4
        cap_scores(scores, end, head.softcap)
        fill(scores, end, stop, float32(-np.inf))
        exp_scores(scores, stop)
        add_shares(scores, stop, head.scratch)
    if math.isnan(read_float(head.scratch)):  # then all are: attend everything, so that it shows
        return select_all(shape, head_address, query, n_tokens, spans_address)
    fill(head.scratch, end, stop, float32(-1))
    fill(head.scratch, end - 1, end, float32(np.inf))
    head.bytes_read += end * shape.head_dim * 4

    listed = list_of(shape, head)
    n_selected = list_top(head.scratch, stop, head.n_selected, listed)
    pages = carray(pointer(listed), (n_selected,), np.int32)
    n_spans = 0
    for i in range(n_selected):
        first = int64(pages[i]) * PAGE_ROWS
        last = min(first + PAGE_ROWS, head.n_tail)
        n_spans = add_tail_rows(head, shape.row_bytes, first, last, ANY_ORDER, 0, spans, n_spans)
    return n_spans


@cache
def native_score_pages(shape: Shape) -> Any:
    """`score_pages` for one shape as a native function."""

    @native_callback(SIGNATURE)
    def call(head, query, part, n_parts):
        return score_pages(shape, head, query, part, n_parts)

    return call


@cache
def native_select_pages(shape: Shape) -> Any:
    """`select_pages` for one shape as a native function."""

    @native_callback(SIGNATURE)
    def call(head, query, n_tokens, spans):
        return select_pages(shape, head, query, n_tokens, spans)

    return call
