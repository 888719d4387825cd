"""Find codebooks: deal columns into parts, and cluster the points of a part by Lloyd's algorithm.

product_quantisation.py describes their use and layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import float32, types
from numba.core import cgutils
from numba.extending import intrinsic

from ..layout.scores import fill
from ..numba_support.compile import kernel
from ..numba_support.machine_features import LANES
from ..numba_support.memory import stack_bytes
from ..numba_support.vector import (
    ACCUMULATORS,
    Emit,
    accumulators,
    add,
    constant,
    load,
    multiply,
    parts,
    splat,
    store,
    subtract,
)
from ..numba_support.views import array_at
from .product_quantisation import CODES

#: Rounds of Lloyd's algorithm. More hardly change the result.
_ROUNDS = 8

_DISTANCES_BYTES = 4 * CODES


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


@kernel
def nearest(point, size, weights, codebook):
    """Return the number of the centroid nearest to a point: 0 if the point has a NaN.

    Parameters
    ----------
    point, weights : int64
        Addresses of `size` f32: the point, and the weight of each column's squared distance.
    codebook : int64
        Address of (size, CODES) f32.
    """
    values, factors = array_at(point, (size,), np.float32), array_at(weights, (size,), np.float32)
    room = stack_bytes(_DISTANCES_BYTES)
    for first in range(0, CODES, LANES):
        total = splat(float32(0))
        for i in range(size):
            difference = subtract(load(codebook + (i * CODES + first) * 4), splat(values[i]))
            total = add(total, multiply(multiply(difference, difference), splat(factors[i])))
        store(room + first * 4, total)
    distances, best = array_at(room, (CODES,), np.float32), 0
    for code in range(CODES):
        if distances[code] < distances[best]:
            best = code
    return best


@intrinsic
def nearest_of_many(
    typing: Any, points: Any, stride: Any, n: Any, size: Any, weights: Any, book: Any, found: Any
) -> Any:
    """Write the number of the nearest centroid for each of n points, a lane for each point; see `nearest`.

    Parameters
    ----------
    points : int64
        Address of the first column of the points, f32.
    stride : int64
        Floats from one column to the next.
    n, size : int64
        Points, a multiple of LANES, and their columns.
    weights, book : int64
        As `weights` and `codebook` of `nearest`.
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
        Address of (size + 1) * CODES + n f32 to work in.
    """
    values, centroids = array_at(points, (size, n), np.float32), array_at(codebook, (size, CODES), np.float32)
    sums, counts = array_at(room, (size, CODES), np.float32), array_at(room + size * CODES * 4, (CODES,), np.float32)
    found_address = room + (size + 1) * CODES * 4
    found = array_at(found_address, (n,), np.int32)
    for code in range(CODES):
        for i in range(size):
            centroids[i, code] = values[i, code * n // CODES]
    for _ in range(_ROUNDS):
        nearest_of_many(points, n, n, size, weights, codebook, found_address)
        fill(room, 0, (size + 1) * CODES, float32(0))
        for row in range(n):
            counts[found[row]] += float32(1)
        for i in range(size):
            for row in range(n):
                sums[i, found[row]] += values[i, row]
        for code in range(CODES):
            if counts[code] > 0:
                for i in range(size):
                    centroids[i, code] = sums[i, code] / counts[code]
