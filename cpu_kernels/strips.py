"""Do the parts of prefill for a strip of queries, and for the block of keys and values that it sees.

A row of scores holds one key's scores with all queries of a strip, so that the softmax needs no sums across lanes. Both
matrix products run on register tiles: of f32 (tiles.py), or of bf16 where the CPU has AMX (amx.py). What lies where in
a thread's scratch depends on that, and only this file knows it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import float32, int64
from numba.extending import register_jitable

from .amx import (
    CONFIGURATION_BYTES,
    STRIP,
    add_strip,
    round_pairs,
    score_strip,
    split_keys,
    split_pairs,
    split_values,
    split_weights,
)
from .compile import AMX_DEPTH, LANES, kernel
from .partials import LOWEST_SCORE
from .rotation import rotate_row
from .rows import widen_stored_row
from .scores import fill
from .tiles import TILE, TILE_ROWS, score_tile, value_tile
from .vector import add, any_above, exp_difference, exp_roughly, keep_at_most, load, maximum, multiply, splat, store
from .views import array_at

#: Rows of a block of keys.
BLOCK = TILE

#: Most queries of a tile with AMX, which makes products so cheap that widening counts: more queries share it. Widening
#: a block takes as long as attending with it for so many queries.
_AMX_TILE, _WIDENING = 512, 64


@register_jitable
def most_queries(shape):
    """Return the most queries of a tile, which share the widening of a block."""
    return _AMX_TILE if shape.on_amx else TILE


@kernel
def tile_queries(shape, n_rows, n_kv_head, n_threads):
    """Return how many queries a tile has, so that threads that take tiles in turn end soonest.

    Parameters
    ----------
    shape : Shape
        Sizes of the kernel.
    n_rows : int64
        Queries of a KV head.
    n_kv_head, n_threads : int64
        KV heads of the layer, and threads.
    """
    width = strip_queries(shape)
    n_strips, most = -(-n_rows // width), most_queries(shape) // width
    best, least = most, np.iinfo(np.int64).max
    for n_tiles in range(-(-n_strips // most), n_strips + 1):
        own = -(-n_strips // n_tiles)
        turns = -(-n_kv_head * -(-n_strips // own) // n_threads)
        cost = turns * (own * width + _WIDENING)
        if cost < least:
            best, least = own, cost
    return best * width


@register_jitable
def strip_queries(shape):
    """Return the queries of a strip."""
    return STRIP if shape.on_amx else TILE


class _Scratch(NamedTuple):
    """Addresses of the parts of a thread's scratch. Of f32; with AMX queries, keys, values and weights are bf16."""

    queries: int  # strip by strip (head_dim, strip); with AMX see `split_pairs`
    keys: int  # (BLOCK, head_dim); with AMX see `split_keys`
    values: int  # (BLOCK, head_dim); with AMX see `split_values`
    widened: int  # (BLOCK, head_dim): rows to split for AMX
    sums: int  # strip by strip (strip, head_dim): weighted values of each query; with AMX (head_dim, strip)
    scores: int  # (BLOCK, strip): of a block's keys with the queries of a strip, then weights
    weights: int  # (BLOCK, strip): weights that are split for AMX
    largest: int  # (tile,): the largest score of each query so far
    totals: int  # (tile,): its sum of weights
    newest: int  # (tile,): the position of its token, the newest that it sees
    shrinks: int  # (strip,): factors that scale sums to a new largest score
    row: int  # (head_dim,): sums of one query
    configuration: int  # of AMX, as it was before
    end: int


@register_jitable
def scratch_parts(shape, scratch):
    """Return where the parts of a thread's scratch lie."""
    matrix_bytes, block_bytes = most_queries(shape) * shape.head_dim * 4, BLOCK * shape.head_dim * 4
    row_bytes, strip_bytes = most_queries(shape) * 4, BLOCK * strip_queries(shape) * 4
    keys = scratch + matrix_bytes
    values = keys + block_bytes
    widened = values + block_bytes
    sums = widened + block_bytes
    scores = sums + matrix_bytes
    weights = scores + strip_bytes
    largest = weights + strip_bytes
    totals = largest + row_bytes
    newest = totals + row_bytes
    shrinks = newest + row_bytes
    row = shrinks + strip_queries(shape) * 4
    configuration = row + shape.head_dim * 4
    end = configuration + CONFIGURATION_BYTES
    return _Scratch(
        scratch, keys, values, widened, sums, scores, weights, largest, totals, newest, shrinks, row, configuration, end
    )


@kernel
def load_queries(shape, query, n_rows, room):
    """Transpose the queries of each strip, rotated as the keys are. Those that the last one lacks are 0."""
    width, head_dim = strip_queries(shape), shape.head_dim
    for strip in range(0, n_rows, width):
        place = room.queries + strip * head_dim * 4
        floats = room.widened if shape.on_amx else place
        target = array_at(floats, (head_dim, width), np.float32)
        for r in range(width):
            if strip + r >= n_rows:
                for i in range(head_dim):
                    target[i, r] = float32(0)
                continue
            source = query + (strip + r) * head_dim * 4
            if shape.rotated:
                rotate_row(shape, source, room.row)
                source = room.row
            own = array_at(source, (head_dim,), np.float32)
            for i in range(head_dim):
                target[i, r] = own[i]
        if shape.on_amx:
            for i in range(0, head_dim, 2):
                even, highs = floats + i * STRIP * 4, place + i * STRIP * 2
                split_pairs(load(even), load(even + STRIP * 4), highs, highs + head_dim * STRIP * 2)


@kernel
def start_softmax(shape, first_row, n_rows, position, room):
    """Set the position of each query's token, and start with no row attended."""
    size = most_queries(shape)
    largest = array_at(room.largest, (size,), np.float32)
    totals = array_at(room.totals, (size,), np.float32)
    newest = array_at(room.newest, (size,), np.float32)
    for r in range(size):
        token = position + (first_row + min(r, n_rows - 1)) // shape.group
        largest[r] = float32(LOWEST_SCORE)
        totals[r] = float32(0)
        newest[r] = float32(token)
    fill(room.sums, 0, size * shape.head_dim, float32(0))


@kernel
def _widen_rows(shape, base, listed, row, n, floats):
    """Convert n rows of a span, from its row `row` on, to f32."""
    numbers = array_at(listed + row * 4, (n,), np.int32)
    for r in range(n):
        number = row + r if listed == 0 else int64(numbers[r])
        widen_stored_row(shape, base + number * shape.row_bytes, floats + r * shape.head_dim * 4)


@kernel
def load_keys(shape, base, listed, row, n, rough, room):
    """Load a block of keys."""
    if not shape.on_amx:
        _widen_rows(shape, base, listed, row, n, room.keys)
        return
    _widen_rows(shape, base, listed, row, n, room.widened)
    lows = room.keys + BLOCK * shape.head_dim * 2
    for r in range(n):  # scores of the rows after them are computed, too, and not read
        offset = r * shape.head_dim * 2
        split_keys(shape, room.widened + 2 * offset, room.keys + offset, lows + offset, rough)


@kernel
def load_values(shape, base, listed, row, n, rough, room):
    """Load a block of values."""
    if not shape.on_amx:
        _widen_rows(shape, base, listed, row, n, room.values)
        return
    _widen_rows(shape, base, listed, row, n, room.widened)
    n_steps = -(-n // AMX_DEPTH)
    fill(room.widened, n * shape.head_dim, n_steps * AMX_DEPTH * shape.head_dim, float32(0))
    split_values(shape, room.widened, room.values, n_steps, rough)


@kernel
def score_block(shape, keys, queries, n, rough, scores):
    """Compute scores[r] = keys[r] . queries for n rows of keys and the queries of a strip, all at addresses.

    It may compute some rows more, which nobody reads.
    """
    if shape.on_amx:
        score_strip(shape, keys, queries, scores, rough)
        return
    zero = splat(float32(0))
    for i in range(0, -(-n // TILE_ROWS) * TILE_ROWS * TILE, LANES):
        store(scores + i * 4, zero)
    for row in range(0, n, TILE_ROWS):
        score_tile(shape, keys + row * shape.head_dim * 4, queries, scores + row * TILE * 4)


@kernel
def mask_strip(shape, strip, n, position, window, room):
    """Set the score of a row to -inf for each query that does not see its position."""
    width, newest = strip_queries(shape), room.newest + strip * 4
    scores, positions = array_at(room.scores, (n, width), np.float32), array_at(newest, (width,), np.float32)
    for r in range(n):
        own = float32(position + r)
        for q in range(0, width, LANES):
            place = room.scores + (r * width + q) * 4
            store(place, keep_at_most(load(place), own, load(newest + q * 4)))
        if window > 0:
            for q in range(width):
                if own <= positions[q] - float32(window):
                    scores[r, q] = float32(-np.inf)


@kernel
def weigh_strip(shape, strip, n, rough, room):
    """Turn scores into weights relative to the largest score so far. Return whether any largest score rose.

    With AMX the weights are split at once, up to a step of AMX's depth, with 0 for rows that there are not.
    """
    if shape.on_amx:
        return _weigh_on_amx(shape, strip, n, rough, room)
    width, rose = strip_queries(shape), False
    highest, totals = room.largest + strip * 4, room.totals + strip * 4
    for q in range(0, width, LANES):
        before = load(highest + q * 4)
        largest = before
        for r in range(n):
            largest = maximum(largest, load(room.scores + (r * width + q) * 4))
        shrink = exp_difference(before, largest)
        store(room.shrinks + q * 4, shrink)
        total = multiply(load(totals + q * 4), shrink)
        for r in range(n):
            place = room.scores + (r * width + q) * 4
            weight = exp_difference(load(place), largest)
            store(place, weight)
            total = add(total, weight)
        store(totals + q * 4, total)
        store(highest + q * 4, largest)
    shrinks = array_at(room.shrinks, (width,), np.float32)
    for q in range(width):
        rose |= shrinks[q] != float32(1)
    return rose


@kernel
def _weigh_on_amx(shape, strip, n, rough, room):
    """Do what `weigh_strip` does with AMX, with several sums and maxima, so that none waits for the one before."""
    stop, step = -(-n // AMX_DEPTH) * AMX_DEPTH, STRIP * 4
    fill(room.scores, n * STRIP, stop * STRIP, float32(-np.inf))
    highest, totals, lows = room.largest + strip * 4, room.totals + strip * 4, room.weights + BLOCK * STRIP * 2
    before = load(highest)
    a = b = c = d = before
    for r in range(0, stop, 4):
        own = room.scores + r * step
        a, b = maximum(a, load(own)), maximum(b, load(own + step))
        c, d = maximum(c, load(own + 2 * step)), maximum(d, load(own + 3 * step))
    largest = maximum(maximum(a, b), maximum(c, d))
    shrink = exp_difference(before, largest)
    store(room.shrinks, shrink)
    store(highest, largest)
    a, b = multiply(load(totals), shrink), splat(float32(0))
    if rough:
        for r in range(0, stop, 4):
            own, target = room.scores + r * step, room.weights + r * STRIP * 2
            w, x = exp_roughly(load(own), largest), exp_roughly(load(own + step), largest)
            y, z = exp_roughly(load(own + 2 * step), largest), exp_roughly(load(own + 3 * step), largest)
            round_pairs(w, x, target)
            round_pairs(y, z, target + step)
            a, b = add(a, add(w, x)), add(b, add(y, z))
        store(totals, add(a, b))
        return any_above(largest, before)
    for r in range(0, stop, 4):
        own, target = room.scores + r * step, r * STRIP * 2
        w, x = exp_difference(load(own), largest), exp_difference(load(own + step), largest)
        y, z = exp_difference(load(own + 2 * step), largest), exp_difference(load(own + 3 * step), largest)
        split_weights(w, x, room.weights + target, lows + target)
        split_weights(y, z, room.weights + target + step, lows + target + step)
        a, b = add(a, add(w, x)), add(b, add(y, z))
    store(totals, add(a, b))
    return any_above(largest, before)


@kernel
def sum_strip(shape, n, room, largest_address, sums_address):
    """Store the largest of each query's scores with n rows, and the sum of exp(score - largest)."""
    width = strip_queries(shape)
    step = width * 4
    for q in range(0, width, LANES):
        first = room.scores + q * 4
        a = b = c = d = splat(float32(LOWEST_SCORE))
        for own in range(first, first + n // 4 * 4 * step, 4 * step):
            a, b = maximum(a, load(own)), maximum(b, load(own + step))
            c, d = maximum(c, load(own + 2 * step)), maximum(d, load(own + 3 * step))
        for own in range(first + n // 4 * 4 * step, first + n * step, step):
            a = maximum(a, load(own))
        largest = maximum(maximum(a, b), maximum(c, d))
        a = b = splat(float32(0))
        for own in range(first, first + n // 2 * 2 * step, 2 * step):
            a = add(a, exp_roughly(load(own), largest))
            b = add(b, exp_roughly(load(own + step), largest))
        if n % 2:
            a = add(a, exp_roughly(load(first + (n - 1) * step), largest))
        store(largest_address + q * 4, largest)
        store(sums_address + q * 4, add(a, b))


@kernel
def shrink_strip(shape, strip, room):
    """Scale the weighted values to the new largest scores."""
    width, head_dim = strip_queries(shape), shape.head_dim
    place, shrinks = room.sums + strip * head_dim * 4, array_at(room.shrinks, (width,), np.float32)
    if shape.on_amx:
        factors = load(room.shrinks)
        for i in range(head_dim):
            own = place + i * STRIP * 4
            store(own, multiply(load(own), factors))
        return
    sums = array_at(place, (width, head_dim), np.float32)
    for q in range(width):
        for i in range(head_dim):
            sums[q, i] *= shrinks[q]


@kernel
def add_values(shape, strip, n, n_rows, rough, room):
    """Add the weighted values of a block to the sums of a strip."""
    sums = room.sums + strip * shape.head_dim * 4
    if shape.on_amx:
        add_strip(shape, room.values, room.weights, -(-n // AMX_DEPTH), sums, rough)
        return
    for r in range(0, n_rows, TILE_ROWS):
        value_tile(shape, room.scores + r * 4, room.values, n, sums + r * shape.head_dim * 4)


@kernel
def sums_of(shape, r, room):
    """Return the address of the weighted values of query r, rotated back."""
    row = room.sums + r * shape.head_dim * 4
    if shape.on_amx:
        sums = array_at(room.sums + r // STRIP * STRIP * shape.head_dim * 4, (shape.head_dim, STRIP), np.float32)
        own = array_at(room.row, (shape.head_dim,), np.float32)
        for i in range(shape.head_dim):
            own[i] = sums[i, r % STRIP]
        row = room.row
    if shape.rotated:
        rotate_row(shape, row, row)
    return row
