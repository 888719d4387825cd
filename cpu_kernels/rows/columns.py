"""Read keys by component: multiply some components of a query by those of all keys of a chunk.

There are two layouts. In a transposed copy of the keys, a component's elements are adjacent. A chunk's copy is
  scales : of the columns in int8, (CHUNK_ROWS,) f16; none for f16
  columns : (head_dim, CHUNK_ROWS), f16 or int8, of the keys before rotation
In rows of f16 they are row_bytes apart: that takes no extra memory, but reads a cache line for each element. Rotated
rows lack such columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..numba_support.compile import kernel, layout
from ..numba_support.machine_features import LANES
from ..numba_support.memory import borrow, give_back, write_half
from ..numba_support.shape import SHAPE, Shape, ShapeParts
from ..numba_support.vector import (
    CACHE_LINE,
    HALF,
    INT8,
    INT16,
    INT64,
    Emit,
    accumulators,
    constant,
    cover_evenly,
)
from ..numba_support.views import array_at
from .q8_0 import quantise
from .rows import widen_row
from .tiles import CHUNK_ROWS

#: Tiles whose sums stay in registers: for a number of query heads, vectors of keys that they multiply at once. In rows,
#: to load a vector takes longer than to multiply it by all.
_TILES_OF_COPY = {1: 16, 2: 8, 3: 8, 4: 4, 5: 4, 6: 4} if LANES == 16 else {1: 8, 2: 4, 3: 4, 4: 3, 5: 2, 6: 2}
_TILES_OF_ROWS = {heads: 16 // LANES if heads <= 4 else 1 for heads in range(1, 9)}


@layout
def element_bytes(shape):
    """Return the size of an element of a column."""
    return 1 if shape.quantised else 2


@layout
def scale_bytes(shape):
    """Return the bytes that a copy stores for each row besides its elements."""
    return 2 if shape.quantised else 0


def copy_bytes(shape: Shape) -> int:
    """Return the size of a chunk's transposed copy."""
    return int(CHUNK_ROWS * (scale_bytes(shape) + shape.head_dim * element_bytes(shape)))


@kernel
def offset_in_copy(shape, component):
    """Return the offset of a component's column in a chunk's transposed copy, in bytes."""
    return CHUNK_ROWS * (scale_bytes(shape) + component * element_bytes(shape))


@kernel
def offset_in_row(shape, component):
    """Return the offset of a component in a key of f16, in bytes."""
    return component * 2


@kernel
def transpose_key(shape, key, copy, within):
    """Add a stored key to its chunk's transposed copy, as row number `within`."""
    first = copy + offset_in_copy(shape, 0)
    if not shape.quantised:
        _transpose(array_at(key, (shape.head_dim,), np.int16), first, within)
        return
    floats = borrow(5 * shape.head_dim)
    elements = floats + shape.head_dim * 4
    widen_row(shape, key, floats)
    write_half(copy + within * 2, quantise(shape.head_dim, floats, elements))  # one scale, also of a latent key
    _transpose(array_at(elements, (shape.head_dim,), np.int8), first, within)
    give_back(floats, 5 * shape.head_dim)


@kernel
def _transpose(elements, columns, within):
    """Write elements CHUNK_ROWS elements apart, from element `within` on."""
    target = array_at(columns, (len(elements), CHUNK_ROWS), elements.dtype)
    for i in range(len(elements)):
        target[i, within] = elements[i]


#: Loads the elements of LANES rows as f32: takes (emit, address of the element of the chunk's first row, first row).
_Load = Callable[[Emit, Any, Any], Any]


def _load_strided(row_bytes: Any) -> _Load:
    """Return a loader of elements in rows of f16."""

    def load(emit: Emit, address: Any, row: Any) -> Any:
        builder = emit.builder
        place = emit.pointer(address, INT8, builder.mul(row, row_bytes))
        elements = ir.Constant(ir.VectorType(INT16, emit.lanes), ir.Undefined)
        for lane in range(emit.lanes):
            if lane % 8 == 0:  # an x86 instruction adds 1, 2, 4 or 8 times a register: this needs fewer of them
                place = builder.gep(place, [builder.mul(row_bytes, constant(8 if lane else 0))])
            own = builder.gep(place, [builder.mul(row_bytes, constant(lane % 8))])
            loaded = builder.load(builder.bitcast(own, INT16.as_pointer()))
            loaded.align = 1
            elements = builder.insert_element(elements, loaded, constant(lane))
        return builder.fpext(builder.bitcast(elements, ir.VectorType(HALF, emit.lanes)), emit.vector)

    return load


def _dot(
    builder: Any,
    shape: Any,
    arguments: tuple[Any, ...],
    tiles: dict[int, int],
    load: _Load,
    load_scales: _Load | None = None,
    wanted: Any = None,
) -> None:
    """Write the loops over components, for blocks of rows and query heads whose sums stay in registers.

    Parameters
    ----------
    shape : LLVM int64
        The shape.
    arguments : tuple
        Those of `dot_columns`, without `shape` and `wanted`.
    load_scales : _Load or None
        Loads the scales of keys that are int8: takes the address of the chunk. None for f16.
    """
    query, offsets, n, source, scores, stride = arguments
    parts, emit = ShapeParts(builder, shape), Emit(builder)
    query_bytes = builder.mul(parts.head_dim(), constant(4))
    size = 2 if load_scales is None else 1

    def write_heads(start: Any, n_heads: int) -> None:
        heads, n_vectors = [builder.add(start, constant(g)) for g in range(n_heads)], tiles[n_heads]
        n_rows = n_vectors * LANES
        queries = [builder.add(query, builder.mul(query_bytes, head)) for head in heads]
        targets = [builder.add(scores, builder.mul(builder.mul(stride, constant(4)), head)) for head in heads]
        if wanted is not None:  # later tiles ask for what they have
            ahead = builder.select(builder.icmp_signed("==", start, constant(0)), wanted, source)
        last = constant(CHUNK_ROWS - n_rows)
        with cgutils.for_range(builder, constant(-(-CHUNK_ROWS // n_rows))) as block:
            first = builder.mul(block.index, constant(n_rows))
            first = builder.select(builder.icmp_signed("<", first, last), first, last)  # it may overlap the one before
            rows = [builder.add(first, constant(i * LANES)) for i in range(n_vectors)]
            totals = [accumulators(builder, emit, n_heads) for _ in rows]
            if wanted is not None and load_scales is not None:
                emit.prefetch(builder.add(ahead, builder.mul(first, constant(2))), n_rows * 2)
            with cgutils.for_range(builder, n) as loop:
                offset = builder.load(emit.pointer(offsets, INT64, loop.index))
                if wanted is not None:
                    place = builder.add(builder.add(ahead, offset), builder.mul(first, constant(size)))
                    emit.prefetch(place, n_rows * size)
                column = builder.add(source, offset)
                if n_heads < n_vectors:  # a register for each weight, else for each key
                    weights = [emit.splat(emit.load_scalar(own, loop.index)) for own in queries]
                    for row, sums in zip(rows, totals, strict=True):
                        key = load(emit, column, row)
                        for weight, total in zip(weights, sums, strict=True):
                            builder.store(emit.fma(weight, key, builder.load(total)), total)
                else:
                    keys = [load(emit, column, row) for row in rows]
                    for g, own in enumerate(queries):
                        weight = emit.splat(emit.load_scalar(own, loop.index))
                        for key, sums in zip(keys, totals, strict=True):
                            builder.store(emit.fma(weight, key, builder.load(sums[g])), sums[g])
            for row, sums in zip(rows, totals, strict=True):
                scale = None if load_scales is None else load_scales(emit, source, row)
                for target, total in zip(targets, sums, strict=True):
                    score = builder.load(total)
                    emit.store(score if scale is None else builder.fmul(score, scale), target, row)

    cover_evenly(builder, parts.group(), len(tiles), write_heads)


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
        shape, query, offsets, n, copy, wanted, scores, stride = args
        arguments = query, offsets, n, copy, scores, stride
        with builder.if_else(ShapeParts(builder, shape).quantised()) as (of_bytes, of_halves):
            with of_bytes:
                _dot(builder, shape, arguments, _TILES_OF_COPY, Emit.load_int8, Emit.load_half, wanted)
            with of_halves:
                _dot(builder, shape, arguments, _TILES_OF_COPY, Emit.load_half, None, wanted)
        return context.get_dummy_value()

    return types.void(SHAPE, *[types.int64] * 7), generate


@intrinsic
def dot_rows_by_column(
    typing: Any, shape: Any, query: Any, offsets: Any, n: Any, keys: Any, scores: Any, stride: Any
) -> Any:
    """Do what `dot_columns` does with the keys' rows of f16: offsets are those of components in a row."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        shape, *arguments = args
        load = _load_strided(ShapeParts(builder, shape).row_bytes())
        _dot(builder, shape, tuple(arguments), _TILES_OF_ROWS, load)
        return context.get_dummy_value()

    return types.void(SHAPE, *[types.int64] * 6), generate


@kernel
def _line_period(shape):
    """Return the number of rows after which rows begin on a cache line again."""
    factor = shape.row_bytes & -shape.row_bytes  # the largest power of two that divides a row
    return CACHE_LINE // min(factor, CACHE_LINE)


@kernel
def count_lines(shape, offsets, n, n_rows):
    """Return how many cache lines hold n components of n_rows neighbouring keys of f16.

    Parameters
    ----------
    offsets : int64
        Address of n int64, rising: offset of each component in a row.
    n, n_rows : int64
        Numbers of components and of rows. The first row begins on a line.
    """
    places, period = array_at(offsets, (n,), np.int64), _line_period(shape)
    whole, last, of_period, of_rest = n_rows // period, -1, 0, 0
    for row in range(period):
        for i in range(n):
            line = (row * shape.row_bytes + places[i]) // CACHE_LINE
            if line > last:
                of_period += 1
                of_rest += row < n_rows % period
                last = line
    return whole * of_period + of_rest
