"""Multiply the matrices of rough prefill in int16, on x86 CPUs without AMX.

A register holds twice as many int16 as f32, and one instruction multiplies them and adds neighbouring products. So
numbers are rounded, to 12 or 13 bits, so that no sum overflows: queries and keys with a scale for each row, values with
one for each column of a block, and weights relative to a query's largest in the block.

Two neighbours of a sum form a pair, an int32: of columns of queries and keys, of rows of weights and values.
"""

from __future__ import annotations

import math
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import float32, int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from ..numba_support.compile import kernel, layout
from ..numba_support.machine_features import HAS_AVX2, LANES
from ..numba_support.shape import SHAPE, ShapeParts
from ..numba_support.vector import (
    INT16,
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
from .f32_tiles import TILE, products

_FEATURES = llvmlite.binding.get_host_cpu_features()
_HAS_VNNI = bool(_FEATURES.get("avx512vnni" if LANES == 16 else "avxvnni"))

#: The largest integers for weights and values: 64 of their products fit in 31 bits.
LARGEST_WEIGHT, LARGEST_VALUE = 8191, 4095

#: Added to a number up to 2^15, it leaves the nearest integer in the lowest 16 bits of the sum.
_ROUNDING = 1.5 * 2**23

#: A smaller largest number counts as 0.
_TINY = float32(np.finfo(np.float32).tiny)


@layout
def largest_word(shape):
    """Return the largest element of queries and keys: head_dim products fit in 31 bits."""
    return int64(math.sqrt((2**31 - 1) // shape.head_dim))


def _as_words(emit: Emit, x: Any, scale: Any) -> Any:
    """Return x * scale as integers, in the lowest 16 bits of int32; ignore the higher bits."""
    return emit.builder.bitcast(emit.fma(x, scale, emit.constant(_ROUNDING)), emit.integers)


@intrinsic
def store_pairs(typing: Any, even: Any, odd: Any, scale: Any, address: Any) -> Any:
    """Store two vectors, times a third, as pairs of int16 at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        emit, (even, odd, scale, address) = Emit(builder), args
        low = builder.and_(_as_words(emit, even, scale), ir.Constant(emit.integers, [0xFFFF] * LANES))
        high = builder.shl(_as_words(emit, odd, scale), ir.Constant(emit.integers, [16] * LANES))
        emit.store(builder.bitcast(builder.or_(low, high), emit.vector), address)
        return context.get_dummy_value()

    return types.void(VECTOR, VECTOR, VECTOR, types.int64), generate


@intrinsic
def store_words(typing: Any, x: Any, scale: Any, address: Any) -> Any:
    """Store a vector, times another, as int16 at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        emit, (x, scale, address) = Emit(builder), args
        words = builder.trunc(_as_words(emit, x, scale), ir.VectorType(INT16, LANES))
        place = builder.bitcast(emit.pointer(address, INT16), words.type.as_pointer())
        builder.store(words, place).align = 2
        return context.get_dummy_value()

    return types.void(VECTOR, VECTOR, types.int64), generate


def _add_pairs(emit: Emit, left: Any, right: Any, total: Any) -> Any:
    """Add both products of each pair of int16 to an int32. The vectors are typed as f32."""
    builder, integers = emit.builder, emit.integers
    left, right, total = (builder.bitcast(each, integers) for each in (left, right, total))
    if _HAS_VNNI:
        signature = ir.FunctionType(integers, [integers] * 3)
        name = f"llvm.x86.avx512.vpdpwssd.{32 * emit.lanes}"
        added = builder.call(cgutils.get_or_insert_function(builder.module, signature, name), [total, left, right])
    else:
        words = ir.VectorType(INT16, 2 * emit.lanes)
        name = "llvm.x86.avx512.pmaddw.d.512" if emit.lanes == 16 else "llvm.x86.avx2.pmadd.wd"
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(integers, [words] * 2), name)
        added = builder.add(total, builder.call(function, [builder.bitcast(each, words) for each in (left, right)]))
    return builder.bitcast(added, emit.vector)


def _scaled(emit: Emit, total: Any, left_scale: Any, right_scale: Any) -> Any:
    """Return integer sums of products as f32, times the scale of the row on the left and those of the columns."""
    builder = emit.builder
    floats = builder.sitofp(builder.bitcast(total, emit.integers), emit.vector)
    return builder.fmul(builder.fmul(floats, emit.splat(left_scale)), right_scale)


@intrinsic
def score_words(typing: Any, shape: Any, keys: Any, scales: Any, queries: Any, query_scales: Any, scores: Any) -> Any:
    """Compute scores[r, q] = keys[r] . queries[:, q] for TILE_ROWS keys and TILE queries.

    Parameters
    ----------
    keys : int64
        Address of (TILE_ROWS, head_dim) int16.
    scales : int64
        Address of the scale of each key, (TILE_ROWS,) f32.
    queries : int64
        Address of (head_dim / 2, TILE, 2) int16.
    query_scales : int64
        Address of the scale of each query, (TILE,) f32.
    scores : int64
        Address of (TILE_ROWS, TILE) f32.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        shape, keys, scales, queries, query_scales, scores = args
        n_pairs = builder.lshr(ShapeParts(builder, shape).head_dim(), constant(1))

        def write(emit: Emit, i: int, column: Any, total: Any) -> None:
            own = _scaled(emit, total, emit.load_scalar(scales, i), emit.load_float(query_scales, column))
            emit.store(own, scores, builder.add(column, constant(i * TILE)))

        if HAS_AVX2:
            steps = (n_pairs, constant(1))
            products(builder, keys, steps, queries, n_pairs, constant(TILE), write, _add_pairs)
        return context.get_dummy_value()

    return types.void(SHAPE, *[types.int64] * 5), generate


@intrinsic
def value_words(
    typing: Any, shape: Any, weights: Any, factors: Any, values: Any, scales: Any, n_pairs: Any, out: Any
) -> Any:
    """Add weighted values: out[q] += factors[q] * sum over r of weights[r, q] * values[r] for TILE_ROWS queries.

    Parameters
    ----------
    weights : int64
        Address of the first of these queries in the first pair of rows of (n_pairs, TILE, 2) int16.
    factors : int64
        Address of a factor for each query, (TILE_ROWS,) f32.
    values : int64
        Address of (n_pairs, value_dim, 2) int16.
    scales : int64
        Address of the scale of each column, (value_dim,) f32.
    out : int64
        Address of (TILE_ROWS, value_dim) f32.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        shape, weights, factors, values, scales, n_pairs, out = args
        value_dim = ShapeParts(builder, shape).value_dim()

        def write(emit: Emit, i: int, column: Any, total: Any) -> None:
            own = _scaled(emit, total, emit.load_scalar(factors, i), emit.load_float(scales, column))
            place = builder.add(builder.mul(value_dim, constant(i)), column)
            emit.store(builder.fadd(emit.load_float(out, place), own), out, place)

        if HAS_AVX2:
            steps = (constant(1), constant(TILE))
            products(builder, weights, steps, values, n_pairs, value_dim, write, _add_pairs)
        return context.get_dummy_value()

    return types.void(SHAPE, *[types.int64] * 6), generate


@kernel
def round_keys(shape, floats, n_rows, words, scales):
    """Round n_rows keys of head_dim f32 to int16 and a scale for each row, all at addresses."""
    own, zero = array_at(scales, (n_rows,), np.float32), splat(float32(0))
    for r in range(n_rows):
        first, largest, nothing = floats + r * shape.head_dim * 4, zero, zero
        for i in range(0, shape.head_dim, LANES):
            x = load(first + i * 4)
            largest, nothing = maximum(largest, _absolute(x)), add(nothing, multiply(x, zero))
        most = max_of(largest)
        own[r] = most / float32(largest_word(shape)) + sum_of(nothing)  # 0, or NaN, which must stay visible
        factor = splat(float32(largest_word(shape)) / max(most, _TINY))
        for i in range(0, shape.head_dim, LANES):
            store_words(load(first + i * 4), factor, words + (r * shape.head_dim + i) * 2)


@kernel
def round_columns(floats, n_rows, n_columns, largest_word, words, scales, room):
    """Round a matrix, n_rows of n_columns f32, to pairs of rows of int16 and a scale for each column, at addresses.

    n_rows is even. `room` is the address of n_columns f32.
    """
    own, factors = array_at(scales, (n_columns,), np.float32), array_at(room, (n_columns,), np.float32)
    zero, step = splat(float32(0)), n_columns * 4
    for i in range(0, n_columns, LANES):
        largest = nothing = zero
        for at in range(floats + i * 4, floats + i * 4 + n_rows * step, step):
            x = load(at)
            largest, nothing = maximum(largest, _absolute(x)), add(nothing, multiply(x, zero))
        store(scales + i * 4, largest)
        store(room + i * 4, nothing)
    for i in range(n_columns):
        most, nothing = own[i], factors[i]
        own[i], factors[i] = most / float32(largest_word) + nothing, float32(largest_word) / max(most, _TINY)
    for r in range(0, n_rows, 2):
        for i in range(0, n_columns, LANES):
            even = floats + r * step + i * 4
            store_pairs(load(even), load(even + step), load(room + i * 4), words + (r // 2 * n_columns + i) * 4)


@kernel
def _absolute(x):
    """Return the absolute values of a vector."""
    return maximum(x, subtract(splat(float32(0)), x))
