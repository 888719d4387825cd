"""Find codebooks: deal columns into parts, and cluster the points of a part by Lloyd's algorithm.

product_quantisation.py describes their use and layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import float32, int32, types
from numba.core import cgutils
from numba.extending import intrinsic

from ..layout.scores import fill
from ..numba_support.compile import kernel, layout
from ..numba_support.machine_features import LANES
from ..numba_support.vector import ACCUMULATORS, INT32, INT64, Emit, accumulators, constant, parts
from ..numba_support.views import array_at
from ..products import integers
from .product_quantisation import CODES, HEADS, ROWS, transposed

#: Rounds of Lloyd's algorithm. More hardly change the result.
_ROUNDS = 8

#: Copies of the counts of points, so that equal numbers of adjacent ones do not wait for each other.
_COPIES = 4


@kernel
def deal_columns(n_columns, n_parts, variances, order):
    """Deal columns into parts with nearly equal products of variances: there and back, the largest first.

    Parameters
    ----------
    n_columns, n_parts : int64
        Numbers of columns, and of parts that divide them.
    variances : int64
        Address of n_columns f32 of at least 0, which are overwritten.
    order : int64
        Address of n_columns int32, which receives the columns of the first part, of the second, and so on.
    """
    values, ordered = array_at(variances, (n_columns,), np.float32), array_at(order, (n_columns,), np.int32)
    size = n_columns // n_parts
    for i in range(n_columns):
        best = 0
        for column in range(n_columns):
            if values[column] > values[best]:
                best = column
        lap, place = i // n_parts, i % n_parts
        part = place if lap % 2 == 0 else n_parts - 1 - place
        ordered[part * size + lap] = best
        values[best] = float32(-1)


@intrinsic
def transpose(typing: Any, rows: Any, n_rows: Any, n_columns: Any, columns: Any, stride: Any) -> Any:
    """Write rows of f32 column by column.

    Parameters
    ----------
    rows : int64
        Address of (n_rows, n_columns) f32; both are multiples of 8.
    columns : int64
        Address of the first column's floats.
    stride : int64
        Floats from one column to the next.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rows, n_rows, n_columns, columns, stride = args
        emit, numbers = Emit(builder, integers.LANES), range(integers.LANES)
        eight = constant(integers.LANES)
        with (
            cgutils.for_range_slice(builder, constant(0), n_columns, eight, INT64) as (column, _count),
            cgutils.for_range_slice(builder, constant(0), n_rows, eight, INT64) as (row, _number),
        ):
            places = [builder.mul(builder.add(row, constant(r)), n_columns) for r in numbers]
            own = [emit.load_float(rows, builder.add(place, column)) for place in places]
            turned = integers.transposed(builder, [builder.bitcast(each, integers.CODES) for each in own])
            for c, each in enumerate(turned):
                place = builder.mul(builder.add(column, constant(c)), stride)
                emit.store(builder.bitcast(each, emit.vector), columns, builder.add(place, row))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), generate


@intrinsic
def nearest_of_many(
    typing: Any, points: Any, stride: Any, n: Any, size: Any, weights: Any, book: Any, found: Any
) -> Any:
    """Write the number of the nearest centroid for each of n points, a lane for each point: 0 if it has a NaN.

    Parameters
    ----------
    points : int64
        Address of the first column of the points, f32.
    stride : int64
        Floats from one column to the next.
    n, size : int64
        Points, a multiple of LANES, and their columns.
    weights : int64
        Address of `size` f32: the weight of each column's squared distance.
    book : int64
        Address of (size, CODES) f32, the centroids.
    found : int64
        Address of n int32.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        points, stride, n, size, weights, book, found = args
        emit = Emit(builder)
        with cgutils.for_range(builder, builder.sdiv(n, constant(LANES))) as rows:
            first = builder.mul(rows.index, constant(LANES))
            least, best = emit.constant(0.0), ir.Constant(emit.integers, [0] * LANES)
            for numbers in parts(CODES, min(CODES, ACCUMULATORS)):
                totals = accumulators(builder, emit, len(numbers))
                with cgutils.for_range(builder, size) as columns:
                    place = builder.add(first, builder.mul(columns.index, stride))
                    point, weight = emit.load_float(points, place), emit.splat(emit.load_scalar(weights, columns.index))
                    for number, total in zip(numbers, totals, strict=True):
                        place = builder.add(builder.mul(columns.index, constant(CODES)), constant(number))
                        difference = builder.fsub(emit.splat(emit.load_scalar(book, place)), point)
                        square = builder.fmul(builder.fmul(difference, difference), weight)
                        builder.store(builder.fadd(builder.load(total), square), total)
                for number, total in zip(numbers, totals, strict=True):
                    distance = builder.load(total)
                    if number == 0:
                        least = distance
                        continue
                    nearer = builder.fcmp_ordered("<", distance, least)
                    least = builder.select(nearer, distance, least)
                    best = builder.select(nearer, ir.Constant(emit.integers, [number] * LANES), best)
            emit.store(best, found, first)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), generate


@intrinsic
def _add_by_number(typing: Any, points: Any, n: Any, size: Any, found: Any, sums: Any) -> Any:
    """Add each point to the sums of its number, in order.

    Parameters
    ----------
    points : int64
        Address of (size, n) f32. n is a multiple of ROWS.
    found : int64
        Address of n int32 below CODES.
    sums : int64
        Address of (size / HEADS, CODES, HEADS) f32: HEADS columns of a point are one vector.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        points, n, size, found, sums = args
        emit, few, last = Emit(builder, ROWS), Emit(builder, HEADS), builder.sub(size, constant(1))
        n_tiles = builder.udiv(builder.add(size, constant(HEADS - 1)), constant(HEADS))
        with cgutils.for_range(builder, n_tiles) as tile:
            columns = [builder.add(builder.mul(tile.index, constant(HEADS)), constant(i)) for i in range(HEADS)]
            columns = [builder.select(builder.icmp_signed("<", each, last), each, last) for each in columns]
            starts = [builder.mul(each, n) for each in columns]
            totals = builder.mul(tile.index, constant(CODES * HEADS))
            with cgutils.for_range_slice(builder, constant(0), n, constant(ROWS), INT64) as (row, _count):
                loaded = [emit.load_float(points, builder.add(start, row)) for start in starts]
                for i, point in enumerate(transposed(emit, loaded)):
                    number = builder.load(emit.pointer(found, INT32, builder.add(row, constant(i))))
                    place = builder.mul(builder.zext(number, INT64), constant(HEADS))
                    place = builder.add(totals, place)
                    few.store(builder.fadd(few.load_float(sums, place), point), sums, place)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), generate


@layout
def room_of_sums(size):
    """Return how many f32 the sums of `_add_by_number` take."""
    return -(-size // HEADS) * HEADS * CODES


@layout
def training_bytes(n, size):
    """Return the size of the room that `train` works in."""
    return 4 * (room_of_sums(size) + _COPIES * CODES + n)


@kernel
def train(points, n, size, weights, codebook, room):
    """Find centroids by Lloyd's algorithm, from evenly spaced points. A centroid that loses all points stays.

    Parameters
    ----------
    points : int64
        Address of (size, n) f32, column by column.
    n, size : int64
        Number of points, a multiple of LANES and at least CODES, and of their columns.
    weights : int64
        Address of `size` f32: the weight of each column's squared distance.
    codebook : int64
        Address of (size, CODES) f32, which receives the centroids.
    room : int64
        Address of `training_bytes` to work in.
    """
    values, centroids = array_at(points, (size, n), np.float32), array_at(codebook, (size, CODES), np.float32)
    n_sums = room_of_sums(size)
    sums = array_at(room, (n_sums // (CODES * HEADS), CODES, HEADS), np.float32)
    counts = array_at(room + n_sums * 4, (_COPIES, CODES), np.int32)
    found_address = room + (n_sums + _COPIES * CODES) * 4
    found = array_at(found_address, (n // _COPIES, _COPIES), np.int32)
    for code in range(CODES):
        for i in range(size):
            centroids[i, code] = values[i, code * n // CODES]
    for _ in range(_ROUNDS):
        nearest_of_many(points, n, n, size, weights, codebook, found_address)
        fill(room, 0, n_sums + _COPIES * CODES, float32(0))
        for row in range(n // _COPIES):
            for copy in range(_COPIES):
                counts[copy, found[row, copy]] += int32(1)
        _add_by_number(points, n, size, found_address, room)
        for code in range(CODES):
            count = float32(0)
            for copy in range(_COPIES):
                count += float32(counts[copy, code])
            if count > 0:
                for i in range(size):
                    centroids[i, code] = sums[i // HEADS, code, i % HEADS] / count
