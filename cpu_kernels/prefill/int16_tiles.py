"""Multiply the matrices of prefill in int16, on x86 CPUs without AMX.

A register holds twice as many int16 as f32, and one instruction multiplies them and adds neighbouring products. No sum
of products overflows 31 bits, nor any part of it, if the lengths of both vectors have a product below that. So numbers
are rounded with a scale that gives each vector a certain length: each query and key, and each column of the values of a
block. Its largest element then has 13 bits or more. Weights are relative to a query's largest in the block.

Two neighbours of a sum form a pair, an int32: of columns of queries and keys, of rows of weights and values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import float32, types
from numba.core import cgutils
from numba.extending import intrinsic

from ..numba_support.compile import kernel
from ..numba_support.machine_features import HAS_AVX2, LANES
from ..numba_support.shape import SHAPE, ShapeParts
from ..numba_support.vector import (
    INT16,
    INT64,
    VECTOR,
    Emit,
    add,
    constant,
    load,
    multiply,
    splat,
    store,
    sum_of,
)
from ..numba_support.views import array_at
from .f32_tiles import TILE, TILE_ROWS, products

_FEATURES = llvmlite.binding.get_host_cpu_features()
_HAS_VNNI = bool(_FEATURES.get("avx512vnni" if LANES == 16 else "avxvnni"))

#: The length of a query and of a key in int16, so that even one with a single element fits.
WORDS_LENGTH = 32767

#: The largest weight, and the length of a column of values: 64 such weights have at most 8 times the length of one.
LARGEST_WEIGHT, VALUES_LENGTH = 12000, 22300

#: Rows of a tile: as many accumulators as fit in registers, because two instructions add to each.
WORD_ROWS = 4 if LANES == 16 else 6

#: Added to a number up to 2^15, it leaves the nearest integer in the lowest 16 bits of the sum.
_ROUNDING = 1.5 * 2**23

#: A shorter vector counts as 0.
_TINY = float32(np.finfo(np.float32).tiny)


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
def score_words(
    typing: Any, shape: Any, keys: Any, scales: Any, queries: Any, query_scales: Any, n_rows: Any, scores: Any
) -> Any:
    """Compute scores[r, q] = keys[r] . queries[:, q] for n_rows keys, and up to TILE_ROWS - 1 more, and TILE queries.

    Parameters
    ----------
    keys : int64
        Address of (n_rows, head_dim) int16.
    scales : int64
        Address of the scale of each key, (n_rows,) f32.
    queries : int64
        Address of (head_dim / 2, TILE, 2) int16.
    query_scales : int64
        Address of the scale of each query, (TILE,) f32.
    scores : int64
        Address of (n_rows, TILE) f32.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        shape, keys, scales, queries, query_scales, n_rows, scores = args
        n_pairs = builder.lshr(ShapeParts(builder, shape).head_dim(), constant(1))

        def write_tile(first: Any, rows: int) -> None:
            def write(emit: Emit, i: int, column: Any, total: Any) -> None:
                row = builder.add(first, constant(i))
                own = _scaled(emit, total, emit.load_scalar(scales, row), emit.load_float(query_scales, column))
                emit.store(own, scores, builder.add(column, builder.mul(row, constant(TILE))))

            own, steps = _words_at(builder, keys, builder.mul(first, n_pairs)), (n_pairs, constant(1))
            products(builder, own, steps, queries, n_pairs, constant(TILE), write, _add_pairs, rows)

        if HAS_AVX2:
            _cover_rows(builder, n_rows, write_tile)
        return context.get_dummy_value()

    return types.void(SHAPE, *[types.int64] * 6), generate


@intrinsic
def value_words(
    typing: Any,
    shape: Any,
    weights: Any,
    factors: Any,
    values: Any,
    scales: Any,
    n_pairs: Any,
    n_rows: Any,
    out: Any,
) -> Any:
    """Add weighted values: out[q] += factors[q] * sum over r of weights[r, q] * values[r], for n_rows queries.

    It does the same for up to TILE_ROWS - 1 more.

    Parameters
    ----------
    weights : int64
        Address of (n_pairs, TILE, 2) int16.
    factors : int64
        Address of a factor for each query, (n_rows,) f32.
    values : int64
        Address of (n_pairs, value_dim, 2) int16.
    scales : int64
        Address of the scale of each column, (value_dim,) f32.
    out : int64
        Address of (n_rows, value_dim) f32.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        shape, weights, factors, values, scales, n_pairs, n_rows, out = args
        value_dim = ShapeParts(builder, shape).value_dim()

        def write_tile(first: Any, rows: int) -> None:
            def write(emit: Emit, i: int, column: Any, total: Any) -> None:
                row = builder.add(first, constant(i))
                own = _scaled(emit, total, emit.load_scalar(factors, row), emit.load_float(scales, column))
                place = builder.add(builder.mul(value_dim, row), column)
                emit.store(builder.fadd(emit.load_float(out, place), own), out, place)

            own, steps = _words_at(builder, weights, first), (constant(1), constant(TILE))
            products(builder, own, steps, values, n_pairs, value_dim, write, _add_pairs, rows)

        if HAS_AVX2:
            _cover_rows(builder, n_rows, write_tile)
        return context.get_dummy_value()

    return types.void(SHAPE, *[types.int64] * 7), generate


def _words_at(builder: Any, address: Any, pairs: Any) -> Any:
    """Return the address of the pair of int16 that lies so many pairs after an address."""
    return builder.add(address, builder.shl(pairs, constant(2)))


def _cover_rows(builder: Any, n_rows: Any, write_tile: Callable[[Any, int], None]) -> None:
    """Write code for tiles of WORD_ROWS rows, and for smaller ones of the rest: at most TILE_ROWS - 1 rows too many.

    `write_tile` takes the first row, LLVM int64, and the number of rows.
    """
    together = constant(math.lcm(WORD_ROWS, TILE_ROWS))
    stop = builder.and_(builder.add(n_rows, constant(TILE_ROWS - 1)), constant(-TILE_ROWS))
    border = builder.mul(builder.udiv(stop, together), together)
    for start, end, rows in ((constant(0), border, WORD_ROWS), (border, stop, TILE_ROWS)):
        with cgutils.for_range_slice(builder, start, end, constant(rows), INT64) as (first, _count):
            write_tile(first, rows)


@kernel
def round_keys(shape, floats, n_rows, words, scales, room):
    """Round n_rows keys of head_dim f32 to int16 and a scale for each row, all at addresses.

    `room` is the address of n_rows f32.
    """
    squares = array_at(scales, (n_rows,), np.float32)
    for r in range(n_rows):
        first, total = floats + r * shape.head_dim * 4, splat(float32(0))
        for i in range(0, shape.head_dim, LANES):
            x = load(first + i * 4)
            total = add(total, multiply(x, x))
        squares[r] = sum_of(total)
    _turn_to_scales(n_rows, WORDS_LENGTH, scales, room)
    factors = array_at(room, (n_rows,), np.float32)
    for r in range(n_rows):
        factor = splat(factors[r])
        for i in range(r * shape.head_dim, (r + 1) * shape.head_dim, LANES):
            store_words(load(floats + i * 4), factor, words + i * 2)


@kernel
def round_columns(floats, n_rows, n_columns, length, words, scales, room):
    """Round a matrix, n_rows of n_columns f32, to pairs of rows of int16 and a scale for each column, at addresses.

    n_rows is even. `length` is that of a column of words; `room` is the address of n_columns f32.
    """
    step = n_columns * 4
    for i in range(0, n_columns, LANES):
        a = b = splat(float32(0))
        for at in range(floats + i * 4, floats + i * 4 + n_rows * step, 2 * step):
            even, odd = load(at), load(at + step)
            a, b = add(a, multiply(even, even)), add(b, multiply(odd, odd))
        store(scales + i * 4, add(a, b))
    _turn_to_scales(n_columns, length, scales, room)
    for r in range(0, n_rows, 2):
        for i in range(0, n_columns, LANES):
            even = floats + r * step + i * 4
            store_pairs(load(even), load(even + step), load(room + i * 4), words + (r // 2 * n_columns + i) * 4)


@kernel
def _turn_to_scales(n, length, squares_address, room):
    """Turn n sums of squares into scales, and store what to multiply elements by, which is their inverse."""
    squares, factors = array_at(squares_address, (n,), np.float32), array_at(room, (n,), np.float32)
    for i in range(n):
        own = float32(math.sqrt(squares[i]))
        factors[i] = float32(length) / max(own, _TINY)
        squares[i] = own / float32(length) + own * float32(0)  # NaN unless it is finite: that must stay visible
