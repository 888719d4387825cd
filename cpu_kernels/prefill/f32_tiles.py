"""Multiply the matrices of prefill: tiles of f32 that stay in the L1 cache, with accumulators in registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..numba_support.machine_features import LANES
from ..numba_support.shape import SHAPE, ShapeParts
from ..numba_support.vector import Emit, accumulators, constant, cover_evenly, cover_rest

#: Query rows (tokens times group) of a prefill tile, and rows in the block of keys that is widened at a time.
TILE = 64

#: Rows that one call of `score_tile` or `value_tile` computes.
TILE_ROWS = 4

#: Most vectors of such a row that are computed at once: TILE_ROWS times as many accumulators fit in registers.
_TILE_VECTORS = 4 if LANES == 16 else 2


def products(
    builder: Any,
    left: Any,
    steps: Any,
    right: Any,
    n: Any,
    columns: Any,
    write: Callable[[Emit, int, Any, Any], None],
    multiply: Callable[[Emit, Any, Any, Any], Any] = Emit.fma,
    rows: int = TILE_ROWS,
) -> None:
    """Multiply two matrices: compute the sums over k < n of left[i, k] * right[k, :columns], for some rows i.

    Parameters
    ----------
    left, right : LLVM int64
        Addresses of matrices of elements of four bytes.
    steps : tuple of two LLVM int64
        left[i, k] lies steps[0] * i + steps[1] * k elements after `left`.
    n : LLVM int64
        Length of the sums.
    columns : LLVM int64
        Length of the rows of `right`, a multiple of 8.
    write : callable
        Stores sums: it takes a writer, their row, their first column, and a vector of the writer's width.
    multiply : callable
        Takes a writer, two vectors and a sum; returns the sum with their products. LLVM sees all as vectors of f32.
    rows : int
        Number of rows i.
    """

    def write_tile(emit: Emit, first: Any, vectors: int) -> None:
        starts = range(0, vectors * emit.lanes, emit.lanes)
        places = [(i, start) for i in range(rows) for start in starts]
        totals = dict(zip(places, accumulators(builder, emit, len(places)), strict=True))
        with cgutils.for_range(builder, n) as loop:
            row = builder.add(builder.mul(loop.index, columns), first)
            from_right = {start: emit.load_float(right, builder.add(row, constant(start))) for start in starts}
            along = builder.mul(loop.index, steps[1])
            for i in range(rows):
                offset = builder.add(along, builder.mul(steps[0], constant(i)))
                from_left = emit.splat(emit.load_scalar(left, offset))
                for start in starts:
                    total = totals[i, start]
                    builder.store(multiply(emit, from_left, from_right[start], builder.load(total)), total)
        for (i, start), total in totals.items():
            write(emit, i, builder.add(first, constant(start)), builder.load(total))

    def write_tile_of_vectors(start: Any, vectors: int) -> None:
        write_tile(Emit(builder), builder.mul(start, constant(LANES)), vectors)

    cover_evenly(builder, builder.udiv(columns, constant(LANES)), _TILE_VECTORS, write_tile_of_vectors)
    cover_rest(builder, columns, lambda emit, first: write_tile(emit, first, 1))


@intrinsic
def score_tile(typing: Any, shape: Any, keys: Any, queries: Any, scores: Any) -> Any:
    """Add scores: scores[r, q] += keys[r] . queries[:, q] for TILE_ROWS keys and TILE queries.

    Parameters
    ----------
    keys : int64
        Address of (TILE_ROWS, head_dim) f32.
    queries : int64
        Address of (head_dim, TILE) f32.
    scores : int64
        Address of (TILE_ROWS, TILE) f32.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        shape, keys, queries, scores = args
        head_dim = ShapeParts(builder, shape).head_dim()
        write = _adder(builder, scores, constant(TILE))
        products(builder, keys, (head_dim, constant(1)), queries, head_dim, constant(TILE), write)
        return context.get_dummy_value()

    return types.void(SHAPE, types.int64, types.int64, types.int64), generate


@intrinsic
def value_tile(typing: Any, shape: Any, weights: Any, values: Any, n_rows: Any, out: Any) -> Any:
    """Add weighted values: out[q] += sum over r of weights[r, q] * values[r] for TILE_ROWS queries.

    Parameters
    ----------
    weights : int64
        Address of the first of these queries in the first row of (n_rows, TILE) f32.
    values : int64
        Address of (n_rows, value_dim) f32.
    out : int64
        Address of (TILE_ROWS, value_dim) f32.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        shape, weights, values, n_rows, out = args
        value_dim = ShapeParts(builder, shape).value_dim()
        write = _adder(builder, out, value_dim)
        products(builder, weights, (constant(1), constant(TILE)), values, n_rows, value_dim, write)
        return context.get_dummy_value()

    return types.void(SHAPE, types.int64, types.int64, types.int64, types.int64), generate


def _adder(builder: Any, out: Any, columns: Any) -> Callable[[Emit, int, Any, Any], None]:
    """Return what adds `products` to a matrix at an address."""

    def write(emit: Emit, i: int, column: Any, total: Any) -> None:
        place = builder.add(builder.mul(columns, constant(i)), column)
        emit.store(builder.fadd(emit.load_float(out, place), total), out, place)

    return write
