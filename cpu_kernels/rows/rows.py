"""Read stored rows of keys and values, and compute the two sums of attention over rows: q . k and w v.

Rows have one of three formats:
  f16 : head_dim f16
  q8_0 : head_dim int8, then one f32, the scale of the row: an element is its int8 times the scale. (llama.cpp's q8_0
      has a scale for each 32 elements. One for each row suffices if whole rows are multiplied.)
  q4_0 : head_dim numbers of 4 bits, then an f16 for each 32 of them, their scale (see q4_0.py). The row is rotated
      before it is rounded (see rotation.py).
A row may have any address. Queries of q8_0 and q4_0 keys also become int8 (see q8_0.py).

Only this file sees rotation: `load_query` rotates queries, and widening a row restores it. Sums of stored rows stay
rotated: those of `add_weighted` and `widen_stored_row`.

The sums are written in vector IR and unrolled over `Shape`, so that accumulators stay in registers.

A list of rows is an array of their addresses, so that scattered rows cost as much as neighbours. While a sum computes,
it prefetches the rows that come AHEAD bytes later in its list: a core that requests only what it needs next waits for
memory most of the time (see README.md). So a list continues, after the rows to sum, with rows that are needed later.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..numba_support.compile import F16, Q4_0, Q8_0, Shape, kernel
from ..numba_support.memory import stack_floats, write_float
from ..numba_support.vector import ACCUMULATORS, HALF, INT64, Emit, accumulators, constant, parts
from .products import score_rows
from .q4_0 import load_nibble_query, load_nibbles, nibble_query, pack_row
from .q8_0 import load_scale, quantise, quantise_query, quantised_query
from .rotation import rotate_vectors, width

#: Distance in bytes of prefetching from computing.
AHEAD = 3072


def load_row(emit: Emit, shape: Shape, row: Any) -> dict[int, Any]:
    """Load a stored row as f32.

    Returns
    -------
    dict of int to LLVM vector
        The vector that starts at each column.
    """
    columns = range(0, shape.head_dim, emit.lanes)
    stored = load_stored_row(emit, shape, row, columns)
    if shape.kv_type != Q4_0:
        return stored
    rotated_back = rotate_vectors(emit, shape.head_dim, [stored[column] for column in columns])
    return dict(zip(columns, rotated_back, strict=True))


def load_stored_row(emit: Emit, shape: Shape, row: Any, columns: Iterable[int]) -> dict[int, Any]:
    """Load vectors of a row as f32, in stored form: q4_0 stays rotated.

    Returns
    -------
    dict of int to LLVM vector
        The vector for each column.
    """
    if shape.kv_type == F16:
        return {column: emit.load_half(row, column) for column in columns}
    if shape.kv_type == Q4_0:
        return load_nibbles(emit, shape, row, list(columns))
    scale = emit.splat(load_scale(emit, shape, row))
    return {column: emit.builder.fmul(emit.load_int8(row, column), scale) for column in columns}


def rows_at_once(shape: Shape) -> int:
    """Return how many rows, 4 or 8, `dot_listed` takes at once. Lists are padded to a multiple of that."""
    return 8 if shape.group * 8 <= ACCUMULATORS else 4


def rows_ahead(shape: Shape) -> int:
    """Return how many rows a list must have after the summed ones, for prefetching: 8 to 32, or 64 for q4_0."""
    most = 64 if shape.kv_type == Q4_0 else 32  # 32 short rows are too few bytes
    return min(most, max(8, AHEAD // shape.row_bytes))


@intrinsic
def _rows_at_once(typing: Any, shape: Any) -> Any:
    """Return `rows_at_once`, in a kernel."""
    return types.int64(shape), lambda context, builder, signature, args: constant(rows_at_once(shape.shape))


@intrinsic
def _dot_listed(typing: Any, shape: Any, query: Any, listed: Any, scores: Any, stride: Any) -> Any:
    """Score the first `rows_at_once` rows of a list."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, query, listed, scores, stride = args
        emit = Emit(builder, width(shape.shape))
        count, ahead = rows_at_once(shape.shape), rows_ahead(shape.shape)
        for r in range(count):
            emit.prefetch(builder.load(emit.pointer(listed, INT64, r + ahead)), shape.shape.row_bytes)
        rows = [builder.load(emit.pointer(listed, INT64, r)) for r in range(count)]
        score_rows(emit, shape.shape, query, rows, scores, stride)
        return context.get_dummy_value()

    return types.void(shape, *[types.int64] * 4), generate


@kernel
def dot_listed(shape, query, listed, n_rows, scores, stride):
    """Score listed rows: scores[g * stride + r] = query[g] . key r for each query head of the group.

    It takes `rows_at_once` rows at a time: the list must name rows, and the scores have space, up to a multiple of
    that.

    Parameters
    ----------
    query : int64
        Address that `load_query` returned.
    listed : int64
        Address of the addresses of the rows, int64. The list continues for `rows_ahead` rows.
    scores : int64
        Address of the scores, f32.
    stride : int64
        Elements from the scores of one query head to those of the next.
    """
    count = _rows_at_once(shape)
    for row in range(0, n_rows, count):
        _dot_listed(shape, query, listed + row * 8, scores + row * 4, stride)


@intrinsic
def _dot_neighbours(typing: Any, shape: Any, query: Any, rows: Any, scores: Any, stride: Any) -> Any:
    """Score `rows_at_once` neighbouring rows."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, query, first, scores, stride = args
        emit = Emit(builder, width(shape.shape))
        count, row_bytes = rows_at_once(shape.shape), shape.shape.row_bytes
        emit.prefetch(builder.add(first, constant(AHEAD)), count * row_bytes)
        rows = [builder.add(first, constant(r * row_bytes)) for r in range(count)]
        score_rows(emit, shape.shape, query, rows, scores, stride)
        return context.get_dummy_value()

    return types.void(shape, *[types.int64] * 4), generate


@intrinsic
def _dot_one(typing: Any, shape: Any, query: Any, row: Any, scores: Any, stride: Any) -> Any:
    """Score one row."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, query, row, scores, stride = args
        score_rows(Emit(builder, width(shape.shape)), shape.shape, query, [row], scores, stride)
        return context.get_dummy_value()

    return types.void(shape, *[types.int64] * 4), generate


@kernel
def dot(shape, query, rows, n_rows, scores, stride):
    """Score neighbouring rows: scores[g * stride + r] = query[g] . key r for each query head of the group.

    Parameters
    ----------
    query : int64
        Address that `load_query` returned.
    scores : int64
        Address of the scores, f32.
    stride : int64
        Elements from the scores of one query head to those of the next.
    """
    count = _rows_at_once(shape)
    row = 0
    while row + count <= n_rows:
        _dot_neighbours(shape, query, rows + row * shape.row_bytes, scores + row * 4, stride)
        row += count
    while row < n_rows:
        _dot_one(shape, query, rows + row * shape.row_bytes, scores + row * 4, stride)
        row += 1


@intrinsic
def add_weighted(typing: Any, shape: Any, weights: Any, stride: Any, listed: Any, n_rows: Any, out: Any) -> Any:
    """Add weighted rows: out[g] += sum over r of weights[g * stride + r] * value r, in stored form.

    The sums of q4_0 rows are rotated: `rotate_row` turns them into sums of the values.

    Parameters
    ----------
    weights : int64
        Address of the weights, f32.
    stride : int64
        Elements from the weights of one query head to those of the next.
    listed : int64
        Address of the addresses of the rows, int64. The list continues for `rows_ahead` rows.
    out : int64
        Address of (group, head_dim) f32.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, weights, stride, listed, n_rows, out = args
        head_dim, group = shape.shape.head_dim, shape.shape.group
        emit = Emit(builder, width(shape.shape))
        for heads in parts(group, ACCUMULATORS):
            for columns in parts(head_dim // emit.lanes, ACCUMULATORS // len(heads)):
                places = [(g, column * emit.lanes) for g in heads for column in columns]
                totals = accumulators(builder, emit, len(places))
                with cgutils.for_range(builder, n_rows) as loop:
                    row = builder.load(emit.pointer(listed, INT64, loop.index))
                    if heads.start == columns.start == 0:
                        later = builder.add(loop.index, constant(rows_ahead(shape.shape)))
                        emit.prefetch(builder.load(emit.pointer(listed, INT64, later)), shape.shape.row_bytes)
                    value = load_stored_row(emit, shape.shape, row, [column * emit.lanes for column in columns])
                    for g in heads:
                        place = builder.add(builder.mul(stride, constant(g)), loop.index)
                        weight = emit.splat(emit.load_scalar(weights, place))
                        for (head, column), total in zip(places, totals, strict=True):
                            if head == g:
                                builder.store(emit.fma(weight, value[column], builder.load(total)), total)
                for (g, column), total in zip(places, totals, strict=True):
                    place = g * head_dim + column
                    emit.store(builder.fadd(emit.load_float(out, place), builder.load(total)), out, place)
        return context.get_dummy_value()

    return types.void(shape, *[types.int64] * 5), generate


@intrinsic
def widen_row(typing: Any, shape: Any, row: Any, floats: Any) -> Any:
    """Convert a stored row to f32.

    Parameters
    ----------
    row : int64
        Address of the row.
    floats : int64
        Address of head_dim f32.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, row, floats = args
        emit = Emit(builder, width(shape.shape))
        for column, part in load_row(emit, shape.shape, row).items():
            emit.store(part, floats, column)
        return context.get_dummy_value()

    return types.void(shape, types.int64, types.int64), generate


@intrinsic
def widen_stored_row(typing: Any, shape: Any, row: Any, floats: Any) -> Any:
    """Convert a row to f32 in stored form: q4_0 stays rotated. The parameters are those of `widen_row`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, row, floats = args
        emit = Emit(builder, width(shape.shape))
        columns = range(0, shape.shape.head_dim, emit.lanes)
        for column, part in load_stored_row(emit, shape.shape, row, columns).items():
            emit.store(part, floats, column)
        return context.get_dummy_value()

    return types.void(shape, types.int64, types.int64), generate


@intrinsic
def narrow_row(typing: Any, shape: Any, floats: Any, row: Any) -> Any:
    """Store head_dim f32 as f16.

    Parameters
    ----------
    floats : int64
        Address of head_dim f32.
    row : int64
        Address of head_dim f16, which are written.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, floats, row = args
        emit = Emit(builder, width(shape.shape))
        halves = ir.VectorType(HALF, emit.lanes)
        for column in range(0, shape.shape.head_dim, emit.lanes):
            place = builder.bitcast(emit.pointer(row, HALF, column), halves.as_pointer())
            builder.store(builder.fptrunc(emit.load_float(floats, column), halves), place).align = 2
        return context.get_dummy_value()

    return types.void(shape, types.int64, types.int64), generate


def query_bytes(shape: Shape) -> int:
    """Return the bytes that `load_query` needs to work in; 0 for f16 keys."""
    if shape.kv_type == F16:
        return 0
    size: int = (quantised_query if shape.kv_type == Q8_0 else nibble_query)(shape, 0).end
    return size


@kernel
def load_query(shape, query, room):
    """Convert a group's query for multiplication by `dot` and `dot_listed`.

    Parameters
    ----------
    query : int64
        Address of (group, head_dim) f32.
    room : int64
        Address of `query_bytes` bytes.

    Returns
    -------
    int64
        Address of the converted query: `query` itself for f16 keys, else `room`.
    """
    if not shape.quantised:
        return query
    if shape.rotated:
        load_nibble_query(shape, query, room)
    else:
        quantise_query(shape, query, room)
    return room


@kernel
def quantise_halves(shape, halves, row):
    """Convert a row of f16 to a row of q8_0 or q4_0.

    Parameters
    ----------
    shape : Shape
        Sizes of the kernel, with kv_type Q8_0 or Q4_0.
    halves : int64
        Address of head_dim f16.
    row : int64
        Address of the row, row_bytes bytes.
    """
    floats = stack_floats(shape)
    widen_row(shape.of_halves, halves, floats)
    if shape.rotated:
        pack_row(shape, floats, row)
    else:
        write_float(row + shape.head_dim, quantise(shape, floats, row))
