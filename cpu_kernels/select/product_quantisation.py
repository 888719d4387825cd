"""Quantise rows by products: short codes, from which products with a query are looked up.

The columns of a row are dealt into n_codes parts of equal size. Each part has CODES centroids, its codebook, and a row
keeps the number of the nearest one of each part: 4 bits (Jegou et al. 2011, "Product quantization for nearest neighbor
search"). The product of a query with a row is then a sum of n_codes numbers, one from a table for each part. The tables
are uint8, and so small that they stay in registers: one shuffle looks up the codes of 32 rows (Andre et al. 2015,
"Cache locality is not enough: high-performance nearest neighbor search with product quantization fast scan").

Layout: a codebook is (columns, CODES) f32, so that the distances to all centroids are vectors; the parts' codebooks are
contiguous. Codes are in blocks of BLOCK_ROWS rows: HALF_BLOCK bytes for each code, the first half of the rows in the
low 4 bits.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import float32, types
from numba.core import cgutils
from numba.extending import intrinsic

from ..numba_support.compile import kernel, layout
from ..numba_support.machine_features import HAS_AVX2, LANES
from ..numba_support.shape import SHAPE, ShapeParts
from ..numba_support.vector import (
    ACCUMULATORS,
    INT8,
    INT16,
    INT64,
    Emit,
    add,
    constant,
    cover_evenly,
    load,
    max_of,
    maximum,
    multiply,
    parts,
    splat,
    store,
    subtract,
    sum_of,
)
from ..numba_support.views import array_at

#: Centroids of a part: as many as 4 bits distinguish.
CODES = 16

#: Rows of a block, and bytes of one code of all of them.
BLOCK_ROWS, HALF_BLOCK = 64, 32

#: Rows and query heads whose weights are added by code at once, and copies of the sums.
ROWS, HEADS, _COPIES = 8, 4, 4

#: Largest number in a table, and largest sum of one from each.
_LARGEST, _LARGEST_SUM = 255, 65535

#: Query heads whose products are looked up at once: their sums stay in registers.
_LOOKED_UP = ACCUMULATORS // 6

_TRIPLE = llvmlite.binding.get_default_triple()
_ON_ARM = _TRIPLE.startswith(("aarch64", "arm64"))


@kernel
def write_codes(codes, number, found):
    """Write code `number` of all rows of a block, BLOCK_ROWS int32 at an address."""
    places, numbers = (
        array_at(codes + number * HALF_BLOCK, (HALF_BLOCK,), np.uint8),
        array_at(found, (2, HALF_BLOCK), np.int32),
    )
    for i in range(HALF_BLOCK):
        places[i] = numbers[0, i] | numbers[1, i] << 4


@layout
def table_sizes(shape):
    """Return the sizes of the room for `fill_tables`, in bytes.

    Returns
    -------
    factors, work, end : int64
        Offsets of (2, group) f32, after the tables, (group, n_codes, CODES) uint8; and of memory to work in. Its size.
    """
    most_codes = shape.head_dim // 2
    factors = most_codes * shape.group * CODES
    work = factors + (8 * shape.group + 63) // 64 * 64
    return factors, work, work + most_codes * CODES * 4


@kernel
def fill_tables(shape, query, n_codes, order, codebooks, room):
    """Make the tables of a token's query heads: what each centroid contributes to a product, above the least, as uint8.

    Parameters
    ----------
    query : int64
        Address of (group, head_dim) f32, scaled.
    order : int64
        Address of head_dim int32 (see `deal_columns`).
    codebooks : int64
        Address of the parts' codebooks.
    room : int64
        Address of the tables and their factors, which it receives, and of memory to work in (see `table_sizes`).
    """
    group, head_dim, size = shape.group, shape.head_dim, shape.head_dim // n_codes
    queries = array_at(query, (group, head_dim), np.float32)
    columns = array_at(order, (head_dim,), np.int32)
    tables, factors = array_at(room, (group, n_codes, CODES), np.uint8), factors_of(shape, room)
    work = room + table_sizes(shape)[1]
    products = array_at(work, (n_codes, CODES), np.float32)
    for g in range(group):
        widest, offset, every = float32(0), float32(0), splat(float32(0))
        for part in range(n_codes):
            highest = negated = splat(float32(-np.inf))
            for first in range(0, CODES, LANES):
                total = splat(float32(0))
                for i in range(part * size, (part + 1) * size):
                    weight = splat(queries[g, columns[i]])
                    total = add(total, multiply(weight, load(codebooks + (i * CODES + first) * 4)))
                store(work + (part * CODES + first) * 4, total)
                highest, negated = maximum(highest, total), maximum(negated, subtract(splat(float32(0)), total))
                every = add(every, total)
            low, high = -max_of(negated), max_of(highest)
            offset += low
            widest = max(widest, high - low)
            for code in range(CODES):
                products[part, code] -= low
        if math.isnan(sum_of(every)):  # the largest lane ignores NaN, which must reach the scores
            offset = float32(np.nan)
        unit = widest / float32(min(_LARGEST, _LARGEST_SUM // n_codes))
        inverse = float32(1) / unit if unit > 0 else float32(0)
        for part in range(n_codes):
            for code in range(CODES):
                tables[g, part, code] = np.uint8(np.int32(products[part, code] * inverse + float32(0.5)))
        factors[0, g], factors[1, g] = unit, offset


@kernel
def factors_of(shape, room):
    """View the factors and summands for the sums of each query head's table entries, (2, group) f32."""
    return array_at(room + table_sizes(shape)[0], (2, shape.group), np.float32)


def _shuffle(builder: Any, table: Any, numbers: Any) -> Any:
    """Look up 32 numbers below CODES in a table of CODES int8."""
    both = list(range(CODES)) * 2
    if HAS_AVX2:
        wide = builder.shuffle_vector(table, table, ir.Constant(ir.VectorType(ir.IntType(32), 32), both))
        return _call(builder, "llvm.x86.avx2.pshuf.b", wide, numbers)
    name = "llvm.aarch64.neon.tbl1.v16i8" if _ON_ARM else "llvm.x86.ssse3.pshuf.b.128"
    found = []
    for first in (0, 16):
        half = ir.Constant(ir.VectorType(ir.IntType(32), 16), list(range(first, first + 16)))
        found.append(_call(builder, name, table, builder.shuffle_vector(numbers, numbers, half)))
    return builder.shuffle_vector(*found, ir.Constant(ir.VectorType(ir.IntType(32), 32), list(range(32))))


def _call(builder: Any, name: str, table: Any, numbers: Any) -> Any:
    signature = ir.FunctionType(numbers.type, [numbers.type] * 2)
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), [table, numbers])


@intrinsic
def look_up(
    typing: Any,
    shape: Any,
    tables: Any,
    factors: Any,
    n_codes: Any,
    codes: Any,
    offsets: Any,
    step: Any,
    scores: Any,
    stride: Any,
) -> Any:
    """Score the rows of a block by their codes.

    Parameters
    ----------
    tables, factors : int64
        Addresses of what `fill_tables` wrote: its room, and the factors in it.
    codes : int64
        Address of the block's codes.
    offsets : int64
        Address of a summand for the scores of the first query head, f32.
    step : int64
        Floats from there to the next query head's.
    scores : int64
        Address of the first query head's scores, BLOCK_ROWS f32.
    stride : int64
        Floats from one query head's scores to the next one's.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        shape, tables, factors, n_codes, codes, offsets, step, scores, stride = args
        emit, words, eight = Emit(builder), ir.VectorType(INT16, HALF_BLOCK // 2), [8] * (HALF_BLOCK // 2)
        mask, four = ([value] * HALF_BLOCK for value in (CODES - 1, 4))
        in_order = [lane // 2 + lane % 2 * (HALF_BLOCK // 2) for lane in range(HALF_BLOCK)]

        def write(start: Any, n_heads: int) -> None:
            heads = [builder.add(start, constant(g)) for g in range(n_heads)]
            table_bytes = builder.mul(n_codes, constant(CODES))
            own_tables = [builder.add(tables, builder.mul(table_bytes, head)) for head in heads]
            # Of the bytes that are found, words sum up all, and others only the upper ones: those of odd rows.
            totals = [[[cgutils.alloca_once(builder, words) for _ in range(2)] for _ in range(2)] for _ in heads]
            for total in itertools.chain(*itertools.chain(*totals)):
                builder.store(ir.Constant(words, [0] * (HALF_BLOCK // 2)), total)
            with cgutils.for_range(builder, n_codes) as loop:
                packed = emit.load_bytes(codes, builder.mul(loop.index, constant(HALF_BLOCK)), HALF_BLOCK)
                low = builder.and_(packed, ir.Constant(packed.type, mask))
                high = builder.lshr(packed, ir.Constant(packed.type, four))
                for table_address, own in zip(own_tables, totals, strict=True):
                    table = emit.load_bytes(table_address, builder.mul(loop.index, constant(CODES)), CODES)
                    for numbers, (every, odd) in zip((low, high), own, strict=True):
                        found = builder.bitcast(_shuffle(builder, table, numbers), words)
                        builder.store(builder.add(builder.load(every), found), every)
                        upper = builder.lshr(found, ir.Constant(words, eight))
                        builder.store(builder.add(builder.load(odd), upper), odd)
            for head, own in zip(heads, totals, strict=True):
                place = builder.mul(stride, head)
                factor = emit.splat(emit.load_scalar(factors, head))
                offset = emit.splat(emit.load_scalar(offsets, builder.mul(step, head)))
                for half, (every, odd) in enumerate(own):
                    of_odd = builder.load(odd)
                    of_even = builder.sub(builder.load(every), builder.shl(of_odd, ir.Constant(words, eight)))
                    summed = emit.shuffle(of_even, of_odd, in_order)
                    for lanes in parts(HALF_BLOCK, LANES):
                        part = builder.zext(emit.shuffle(summed, summed, list(lanes)), emit.integers)
                        result = emit.fma(builder.sitofp(part, emit.vector), factor, offset)
                        emit.store(result, scores, builder.add(place, constant(half * HALF_BLOCK + lanes.start)))

        cover_evenly(builder, ShapeParts(builder, shape).group(), _LOOKED_UP, write)
        return context.get_dummy_value()

    return types.void(SHAPE, *[types.int64] * 8), generate


@layout
def code_sums_bytes(shape):
    """Return the room for the sums of `add_by_code`, in bytes."""
    return -(-shape.group // HEADS) * CODES * _COPIES * HEADS * 4


@intrinsic
def add_by_code(
    typing: Any, shape: Any, weights: Any, stride: Any, factors: Any, codes: Any, step: Any, n_blocks: Any, sums: Any
) -> Any:
    """Add the weights of the rows of each code: sums[g, code] += factors[g] * the weights of its rows.

    A row's weights for HEADS query heads are one vector, which is added where its code says. Adjacent rows have copies
    of the sums of their own: so equal codes do not wait for each other.

    Parameters
    ----------
    weights : int64
        Address of the first query head's weights, BLOCK_ROWS f32 a block.
    stride : int64
        Floats from there to those of the next query head.
    factors : int64
        Address of (group,) f32.
    codes : int64
        Address of one code of the first block's rows, HALF_BLOCK bytes.
    step : int64
        Bytes from there to that of the next block.
    sums : int64
        Address of (group / HEADS, CODES, _COPIES, HEADS) f32.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        shape, weights, stride, factors, codes, step, n_blocks, sums = args
        emit, few, group = Emit(builder, ROWS), Emit(builder, HEADS), ShapeParts(builder, shape).group()
        row_bytes = constant(_COPIES * HEADS * 4)

        def add_row(totals: Any, packed: Any, row: int, own: Any) -> None:
            code = builder.and_(builder.lshr(packed, constant(8 * row)), constant(CODES - 1))
            place, offset = builder.add(totals, builder.mul(code, row_bytes)), row % _COPIES * HEADS
            few.store(builder.fadd(few.load_float(place, offset), own), place, offset)

        n_tiles = builder.udiv(builder.add(group, constant(HEADS - 1)), constant(HEADS))
        with cgutils.for_range(builder, n_tiles) as tile:
            start, last = builder.mul(tile.index, constant(HEADS)), builder.sub(group, constant(1))
            heads = [builder.add(start, constant(g)) for g in range(HEADS)]
            heads = [builder.select(builder.icmp_signed("<", head, last), head, last) for head in heads]
            scales = [emit.splat(emit.load_scalar(factors, head)) for head in heads]
            own_weights = [builder.add(weights, builder.mul(builder.shl(stride, constant(2)), head)) for head in heads]
            totals = builder.add(sums, builder.mul(tile.index, builder.mul(row_bytes, constant(CODES))))
            with (
                cgutils.for_range(builder, n_blocks) as block,
                cgutils.for_range(builder, constant(HALF_BLOCK // ROWS)) as part,
            ):
                column = builder.mul(part.index, constant(ROWS))
                place = emit.pointer(codes, INT8, builder.add(builder.mul(block.index, step), column))
                packed = builder.load(builder.bitcast(place, INT64.as_pointer()))
                packed.align = 1
                first = builder.add(builder.mul(block.index, constant(BLOCK_ROWS)), column)
                for half, shift in enumerate((0, 4)):
                    row = builder.add(first, constant(half * HALF_BLOCK))
                    loaded = [emit.load_float(address, row) for address in own_weights]
                    scaled = [builder.fmul(vector, scale) for vector, scale in zip(loaded, scales, strict=True)]
                    for number, own in enumerate(transposed(emit, scaled)):
                        add_row(totals, builder.lshr(packed, constant(shift)), number, own)
        return context.get_dummy_value()

    return types.void(SHAPE, *[types.int64] * 7), generate


def transposed(emit: Emit, vectors: list[Any]) -> list[Any]:
    """Return a vector of HEADS for each row, from a vector of ROWS for each query head."""
    w, x, y, z = vectors
    low, high = [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]  # what an AVX instruction interleaves
    pairs = [(emit.shuffle(w, x, lanes), emit.shuffle(y, z, lanes)) for lanes in (low, high)]
    rows = {}
    for first, (left, right) in zip((0, 2), pairs, strict=True):
        for second, lanes in enumerate(([0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15])):
            both = emit.shuffle(left, right, lanes)
            for third in (0, 4):
                rows[first + second + third] = emit.shuffle(both, both, list(range(third, third + HEADS)))
    return [rows[number] for number in range(ROWS)]


@kernel
def finish_code_sums(shape, room, sums):
    """Add up the copies of the sums of `add_by_code`, into (group, CODES) f32 at an address."""
    copies = array_at(room, (-(-shape.group // HEADS), CODES, _COPIES, HEADS), np.float32)
    result = array_at(sums, (shape.group, CODES), np.float32)
    for g in range(shape.group):
        for code in range(CODES):
            total = float32(0)
            for copy in range(_COPIES):
                total += copies[g // HEADS, code, copy, g % HEADS]
            result[g, code] = total
