"""The blocks that attention is made of, written in vector IR so that their accumulators stay in registers.

Everything unrolls over the sizes in `Shape`. Addresses and strides are in bytes where a name says so, else in
elements. Rows of keys and values are f16, contiguous, head_dim long; everything else is f32.
"""

from __future__ import annotations

import itertools
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .compile import LANES, Shape, kernel
from .vector import FLOAT, INT64, Emit

#: Query rows (tokens times group) that a prefill tile works on, and the key rows that it widens at a time.
TILE = 64

#: Rows that `score_tile` and `value_tile` compute at once.
TILE_ROWS = 4

#: Accumulators that fit in registers beside what they are computed from: 32 registers with AVX-512, else 16.
_ACCUMULATORS = 24 if LANES == 16 else 12
_TILE_VECTORS = 4 if LANES == 16 else 2


def _width(shape: Shape) -> int:
    """Widest vector that divides a row."""
    return LANES if shape.head_dim % LANES == 0 else 8


def _constant(value: int) -> Any:
    return ir.Constant(INT64, value)


def _accumulators(builder: Any, emit: Emit, count: int) -> list[Any]:
    """Stack slots that start at zero; LLVM turns them into registers."""
    slots = [cgutils.alloca_once(builder, emit.vector) for _ in range(count)]
    for slot in slots:
        builder.store(emit.constant(0.0), slot)
    return slots


def _parts(total: int, most: int) -> list[range]:
    """Split range(total) into as few, nearly equal parts of at most `most` as there can be."""
    count = -(-total // most)
    bounds = [total * i // count for i in range(count + 1)]
    return [range(start, stop) for start, stop in itertools.pairwise(bounds)]


def _sums_of_four(emit: Emit, rows: list[Any]) -> Any:
    """The sums of four vectors as one vector of four: added within 128 bits first, across them last."""
    blocks = range(0, emit.lanes, 4)
    even = [lane for b in blocks for lane in (b, b + 2, b + emit.lanes, b + 2 + emit.lanes)]
    odd = [lane + 1 for lane in even]
    while len(rows) > 1:
        pairs = zip(rows[::2], rows[1::2], strict=True)
        rows = [emit.builder.fadd(emit.shuffle(x, y, even), emit.shuffle(x, y, odd)) for x, y in pairs]
    total, lanes = rows[0], emit.lanes
    while lanes > 4:
        lanes //= 2
        low, high = list(range(lanes)), list(range(lanes, 2 * lanes))
        total = emit.builder.fadd(emit.shuffle(total, total, low), emit.shuffle(total, total, high))
    return total


def _dot_rows(builder: Any, shape: Shape, n_rows: int, addresses: list[Any]) -> None:
    """scores[g * stride + r] = query[g] . keys[r] for n_rows rows (a multiple of 4, or 1)."""
    query, keys, scores, stride = addresses
    emit = Emit(builder, _width(shape))
    for heads in _parts(shape.group, max(1, _ACCUMULATORS // n_rows)):
        totals: dict[tuple[int, int], Any] = {}
        for column in range(0, shape.head_dim, emit.lanes):
            queries = {g: emit.load_float(query, g * shape.head_dim + column) for g in heads}
            for r in range(n_rows):
                key = emit.load_half(keys, r * shape.head_dim + column)
                for g in heads:
                    before = totals.get((g, r))
                    product = emit.fma(key, queries[g], before) if before else builder.fmul(key, queries[g])
                    totals[g, r] = product
        for g in heads:
            first = builder.mul(stride, _constant(g))
            if n_rows == 1:
                builder.store(emit.sum(totals[g, 0]), emit.pointer(scores, FLOAT, first))
                continue
            for r in range(0, n_rows, 4):
                four = _sums_of_four(emit, [totals[g, r + i] for i in range(4)])
                emit.store(four, scores, builder.add(first, _constant(r)))


def _rows_at_once(shape: Shape) -> int:
    return 8 if shape.group * 8 <= _ACCUMULATORS else 4


@intrinsic
def _dot_block(typing: Any, shape: Any, query: Any, keys: Any, scores: Any, stride: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _dot_rows(builder, shape.shape, _rows_at_once(shape.shape), list(args[1:]))
        return context.get_dummy_value()

    return types.void(shape, types.int64, types.int64, types.int64, types.int64), generate


@intrinsic
def _dot_row(typing: Any, shape: Any, query: Any, keys: Any, scores: Any, stride: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _dot_rows(builder, shape.shape, 1, list(args[1:]))
        return context.get_dummy_value()

    return types.void(shape, types.int64, types.int64, types.int64, types.int64), generate


@intrinsic
def _rows_in_block(typing: Any, shape: Any) -> Any:
    """How many rows `_dot_block` takes."""
    return types.int64(shape), lambda context, builder, signature, args: _constant(_rows_at_once(shape.shape))


@kernel
def dot(shape, query, keys, n_rows, scores, stride):
    """scores[g * stride + r] = query[g] . keys[r] for every query head of the group and the first n_rows rows.

    query : address of (group, head_dim) f32    keys : address of (n_rows, head_dim) f16
    scores : address of f32, `stride` elements from one query head to the next
    """
    block = _rows_in_block(shape)
    row = 0
    while row + block <= n_rows:
        _dot_block(shape, query, keys + row * shape.head_dim * 2, scores + row * 4, stride)
        row += block
    while row < n_rows:
        _dot_row(shape, query, keys + row * shape.head_dim * 2, scores + row * 4, stride)
        row += 1


@intrinsic
def add_weighted(typing: Any, shape: Any, weights: Any, stride: Any, values: Any, n_rows: Any, out: Any) -> Any:
    """out[g] += sum over r of weights[g * stride + r] * values[r].

    weights : address of f32, `stride` elements from one query head to the next
    values : address of (n_rows, head_dim) f16    out : address of (group, head_dim) f32
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, weights, stride, values, n_rows, out = args
        head_dim, group = shape.shape.head_dim, shape.shape.group
        emit = Emit(builder, _width(shape.shape))
        for heads in _parts(group, _ACCUMULATORS):
            for columns in _parts(head_dim // emit.lanes, _ACCUMULATORS // len(heads)):
                places = [(g, column * emit.lanes) for g in heads for column in columns]
                totals = _accumulators(builder, emit, len(places))
                with cgutils.for_range(builder, n_rows) as loop:
                    row = builder.mul(loop.index, _constant(head_dim))
                    value = {
                        column * emit.lanes: emit.load_half(values, builder.add(row, _constant(column * emit.lanes)))
                        for column in columns
                    }
                    weight = {
                        g: emit.splat(
                            emit.load_scalar(weights, builder.add(builder.mul(stride, _constant(g)), loop.index))
                        )
                        for g in heads
                    }
                    for (g, column), total in zip(places, totals, strict=True):
                        builder.store(emit.fma(weight[g], value[column], builder.load(total)), total)
                for (g, column), total in zip(places, totals, strict=True):
                    place = g * head_dim + column
                    emit.store(builder.fadd(emit.load_float(out, place), builder.load(total)), out, place)
        return context.get_dummy_value()

    integers = [types.int64] * 5
    return types.void(shape, *integers), generate


def _multiply(builder: Any, emit: Emit, left: Any, steps: Any, right: Any, out: Any, n: Any, columns: int) -> None:
    """out[i, :columns] += sum over k < n of left[i, k] * right[k, :columns], for TILE_ROWS rows i.

    left[i, k] lies steps[0] * i + steps[1] * k elements from `left`; rows of `right` and `out` are `columns` long.
    """
    for vectors in _parts(columns // emit.lanes, _TILE_VECTORS):
        places = [(i, column * emit.lanes) for i in range(TILE_ROWS) for column in vectors]
        totals = _accumulators(builder, emit, len(places))
        with cgutils.for_range(builder, n) as loop:
            row = builder.mul(loop.index, _constant(columns))
            from_right = {
                column * emit.lanes: emit.load_float(right, builder.add(row, _constant(column * emit.lanes)))
                for column in vectors
            }
            along = builder.mul(loop.index, steps[1])
            for i in range(TILE_ROWS):
                offset = builder.add(along, builder.mul(steps[0], _constant(i)))
                from_left = emit.splat(emit.load_scalar(left, offset))
                for (place_row, column), total in zip(places, totals, strict=True):
                    if place_row == i:
                        builder.store(emit.fma(from_left, from_right[column], builder.load(total)), total)
        for (i, column), total in zip(places, totals, strict=True):
            place = i * columns + column
            emit.store(builder.fadd(emit.load_float(out, place), builder.load(total)), out, place)


@intrinsic
def score_tile(typing: Any, shape: Any, keys: Any, queries: Any, scores: Any) -> Any:
    """scores[r, q] += keys[r] . queries[:, q] for TILE_ROWS key rows and TILE queries.

    keys : address of (rows, head_dim) f32    queries : (head_dim, TILE) f32    scores : (rows, TILE) f32
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        head_dim = _constant(shape.shape.head_dim)
        steps = (head_dim, _constant(1))
        _multiply(builder, Emit(builder), args[1], steps, args[2], args[3], head_dim, TILE)
        return context.get_dummy_value()

    return types.void(shape, types.int64, types.int64, types.int64), generate


@intrinsic
def value_tile(typing: Any, shape: Any, weights: Any, values: Any, n_rows: Any, out: Any) -> Any:
    """out[q] += sum over r of weights[r, q] * values[r] for TILE_ROWS queries.

    weights : address of (n_rows, TILE) f32, from the first query on    values : (n_rows, head_dim) f32
    out : (queries, head_dim) f32
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, weights, values, n_rows, out = args
        emit = Emit(builder, _width(shape.shape))
        steps = (_constant(1), _constant(TILE))
        _multiply(builder, emit, weights, steps, values, out, n_rows, shape.shape.head_dim)
        return context.get_dummy_value()

    return types.void(shape, types.int64, types.int64, types.int64, types.int64), generate


@intrinsic
def widen_row(typing: Any, shape: Any, halves: Any, floats: Any) -> Any:
    """Copy a row of head_dim f16 to f32; both are addresses."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        emit = Emit(builder, _width(shape.shape))
        for column in range(0, shape.shape.head_dim, emit.lanes):
            emit.store(emit.load_half(args[1], column), args[2], column)
        return context.get_dummy_value()

    return types.void(shape, types.int64, types.int64), generate
