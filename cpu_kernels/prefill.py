"""Attention of a batch of tokens over spans: blocked, causal, with an optional window.

A tile is TILE query rows of one KV head (tokens times group). Keys are widened to f32 a block at a time, scores are
kept with the queries along the vectors (so that the softmax needs no sums across lanes), and both products run
through register tiles. The floor is arithmetic: 4 * head_dim operations for each pair of query and visible row.
"""

from __future__ import annotations

import math

import numpy as np
from numba import carray, float32, int64

from .compile import LANES, Shape, kernel
from .decode import LOWEST_SCORE
from .memory import pointer, read_float, read_int32
from .rows import widen_row
from .scores import cap_scores
from .spans import ANY_ORDER
from .tiles import TILE, TILE_ROWS, score_tile, value_tile
from .vector import add, exp, keep_at_most, load, maximum, multiply, splat, store, subtract


def tile_scratch_size(shape: Shape) -> int:
    """f32 of scratch that a thread needs for a tile."""
    return TILE * (4 * shape.head_dim + TILE + 4)


@kernel
def n_tiles(shape, n_tokens):
    """Tiles of one KV head for a batch of n_tokens tokens."""
    return -(-n_tokens * shape.group // TILE)


@kernel
def attend_tile(
    shape, tile, n_tokens, query, position, spans, n_spans, softcap, sinks, scratch, out, token_step, head_step
):
    """out = softmax(query . keys) . values for one tile of one KV head's queries, over what each token may see.

    query : address of (n_tokens * group, head_dim) f32, scaled, rows of a token together
    position : of the batch's first token    spans : SPAN records, positioned ones sorted by position
    sinks : address of (group,) f32 or 0    out : address of the group's first query head's output for the first token,
    token_step and head_step bytes from one token and head to the next
    scratch : address of tile_scratch_size(shape) f32
    """
    head_dim, group = shape.head_dim, shape.group
    queries = scratch
    keys = queries + TILE * head_dim * 4
    values = keys + TILE * head_dim * 4
    sums = values + TILE * head_dim * 4
    scores = sums + TILE * head_dim * 4
    largest = scores + TILE * TILE * 4
    totals = largest + TILE * 4
    newest = totals + TILE * 4
    shrinks = newest + TILE * 4

    first_row = tile * TILE
    n_rows = min(TILE, n_tokens * group - first_row)
    first_token = position + first_row // group
    last_token = position + (first_row + n_rows - 1) // group
    _load_queries(shape, query + first_row * head_dim * 4, n_rows, queries)
    _start(first_row, n_rows, group, position, largest, totals, newest)
    all_sums = carray(pointer(sums), (TILE * head_dim,), np.float32)
    for i in range(TILE * head_dim):
        all_sums[i] = float32(0)

    for i in range(n_spans):
        span = spans[i]
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
            _widen_rows(shape, span.keys, span.rows, row, n, keys)
            _score_block(shape, n, queries, keys, scores)
            cap_scores(scores, n * TILE, softcap)
            if masked:
                _mask_block(scores, n, span.position + row, newest, window)
            if _weigh_block(scores, n, largest, totals, shrinks):
                _shrink(sums, shrinks, head_dim)
            _widen_rows(shape, span.values, span.rows, row, n, values)
            for r in range(0, n_rows, TILE_ROWS):
                value_tile(shape, scores + r * 4, values, n, sums + r * head_dim * 4)
            row += n

    for r in range(n_rows):
        token, g = (first_row + r) // group, (first_row + r) % group
        factor = _normaliser(read_float(largest + r * 4), read_float(totals + r * 4), sinks, g)
        result = carray(pointer(out + token * token_step + g * head_step), (head_dim,), np.float32)
        for i in range(head_dim):
            result[i] = all_sums[r * head_dim + i] * factor


@kernel
def _load_queries(shape, query, n_rows, queries):
    """Transpose the tile's queries to (head_dim, TILE); the unused ones are 0."""
    source = carray(pointer(query), (n_rows, shape.head_dim), np.float32)
    target = carray(pointer(queries), (shape.head_dim, TILE), np.float32)
    for i in range(shape.head_dim):
        for r in range(n_rows):
            target[i, r] = source[r, i]
        for r in range(n_rows, TILE):
            target[i, r] = float32(0)


@kernel
def _start(first_row, n_rows, group, position, largest, totals, newest):
    """The position of each query's token, which is the newest that it sees, and an empty softmax."""
    largest = carray(pointer(largest), (TILE,), np.float32)
    totals = carray(pointer(totals), (TILE,), np.float32)
    newest = carray(pointer(newest), (TILE,), np.float32)
    for r in range(TILE):
        token = position + (first_row + min(r, n_rows - 1)) // group
        largest[r] = float32(LOWEST_SCORE)
        totals[r] = float32(0)
        newest[r] = float32(token)


@kernel
def _widen_rows(shape, base, listed, row, n, floats):
    """Copy n rows of a span, from its row `row` on, to f32."""
    for r in range(n):
        number = row + r if listed == 0 else int64(read_int32(listed + (row + r) * 4))
        widen_row(shape, base + number * shape.row_bytes, floats + r * shape.head_dim * 4)


@kernel
def _score_block(shape, n, queries, keys, scores):
    """scores[r] = keys[r] . queries for n rows of f32 keys."""
    zero = splat(float32(0))
    for i in range(0, -(-n // TILE_ROWS) * TILE_ROWS * TILE, LANES):
        store(scores + i * 4, zero)
    for row in range(0, n, TILE_ROWS):  # may run over n, into scratch that nobody reads
        score_tile(shape, keys + row * shape.head_dim * 4, queries, scores + row * TILE * 4)


@kernel
def _mask_block(scores, n, position, newest, window):
    """-inf for each row at a position that the query does not see."""
    values = carray(pointer(scores), (n, TILE), np.float32)
    tokens = carray(pointer(newest), (TILE,), np.float32)
    for r in range(n):
        place = float32(position + r)
        for q in range(0, TILE, LANES):
            at = scores + (r * TILE + q) * 4
            store(at, keep_at_most(load(at), place, load(newest + q * 4)))
        if window > 0:
            for q in range(TILE):
                if place <= tokens[q] - float32(window):
                    values[r, q] = float32(-np.inf)


@kernel
def _weigh_block(scores, n, largest, totals, shrinks):
    """Turn scores into weights against the running maximum; returns whether a maximum rose."""
    rose = False
    for q in range(0, TILE, LANES):
        before = load(largest + q * 4)
        top = before
        for r in range(n):
            top = maximum(top, load(scores + (r * TILE + q) * 4))
        shrink = exp(subtract(before, top))
        store(shrinks + q * 4, shrink)
        total = multiply(load(totals + q * 4), shrink)
        for r in range(n):
            at = scores + (r * TILE + q) * 4
            weight = exp(subtract(load(at), top))
            store(at, weight)
            total = add(total, weight)
        store(totals + q * 4, total)
        store(largest + q * 4, top)
    factors = carray(pointer(shrinks), (TILE,), np.float32)
    for q in range(TILE):
        rose |= factors[q] != float32(1)
    return rose


@kernel
def _shrink(sums, shrinks, head_dim):
    """Scale the weighted values to the new maximum."""
    values = carray(pointer(sums), (TILE, head_dim), np.float32)
    factors = carray(pointer(shrinks), (TILE,), np.float32)
    for q in range(TILE):
        for i in range(head_dim):
            values[q, i] *= factors[q]


@kernel
def _normaliser(largest, total, sinks, g):
    """One over the sum of the weights, the query head's sink included."""
    if sinks == 0:
        return float32(1) / total
    sink = read_float(sinks + g * 4)
    if sink > largest:
        return float32(math.exp(largest - sink)) / (total * float32(math.exp(largest - sink)) + float32(1))
    return float32(1) / (total + float32(math.exp(sink - largest)))
