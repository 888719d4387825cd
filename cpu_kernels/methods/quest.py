"""Quest: attend to the pages whose keys could score highest (Tang et al. 2024, section 3.4, algorithm 1).

A page is PAGE_ROWS neighbouring rows. Its bounds are the smallest and the largest element of its keys in each of the
head_dim columns, the smallest first: (2, head_dim) f16. No key of the page scores above
sum_i max(q_i * smallest_i, q_i * largest_i). That is the dot product of (min(q, 0), max(q, 0)) with the bounds, and is
computed as such. The bounds of q8_0 keys are rounded to f16, by less than the keys were.

Pages are pages of the tail: the rows of a document are copied there, in order. A chunk's extras are the bounds of its
pages.

For one query head, the pages with the highest bounds are selected. For a group, the bounds of each head become shares
by a softmax over all pages, and the sums of the shares count, so that no head's scale outweighs another's. Or each
query head of the group selects pages for itself, and attends to those, as the paper's heads do, which share no keys.

Selection reads 4 * head_dim bytes a page.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import float32, int64, types
from numba.extending import intrinsic

from ..attend.head import ANY_ORDER, CHUNK_ROWS, chunk_at, chunk_extras, head_at, tail_key
from ..attend.hooks import Hooks
from ..attend.spans import ALL_HEADS, add_tail_rows, spans_to_fill
from ..numba_support.compile import Shape, kernel
from ..numba_support.memory import read_float, stack_floats
from ..numba_support.vector import HALF, Emit
from ..numba_support.views import array_at, record_at
from ..rows.rotation import width
from ..rows.rows import dot, load_row
from ..select.scores import (
    ITEMS_STEP,
    choices_of,
    choose_apart,
    fill,
    importance_address,
    list_address,
    scores_address,
    share_of,
    sum_attention,
)
from ..select.top_k import list_top
from .dense import select_all

#: Rows of a page (Quest, section 4.2).
PAGE_ROWS = 16

#: Pages of a chunk, which are scored together.
CHUNK_PAGES = CHUNK_ROWS // PAGE_ROWS
assert CHUNK_PAGES == ITEMS_STEP

#: What a head keeps besides its rows and bounds.
STATE = np.dtype(
    [
        ("n_pages", "i8"),  # pages to select, for all query heads of the group
        ("n_own", "i8"),  # most pages that a query head selects for itself; 0 if the group selects together
    ]
)


def extras_bytes(shape: Shape) -> int:
    """Return the size of a chunk's extras: the bounds of its pages."""
    return CHUNK_PAGES * 4 * shape.head_dim


@kernel
def page_bounds(shape, head, page):
    """Return the address of a page's bounds."""
    chunk = chunk_at(head, page // CHUNK_PAGES)
    return chunk_extras(shape, chunk) + page % CHUNK_PAGES * 4 * shape.head_dim


@intrinsic
def _bound(typing: Any, shape: Any, key: Any, bounds: Any, is_first: Any) -> Any:
    """Take a stored key into the bounds of its page; the first key of a page sets them."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, key, bounds, is_first = args
        emit, head_dim = Emit(builder, width(shape.shape)), shape.shape.head_dim
        halves = ir.VectorType(HALF, emit.lanes)
        for column, value in load_row(emit, shape.shape, key).items():
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
def append_to_pages(shape, head_address, start, stop):
    """Take stored keys into the bounds of their pages: an `append` hook (see hooks.py)."""
    head = head_at(head_address)
    for row in range(start, stop):
        _bound(shape, tail_key(shape, head, row), page_bounds(shape, head, row // PAGE_ROWS), row % PAGE_ROWS == 0)
    return 0


@kernel
def _count_pages(head):
    return -(-head.n_tail // PAGE_ROWS)


@kernel
def score_pages(shape, head_address, query, part, n_parts):
    """Compute the upper bounds of a share of the pages, for one token: a `score` hook (see hooks.py)."""
    head = head_at(head_address)
    start, stop = share_of(_count_pages(head), part, n_parts)
    pairs = stack_floats(shape)
    _split_signs(shape, query, pairs)
    for page in range(start, stop, CHUNK_PAGES):
        count, scores = min(CHUNK_PAGES, stop - page), scores_address(head, 0) + page * 4
        dot(shape.of_pairs, pairs, page_bounds(shape, head, page), count, scores, head.scratch_items)
    return 0


@kernel
def _split_signs(shape, query, pairs):
    """Write (min(q, 0), max(q, 0)) for each query head."""
    head_dim = shape.head_dim
    source = array_at(query, (shape.group, head_dim), np.float32)
    target = array_at(pairs, (shape.group, 2 * head_dim), np.float32)
    for g in range(shape.group):
        for i in range(head_dim):
            target[g, i] = min(source[g, i], float32(0))
            target[g, head_dim + i] = max(source[g, i], float32(0))


@kernel
def select_pages(shape, head_address, query, n_tokens, spans_address):
    """Select the best pages, the newest always among them: a `select` hook (see hooks.py).

    A batch of more than one token attends to everything.
    """
    if n_tokens > 1:
        return select_all(shape, head_address, query, n_tokens, spans_address)
    head, spans = head_at(head_address), spans_to_fill(spans_address)
    state, end = record_at(head.state, STATE), _count_pages(head)
    importance = importance_address(head)
    stop = sum_attention(shape, head, end)
    if math.isnan(read_float(importance)):  # all are NaN: attend to everything, so that the NaN reaches the output
        return select_all(shape, head_address, query, n_tokens, spans_address)
    head.bytes_read += end * shape.head_dim * 4
    if state.n_own > 0:
        return _select_apart(shape, head, end, stop, spans)
    fill(importance, end, stop, float32(-1))
    fill(importance, end - 1, end, float32(np.inf))

    listed = list_address(shape, head)
    n_selected = list_top(importance, stop, state.n_pages, listed)
    pages = array_at(listed, (n_selected,), np.int32)
    n_spans = 0
    for i in range(n_selected):
        n_spans = _add_page(shape, head, int64(pages[i]), ALL_HEADS, spans, n_spans)
    return n_spans


@kernel
def _select_apart(shape, head, end, stop, spans):
    """Select the best of `end` pages for each query head, the newest always among them. Returns the number of spans."""
    state, choices = record_at(head.state, STATE), choices_of(head)
    for g in range(shape.group):
        fill(scores_address(head, g), end, stop, float32(-1))
        fill(scores_address(head, g), end - 1, end, float32(np.inf))
    choose_apart(shape, head, stop, state.n_own, state.n_pages)
    n_spans = 0
    for page in range(end):
        if choices[page] != 0:
            n_spans = _add_page(shape, head, page, choices[page], spans, n_spans)
    return n_spans


@kernel
def _add_page(shape, head, page, heads, spans, n_spans):
    """Append a page, of some query heads. Returns the number of spans."""
    first = page * PAGE_ROWS
    last = min(first + PAGE_ROWS, head.n_tail)
    return add_tail_rows(shape, head, first, last, ANY_ORDER, 0, spans, n_spans, heads)


HOOKS = Hooks(select=select_pages, score=score_pages, append=append_to_pages)
