"""Stored rows of keys and values: their two formats, and the two sums over rows that attention is made of.

f16 : head_dim f16
q8_0 : head_dim int8, then one f32, the row's scale: an element is its int8 times the scale (llama.cpp's q8_0 has a
    scale for each 32 elements; a whole row's, as asked of a key that is multiplied as a whole, is enough)

Rows are read at any address. A query of q8_0 rows is int8, too: a product of two rows is then one of integers, which
CPUs have an instruction for. Written in vector IR, unrolled over `Shape`, so that accumulators stay in registers.

A list of rows is an array of their addresses, so that rows that lie anywhere cost what neighbours cost. Sums over a
list ask the memory, while they compute, for rows that come AHEAD bytes later in it: a core that only asks for what it
needs next waits for memory most of the time (see README.md). So a list goes on, after its rows, with what will be
wanted after them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import carray, float32, int8, types
from numba.core import cgutils
from numba.extending import intrinsic

from .compile import F16, LANES, Q8_0, Shape, kernel
from .memory import pointer, stack_floats, write_float, write_int32
from .vector import FLOAT, INT16, INT32, INT64, Emit

#: Accumulators that fit in registers beside what they are computed from: 32 registers with AVX-512, else 16.
ACCUMULATORS = 24 if LANES == 16 else 12

#: Vectors of keys that can stay in registers, widened, while one query head after another is multiplied by them.
_WIDENED = 16 if LANES == 16 else 4

#: Rows are asked for when those this many bytes before them are needed.
AHEAD = 3072

_FEATURES = llvmlite.binding.get_host_cpu_features()
#: Bytes that one instruction multiplies by as many and adds in fours: AVX-512 VNNI, AVX-VNNI, or none has it.
_VNNI_BYTES = 64 if _FEATURES.get("avx512vnni") else 32 if _FEATURES.get("avxvnni") else 0
_AVX2 = bool(_FEATURES.get("avx2"))


def width(shape: Shape) -> int:
    """Widest vector that divides a row."""
    return LANES if shape.head_dim % LANES == 0 else 8


def constant(value: int) -> Any:
    """An int64 in IR."""
    return ir.Constant(INT64, value)


def accumulators(builder: Any, emit: Emit, count: int) -> list[Any]:
    """Stack slots that start at zero; LLVM turns them into registers."""
    slots = [cgutils.alloca_once(builder, emit.vector) for _ in range(count)]
    for slot in slots:
        builder.store(emit.constant(0.0), slot)
    return slots


def parts(total: int, most: int) -> list[range]:
    """Split range(total) into as few, nearly equal parts of at most `most` as there can be."""
    count = -(-total // most)
    bounds = [total * i // count for i in range(count + 1)]
    return [range(start, stop) for start, stop in itertools.pairwise(bounds)]


def load_row(emit: Emit, shape: Shape, row: Any, columns: Iterable[int]) -> dict[int, Any]:
    """A stored row's elements as numbers: for each of these columns the vector that starts there."""
    if shape.kv_type == F16:
        return {column: emit.load_half(row, column) for column in columns}
    scale = emit.splat(_load_scale(emit, shape, row))
    return {column: emit.builder.fmul(emit.load_int8(row, column), scale) for column in columns}


def _load_scale(emit: Emit, shape: Shape, row: Any) -> Any:
    """The scale of a q8_0 row."""
    return emit.load_scalar(emit.builder.add(row, constant(shape.head_dim)))


def _sums(emit: Emit, vectors: list[Any], add: Any) -> Any:
    """The sums of 4 or 8 vectors, at most as many as they have lanes, as one vector.

    Of each two vectors, one keeps every other lane and the other the rest, and takes what lay beside them.
    """
    lanes, step = vectors[0].type.count, 1
    while len(vectors) > 1:
        own = [lane + lanes * (lane // step % 2) for lane in range(lanes)]
        beside = [(lane ^ step) + lanes * (lane // step % 2) for lane in range(lanes)]
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [add(emit.shuffle(x, y, own), emit.shuffle(x, y, beside)) for x, y in pairs]
        step *= 2
    total = vectors[0]
    while lanes > step:
        lanes //= 2
        low, high = list(range(lanes)), list(range(lanes, 2 * lanes))
        total = add(emit.shuffle(total, total, low), emit.shuffle(total, total, high))
    return total


def _dot_halves(emit: Emit, shape: Shape, query: Any, rows: list[Any]) -> Iterator[tuple[int, list[Any]]]:
    """For each query head, the products with each f16 row: vectors whose lanes are still to be added."""
    columns = range(0, shape.head_dim, emit.lanes)
    heads_at_once, widened = max(1, ACCUMULATORS // len(rows)), {}
    if heads_at_once < shape.group and len(rows) * len(columns) <= _WIDENED:
        heads_at_once = 1
        widened = {(r, column): emit.load_half(row, column) for r, row in enumerate(rows) for column in columns}
    for heads in parts(shape.group, heads_at_once):
        totals: dict[tuple[int, int], Any] = {}
        for column in columns:
            queries = {g: emit.load_float(query, g * shape.head_dim + column) for g in heads}
            for r, row in enumerate(rows):
                key = widened[r, column] if widened else emit.load_half(row, column)
                for g in heads:
                    if column == 0:
                        totals[g, r] = emit.builder.fmul(key, queries[g])
                    else:
                        totals[g, r] = emit.fma(key, queries[g], totals[g, r])
        for g in heads:
            yield g, [totals[g, r] for r in range(len(rows))]


def _byte_blocks(head_dim: int) -> list[tuple[int, int]]:
    """(column, length) of the blocks of bytes that a q8_0 row is multiplied in."""
    widest = _VNNI_BYTES or 2 * LANES
    blocks, column = [], 0
    while column < head_dim:
        length = next(n for n in (64, 32, 16, 8) if n <= min(widest, head_dim - column))
        blocks.append((column, length))
        column += length
    return blocks


def _flips_signs(length: int) -> bool:
    """Whether keys of a block of this length are taken as unsigned, 128 more than they are."""
    return _VNNI_BYTES > 0 and length > 8


def _multiply_bytes(emit: Emit, key: Any, query: Any, total: Any) -> Any:
    """total + key * query, int8 vectors, neighbours added: in fours with VNNI, else in pairs. int32."""
    builder, length = emit.builder, key.type.count
    if _flips_signs(length):  # the instruction takes one side unsigned
        integers = ir.VectorType(INT32, length // 4)
        name, function_type = f"llvm.x86.avx512.vpdpbusd.{length * 8}", ir.FunctionType(integers, [integers] * 3)
        function = cgutils.get_or_insert_function(builder.module, function_type, name)
        flipped = builder.xor(key, ir.Constant(key.type, [-128] * length))
        total = total if total is not None else ir.Constant(integers, [0] * integers.count)
        return builder.call(function, [total, builder.bitcast(flipped, integers), builder.bitcast(query, integers)])
    words, integers = ir.VectorType(INT16, length), ir.VectorType(INT32, length // 2)
    key, query = builder.sext(key, words), builder.sext(query, words)
    if _AVX2 and length == 16:
        function_type = ir.FunctionType(integers, [words] * 2)
        function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.x86.avx2.pmadd.wd")
        pairs = builder.call(function, [key, query])
    else:
        products = builder.sext(builder.mul(key, query), ir.VectorType(INT32, length))  # 127 * 127 fits a word
        even, odd = (emit.shuffle(products, products, list(range(first, length, 2))) for first in (0, 1))
        pairs = builder.add(even, odd)
    return builder.add(total, pairs) if total is not None else pairs


def _dot_bytes(emit: Emit, shape: Shape, query: Any, rows: list[Any]) -> Iterator[tuple[int, list[Any]]]:
    """For each query head, the products with each q8_0 row: int32 vectors whose lanes are still to be added."""
    blocks = _byte_blocks(shape.head_dim)
    for heads in parts(shape.group, max(1, ACCUMULATORS // len(rows))):
        totals: dict[tuple[int, int], Any] = {}
        for column, length in blocks:
            queries = {g: emit.load_bytes(query, g * shape.head_dim + column, length) for g in heads}
            for r, row in enumerate(rows):
                key = emit.load_bytes(row, column, length)
                for g in heads:
                    totals[g, r] = _add_block(emit, key, queries[g], totals.get((g, r)))
        for g in heads:
            yield g, [totals[g, r] for r in range(len(rows))]


def _add_block(emit: Emit, key: Any, query: Any, total: Any) -> Any:
    """`_multiply_bytes` where a last, shorter block has fewer lanes than the blocks before it."""
    lanes = key.type.count // (4 if _flips_signs(key.type.count) else 2)
    if total is None or total.type.count == lanes:
        return _multiply_bytes(emit, key, query, total)
    short = _multiply_bytes(emit, key, query, None)
    zeros = ir.Constant(short.type, [0] * lanes)
    lengthened = [min(lane, lanes) for lane in range(total.type.count)]  # lane `lanes` is the first zero
    return emit.builder.add(total, emit.shuffle(short, zeros, lengthened))


def _scores_of_bytes(emit: Emit, shape: Shape, query: Any, g: int, sums: Any, scales: Any) -> Any:
    """int32 sums as scores: less what flipped signs added, times both scales."""
    builder = emit.builder
    many = isinstance(sums.type, ir.VectorType)
    after_bytes = builder.add(query, constant(shape.group * shape.head_dim))
    scale = emit.load_scalar(after_bytes, g)
    offset = builder.load(emit.pointer(after_bytes, INT32, shape.group + g))
    if many:
        ones = [0] * sums.type.count
        undefined = ir.Constant(ir.VectorType(FLOAT, len(ones)), ir.Undefined)
        scale = emit.shuffle(builder.insert_element(undefined, scale, ir.Constant(INT32, 0)), undefined, ones)
        undefined = ir.Constant(sums.type, ir.Undefined)
        offset = emit.shuffle(builder.insert_element(undefined, offset, ir.Constant(INT32, 0)), undefined, ones)
    floats = builder.sitofp(builder.sub(sums, offset), scale.type)
    return builder.fmul(floats, builder.fmul(scale, scales))


def _score_rows(emit: Emit, shape: Shape, query: Any, rows: list[Any], scores: Any, stride: Any) -> None:
    """scores[g * stride + r] = query[g] . rows[r], for a multiple of four rows or for one."""
    builder, quantised = emit.builder, shape.kv_type == Q8_0
    scales = [_load_scale(emit, shape, row) for row in rows] if quantised else []
    add = builder.add if quantised else builder.fadd
    for g, products in (_dot_bytes if quantised else _dot_halves)(emit, shape, query, rows):
        first = builder.mul(stride, constant(g))
        if len(rows) == 1:
            total = emit.sum_integers(products[0]) if quantised else emit.sum(products[0])
            if quantised:
                total = _scores_of_bytes(emit, shape, query, g, total, scales[0])
            builder.store(total, emit.pointer(scores, FLOAT, first))
            continue
        at_once = min(len(rows), products[0].type.count)
        for r in range(0, len(rows), at_once):
            sums = _sums(emit, products[r : r + at_once], add)
            if quantised:
                row_scales = ir.Constant(ir.VectorType(FLOAT, at_once), ir.Undefined)
                for i, scale in enumerate(scales[r : r + at_once]):
                    row_scales = builder.insert_element(row_scales, scale, ir.Constant(INT32, i))
                sums = _scores_of_bytes(emit, shape, query, g, sums, row_scales)
            emit.store(sums, scores, builder.add(first, constant(r)))


def rows_at_once(shape: Shape) -> int:
    """Rows that `dot_listed` takes at once, and that a list is to be filled up to a multiple of."""
    return 8 if shape.group * 8 <= ACCUMULATORS else 4


def rows_ahead(shape: Shape) -> int:
    """Rows that a list goes on for, after those that are summed."""
    return min(32, max(8, AHEAD // shape.row_bytes))


@intrinsic
def _rows_at_once(typing: Any, shape: Any) -> Any:
    return types.int64(shape), lambda context, builder, signature, args: constant(rows_at_once(shape.shape))


@intrinsic
def _dot_listed(typing: Any, shape: Any, query: Any, listed: Any, scores: Any, stride: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, query, listed, scores, stride = args
        emit = Emit(builder, width(shape.shape))
        count, ahead = rows_at_once(shape.shape), rows_ahead(shape.shape)
        for r in range(count):
            emit.prefetch(builder.load(emit.pointer(listed, INT64, r + ahead)), shape.shape.row_bytes)
        rows = [builder.load(emit.pointer(listed, INT64, r)) for r in range(count)]
        _score_rows(emit, shape.shape, query, rows, scores, stride)
        return context.get_dummy_value()

    return types.void(shape, *[types.int64] * 4), generate


@kernel
def dot_listed(shape, query, listed, n_rows, scores, stride):
    """scores[g * stride + r] = query[g] . key r for every query head of the group and n_rows listed rows.

    query : address of what `load_query` left
    listed : address of the rows' addresses, which goes on for `rows_ahead` rows
    scores : address of f32, `stride` elements from one query head to the next
    Works on `rows_at_once` rows at a time: list and scores need room, and the list rows, up to a multiple of that.
    """
    count = _rows_at_once(shape)
    for row in range(0, n_rows, count):
        _dot_listed(shape, query, listed + row * 8, scores + row * 4, stride)


@intrinsic
def _dot_neighbours(typing: Any, shape: Any, query: Any, rows: Any, scores: Any, stride: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, query, first, scores, stride = args
        emit = Emit(builder, width(shape.shape))
        count, row_bytes = rows_at_once(shape.shape), shape.shape.row_bytes
        emit.prefetch(builder.add(first, constant(AHEAD)), count * row_bytes)
        rows = [builder.add(first, constant(r * row_bytes)) for r in range(count)]
        _score_rows(emit, shape.shape, query, rows, scores, stride)
        return context.get_dummy_value()

    return types.void(shape, *[types.int64] * 4), generate


@intrinsic
def _dot_one(typing: Any, shape: Any, query: Any, row: Any, scores: Any, stride: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, query, row, scores, stride = args
        _score_rows(Emit(builder, width(shape.shape)), shape.shape, query, [row], scores, stride)
        return context.get_dummy_value()

    return types.void(shape, *[types.int64] * 4), generate


@kernel
def dot(shape, query, rows, n_rows, scores, stride):
    """`dot_listed` of n_rows rows that lie one after another from the address `rows` on."""
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
    """out[g] += sum over r of weights[g * stride + r] * value r, for n_rows listed rows.

    weights : address of f32, `stride` elements from one query head to the next
    listed : as for `dot_listed`    out : address of (group, head_dim) f32
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
                    value = load_row(emit, shape.shape, row, [column * emit.lanes for column in columns])
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
    """Copy a stored row to head_dim f32; both are addresses."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, row, floats = args
        emit = Emit(builder, width(shape.shape))
        for column, part in load_row(emit, shape.shape, row, range(0, shape.shape.head_dim, emit.lanes)).items():
            emit.store(part, floats, column)
        return context.get_dummy_value()

    return types.void(shape, types.int64, types.int64), generate


def query_bytes(shape: Shape) -> int:
    """Room that `load_query` needs."""
    return shape.group * (shape.head_dim + 8) if shape.kv_type == Q8_0 else 0


@kernel
def load_query(shape, query, room):
    """What `dot` and `dot_listed` take for a group's query: itself, or for q8_0 rows its int8 in `room`.

    query : address of (group, head_dim) f32
    room : address of (group, head_dim) int8, then the group's scales, f32, and offsets, int32
    """
    if not shape.quantised:
        return query
    scales = room + shape.group * shape.head_dim
    for g in range(shape.group):
        row = room + g * shape.head_dim
        write_float(scales + g * 4, quantise(shape, query + g * shape.head_dim * 4, row))
        elements = carray(pointer(row), (shape.head_dim,), np.int8)
        total = 0
        for i in range(_flipped_columns(shape)):
            total += elements[i]
        write_int32(scales + (shape.group + g) * 4, np.int32(128 * total))
    return room


@intrinsic
def _flipped_columns(typing: Any, shape: Any) -> Any:
    """Columns of a q8_0 row whose signs `dot` flips."""
    flipped = sum(length for _, length in _byte_blocks(shape.shape.head_dim) if _flips_signs(length))
    return types.int64(shape), lambda context, builder, signature, args: constant(flipped)


@kernel
def quantise(shape, floats, target):
    """head_dim f32 as int8, both at addresses; returns the scale. Not finite: a scale of NaN, so that it shows."""
    source = carray(pointer(floats), (shape.head_dim,), np.float32)
    elements = carray(pointer(target), (shape.head_dim,), np.int8)
    largest, total = float32(0), float32(0)
    for i in range(shape.head_dim):
        largest = max(largest, abs(source[i]))
        total += source[i] * float32(0)
    inverse = float32(127) / largest if largest > 0 else float32(0)
    for i in range(shape.head_dim):
        elements[i] = int8(np.rint(source[i] * inverse)) if total == 0 else int8(0)
    return largest / float32(127) + total


@kernel
def quantise_halves(shape, halves, row):
    """Store head_dim f16 at an address as a q8_0 row at another."""
    floats = stack_floats(shape)
    widen_row(shape.of_halves, halves, floats)
    write_float(row + shape.head_dim, quantise(shape, floats, row))
