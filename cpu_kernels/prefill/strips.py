"""Compute the parts of prefill for a strip of queries and a block of keys and values.

A row of scores holds one key's scores with all queries of a strip, so that the softmax needs no sums across lanes. Both
matrix products run on register tiles: of f32 (f32_tiles.py), or of bf16 if the CPU has AMX (bf16_tiles.py). If
attention is approximate anyway, they are `rough`: of one bf16 instead of two, or of integers (integer_strips.py). The
layout of a thread's scratch (tile_scratch.py) depends on that; only these files know it.
"""

from __future__ import annotations

import numpy as np
from numba import float32, int64, types

from ..attend.decode import LOWEST_SCORE
from ..layout.scores import fill
from ..layout.spans import oldest_seen
from ..numba_support.compile import kernel, late_stage
from ..numba_support.machine_features import HAS_AMX, LANES
from ..numba_support.shape import AMX_DEPTH, SHAPE
from ..numba_support.vector import (
    add,
    any_above,
    exp_difference,
    exp_roughly,
    keep_at_most,
    load,
    maximum,
    multiply,
    splat,
    store,
)
from ..numba_support.views import array_at
from ..rows.rotation import rotate_row, rotate_value
from ..rows.rows import widen_stored_row, widen_stored_value
from .bf16_tiles import STRIP, add_strip, round_pairs, score_strip, split_keys, split_pairs, split_values, split_weights
from .f32_tiles import TILE, TILE_ROWS, score_tile, value_tile
from .integer_strips import (
    add_values_integers,
    load_key_integers,
    load_query_integers,
    load_value_integers,
    score_strip_integers,
    weigh_strip_integers,
)
from .integer_tiles import OF_BYTES
from .tile_scratch import BLOCK, most_queries, scratch_parts, strip_queries


@late_stage(SHAPE, types.int64, types.int64, types.boolean, types.int64)
def load_queries(shape, query, n_rows, rough, scratch):
    """Transpose the queries of each strip, rotated as the keys are. The last strip is padded with 0."""
    room, width, head_dim = scratch_parts(shape, scratch), strip_queries(shape), shape.head_dim
    in_integers = shape.on_integers and rough
    for strip in range(0, n_rows, width):
        place = room.queries + strip * head_dim * 4
        floats = room.widened if (HAS_AMX and shape.on_amx) or in_integers else place
        target = array_at(floats, (head_dim, width), np.float32)
        for r in range(width):
            if strip + r >= n_rows:
                for i in range(head_dim):
                    target[i, r] = float32(0)
                continue
            source = query + (strip + r) * head_dim * 4
            if shape.rotated or (OF_BYTES and in_integers):
                rotate_row(shape, source, room.row)
                source = room.row
            own = array_at(source, (head_dim,), np.float32)
            for i in range(head_dim):
                target[i, r] = own[i]
        if HAS_AMX and shape.on_amx:
            for i in range(0, head_dim, 2):
                even, highs = floats + i * STRIP * 4, place + i * STRIP * 2
                split_pairs(load(even), load(even + STRIP * 4), highs, highs + head_dim * STRIP * 2)
        elif in_integers:
            load_query_integers(shape, strip, scratch)


@kernel
def start_softmax(shape, first_row, n_rows, position, room):
    """Set the position of each query's token, and start the softmax without attended rows."""
    size = most_queries(shape)
    largest = array_at(room.largest, (size,), np.float32)
    totals = array_at(room.totals, (size,), np.float32)
    newest = array_at(room.newest, (size,), np.float32)
    for r in range(size):
        token = position + (first_row + min(r, n_rows - 1)) // shape.group
        largest[r] = float32(LOWEST_SCORE)
        totals[r] = float32(0)
        newest[r] = float32(token)
    fill(room.sums, 0, size * shape.value_dim, float32(0))


@kernel
def _number(listed, row):
    """Return the number of a span's row `row`: of a run, or of a list."""
    return row if listed == 0 else int64(array_at(listed + row * 4, (1,), np.int32)[0])


@kernel
def _widen_keys(shape, base, listed, row, n, floats):
    """Convert n keys of a span, from its row `row` on, to f32."""
    for r in range(n):
        place = base + _number(listed, row + r) * shape.row_bytes
        widen_stored_row(shape, place, floats + r * shape.head_dim * 4)


@kernel
def _widen_values(shape, base, listed, row, n, floats):
    """Convert n values of a span, from its row `row` on, to f32."""
    for r in range(n):
        place = base + _number(listed, row + r) * shape.value_bytes
        widen_stored_value(shape, place, floats + r * shape.value_dim * 4)


@late_stage(SHAPE, *[types.int64] * 4, types.boolean, types.int64)
def load_keys(shape, base, listed, row, n, rough, scratch):
    """Load a block of keys."""
    room = scratch_parts(shape, scratch)
    if shape.on_integers and rough:
        _widen_keys(shape, base, listed, row, n, room.widened)
        load_key_integers(shape, n, scratch)
        return
    if not shape.on_amx:
        _widen_keys(shape, base, listed, row, n, room.keys)
        return
    _widen_keys(shape, base, listed, row, n, room.widened)
    lows = room.keys + BLOCK * shape.head_dim * 2
    for r in range(n):  # scores of the rows after them are computed, but not read
        offset = r * shape.head_dim * 2
        split_keys(shape, room.widened + 2 * offset, room.keys + offset, lows + offset, rough)


@late_stage(SHAPE, *[types.int64] * 4, types.boolean, types.int64)
def load_values(shape, base, listed, row, n, rough, scratch):
    """Load a block of values."""
    room = scratch_parts(shape, scratch)
    if shape.on_integers and rough:
        _widen_values(shape, base, listed, row, n, room.widened)
        load_value_integers(shape, n, scratch)
        return
    if not shape.on_amx:
        _widen_values(shape, base, listed, row, n, room.values)
        return
    _widen_values(shape, base, listed, row, n, room.widened)
    n_steps = -(-n // AMX_DEPTH)
    fill(room.widened, n * shape.value_dim, n_steps * AMX_DEPTH * shape.value_dim, float32(0))
    split_values(shape, room.widened, room.values, n_steps, rough)


@kernel
def score_strip_of(shape, strip, n, rough, room):
    """Compute scores[r] = keys[r] . queries for n rows of keys, and perhaps some more, which are not read."""
    if shape.on_integers and rough:
        score_strip_integers(shape, strip, n, room.queries)
        return
    score_block(shape, room.keys, room.queries + strip * shape.head_dim * 4, n, rough, room.scores)


@kernel
def score_block(shape, keys, queries, n, rough, scores):
    """Compute scores[r] = keys[r] . queries for n rows of keys and the queries of a strip, all at addresses.

    It may compute some more rows, which are not read.
    """
    if HAS_AMX and shape.on_amx:
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
        if window != 0:
            for q in range(width):
                if position + r < oldest_seen(int64(positions[q]), window):
                    scores[r, q] = float32(-np.inf)


@kernel
def weigh_strip(shape, strip, n, rough, room):
    """Turn scores into weights relative to the largest score so far. Return whether any largest score rose.

    With AMX the weights are split at once, padded with 0 to AMX's depth.
    """
    if HAS_AMX and shape.on_amx:
        return _weigh_on_amx(shape, strip, n, rough, room)
    width, rose = strip_queries(shape), False
    if shape.on_integers and rough:
        weigh_strip_integers(shape, strip, n, room.queries)
    else:
        _weigh(shape, strip, n, room)
    shrinks = array_at(room.shrinks, (width,), np.float32)
    for q in range(width):
        rose |= shrinks[q] != float32(1)
    return rose


@kernel
def _weigh(shape, strip, n, room):
    width = strip_queries(shape)
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


@kernel
def _weigh_on_amx(shape, strip, n, rough, room):
    """Do what `weigh_strip` does for AMX, with several sums and maxima, so that none waits for the one before."""
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
    width, value_dim = strip_queries(shape), shape.value_dim
    place, shrinks = room.sums + strip * value_dim * 4, array_at(room.shrinks, (width,), np.float32)
    if HAS_AMX and shape.on_amx:
        factors = load(room.shrinks)
        for i in range(value_dim):
            own = place + i * STRIP * 4
            store(own, multiply(load(own), factors))
        return
    sums = array_at(place, (width, value_dim), np.float32)
    for q in range(width):
        for i in range(value_dim):
            sums[q, i] *= shrinks[q]


@kernel
def add_values(shape, strip, n, n_rows, rough, room):
    """Add the weighted values of a block to the sums of a strip."""
    sums = room.sums + strip * shape.value_dim * 4
    if HAS_AMX and shape.on_amx:
        add_strip(shape, room.values, room.weights, -(-n // AMX_DEPTH), sums, rough)
        return
    if shape.on_integers and rough:
        add_values_integers(shape, strip, n, n_rows, room.queries)
        return
    for r in range(0, min(n_rows - strip, TILE), TILE_ROWS):
        value_tile(shape, room.scores + r * 4, room.values, n, sums + r * shape.value_dim * 4)


@kernel
def sums_of(shape, r, room):
    """Return the address of the weighted values of query r, rotated back."""
    row = room.sums + r * shape.value_dim * 4
    if HAS_AMX and shape.on_amx:
        sums = array_at(room.sums + r // STRIP * STRIP * shape.value_dim * 4, (shape.value_dim, STRIP), np.float32)
        own = array_at(room.row, (shape.value_dim,), np.float32)
        for i in range(shape.value_dim):
            own[i] = sums[i, r % STRIP]
        row = room.row
    if shape.rotated:
        rotate_value(shape, row, row)
    return row
