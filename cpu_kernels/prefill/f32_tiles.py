"""Multiply the matrices of prefill: tiles of f32 that stay in the L1 cache, with accumulators in registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..numba_support.compile import LANES
from ..numba_support.vector import Emit, accumulators, constant, parts
from ..rows.rotation import width

#: Query rows (tokens times group) of a prefill tile, and rows in the block of keys that is widened at a time.
TILE = 64

#: Rows that one call of `score_tile` or `value_tile` computes.
TILE_ROWS = 4

#: Vectors of such a row that are computed at once: TILE_ROWS times as many accumulators fit in registers.
_TILE_VECTORS = 4 if LANES == 16 else 2


def products(
    builder: Any,
    emit: Emit,
    left: Any,
    steps: Any,
    right: Any,
    n: Any,
    columns: int,
    multiply: Callable[[Emit, Any, Any, Any], Any] = Emit.fma,
) -> Iterator[tuple[int, int, Any]]:
    """Multiply two matrices: yield the sums over k < n of left[i, k] * right[k, :columns], for TILE_ROWS rows i.

    Parameters
    ----------
    left, right : LLVM int64
        Addresses of matrices of elements of four bytes.
    steps : tuple of two LLVM int64
        left[i, k] lies steps[0] * i + steps[1] * k elements after `left`.
    n : LLVM int64
        Length of the sums.
    columns : int
        Length of the rows of `right`.
    multiply : callable
        Takes a writer, two vectors and a sum; returns the sum with their products. LLVM sees all as vectors of f32.

    Yields
    ------
    row, column : int
        Row i, and the first column of the vector.
    total : LLVM vector
        The sums.
    """
    for vectors in parts(columns // emit.lanes, _TILE_VECTORS):
        places = [(i, column * emit.lanes) for i in range(TILE_ROWS) for column in vectors]
        totals = accumulators(builder, emit, len(places))
        with cgutils.for_range(builder, n) as loop:
            row = builder.mul(loop.index, constant(columns))
            from_right = {
                column * emit.lanes: emit.load_float(right, builder.add(row, constant(column * emit.lanes)))
                for column in vectors
            }
            along = builder.mul(loop.index, steps[1])
            for i in range(TILE_ROWS):
                offset = builder.add(along, builder.mul(steps[0], constant(i)))
                from_left = emit.splat(emit.load_scalar(left, offset))
                for (place_row, column), total in zip(places, totals, strict=True):
                    if place_row == i:
                        builder.store(multiply(emit, from_left, from_right[column], builder.load(total)), total)
        for (i, column), total in zip(places, totals, strict=True):
            yield i, column, builder.load(total)


def _add_to(builder: Any, emit: Emit, out: Any, columns: int, sums: Iterator[tuple[int, int, Any]]) -> None:
    """Add `products` to a matrix at an address."""
    for i, column, total in sums:
        place = i * columns + column
        emit.store(builder.fadd(emit.load_float(out, place), total), out, place)


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
        head_dim = constant(shape.shape.head_dim)
        steps = (head_dim, constant(1))
        emit = Emit(builder)
        _add_to(builder, emit, args[3], TILE, products(builder, emit, args[1], steps, args[2], head_dim, TILE))
        return context.get_dummy_value()

    return types.void(shape, types.int64, types.int64, types.int64), generate


@intrinsic
def value_tile(typing: Any, shape: Any, weights: Any, values: Any, n_rows: Any, out: Any) -> Any:
    """Add weighted values: out[q] += sum over r of weights[r, q] * values[r] for TILE_ROWS queries.

    Parameters
    ----------
    weights : int64
        Address of the first of these queries in the first row of (n_rows, TILE) f32.
    values : int64
        Address of (n_rows, head_dim) f32.
    out : int64
        Address of (TILE_ROWS, head_dim) f32.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, weights, values, n_rows, out = args
        emit = Emit(builder, width(shape.shape))
        steps = (constant(1), constant(TILE))
        head_dim = shape.shape.head_dim
        _add_to(builder, emit, out, head_dim, products(builder, emit, weights, steps, values, n_rows, head_dim))
        return context.get_dummy_value()

    return types.void(shape, types.int64, types.int64, types.int64, types.int64), generate
