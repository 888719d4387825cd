"""Read keys by component: multiply some components of a query by those of all keys of a chunk.

There are two layouts. In a transposed copy of the keys, a component's elements are adjacent. A chunk's copy is
  scales : of the rows of q8_0 and q4_0, (CHUNK_ROWS,) f16; none for f16
  columns : (head_dim, CHUNK_ROWS), f16 or int8. For q4_0 they are int8, of the keys before rotation
In the rows themselves they are row_bytes apart: that takes no extra memory, but reads a cache line for each element.
Rows of q4_0 lack such columns, because they are rotated.
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

from ..attend.head import CHUNK_ROWS
from ..numba_support.compile import F16, LANES, Shape, constant_attribute, kernel
from ..numba_support.memory import read_float, stack_floats, write_half
from ..numba_support.vector import (
    ACCUMULATORS,
    CACHE_LINE,
    HALF,
    INT8,
    INT16,
    INT64,
    Emit,
    accumulators,
    constant,
    parts,
)
from ..numba_support.views import array_at
from .q8_0 import quantise
from .rotation import width
from .rows import load_row, widen_row


def element_bytes(shape: Shape) -> int:
    """Return the size of an element of a column."""
    return 2 if shape.kv_type == F16 else 1


def scale_bytes(shape: Shape) -> int:
    """Return the bytes that a copy stores for each row besides its elements."""
    return 0 if shape.kv_type == F16 else 2


def copy_bytes(shape: Shape) -> int:
    """Return the size of a chunk's transposed copy."""
    return CHUNK_ROWS * (scale_bytes(shape) + shape.head_dim * element_bytes(shape))


constant_attribute("element_bytes", element_bytes)
constant_attribute("scale_bytes", scale_bytes)


@kernel
def offset_in_copy(shape, component):
    """Return the offset of a component's column in a chunk's transposed copy, in bytes."""
    return CHUNK_ROWS * (shape.scale_bytes + component * shape.element_bytes)


@kernel
def offset_in_row(shape, component):
    """Return the offset of a component in a stored key, in bytes."""
    return component * shape.element_bytes


@kernel
def transpose_key(shape, key, copy, within):
    """Add a stored key to its chunk's transposed copy, as row number `within`."""
    if shape.quantised:
        scale = float32(0)
        if shape.rotated:
            floats = stack_floats(shape)
            widen_row(shape, key, floats)
            key = floats + shape.head_dim * 4
            scale = quantise(shape, floats, key)
        else:
            scale = read_float(key + shape.head_dim)
        elements = array_at(key, (shape.head_dim,), np.int8)
        columns = array_at(copy + offset_in_copy(shape, 0), (shape.head_dim, CHUNK_ROWS), np.int8)
        for i in range(shape.head_dim):
            columns[i, within] = elements[i]
        write_half(copy + within * 2, scale)
    else:
        _transpose_halves(shape, key, copy + within * 2)


@intrinsic
def _transpose_halves(typing: Any, shape: Any, key: Any, columns: Any) -> Any:
    """Write the elements of an f16 key, CHUNK_ROWS elements apart."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, key, columns = args
        emit = Emit(builder, width(shape.shape))
        for first, value in load_row(emit, shape.shape, key).items():
            halves = builder.fptrunc(value, ir.VectorType(HALF, emit.lanes))
            for lane in range(emit.lanes):
                place = emit.pointer(columns, HALF, (first + lane) * CHUNK_ROWS)
                builder.store(builder.extract_element(halves, constant(lane)), place)
        return context.get_dummy_value()

    return types.void(shape, types.int64, types.int64), generate


#: Loads the elements of LANES rows as f32: takes (emit, address of the chunk's keys or copy, offset, first row).
_Load = Callable[[Emit, Any, Any, int], Any]


def _load_neighbours(shape: Shape) -> _Load:
    """Return a loader of elements in a transposed copy."""

    def load(emit: Emit, copy: Any, offset: Any, row: int) -> Any:
        column = emit.builder.add(copy, offset)
        return emit.load_half(column, row) if shape.kv_type == F16 else emit.load_int8(column, row)

    return load


def _load_strided(shape: Shape) -> _Load:
    """Return a loader of elements in rows."""
    element = INT16 if shape.kv_type == F16 else INT8

    def load(emit: Emit, keys: Any, offset: Any, row: int) -> Any:
        builder, first = emit.builder, emit.builder.add(keys, offset)
        elements = ir.Constant(ir.VectorType(element, emit.lanes), ir.Undefined)
        for lane in range(emit.lanes):
            place = builder.add(first, constant((row + lane) * shape.row_bytes))
            elements = builder.insert_element(elements, builder.load(emit.pointer(place, element)), constant(lane))
        if shape.kv_type != F16:
            return builder.sitofp(builder.sext(elements, emit.integers), emit.vector)
        return builder.fpext(builder.bitcast(elements, ir.VectorType(HALF, emit.lanes)), emit.vector)

    return load


def _load_strided_scales(emit: Emit, shape: Shape, keys: Any, row: int) -> Any:
    """Load the scales of LANES rows of q8_0."""
    scales = ir.Constant(emit.vector, ir.Undefined)
    for lane in range(emit.lanes):
        place = emit.builder.add(keys, constant((row + lane) * shape.row_bytes + shape.head_dim))
        scales = emit.builder.insert_element(scales, emit.load_scalar(place), constant(lane))
    return scales


def _dot(
    builder: Any,
    shape: Shape,
    arguments: tuple[Any, ...],
    load: _Load,
    load_scales: Callable[[Emit, Any, int], Any],
    wanted: Any = None,
) -> None:
    """Write the loops over components, for blocks of rows and query heads whose sums stay in registers."""
    query, offsets, n, source, scores, stride = arguments
    emit, head_dim = Emit(builder), shape.head_dim
    for heads in parts(shape.group, ACCUMULATORS // 2):
        for vectors in parts(CHUNK_ROWS // LANES, ACCUMULATORS // len(heads)):
            places = [(g, vector * LANES) for g in heads for vector in vectors]
            totals = accumulators(builder, emit, len(places))
            ahead = heads.start == 0 and wanted is not None
            if ahead and shape.kv_type != F16:
                emit.prefetch(builder.add(wanted, constant(vectors.start * LANES * 2)), len(vectors) * LANES * 2)
            with cgutils.for_range(builder, n) as loop:
                offset = builder.load(emit.pointer(offsets, INT64, loop.index))
                if ahead:
                    size = LANES * element_bytes(shape)
                    next_part = builder.add(builder.add(wanted, offset), constant(vectors.start * size))
                    emit.prefetch(next_part, len(vectors) * size)
                keys = {vector * LANES: load(emit, source, offset, vector * LANES) for vector in vectors}
                for g in heads:
                    weight = emit.splat(emit.load_scalar(query, builder.add(loop.index, constant(g * head_dim))))
                    for (head, row), total in zip(places, totals, strict=True):
                        if head == g:
                            builder.store(emit.fma(weight, keys[row], builder.load(total)), total)
            sums = [builder.load(total) for total in totals]
            if shape.kv_type != F16:
                scales = {vector * LANES: load_scales(emit, source, vector * LANES) for vector in vectors}
                sums = [builder.fmul(total, scales[row]) for (_, row), total in zip(places, sums, strict=True)]
            for (g, row), total in zip(places, sums, strict=True):
                emit.store(total, scores, builder.add(builder.mul(stride, constant(g)), constant(row)))


@intrinsic
def dot_columns(
    typing: Any, shape: Any, query: Any, offsets: Any, n: Any, copy: Any, wanted: Any, scores: Any, stride: Any
) -> Any:
    """Compute scores[g * stride + r] = sum over i < n of query[g, i] * component i of key r, for CHUNK_ROWS keys.

    Parameters
    ----------
    query : int64
        Address of (group, head_dim) f32, whose first n columns are used.
    offsets : int64
        Address of n int64: offset of each component's column in a chunk's copy.
    copy, wanted : int64
        Addresses of a chunk's transposed copy, and of one to prefetch meanwhile.
    scores : int64
        Address of the scores, f32.
    stride : int64
        Elements from the scores of one query head to those of the next.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, query, offsets, n, copy, wanted, scores, stride = args
        arguments = query, offsets, n, copy, scores, stride
        _dot(builder, shape.shape, arguments, _load_neighbours(shape.shape), Emit.load_half, wanted)
        return context.get_dummy_value()

    return types.void(shape, *[types.int64] * 7), generate


@intrinsic
def dot_rows_by_column(
    typing: Any, shape: Any, query: Any, offsets: Any, n: Any, keys: Any, scores: Any, stride: Any
) -> Any:
    """Do what `dot_columns` does with the keys' rows: offsets are those of components in a row."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def load_scales(emit: Emit, keys: Any, row: int) -> Any:
            return _load_strided_scales(emit, shape.shape, keys, row)

        _dot(builder, shape.shape, args[1:], _load_strided(shape.shape), load_scales)
        return context.get_dummy_value()

    return types.void(shape, *[types.int64] * 6), generate


#: Number of rows after which rows begin on a cache line again.
constant_attribute("line_period", lambda shape: CACHE_LINE // math.gcd(shape.row_bytes, CACHE_LINE))


@kernel
def count_lines(shape, offsets, n, n_rows):
    """Return how many cache lines hold n components of n_rows neighbouring keys, and their scales.

    Parameters
    ----------
    offsets : int64
        Address of n int64, rising: offset of each component in a row.
    n, n_rows : int64
        Numbers of components and of rows. The first row begins on a line.
    """
    places, period = array_at(offsets, (n,), np.int64), shape.line_period
    whole, last, of_period, of_rest = n_rows // period, -1, 0, 0
    for row in range(period):
        for i in range(n + 1):
            if i == n and not shape.quantised:
                break
            place = places[i] if i < n else shape.head_dim
            line = (row * shape.row_bytes + place) // CACHE_LINE
            if line > last:
                of_period += 1
                of_rest += row < n_rows % period
                last = line
    return whole * of_period + of_rest
