"""Compute the parts of prefill in integers (integer_tiles.py), for a strip of queries and a block of keys and values.

Each does what the function of strips.py without `_integers` in its name does. All are late stages, because a prompt
that is read exactly needs none of them. `scratch` is the address of a thread's scratch (tile_scratch.py).
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
from ..rows.rotation import rotate_row
from .f32_tiles import TILE
from .integer_tiles import (
    GROUP,
    LARGEST_ELEMENT,
    LARGEST_VALUE,
    LARGEST_WEIGHT,
    OF_BYTES,
    put_integers,
    round_columns,
    round_keys,
    score_integers,
    sum_queries,
    value_integers,
    whole_groups,
)
from .tile_scratch import scratch_parts, strip_queries


@late_stage(SHAPE, *[types.int64] * 2)
def load_query_integers(shape, strip, scratch):
    """Round the queries of a strip, which are widened."""
    room, width = scratch_parts(shape, scratch), strip_queries(shape)
    place, scales = room.queries + strip * shape.head_dim * 4, room.query_scales + strip * 4
    round_columns(room.widened, shape.head_dim, width, LARGEST_ELEMENT, place, scales, room.row)
    if OF_BYTES:
        sum_queries(room.widened, shape.head_dim, room.row, room.query_sums + strip * 4)


@late_stage(SHAPE, *[types.int64] * 2)
def load_key_integers(shape, n, scratch):
    """Round n keys, which are widened, to bytes as rotated ones."""
    room = scratch_parts(shape, scratch)
    if OF_BYTES and not shape.rotated:
        for row in range(room.widened, room.widened + n * shape.head_dim * 4, shape.head_dim * 4):
            rotate_row(shape, row, row)
    round_keys(shape, room.widened, n, room.keys, room.key_scales, room.row)


@late_stage(SHAPE, *[types.int64] * 2)
def load_value_integers(shape, n, scratch):
    """Round n values, which are widened."""
    room, rows, columns = scratch_parts(shape, scratch), whole_groups(n), shape.value_dim
    fill(room.widened, n * columns, rows * columns, float32(0))
    round_columns(room.widened, rows, columns, LARGEST_VALUE, room.values, room.value_scales, room.row)


@late_stage(SHAPE, *[types.int64] * 3)
def score_strip_integers(shape, strip, n, scratch):
    """Compute scores[r] = keys[r] . queries for n rows of keys, and perhaps some more, which are not read."""
    room = scratch_parts(shape, scratch)
    queries, scales = room.queries + strip * shape.head_dim * 4, room.query_scales + strip * 4
    score_integers(shape, room.keys, room.key_scales, queries, scales, room.query_sums + strip * 4, n, room.scores)


@late_stage(SHAPE, *[types.int64] * 3)
def weigh_strip_integers(shape, strip, n, scratch):
    """Turn scores into weights in integers, relative to the block's own largest score."""
    room, width = scratch_parts(shape, scratch), strip_queries(shape)
    step, scale = width * 4, splat(float32(LARGEST_WEIGHT))
    fill(room.scores, n * width, whole_groups(n) * width, float32(-np.inf))
    for q in range(0, width, LANES):
        first = room.scores + q * 4
        own = splat(float32(LOWEST_SCORE))
        for at in range(first, first + n * step, step):
            own = maximum(own, load(at))
        total = splat(float32(0))
        for r in range(0, n, GROUP):
            group = splat(float32(0))
            for place in range(GROUP):
                weight = exp_roughly(load(first + (r + place) * step), own)
                group = put_integers(group, place, weight, scale)
                total = add(total, weight)
            store(room.weights + (r // GROUP * width + q) * 4, group)
        highest, totals = room.largest + (strip + q) * 4, room.totals + (strip + q) * 4
        before = load(highest)
        largest = maximum(before, own)
        shrink, factor = exp_difference(before, largest), exp_difference(own, largest)
        store(room.shrinks + q * 4, shrink)
        store(room.factors + q * 4, multiply(factor, splat(float32(1 / LARGEST_WEIGHT))))
        store(totals, add(multiply(load(totals), shrink), multiply(total, factor)))
        store(highest, largest)


@late_stage(SHAPE, *[types.int64] * 4)
def add_values_integers(shape, strip, n, n_rows, scratch):
    """Add the weighted values of a block to the sums of a strip."""
    room = scratch_parts(shape, scratch)
    own, sums = min(n_rows - strip, TILE), room.sums + strip * shape.value_dim * 4
    value_integers(
        shape, room.weights, room.factors, room.values, room.value_scales, whole_groups(n) // GROUP, own, sums
    )


#: All of them, in the order in which a batch needs them.
INTEGER_STAGES = [
    load_query_integers,
    load_key_integers,
    load_value_integers,
    score_strip_integers,
    weigh_strip_integers,
    add_values_integers,
]
