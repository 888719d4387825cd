"""Compute the parts of prefill in int16 (int16_tiles.py), for a strip of queries and a block of keys and values.

Each does what the function of strips.py without `_words` in its name does. All are late stages, because a prompt that
is read exactly needs none of them. `scratch` is the address of a thread's scratch (tile_scratch.py).
"""

from __future__ import annotations

import numpy as np
from numba import float32, types

from ..attend.decode import LOWEST_SCORE
from ..layout.scores import fill
from ..numba_support.compile import late_stage
from ..numba_support.machine_features import LANES
from ..numba_support.shape import SHAPE
from ..numba_support.vector import add, exp_difference, exp_roughly, load, maximum, multiply, splat, store
from .f32_tiles import TILE
from .int16_tiles import (
    LARGEST_WEIGHT,
    VALUES_LENGTH,
    WORDS_LENGTH,
    round_columns,
    round_keys,
    score_words,
    store_pairs,
    value_words,
)
from .tile_scratch import scratch_parts, strip_queries


@late_stage(SHAPE, *[types.int64] * 2)
def load_query_words(shape, strip, scratch):
    """Round the queries of a strip, which are widened."""
    room, width = scratch_parts(shape, scratch), strip_queries(shape)
    place, scales = room.queries + strip * shape.head_dim * 4, room.query_scales + strip * 4
    round_columns(room.widened, shape.head_dim, width, WORDS_LENGTH, place, scales, room.row)


@late_stage(SHAPE, *[types.int64] * 2)
def load_key_words(shape, n, scratch):
    """Round n keys, which are widened."""
    room = scratch_parts(shape, scratch)
    round_keys(shape, room.widened, n, room.keys, room.key_scales, room.row)


@late_stage(SHAPE, *[types.int64] * 2)
def load_value_words(shape, n, scratch):
    """Round n values, which are widened."""
    room, rows, columns = scratch_parts(shape, scratch), n + n % 2, shape.value_dim
    fill(room.widened, n * columns, rows * columns, float32(0))
    round_columns(room.widened, rows, columns, VALUES_LENGTH, room.values, room.value_scales, room.row)


@late_stage(SHAPE, *[types.int64] * 3)
def score_strip_words(shape, strip, n, scratch):
    """Compute scores[r] = keys[r] . queries for n rows of keys, and perhaps some more, which are not read."""
    room = scratch_parts(shape, scratch)
    queries, scales = room.queries + strip * shape.head_dim * 4, room.query_scales + strip * 4
    score_words(shape, room.keys, room.key_scales, queries, scales, n, room.scores)


@late_stage(SHAPE, *[types.int64] * 3)
def weigh_strip_words(shape, strip, n, scratch):
    """Turn scores into weights in int16, relative to the block's own largest score."""
    room, width = scratch_parts(shape, scratch), strip_queries(shape)
    step, scale = width * 4, splat(float32(LARGEST_WEIGHT))
    fill(room.scores, n * width, (n + n % 2) * width, float32(-np.inf))
    for q in range(0, width, LANES):
        first = room.scores + q * 4
        own = splat(float32(LOWEST_SCORE))
        for at in range(first, first + n * step, step):
            own = maximum(own, load(at))
        total = splat(float32(0))
        for r in range(0, n, 2):
            even, odd = exp_roughly(load(first + r * step), own), exp_roughly(load(first + (r + 1) * step), own)
            store_pairs(even, odd, scale, room.weights + (r // 2 * width + q) * 4)
            total = add(total, add(even, odd))
        highest, totals = room.largest + (strip + q) * 4, room.totals + (strip + q) * 4
        before = load(highest)
        largest = maximum(before, own)
        shrink, factor = exp_difference(before, largest), exp_difference(own, largest)
        store(room.shrinks + q * 4, shrink)
        store(room.factors + q * 4, multiply(factor, splat(float32(1 / LARGEST_WEIGHT))))
        store(totals, add(multiply(load(totals), shrink), multiply(total, factor)))
        store(highest, largest)


@late_stage(SHAPE, *[types.int64] * 4)
def add_values_words(shape, strip, n, n_rows, scratch):
    """Add the weighted values of a block to the sums of a strip."""
    room = scratch_parts(shape, scratch)
    own, sums = min(n_rows - strip, TILE), room.sums + strip * shape.value_dim * 4
    value_words(shape, room.weights, room.factors, room.values, room.value_scales, (n + 1) // 2, own, sums)


#: All of them, in the order in which a batch needs them.
WORD_STAGES = [
    load_query_words,
    load_key_words,
    load_value_words,
    score_strip_words,
    weigh_strip_words,
    add_values_words,
]
