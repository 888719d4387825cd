"""Quest: attend to the pages whose keys could score highest (Tang et al. 2024, section 3.4, algorithm 1).

A page is PAGE_ROWS neighbouring rows. Its bounds are the smallest and the largest element of its keys in each of the
head_dim columns, the smallest first: (2, head_dim) f16. No key of the page scores above sum_i max(q_i * smallest_i, q_i
* largest_i). This is computed as the dot product of (min(q, 0), max(q, 0)) with the bounds. Bounds of q8_0 keys are
rounded to f16, by less than the keys were.

Pages are pages of the tail, whose first chunks hold the rows of a document in order. A chunk's extras are the bounds of
its pages.

The pages with the highest bounds are selected (see select_top.py), by a group of query heads together, or by each query
head for itself, as in the paper, whose heads do not share keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import float32, types
from numba.extending import intrinsic

from ..layout.head import chunk_at, chunk_extras, head_at, tail_key
from ..layout.hooks import Hooks
from ..layout.scores import ITEMS_STEP, scores_address, share_of
from ..numba_support.compile import kernel
from ..numba_support.memory import borrow, give_back
from ..numba_support.shape import MOST, SHAPE, Limits, Shape, ShapeParts
from ..numba_support.vector import HALF, Emit, constant
from ..numba_support.views import array_at
from ..rows.rows import dot, widen_row
from ..rows.tiles import CHUNK_ROWS, for_columns
from .select_top import select_top

#: Rows of a page (Quest, section 4.2).
PAGE_ROWS = 16

#: Pages of a chunk, which are scored together.
CHUNK_PAGES = CHUNK_ROWS // PAGE_ROWS
assert ITEMS_STEP % CHUNK_PAGES == 0

#: Of the shape of a page's bounds, two keys long.
LIMITS = Limits(MOST // 2)


def extras_bytes(shape: Shape) -> int:
    """Return the size of a chunk's extras: the bounds of its pages."""
    return CHUNK_PAGES * 4 * shape.head_dim


@kernel
def page_bounds(shape, head, page):
    """Return the address of a page's bounds."""
    chunk = chunk_at(head, page // CHUNK_PAGES)
    return chunk_extras(chunk) + page % CHUNK_PAGES * 4 * shape.head_dim


@intrinsic
def _bound(typing: Any, shape: Any, key: Any, bounds: Any, is_first: Any) -> Any:
    """Widen a page's bounds by a key, head_dim f32; the first key of a page sets them."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        shape, key, bounds, is_first = args
        head_dim = ShapeParts(builder, shape).head_dim()
        largest = builder.add(bounds, builder.mul(head_dim, constant(2)))

        def write(emit: Emit, column: Any) -> None:
            halves = ir.VectorType(HALF, emit.lanes)
            value = emit.load_float(key, column)
            is_nan = builder.fcmp_unordered("uno", value, value)
            for address, sign in ((bounds, "<"), (largest, ">")):
                place = builder.bitcast(emit.pointer(address, HALF, column), halves.as_pointer())
                before = emit.load_half(address, column)
                beyond = builder.or_(is_nan, builder.fcmp_ordered(sign, value, before))  # a NaN stays
                bound = builder.select(is_first, value, builder.select(beyond, value, before))
                builder.store(builder.fptrunc(bound, halves), place).align = 2

        for_columns(builder, head_dim, write)
        return context.get_dummy_value()

    return types.void(SHAPE, types.int64, types.int64, types.boolean), generate


@kernel
def append_to_pages(shape, head_address, start, stop):
    """Add stored keys to the bounds of their pages: an `append` hook (see hooks.py)."""
    head, floats = head_at(head_address), borrow(4 * shape.head_dim)
    for row in range(start, stop):
        widen_row(shape, tail_key(shape, head, row), floats)
        _bound(shape, floats, page_bounds(shape, head, row // PAGE_ROWS), row % PAGE_ROWS == 0)
    give_back(floats, 4 * shape.head_dim)
    return 0


@kernel
def score_pages(shape, head_address, query, part, n_parts):
    """Compute the upper bounds of a share of the pages, for one token: a `score` hook (see hooks.py)."""
    head = head_at(head_address)
    start, stop = share_of(-(-head.n_tail // PAGE_ROWS), part, n_parts)
    n_bytes = 8 * shape.group * shape.head_dim
    pairs = borrow(n_bytes)
    _split_signs(shape, query, pairs)
    for page in range(start, stop, CHUNK_PAGES):
        count, scores = min(CHUNK_PAGES, stop - page), scores_address(head, 0) + page * 4
        dot(shape.of_pairs, pairs, page_bounds(shape, head, page), count, scores, head.scratch_items)
    give_back(pairs, n_bytes)
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


HOOKS = Hooks(select=select_top, score=score_pages, append=append_to_pages)
