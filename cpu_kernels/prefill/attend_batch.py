"""Compute the attention of a batch of tokens over spans: blocked, causal, with an optional window.

A tile is a number of query rows (tokens times group) of one KV head. Keys and values are widened block by block, for
all queries of the tile, which multiply them strip by strip (strips.py). Rows of q4_0 stay rotated: the queries of the
tile are rotated before, and its output is rotated back.

The lower bound is arithmetic: 2 * (head_dim + value_dim) operations for each pair of a query and a row that it sees.
With AMX each operation takes three products of bf16, or one if blocks of keys are left out anyway; exp takes as long as
either. Other x86 CPUs multiply integers, two or four at once.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32, types

from ..layout.head import ANY_ORDER
from ..layout.scores import cap_scores
from ..layout.spans import oldest_seen, spans_at
from ..numba_support.amx import enter_tiles, leave_tiles
from ..numba_support.compile import kernel, late_stage
from ..numba_support.machine_features import HAS_AMX
from ..numba_support.memory import read_float
from ..numba_support.shape import SHAPE
from ..numba_support.views import array_at
from .sparse_prefill import any_chosen, group_of, reads_all
from .strips import (
    add_values,
    load_keys,
    load_queries,
    load_values,
    mask_strip,
    score_strip_of,
    shrink_strip,
    start_softmax,
    sums_of,
    weigh_strip,
)
from .tile_scratch import BLOCK, most_queries, scratch_parts, strip_queries


@late_stage(SHAPE, *[types.int64] * 9, types.float32, *[types.int64] * 5)
def attend_tile(
    shape,
    first_row,
    n_rows,
    query,
    position,
    spans_address,
    n_spans,
    chosen,
    n_blocks,
    rounds,
    softcap,
    sinks,
    scratch,
    out,
    token_step,
    head_step,
):
    """Compute softmax(query . keys) . values for one tile of queries, each over the rows that its token sees.

    Parameters
    ----------
    first_row, n_rows : int64
        The tile's first query, which begins a strip, and its number of queries, at most `most_queries` (strips.py).
    query : int64
        Address of (n_tokens * group, head_dim) f32, scaled. Rows of a token are adjacent.
    position : int64
        Position of the first token of the batch.
    spans_address : int64
        Address of n_spans SPAN records, those of the KV head. Spans with positions are sorted by position.
    chosen : int64
        Address of n_blocks bytes for each group of tokens: whether it reads a block (sparse_prefill.py). 0 to read all.
    n_blocks : int64
        Number of blocks of all spans, if `chosen` is not 0.
    rounds : int64
        1 to round to integers or bf16 where their products are faster than those of f32; 0 for f32.
    softcap : float32
        Soft cap of the scores, 0 for none.
    sinks : int64
        Address of a score for each query head of the group, f32, or 0. It takes part in the softmax, without a value.
    scratch : int64
        Address of the bytes of `scratch_parts` (tile_scratch.py).
    out : int64
        Address of the output of the group's first query head for the first token, (value_dim,) f32.
    token_step, head_step : int64
        Bytes from there to the next token's output, and to the next query head's.
    """
    spans, room, size = spans_at(spans_address, n_spans), scratch_parts(shape, scratch), most_queries(shape)
    head_dim, value_dim, group = shape.head_dim, shape.value_dim, shape.group
    first_token = position + first_row // group
    last_token = position + (first_row + n_rows - 1) // group
    first_group, last_group = group_of(position, first_row // group), group_of(position, last_token - position)
    rough = (chosen != 0 and not reads_all(position, first_group)) or (
        rounds != 0 and (shape.on_amx or shape.on_integers)
    )
    start_softmax(shape, first_row, n_rows, position, room)
    if HAS_AMX and shape.on_amx:
        enter_tiles(room.configuration)

    loaded, first_block = 0, 0
    for i in range(n_spans):
        span = spans[i]
        own = span.queries if span.queries != 0 else query
        if own != loaded:
            load_queries(shape, own + first_row * head_dim * 4, n_rows, rough, scratch)
            loaded = own
        window = span.window
        for row in range(0, span.n_rows, BLOCK):
            n, number, masked = min(BLOCK, span.n_rows - row), first_block + row // BLOCK, False
            if span.position != ANY_ORDER:
                block = span.position + row
                if block > last_token:
                    break
                if block + n - 1 < oldest_seen(first_token, window):
                    continue
                masked = block + n - 1 > first_token or block < oldest_seen(last_token, window)
            if not any_chosen(chosen, n_blocks, first_group, last_group, number):
                continue
            load_keys(shape, span.keys, span.rows, row, n, rough, scratch)
            load_values(shape, span.values, span.rows, row, n, rough, scratch)
            for strip in range(0, n_rows, strip_queries(shape)):
                last_row = min(strip + strip_queries(shape), n_rows) - 1
                first = group_of(position, (first_row + strip) // group)
                last = group_of(position, (first_row + last_row) // group)
                if not any_chosen(chosen, n_blocks, first, last, number):
                    continue
                score_strip_of(shape, strip, n, rough, room)
                cap_scores(room.scores, n * strip_queries(shape), softcap)
                if masked:
                    mask_strip(shape, strip, n, span.position + row, window, room)
                if weigh_strip(shape, strip, n, rough, room):
                    shrink_strip(shape, strip, room)
                add_values(shape, strip, n, n_rows, rough, room)
        first_block += -(-span.n_rows // BLOCK)

    if HAS_AMX and shape.on_amx:
        leave_tiles(room.configuration)
    largest, totals = array_at(room.largest, (size,), np.float32), array_at(room.totals, (size,), np.float32)
    for r in range(n_rows):
        token, g = (first_row + r) // group, (first_row + r) % group
        factor = _normaliser(largest[r], totals[r], sinks, g)
        sums = array_at(sums_of(shape, r, room), (value_dim,), np.float32)
        result = array_at(out + token * token_step + g * head_step, (value_dim,), np.float32)
        for i in range(value_dim):
            result[i] = sums[i] * factor


@kernel
def _normaliser(largest, total, sinks, g):
    """Return the inverse of the sum of the weights, including the query head's sink."""
    if sinks == 0:
        return float32(1) / total
    sink = read_float(sinks + g * 4)
    if sink > largest:
        return float32(math.exp(largest - sink)) / (total * float32(math.exp(largest - sink)) + float32(1))
    return float32(1) / (total + float32(math.exp(sink - largest)))
