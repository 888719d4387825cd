"""Multiply the matrices of prefill on Intel's AMX tiles, at the accuracy of f32.

AMX multiplies bf16 and sums in f32. A bf16 has 8 of the 24 bits of an f32. So each number is split into two: `high`,
its upper half, and `low`, the rest. Three products of halves make one product of numbers; the fourth, of both lows, is
negligible. If attention is approximate anyway, the product of both highs suffices: then `rough` is true.

A tile is 16 rows of 64 bytes. It adds left . right: `left` is (16, 32) bf16, and `right` is (32, 16) bf16 with pairs of
rows interleaved: (16, 16, 2). Queries are columns: a strip of STRIP queries is as wide as a tile, and as a vector of
f32. Values must be transposed for that; keys need not be.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..numba_support.amx import ROW_BYTES, TILE_ROWS, call_amx, if_amx, load_tile, paired, rounded_pairs, store_tile
from ..numba_support.machine_features import LANES
from ..numba_support.shape import AMX_DEPTH as DEPTH
from ..numba_support.shape import SHAPE, ShapeParts
from ..numba_support.vector import INT8, INT16, VECTOR, Emit, constant, cover_evenly

#: Queries of a strip.
STRIP = TILE_ROWS

#: Tiles for sums; and tiles for the operands of one product, of which two alternate on the left.
_SUMS, _LEFT, _RIGHT = 4, (4, 5), (6, 7)


def _add_products(builder: Any, n: int, left: list[Any], step: Any, right: list[Any]) -> None:
    """Add to n sums the products of n tiles on the left with one on the right: all of their halves, or only the highs.

    Sums alternate, so that no product waits for the one before.

    Parameters
    ----------
    n : int
        Sums, at most _SUMS.
    left : list of LLVM int64
        Address of the first tile of highs, and of that of lows. The rows of the next tile follow.
    step : LLVM int64
        Bytes to the next row on the left.
    right : list of LLVM int64
        Address of the tile of highs, and of that of lows.
    """
    for half, address in enumerate(right):
        load_tile(builder, _RIGHT[half], address)
    turn = 0
    for left_half, right_half in ((0, 0), (0, 1), (1, 0))[: 1 if len(right) == 1 else 3]:
        for i in range(n):
            load_tile(builder, _LEFT[turn], left[left_half], builder.mul(step, constant(i * STRIP)), step)
            call_amx(builder, "tdpbf16ps", i, _LEFT[turn], _RIGHT[right_half])
            turn = 1 - turn


def _halves(builder: Any, rough: Any) -> Iterator[int]:
    """Branch on whether the product is rough; yield the number of halves that each branch multiplies."""
    with builder.if_else(rough) as (then, otherwise):
        with then:
            yield 1
        with otherwise:
            yield 2


@intrinsic
def score_strip(typing: Any, shape: Any, keys: Any, queries: Any, scores: Any, rough: Any) -> Any:
    """Compute scores[r, q] = keys[r] . queries[q] for the queries of a strip.

    Parameters
    ----------
    keys : int64
        Address of (2, rows of a block, head_dim) bf16, highs and lows (see `split_keys`).
    queries : int64
        Address of (2, head_dim / 2, STRIP, 2) bf16, highs and lows (see `split_pairs`).
    scores : int64
        Address of (rows of a block, STRIP) f32.
    rough : bool
        Whether to multiply highs only.
    """

    def write(builder: Any, shape: Any, keys: Any, queries: Any, scores: Any, rough: Any) -> None:
        row_bytes = builder.shl(ShapeParts(builder, shape).head_dim(), constant(1))
        n_steps = builder.udiv(row_bytes, constant(2 * DEPTH))
        lows = builder.mul(row_bytes, constant(_SUMS * STRIP)), builder.mul(row_bytes, constant(STRIP))
        for i in range(_SUMS):
            call_amx(builder, "tilezero", i)
        for n in _halves(builder, rough):
            with cgutils.for_range(builder, n_steps) as loop:
                key = builder.add(keys, builder.mul(loop.index, constant(2 * DEPTH)))
                query = builder.add(queries, builder.mul(loop.index, constant(2 * DEPTH * STRIP)))
                left, right = [key, builder.add(key, lows[0])], [query, builder.add(query, lows[1])]
                _add_products(builder, _SUMS, left[:n], row_bytes, right[:n])
        for i in range(_SUMS):
            store_tile(builder, i, scores, i * STRIP * ROW_BYTES)

    return types.void(SHAPE, types.int64, types.int64, types.int64, types.boolean), if_amx(write)


@intrinsic
def add_strip(typing: Any, shape: Any, values: Any, weights: Any, n_steps: Any, sums: Any, rough: Any) -> Any:
    """Add weighted values for the queries of a strip: sums[:, q] += sum over r of weights[r, q] * values[r].

    Parameters
    ----------
    values : int64
        Address of (2, value_dim, rows of a block) bf16, highs and lows (see `split_values`).
    weights : int64
        Address of (2, rows of a block / 2, STRIP, 2) bf16, highs and lows (see `split_pairs`).
    n_steps : int64
        Steps of DEPTH rows.
    sums : int64
        Address of (value_dim, STRIP) f32.
    rough : bool
        Whether to multiply highs only.
    """

    def write(builder: Any, shape: Any, values: Any, weights: Any, n_steps: Any, sums: Any, rough: Any) -> None:
        value_dim, rows = ShapeParts(builder, shape).value_dim(), _SUMS * STRIP
        lows = builder.mul(value_dim, constant(2 * rows)), constant(rows // 2 * ROW_BYTES)

        def write_tiles(start: Any, n_tiles: int) -> None:
            first = builder.add(values, builder.mul(start, constant(STRIP * 2 * rows)))
            own = builder.add(sums, builder.mul(start, constant(STRIP * ROW_BYTES)))
            for i in range(n_tiles):
                load_tile(builder, i, own, i * STRIP * ROW_BYTES)
            for n in _halves(builder, rough):
                with cgutils.for_range(builder, n_steps) as loop:
                    value = builder.add(first, builder.mul(loop.index, constant(2 * DEPTH)))
                    weight = builder.add(weights, builder.mul(loop.index, constant(2 * DEPTH * STRIP)))
                    left, right = [value, builder.add(value, lows[0])], [weight, builder.add(weight, lows[1])]
                    _add_products(builder, n_tiles, left[:n], constant(2 * rows), right[:n])
            for i in range(n_tiles):
                store_tile(builder, i, own, i * STRIP * ROW_BYTES)

        cover_evenly(builder, builder.udiv(value_dim, constant(STRIP)), _SUMS, write_tiles)

    return types.void(SHAPE, types.int64, types.int64, types.int64, types.int64, types.boolean), if_amx(write)


def _split(emit: Emit, x: Any) -> tuple[Any, Any]:
    """Split a vector of f32 into its bf16 part and the rest. The upper halves of both count. A NaN stays."""
    builder, bits = emit.builder, emit.builder.bitcast(x, emit.integers)
    half = ir.Constant(emit.integers, [1 << 15] * emit.lanes)  # rounds, but may turn a NaN into a number
    rounded = builder.select(builder.fcmp_unordered("uno", x, x), bits, builder.add(bits, half))
    upper = builder.and_(rounded, ir.Constant(emit.integers, [0xFFFF0000] * emit.lanes))
    high = builder.bitcast(upper, emit.vector)
    low = builder.add(builder.bitcast(builder.fsub(x, high), emit.integers), half)
    return high, builder.bitcast(low, emit.vector)


def _store(emit: Emit, value: Any, address: Any, offset: int | Any) -> None:
    """Store a vector of integers at an address and an offset in bytes."""
    place = emit.builder.bitcast(emit.pointer(address, INT8, offset), value.type.as_pointer())
    emit.builder.store(value, place).align = 2


@intrinsic
def split_keys(typing: Any, shape: Any, floats: Any, highs: Any, lows: Any, rough: Any) -> Any:
    """Split head_dim f32 into bf16: highs and, unless `rough`, lows, at addresses."""

    def write(builder: Any, shape: Any, floats: Any, highs: Any, lows: Any, rough: Any) -> None:
        emit, head_dim = Emit(builder), ShapeParts(builder, shape).head_dim()
        words = ir.VectorType(INT16, 2 * LANES)
        odd = list(range(1, 4 * LANES, 2))
        for n in _halves(builder, rough):
            with cgutils.for_range_slice(builder, constant(0), head_dim, constant(2 * LANES)) as (column, _count):
                columns = column, builder.add(column, constant(LANES))
                both = [_split(emit, emit.load_float(floats, each))[:n] for each in columns]
                for vectors, target in zip(zip(*both, strict=True), (highs, lows), strict=False):
                    x, y = (builder.bitcast(vector, words) for vector in vectors)
                    _store(emit, emit.shuffle(x, y, odd), target, builder.shl(column, constant(1)))

    return types.void(SHAPE, types.int64, types.int64, types.int64, types.boolean), if_amx(write)


@intrinsic
def split_pairs(typing: Any, even: Any, odd: Any, highs: Any, lows: Any) -> Any:
    """Split two vectors of f32 into bf16, and interleave them: highs and lows, at addresses."""

    def write(builder: Any, even: Any, odd: Any, highs: Any, lows: Any) -> None:
        emit = Emit(builder)
        for x, y, target in zip(_split(emit, even), _split(emit, odd), (highs, lows), strict=True):
            _store(emit, paired(emit, x, y), target, 0)

    return types.void(VECTOR, VECTOR, types.int64, types.int64), if_amx(write)


@intrinsic
def split_weights(typing: Any, even: Any, odd: Any, highs: Any, lows: Any) -> Any:
    """Split weights as in `split_pairs`, but truncate them: a sum of weights cannot hide a NaN."""

    def write(builder: Any, even: Any, odd: Any, highs: Any, lows: Any) -> None:
        emit = Emit(builder)
        mask = ir.Constant(emit.integers, [0xFFFF0000] * emit.lanes)
        _store(emit, paired(emit, even, odd), highs, 0)
        left = [
            builder.fsub(x, builder.bitcast(builder.and_(builder.bitcast(x, emit.integers), mask), emit.vector))
            for x in (even, odd)
        ]
        _store(emit, paired(emit, *left), lows, 0)

    return types.void(VECTOR, VECTOR, types.int64, types.int64), if_amx(write)


@intrinsic
def round_pairs(typing: Any, even: Any, odd: Any, highs: Any) -> Any:
    """Round two vectors of f32 to bf16, and interleave them at an address."""

    def write(builder: Any, even: Any, odd: Any, highs: Any) -> None:
        emit = Emit(builder)
        _store(emit, rounded_pairs(emit, even, odd), highs, 0)

    return types.void(VECTOR, VECTOR, types.int64), if_amx(write)


@intrinsic
def split_values(typing: Any, shape: Any, floats: Any, values: Any, n_steps: Any, rough: Any) -> Any:
    """Transpose a block of values, and split it into bf16.

    Parameters
    ----------
    floats : int64
        Address of (rows of a block, value_dim) f32.
    values : int64
        Address of (2, value_dim, rows of a block) bf16: highs and lows.
    n_steps : int64
        Steps of DEPTH rows.
    rough : bool
        Whether to write highs only.
    """

    def write(builder: Any, shape: Any, floats: Any, values: Any, n_steps: Any, rough: Any) -> None:
        value_dim, row_bytes = ShapeParts(builder, shape).value_dim(), 2 * _SUMS * STRIP
        n_columns, step_bytes = builder.udiv(value_dim, constant(LANES)), builder.mul(value_dim, constant(DEPTH * 4))
        for n in _halves(builder, rough):
            with cgutils.for_range(builder, n_steps) as step, cgutils.for_range(builder, n_columns) as at:
                source = builder.add(floats, builder.mul(step.index, step_bytes))
                source = builder.add(source, builder.mul(at.index, constant(LANES * 4)))
                target = builder.add(values, builder.mul(at.index, constant(LANES * row_bytes)))
                target = builder.add(target, builder.mul(step.index, constant(2 * DEPTH)))
                targets = [target, builder.add(target, builder.mul(value_dim, constant(row_bytes)))]
                _split_square(Emit(builder), value_dim, source, targets[:n], row_bytes)

    return types.void(SHAPE, types.int64, types.int64, types.int64, types.boolean), if_amx(write)


def _split_square(emit: Emit, value_dim: Any, source: Any, targets: list[Any], row_bytes: int) -> None:
    """Transpose DEPTH rows of LANES f32, from rows of value_dim, and split them into rows of one or two targets."""
    step, split = emit.builder.shl(value_dim, constant(2)), []
    for _ in range(DEPTH):
        split.append(_split(emit, emit.load_float(source)))
        source = emit.builder.add(source, step)
    for half, target in enumerate(targets):
        pairs = [paired(emit, split[row][half], split[row + 1][half]) for row in range(0, DEPTH, 2)]
        for i, vector in enumerate(_transposed(emit, pairs)):
            _store(emit, vector, target, i * row_bytes)


def _transposed(emit: Emit, vectors: list[Any]) -> list[Any]:
    """Transpose as many vectors as they have lanes: each step swaps the halves of blocks of half the width."""
    n, width = len(vectors), len(vectors)
    while width > 1:
        half, swapped = width // 2, list(vectors)
        low = [lane if lane % width < half else lane - half + n for lane in range(n)]
        high = [lane + half if lane % width < half else lane + n for lane in range(n)]
        for i in range(n):
            if i % width < half:
                x, y = vectors[i], vectors[i + half]
                swapped[i], swapped[i + half] = emit.shuffle(x, y, low), emit.shuffle(x, y, high)
        vectors, width = swapped, half
    return vectors
