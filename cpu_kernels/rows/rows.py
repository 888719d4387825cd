"""Read stored rows of keys and values, and compute the two sums of attention over rows: q . k and w v.

Rows have one of three formats. A key has head_dim elements, a value value_dim:
  f16 : the elements, f16
  q8_0 : the elements, int8, then one f32, the scale of the row: an element is its int8 times the scale. The row is
      rotated before it is rounded (see rotation.py). So one scale suffices, where llama.cpp has one for each 32
      elements: a few large elements, as Qwen2's keys have, spread over all.
  flat q8_0 : the same, but not rotated
  q4_0 : the elements, numbers of 4 bits, then an f16 for each 32 of them, their scale (see q4_0.py); rotated
If a value is the first part of its key (a latent shape), that row is stored once. Both parts of the key are rotated
apart, and have a scale of their own in q8_0: an f32 for the value, then one for the rest. So the value is read from the
key's row as if it stood alone, but for the place of its scales, behind the whole key.
A row may have any address. Queries of q8_0 and q4_0 keys also become int8 (see q8_0.py).

Only this file sees rotation: `load_query` rotates queries, and widening a row restores it. Sums of stored rows stay
rotated: those of `add_weighted` and `widen_stored_row`.

The sums are written in vector IR (products.py, weighted_sums.py), so that accumulators stay in registers.

A list of rows is an array of their addresses, so that scattered rows cost as much as neighbours. While a sum computes,
it prefetches the rows that come AHEAD bytes later in its list: a core that requests only what it needs next waits for
memory most of the time (see README.md). So a list continues, after the rows to sum, with rows that are needed later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from ..numba_support.compile import kernel, late_stage, layout, stage
from ..numba_support.machine_features import LANES
from ..numba_support.memory import borrow, give_back, stack_bytes, write_float
from ..numba_support.shape import NIBBLES, SHAPE, ShapeParts
from ..numba_support.vector import CACHE_LINE, HALF, INT64, Emit, constant
from ..numba_support.views import array_at
from .products import score_bytes, score_halves, score_nibbles
from .q4_0 import (
    count_last,
    last_columns,
    load_last_nibbles,
    load_nibble_query,
    load_nibbles,
    nibble_query,
    pack_row,
)
from .q8_0 import load_scale, quantise, quantise_query, quantised_query
from .rotation import rotate_row, rotate_value
from .tiles import ROWS_AT_ONCE, Sizes, for_columns
from .weighted_sums import add_bytes, add_halves, add_nibbles

#: Distance in bytes of prefetching from computing.
AHEAD = 3072

#: Most rows that a list has after the summed ones: 32 short rows of q4_0 would be too few bytes.
_MOST_AHEAD, _MOST_AHEAD_OF_NIBBLES = 32, 64

#: Rows that `dot` lists at a time, and the size of its list.
_LISTED = 64
_LIST_BYTES = 8 * (_LISTED + _MOST_AHEAD_OF_NIBBLES)


@layout
def rows_ahead(shape):
    """Return how many rows a list must have after the summed ones, for prefetching: at least 8."""
    most = _MOST_AHEAD_OF_NIBBLES if shape.of_nibbles else _MOST_AHEAD
    return min(most, max(8, AHEAD // shape.row_bytes))


def _scorer(write: Callable[..., None]) -> Any:
    """Make the intrinsic that scores the first ROWS_AT_ONCE rows of a list, by what writes it for their format."""

    @intrinsic
    def score_listed(typing: Any, shape: Any, ahead: Any, query: Any, listed: Any, scores: Any, stride: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            shape, ahead, query, listed, scores, stride = args
            emit, numbers = Emit(builder), [constant(r) for r in range(ROWS_AT_ONCE)]

            def row(r: Any) -> Any:
                return builder.load(emit.pointer(listed, INT64, r))

            _prefetch(emit, shape, [row(builder.add(ahead, r)) for r in numbers])
            write(builder, Sizes(builder, shape, query), [row(r) for r in numbers], scores, stride)
            return context.get_dummy_value()

        return types.void(SHAPE, *[types.int64] * 5), generate

    return score_listed


_score_halves, _score_bytes, _score_nibbles = (_scorer(each) for each in (score_halves, score_bytes, score_nibbles))


def _prefetch(emit: Emit, shape: Any, rows: list[Any]) -> None:
    """Prefetch rows, line by line."""
    builder = emit.builder
    n_bytes = builder.add(ShapeParts(builder, shape).row_bytes(), constant(CACHE_LINE - 1))
    with cgutils.for_range(builder, builder.lshr(n_bytes, constant(6))) as loop:
        offset = builder.mul(loop.index, constant(CACHE_LINE))
        for row in rows:
            emit.prefetch(builder.add(row, offset), CACHE_LINE)


@stage(types.void(SHAPE, *[types.int64] * 6))
def _dot_ahead(shape, ahead, query, listed, n_rows, scores, stride):
    """Do what `dot_listed` does, with a list that continues for `ahead` rows."""
    if shape.of_nibbles:
        _dot_nibbles(shape, ahead, query, listed, n_rows, scores, stride)
    elif shape.quantised:
        _dot_bytes(shape, ahead, query, listed, n_rows, scores, stride)
    else:
        for row in range(0, n_rows, ROWS_AT_ONCE):
            _score_halves(shape, ahead, query, listed + row * 8, scores + row * 4, stride)


@late_stage(SHAPE, *[types.int64] * 6)
def _dot_bytes(shape, ahead, query, listed, n_rows, scores, stride):
    """Do what `_dot_ahead` does for q8_0."""
    for row in range(0, n_rows, ROWS_AT_ONCE):
        _score_bytes(shape, ahead, query, listed + row * 8, scores + row * 4, stride)


@late_stage(SHAPE, *[types.int64] * 6)
def _dot_nibbles(shape, ahead, query, listed, n_rows, scores, stride):
    """Do what `_dot_ahead` does for q4_0."""
    for row in range(0, n_rows, ROWS_AT_ONCE):
        _score_nibbles(shape, ahead, query, listed + row * 8, scores + row * 4, stride)


@kernel
def dot_listed(shape, query, listed, n_rows, scores, stride):
    """Score listed rows: scores[g * stride + r] = query[g] . key r for each query head of the group.

    It takes ROWS_AT_ONCE rows at a time: the list must name rows, and the scores have space, up to a multiple of that.

    Parameters
    ----------
    query : int64
        Address that `load_query` returned.
    listed : int64
        Address of the addresses of the rows, int64. The list continues for `rows_ahead` rows.
    scores : int64
        Address of the scores, f32.
    stride : int64
        Elements from the scores of one query head to those of the next.
    """
    _dot_ahead(shape, rows_ahead(shape), query, listed, n_rows, scores, stride)


@stage(types.void(SHAPE, *[types.int64] * 5))
def dot(shape, query, rows, n_rows, scores, stride):
    """Score neighbouring rows: scores[g * stride + r] = query[g] . key r for each query head of the group.

    Parameters
    ----------
    query : int64
        Address that `load_query` returned.
    scores : int64
        Address of the scores, f32.
    stride : int64
        Elements from the scores of one query head to those of the next.
    """
    ahead = rows_ahead(shape) if n_rows > _LISTED else ROWS_AT_ONCE  # a few rows prefetch none
    row_bytes = shape.row_bytes
    list_address, n_bytes = stack_bytes(_LIST_BYTES), shape.group * ROWS_AT_ONCE * 4
    room = borrow(n_bytes)
    listed, last = array_at(list_address, (_LISTED + ahead,), np.int64), rows + (n_rows - 1) * row_bytes
    for first in range(0, n_rows, _LISTED):
        n, start = min(_LISTED, n_rows - first), rows + first * row_bytes
        for i in range(n + ahead):
            listed[i] = min(start + i * row_bytes, last)
        whole = n // ROWS_AT_ONCE * ROWS_AT_ONCE
        _dot_ahead(shape, ahead, query, list_address, whole, scores + first * 4, stride)
        if whole < n:  # the last rows: space for scores ends with them
            _dot_ahead(shape, ahead, query, list_address + whole * 8, n - whole, room, ROWS_AT_ONCE)
            own = array_at(room, (shape.group, ROWS_AT_ONCE), np.float32)
            for g in range(shape.group):
                target = array_at(scores + (g * stride + first + whole) * 4, (n - whole,), np.float32)
                for i in range(n - whole):
                    target[i] = own[g, i]
    give_back(room, n_bytes)


def _adder(write: Callable[..., None]) -> Any:
    """Make the intrinsic that does what `add_weighted` does, by what writes it for a format."""

    @intrinsic
    def add_rows(
        typing: Any, shape: Any, ahead: Any, weights: Any, stride: Any, listed: Any, n_rows: Any, out: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            write(builder, *args)
            return context.get_dummy_value()

        return types.void(SHAPE, *[types.int64] * 6), generate

    return add_rows


_add_halves, _add_bytes, _add_nibbles = (_adder(each) for each in (add_halves, add_bytes, add_nibbles))


@stage(types.void(SHAPE, *[types.int64] * 5))
def add_weighted(shape, weights, stride, listed, n_rows, out):
    """Add weighted rows: out[g] += sum over r of weights[g * stride + r] * value r, in stored form.

    The sums of rotated rows are rotated: `rotate_value` turns them into sums of the values.

    Parameters
    ----------
    weights : int64
        Address of the weights, f32.
    stride : int64
        Elements from the weights of one query head to those of the next.
    listed : int64
        Address of the addresses of the rows, int64. The list continues for `rows_ahead` rows.
    out : int64
        Address of (group, value_dim) f32.
    """
    if shape.of_nibbles:
        _add_weighted_nibbles(shape, weights, stride, listed, n_rows, out)
    elif shape.quantised:
        _add_weighted_bytes(shape, weights, stride, listed, n_rows, out)
    else:
        _add_halves(shape, rows_ahead(shape), weights, stride, listed, n_rows, out)


@late_stage(SHAPE, *[types.int64] * 5)
def _add_weighted_bytes(shape, weights, stride, listed, n_rows, out):
    """Do what `add_weighted` does for q8_0."""
    _add_bytes(shape, rows_ahead(shape), weights, stride, listed, n_rows, out)


@late_stage(SHAPE, *[types.int64] * 5)
def _add_weighted_nibbles(shape, weights, stride, listed, n_rows, out):
    """Do what `add_weighted` does for q4_0."""
    _add_nibbles(shape, rows_ahead(shape), weights, stride, listed, n_rows, out)


@intrinsic
def _widen_halves(typing: Any, n: Any, row: Any, floats: Any) -> Any:
    """Convert the first n elements of an f16 row to f32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        n, row, floats = args
        for_columns(builder, n, lambda emit, column: emit.store(emit.load_half(row, column), floats, column))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), generate


@intrinsic
def _widen_codes(typing: Any, shape: Any, row: Any, start: Any, stop: Any, n: Any, scale: Any, floats: Any) -> Any:
    """Convert the elements `start` to `stop` of a row of q8_0 or q4_0 to f32, in stored form.

    `n` is the row's number of elements, and `scale` the number of the scale of these elements, if they are of q8_0.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        shape, row, start, stop, n, scale, floats = args
        parts = ShapeParts(builder, shape)
        with builder.if_else(parts.of_nibbles()) as (nibbles, bytes_):
            with nibbles:
                _widen_nibbles(builder, start, stop, n, row, floats)
            with bytes_:
                factor = load_scale(Emit(builder), n, row, scale)

                def widen_bytes(emit: Emit, column: Any) -> None:
                    column = builder.add(start, column)
                    emit.store(builder.fmul(emit.load_int8(row, column), emit.splat(factor)), floats, column)

                for_columns(builder, builder.sub(stop, start), widen_bytes)
        return context.get_dummy_value()

    return types.void(SHAPE, *[types.int64] * 6), generate


def _widen_nibbles(builder: Any, start: Any, stop: Any, n: Any, row: Any, floats: Any) -> None:
    """Write the conversion of a row of q4_0, from a whole block on."""
    emit, four, first = Emit(builder), Emit(builder, 4), builder.lshr(start, constant(5))
    with cgutils.for_range(builder, builder.sub(builder.lshr(stop, constant(5)), first)) as loop:
        block = builder.add(first, loop.index)
        column = builder.mul(block, constant(NIBBLES))
        for i, vector in enumerate(load_nibbles(emit, n, row, block)):
            emit.store(vector, floats, builder.add(column, constant(i * LANES)))
    with cgutils.for_range(builder, count_last(builder, stop)) as loop:
        places = last_columns(builder, n, loop.index)
        for place, vector in zip(places, load_last_nibbles(four, n, row, loop.index), strict=True):
            four.store(vector, floats, place)


@kernel
def widen_stored_row(shape, row, floats):
    """Convert a key to f32 in stored form: it stays rotated. It takes the parameters of `widen_row`."""
    if shape.quantised:
        _widen_quantised(shape, row, shape.head_dim, shape.head_dim, floats)
    else:
        _widen_halves(shape.head_dim, row, floats)


@late_stage(SHAPE, *[types.int64] * 4)
def _widen_quantised(shape, row, n_stored, n, floats):
    """Convert the first n of a row's n_stored elements, a key or a value of q8_0 or q4_0, to f32 in stored form."""
    start, stop = 0, shape.value_dim if shape.latent else n
    while start < n:
        _widen_codes(shape, row, start, stop, n_stored, int64(start > 0), floats)
        start, stop = stop, n


@kernel
def widen_row(shape, row, floats):
    """Convert a stored key to f32.

    Parameters
    ----------
    row : int64
        Address of the row.
    floats : int64
        Address of head_dim f32.
    """
    widen_stored_row(shape, row, floats)
    if shape.rotated:
        rotate_row(shape, floats, floats)


@kernel
def widen_stored_value(shape, row, floats):
    """Convert a value to f32 in stored form: it stays rotated. It takes the parameters of `widen_value`."""
    if shape.quantised:
        _widen_quantised(shape, row, shape.value_elements, shape.value_dim, floats)
    else:
        _widen_halves(shape.value_dim, row, floats)


@kernel
def widen_value(shape, row, floats):
    """Convert a stored value to f32.

    Parameters
    ----------
    row : int64
        Address of the value.
    floats : int64
        Address of value_dim f32.
    """
    widen_stored_value(shape, row, floats)
    if shape.rotated:
        rotate_value(shape, floats, floats)


@intrinsic
def narrow_row(typing: Any, shape: Any, floats: Any, row: Any) -> Any:
    """Store head_dim f32 as f16.

    Parameters
    ----------
    floats : int64
        Address of head_dim f32.
    row : int64
        Address of head_dim f16, which are written.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        shape, floats, row = args

        def narrow(emit: Emit, column: Any) -> None:
            halves = ir.VectorType(HALF, emit.lanes)
            place = builder.bitcast(emit.pointer(row, HALF, column), halves.as_pointer())
            builder.store(builder.fptrunc(emit.load_float(floats, column), halves), place).align = 2

        for_columns(builder, ShapeParts(builder, shape).head_dim(), narrow)
        return context.get_dummy_value()

    return types.void(SHAPE, types.int64, types.int64), generate


@layout
def query_bytes(shape):
    """Return the bytes that `load_query` needs to work in; 0 for f16 keys."""
    if not shape.quantised:
        return 0
    return nibble_query(shape, 0).end if shape.of_nibbles else quantised_query(shape, 0).end


@kernel
def load_query(shape, query, room):
    """Convert a group's query for multiplication by `dot` and `dot_listed`.

    Parameters
    ----------
    query : int64
        Address of (group, head_dim) f32.
    room : int64
        Address of `query_bytes` bytes.

    Returns
    -------
    int64
        Address of the converted query: `query` itself for f16 keys, else `room`.
    """
    if not shape.quantised:
        return query
    if shape.of_nibbles:
        load_nibble_query(shape, query, room)
    else:
        quantise_query(shape, query, room)
    return room


@late_stage(SHAPE, types.int64, types.int64)
def quantise_halves(shape, halves, row):
    """Convert a row of f16 to a key of q8_0 or q4_0.

    Parameters
    ----------
    shape : Shape
        Sizes of the kernel, with kv_type Q8_0 or Q4_0.
    halves : int64
        Address of head_dim f16.
    row : int64
        Address of the row, row_bytes bytes.
    """
    floats = borrow(4 * shape.head_dim)
    widen_row(shape.of_halves, halves, floats)
    _quantise_row(shape, floats, row)
    give_back(floats, 4 * shape.head_dim)


@kernel
def _quantise_row(shape, floats, row):
    """Convert a row of f32, which may change, to a key of q8_0 or q4_0."""
    if shape.of_nibbles:
        pack_row(shape, floats, row)
        return
    if shape.rotated:
        rotate_row(shape, floats, floats)
    start, stop = 0, shape.value_dim if shape.latent else shape.head_dim
    while start < shape.head_dim:
        scale = row + shape.head_dim + 4 * int64(start > 0)
        write_float(scale, quantise(stop - start, floats + start * 4, row + start))
        start, stop = stop, shape.head_dim


@kernel
def convert_rows(shape, rows, n_rows, other, target):
    """Convert neighbouring keys of any format to keys of q8_0 or q4_0, whose shape is `other`, at another address."""
    floats = borrow(4 * shape.head_dim)
    for r in range(n_rows):
        widen_row(shape, rows + r * shape.row_bytes, floats)
        _quantise_row(other, floats, target + r * other.row_bytes)
    give_back(floats, 4 * shape.head_dim)
