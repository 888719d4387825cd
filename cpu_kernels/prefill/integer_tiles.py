"""Multiply the matrices of prefill in small integers, on x86 CPUs without AMX.

A register holds twice as many int16 as f32, and four times as many bytes. One instruction multiplies int16 and adds two
neighbouring products; with VNNI one multiplies bytes, adds four of them, and adds that to a sum. So the element is a
byte with VNNI, else an int16. Neighbours whose products are added form a group, an int32: of columns of queries and
keys, of rows of weights and values.

Each query and key, and each column of the values of a block, is rounded with a scale of its own. Weights are relative
to a query's largest in the block.

- int16: no sum of products overflows 31 bits, nor any part of it, if the lengths of both vectors have a product below
  that. So a scale gives each vector a certain length, and its largest element has 13 bits or more.
- Bytes cannot overflow a sum, so the largest element becomes 127. Large columns, which keys of models have, would leave
  the others few bits: queries and keys are rotated first (rotation.py), which spreads each element over all columns.
  The instruction takes bytes without sign on its left: keys are stored with 128 added, and what that adds to scores,
  128 times the sum of a query, is subtracted again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import float32, types
from numba.core import cgutils
from numba.extending import intrinsic

from ..numba_support.compile import kernel
from ..numba_support.machine_features import HAS_AVX2, HAS_VNNI, LANES
from ..numba_support.shape import SHAPE, ShapeParts
from ..numba_support.vector import (
    INT8,
    INT16,
    INT32,
    INT64,
    VECTOR,
    Emit,
    add,
    constant,
    load,
    max_of,
    maximum,
    multiply,
    splat,
    store,
    subtract,
    sum_of,
)
from ..numba_support.views import array_at
from ..products.integers import ADDED, add_products, multiply_words
from ..products.integers import splat as splat_scalar
from .f32_tiles import TILE, TILE_ROWS, products

#: Elements of a group, whose products are added by one instruction; whether they are bytes, and their size in bits.
GROUP = 4 if HAS_VNNI else 2
OF_BYTES = GROUP == 4
_BITS = 32 // GROUP

#: What a query and a key become: their largest element, or the length of int16, so that even one with a single element
#: fits.
LARGEST_ELEMENT = 127 if OF_BYTES else 32767

#: The largest weight, and the largest element of a column of values. Or of int16 its length: 64 such weights have at
#: most 8 times the length of one.
LARGEST_WEIGHT, LARGEST_VALUE = (255, 127) if OF_BYTES else (12000, 22300)

#: Rows of a tile: as many accumulators as fit in registers. Without VNNI two instructions add to each.
INTEGER_ROWS = 4 if LANES == 16 else 6

#: Added to a number up to 2^15, it leaves the nearest integer in the lowest 16 bits of the sum.
_ROUNDING = 1.5 * 2**23

#: A smaller vector counts as 0.
_TINY = float32(np.finfo(np.float32).tiny)


def _as_integers(emit: Emit, x: Any, scale: Any) -> Any:
    """Return x * scale as integers, in the lowest 16 bits of int32; ignore the higher bits."""
    return emit.builder.bitcast(emit.fma(x, scale, emit.constant(_ROUNDING)), emit.integers)


@intrinsic
def put_integers(typing: Any, groups: Any, place: Any, x: Any, scale: Any) -> Any:
    """Return groups with integers, a vector times another, at a place in each group that was 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        emit, (groups, place, x, scale) = Emit(builder), args
        own = builder.and_(_as_integers(emit, x, scale), ir.Constant(emit.integers, [2**_BITS - 1] * LANES))
        bits = splat_scalar(builder, builder.trunc(builder.mul(place, constant(_BITS)), INT32), LANES)
        return builder.bitcast(builder.or_(builder.bitcast(groups, emit.integers), builder.shl(own, bits)), emit.vector)

    return VECTOR(VECTOR, types.int64, VECTOR, VECTOR), generate


@intrinsic
def store_key(typing: Any, x: Any, scale: Any, address: Any) -> Any:
    """Store a vector of a key, times another, as integers at an address: bytes with 128 added."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        emit, (x, scale, address) = Emit(builder), args
        element = INT8 if OF_BYTES else INT16
        own = builder.trunc(_as_integers(emit, x, scale), ir.VectorType(element, LANES))
        if OF_BYTES:
            own = builder.xor(own, ir.Constant(own.type, [ADDED] * LANES))
        place = builder.bitcast(emit.pointer(address, element), own.type.as_pointer())
        builder.store(own, place).align = 1
        return context.get_dummy_value()

    return types.void(VECTOR, VECTOR, types.int64), generate


@intrinsic
def rounded(typing: Any, x: Any, scale: Any) -> Any:
    """Return the integers, a vector times another, as f32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        emit, (x, scale) = Emit(builder), args
        half = ir.Constant(emit.integers, [16] * LANES)
        return builder.sitofp(builder.ashr(builder.shl(_as_integers(emit, x, scale), half), half), emit.vector)

    return VECTOR(VECTOR, VECTOR), generate


def _add_products(emit: Emit, left: Any, right: Any, total: Any) -> Any:
    """Add the products of each group to an int32. The vectors are typed as f32."""
    builder, elements = emit.builder, ir.VectorType(INT8 if OF_BYTES else INT16, GROUP * emit.lanes)
    left, right = (builder.bitcast(each, elements) for each in (left, right))
    total = builder.bitcast(total, emit.integers)
    if OF_BYTES:
        added = add_products(builder, total, left, right)
    else:
        added = builder.add(total, multiply_words(builder, left, right))
    return builder.bitcast(added, emit.vector)


def _as_floats(emit: Emit, total: Any) -> Any:
    """Return integer sums of products as f32."""
    return emit.builder.sitofp(emit.builder.bitcast(total, emit.integers), emit.vector)


@intrinsic
def score_integers(
    typing: Any, shape: Any, keys: Any, scales: Any, queries: Any, query_scales: Any, added: Any, n_rows: Any, out: Any
) -> Any:
    """Compute scores[r, q] = keys[r] . queries[:, q] for n_rows keys, and up to TILE_ROWS - 1 more, and TILE queries.

    Parameters
    ----------
    keys : int64
        Address of (n_rows, head_dim) integers.
    scales : int64
        Address of the scale of each key, (n_rows,) f32.
    queries : int64
        Address of (head_dim / GROUP, TILE, GROUP) integers.
    query_scales : int64
        Address of the scale of each query, (TILE,) f32.
    added : int64
        Address of the numbers that `sum_queries` stores, which are subtracted from sums of bytes, (TILE,) f32.
    out : int64
        Address of the scores, (n_rows, TILE) f32.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        shape, keys, scales, queries, query_scales, added, n_rows, out = args
        n_groups = builder.udiv(ShapeParts(builder, shape).head_dim(), constant(GROUP))

        def write_tile(first: Any, rows: int) -> None:
            def write(emit: Emit, i: int, column: Any, total: Any) -> None:
                row, floats = builder.add(first, constant(i)), _as_floats(emit, total)
                if OF_BYTES:
                    floats = builder.fsub(floats, emit.load_float(added, column))
                scale = builder.fmul(emit.splat(emit.load_scalar(scales, row)), emit.load_float(query_scales, column))
                emit.store(builder.fmul(floats, scale), out, builder.add(column, builder.mul(row, constant(TILE))))

            own, steps = _groups_at(builder, keys, builder.mul(first, n_groups)), (n_groups, constant(1))
            products(builder, own, steps, queries, n_groups, constant(TILE), write, _add_products, rows)

        if HAS_AVX2:
            _cover_rows(builder, n_rows, write_tile)
        return context.get_dummy_value()

    return types.void(SHAPE, *[types.int64] * 7), generate


@intrinsic
def value_integers(
    typing: Any,
    shape: Any,
    weights: Any,
    factors: Any,
    values: Any,
    scales: Any,
    n_groups: Any,
    n_rows: Any,
    out: Any,
) -> Any:
    """Add weighted values: out[q] += factors[q] * sum over r of weights[r, q] * values[r], for n_rows queries.

    It does the same for up to TILE_ROWS - 1 more.

    Parameters
    ----------
    weights : int64
        Address of (n_groups, TILE, GROUP) integers.
    factors : int64
        Address of a factor for each query, (n_rows,) f32.
    values : int64
        Address of (n_groups, value_dim, GROUP) integers.
    scales : int64
        Address of the scale of each column, (value_dim,) f32.
    out : int64
        Address of (n_rows, value_dim) f32.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        shape, weights, factors, values, scales, n_groups, n_rows, out = args
        value_dim = ShapeParts(builder, shape).value_dim()

        def write_tile(first: Any, rows: int) -> None:
            def write(emit: Emit, i: int, column: Any, total: Any) -> None:
                row = builder.add(first, constant(i))
                own = builder.fmul(_as_floats(emit, total), emit.splat(emit.load_scalar(factors, row)))
                place = builder.add(builder.mul(value_dim, row), column)
                before = emit.load_float(out, place)
                emit.store(emit.fma(own, emit.load_float(scales, column), before), out, place)

            own, steps = _groups_at(builder, weights, first), (constant(1), constant(TILE))
            products(builder, own, steps, values, n_groups, value_dim, write, _add_products, rows)

        if HAS_AVX2:
            _cover_rows(builder, n_rows, write_tile)
        return context.get_dummy_value()

    return types.void(SHAPE, *[types.int64] * 7), generate


def _groups_at(builder: Any, address: Any, groups: Any) -> Any:
    """Return the address of the group that lies so many groups after an address."""
    return builder.add(address, builder.shl(groups, constant(2)))


def _cover_rows(builder: Any, n_rows: Any, write_tile: Callable[[Any, int], None]) -> None:
    """Write code for tiles of INTEGER_ROWS rows, and for smaller ones of the rest: at most TILE_ROWS - 1 too many.

    `write_tile` takes the first row, LLVM int64, and the number of rows.
    """
    together = constant(math.lcm(INTEGER_ROWS, TILE_ROWS))
    stop = builder.and_(builder.add(n_rows, constant(TILE_ROWS - 1)), constant(-TILE_ROWS))
    border = builder.mul(builder.udiv(stop, together), together)
    for start, end, rows in ((constant(0), border, INTEGER_ROWS), (border, stop, TILE_ROWS)):
        with cgutils.for_range_slice(builder, start, end, constant(rows), INT64) as (first, _count):
            write_tile(first, rows)


@kernel
def whole_groups(n):
    """Return n, or the next multiple of GROUP."""
    return -(-n // GROUP) * GROUP


@kernel
def _measure(total, x):
    """Return the size of elements and of x: a sum of squares, or the largest of bytes, NaN if one is not finite."""
    if not OF_BYTES:
        return add(total, multiply(x, x))
    zero = splat(float32(0))
    return add(maximum(total, maximum(x, subtract(zero, x))), multiply(x, zero))


@kernel
def round_keys(shape, floats, n_rows, integers, scales, room):
    """Round n_rows keys of head_dim f32 to integers and a scale for each row, all at addresses.

    `room` is the address of n_rows f32.
    """
    sizes = array_at(scales, (n_rows,), np.float32)
    for r in range(n_rows):
        first, total = floats + r * shape.head_dim * 4, splat(float32(0))
        for i in range(0, shape.head_dim, LANES):
            total = _measure(total, load(first + i * 4))
        sizes[r] = max_of(total) + float32(0) * sum_of(total) if OF_BYTES else sum_of(total)
    _turn_to_scales(n_rows, LARGEST_ELEMENT, scales, room)
    factors = array_at(room, (n_rows,), np.float32)
    for r in range(n_rows):
        factor = splat(factors[r])
        for i in range(r * shape.head_dim, (r + 1) * shape.head_dim, LANES):
            store_key(load(floats + i * 4), factor, integers + i * 4 // GROUP)


@kernel
def round_columns(floats, n_rows, n_columns, size, integers, scales, room):
    """Round a matrix, n_rows of n_columns f32, to groups of rows of integers and a scale for each column, at addresses.

    n_rows is a multiple of GROUP. `size` is that of a column of integers; `room` is the address of n_columns f32, and
    receives what each column is multiplied by.
    """
    step = n_columns * 4
    for i in range(0, n_columns, LANES):
        a = b = splat(float32(0))
        for at in range(floats + i * 4, floats + i * 4 + n_rows * step, 2 * step):
            a, b = _measure(a, load(at)), _measure(b, load(at + step))
        store(scales + i * 4, _measure(a, b) if OF_BYTES else add(a, b))
    _turn_to_scales(n_columns, size, scales, room)
    for r in range(0, n_rows, GROUP):
        for i in range(0, n_columns, LANES):
            own, factor = splat(float32(0)), load(room + i * 4)
            for place in range(GROUP):
                own = put_integers(own, place, load(floats + (r + place) * step + i * 4), factor)
            store(integers + (r // GROUP * n_columns + i) * 4, own)


@kernel
def sum_queries(floats, n_rows, factors, sums):
    """Store what 128 in place of 0 in each key adds to the sums of TILE columns of n_rows f32, rounded with factors."""
    for i in range(0, TILE, LANES):
        total, factor = splat(float32(0)), load(factors + i * 4)
        for r in range(n_rows):
            total = add(total, rounded(load(floats + (r * TILE + i) * 4), factor))
        store(sums + i * 4, multiply(total, splat(float32(ADDED))))


@kernel
def _turn_to_scales(n, size, sizes_address, room):
    """Turn n sizes of vectors into scales, and store what to multiply elements by, which is their inverse."""
    sizes, factors = array_at(sizes_address, (n,), np.float32), array_at(room, (n,), np.float32)
    for i in range(n):
        own = sizes[i] if OF_BYTES else float32(math.sqrt(sizes[i]))
        factors[i] = float32(size) / max(own, _TINY)
        sizes[i] = own / float32(size) + own * float32(0)  # NaN unless it is finite: that must stay visible
