"""Compute the attention of a batch of tokens over spans: blocked, causal, with an optional window.

A tile is TILE query rows (tokens times group) of one KV head. Keys are widened to f32 a block at a time. A row of
scores holds one key's scores with all queries of the tile, so that the softmax needs no sums across lanes. Both
matrix products run on register tiles (see tiles.py). Rows of q4_0 stay rotated: the queries of the tile are rotated
before, and its output afterwards.

The floor is arithmetic: 4 * head_dim operations for each pair of a query and a row that it sees.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import float32, int64
from numba.extending import register_jitable

from .compile import LANES, Shape, kernel
from .head import ANY_ORDER
from .memory import read_float
from .partials import LOWEST_SCORE
from .rotation import rotate_row
from .rows import widen_stored_row
from .scores import cap_scores
from .tiles import TILE, TILE_ROWS, score_tile, value_tile
from .vector import add, exp, keep_at_most, load, maximum, multiply, splat, store, subtract
from .views import array_at


class _Scratch(NamedTuple):
    """Addresses of the parts of a thread's scratch, all of f32."""

    queries: int  # (head_dim, TILE)
    keys: int  # (TILE, head_dim), of a block
    values: int  # (TILE, head_dim), of a block
    sums: int  # (TILE, head_dim): weighted values of each query
    scores: int  # (TILE, TILE): of a block's keys with the queries, then weights
    largest: int  # (TILE,): the largest score of each query so far
    totals: int  # (TILE,): its sum of weights
    newest: int  # (TILE,): the position of its token, the newest that it sees
    shrinks: int  # (TILE,): factors that scale its sums to a new largest score
    end: int


@register_jitable
def _scratch_parts(shape, scratch):
    """Return where the parts of a thread's scratch lie."""
    row_bytes, matrix_bytes = TILE * 4, TILE * shape.head_dim * 4
    keys = scratch + matrix_bytes
    values = keys + matrix_bytes
    sums = values + matrix_bytes
    scores = sums + matrix_bytes
    largest = scores + TILE * row_bytes
    totals = largest + row_bytes
    newest = totals + row_bytes
    shrinks = newest + row_bytes
    return _Scratch(scratch, keys, values, sums, scores, largest, totals, newest, shrinks, shrinks + row_bytes)


def tile_scratch_size(shape: Shape) -> int:
    """Return the scratch that a thread needs for a tile.

    Parameters
    ----------
    shape : Shape
        Sizes of the kernel.

    Returns
    -------
    int
        Number of f32.
    """
    n_bytes: int = _scratch_parts(shape, 0).end
    return n_bytes // 4


@kernel
def n_tiles(shape, n_tokens):
    """Return the number of tiles of one KV head.

    Parameters
    ----------
    shape : Shape
        Sizes of the kernel.
    n_tokens : int64
        Tokens of the batch.

    Returns
    -------
    int64
        Number of tiles, the last of which may have fewer queries.
    """
    return -(-n_tokens * shape.group // TILE)


@kernel
def attend_tile(
    shape, tile, n_tokens, query, position, spans, n_spans, softcap, sinks, scratch, out, token_step, head_step
):
    """Compute softmax(query . keys) . values for one tile of queries, each over the rows that its token sees.

    Parameters
    ----------
    shape : Shape
        Sizes of the kernel.
    tile : int64
        Number of the tile.
    n_tokens : int64
        Tokens of the batch.
    query : int64
        Address of (n_tokens * group, head_dim) f32, scaled. Rows of a token lie together.
    position : int64
        Position of the first token of the batch.
    spans : SPAN array
        What the KV head attends. Spans with positions are sorted by position.
    n_spans : int64
        Number of spans.
    softcap : float32
        Soft cap of the scores, 0 for none.
    sinks : int64
        Address of a score for each query head of the group, f32, or 0. It takes part in the softmax, but has no value.
    scratch : int64
        Address of `tile_scratch_size` f32.
    out : int64
        Address of the output of the group's first query head for the first token, (head_dim,) f32.
    token_step, head_step : int64
        Bytes from there to the output for the next token, and of the next query head.
    """
    room = _scratch_parts(shape, scratch)
    head_dim, group = shape.head_dim, shape.group
    first_row = tile * TILE
    n_rows = min(TILE, n_tokens * group - first_row)
    first_token = position + first_row // group
    last_token = position + (first_row + n_rows - 1) // group
    _start_softmax(shape, first_row, n_rows, position, room)

    loaded = 0
    for i in range(n_spans):
        span = spans[i]
        own = span.queries if span.queries != 0 else query
        if own != loaded:
            _load_queries(shape, own + first_row * head_dim * 4, n_rows, room)
            loaded = own
        window, row = span.window, 0
        while row < span.n_rows:
            n = min(TILE, span.n_rows - row)
            masked = False
            if span.position != ANY_ORDER:
                block = span.position + row
                if block > last_token:
                    break
                if window > 0 and block + n - 1 <= first_token - window:
                    row += n
                    continue
                masked = block + n - 1 > first_token or (window > 0 and block <= last_token - window)
            _widen_rows(shape, span.keys, span.rows, row, n, room.keys)
            _score_block(shape, n, room)
            cap_scores(room.scores, n * TILE, softcap)
            if masked:
                _mask_block(n, span.position + row, window, room)
            if _weigh_block(n, room):
                _shrink(shape, room)
            _widen_rows(shape, span.values, span.rows, row, n, room.values)
            for r in range(0, n_rows, TILE_ROWS):
                value_tile(shape, room.scores + r * 4, room.values, n, room.sums + r * head_dim * 4)
            row += n

    largest, totals = array_at(room.largest, (TILE,), np.float32), array_at(room.totals, (TILE,), np.float32)
    sums = array_at(room.sums, (TILE, head_dim), np.float32)
    for r in range(n_rows):
        if shape.rotated:
            rotate_row(shape, room.sums + r * head_dim * 4, room.sums + r * head_dim * 4)
        token, g = (first_row + r) // group, (first_row + r) % group
        factor = _normaliser(largest[r], totals[r], sinks, g)
        result = array_at(out + token * token_step + g * head_step, (head_dim,), np.float32)
        for i in range(head_dim):
            result[i] = sums[r, i] * factor


@kernel
def _load_queries(shape, query, n_rows, room):
    """Transpose the queries of the tile, rotated as the keys are. Those that it lacks are 0."""
    if shape.rotated:
        for r in range(n_rows):
            rotate_row(shape, query + r * shape.head_dim * 4, room.keys + r * shape.head_dim * 4)
        query = room.keys  # no key lies there yet, or none any more
    source = array_at(query, (n_rows, shape.head_dim), np.float32)
    target = array_at(room.queries, (shape.head_dim, TILE), np.float32)
    for i in range(shape.head_dim):
        for r in range(n_rows):
            target[i, r] = source[r, i]
        for r in range(n_rows, TILE):
            target[i, r] = float32(0)


@kernel
def _start_softmax(shape, first_row, n_rows, position, room):
    """Set the position of each query's token, and start with no row attended."""
    largest = array_at(room.largest, (TILE,), np.float32)
    totals = array_at(room.totals, (TILE,), np.float32)
    newest = array_at(room.newest, (TILE,), np.float32)
    for r in range(TILE):
        token = position + (first_row + min(r, n_rows - 1)) // shape.group
        largest[r] = float32(LOWEST_SCORE)
        totals[r] = float32(0)
        newest[r] = float32(token)
    sums = array_at(room.sums, (TILE * shape.head_dim,), np.float32)
    for i in range(TILE * shape.head_dim):
        sums[i] = float32(0)


@kernel
def _widen_rows(shape, base, listed, row, n, floats):
    """Convert n rows of a span, from its row `row` on, to f32."""
    numbers = array_at(listed + row * 4, (n,), np.int32)
    for r in range(n):
        number = row + r if listed == 0 else int64(numbers[r])
        widen_stored_row(shape, base + number * shape.row_bytes, floats + r * shape.head_dim * 4)


@kernel
def _score_block(shape, n, room):
    """Compute scores[r] = keys[r] . queries for n rows of keys."""
    zero = splat(float32(0))
    for i in range(0, -(-n // TILE_ROWS) * TILE_ROWS * TILE, LANES):
        store(room.scores + i * 4, zero)
    for row in range(0, n, TILE_ROWS):  # may compute a few rows more, which nobody reads
        score_tile(shape, room.keys + row * shape.head_dim * 4, room.queries, room.scores + row * TILE * 4)


@kernel
def _mask_block(n, position, window, room):
    """Set the score of a row to -inf for each query that does not see its position."""
    scores = array_at(room.scores, (n, TILE), np.float32)
    newest = array_at(room.newest, (TILE,), np.float32)
    for r in range(n):
        own = float32(position + r)
        for q in range(0, TILE, LANES):
            place = room.scores + (r * TILE + q) * 4
            store(place, keep_at_most(load(place), own, load(room.newest + q * 4)))
        if window > 0:
            for q in range(TILE):
                if own <= newest[q] - float32(window):
                    scores[r, q] = float32(-np.inf)


@kernel
def _weigh_block(n, room):
    """Turn scores into weights relative to the largest score so far. Return whether any largest score rose."""
    rose = False
    for q in range(0, TILE, LANES):
        before = load(room.largest + q * 4)
        largest = before
        for r in range(n):
            largest = maximum(largest, load(room.scores + (r * TILE + q) * 4))
        shrink = exp(subtract(before, largest))
        store(room.shrinks + q * 4, shrink)
        total = multiply(load(room.totals + q * 4), shrink)
        for r in range(n):
            place = room.scores + (r * TILE + q) * 4
            weight = exp(subtract(load(place), largest))
            store(place, weight)
            total = add(total, weight)
        store(room.totals + q * 4, total)
        store(room.largest + q * 4, largest)
    shrinks = array_at(room.shrinks, (TILE,), np.float32)
    for q in range(TILE):
        rose |= shrinks[q] != float32(1)
    return rose


@kernel
def _shrink(shape, room):
    """Scale the weighted values to the new largest scores."""
    sums = array_at(room.sums, (TILE, shape.head_dim), np.float32)
    shrinks = array_at(room.shrinks, (TILE,), np.float32)
    for q in range(TILE):
        for i in range(shape.head_dim):
            sums[q, i] *= shrinks[q]


@kernel
def _normaliser(largest, total, sinks, g):
    """Return one over the sum of the weights, the sink of the query head included."""
    if sinks == 0:
        return float32(1) / total
    sink = read_float(sinks + g * 4)
    if sink > largest:
        return float32(math.exp(largest - sink)) / (total * float32(math.exp(largest - sink)) + float32(1))
    return float32(1) / (total + float32(math.exp(sink - largest)))
