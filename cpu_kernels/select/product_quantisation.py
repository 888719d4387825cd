"""Quantise rows by products: short codes, from which products with a query are looked up.

The columns of a row are dealt into n_codes parts of equal size. Each part has CODES centroids, its codebook, and a row
keeps the number of the nearest one of each part: 4 bits (Jegou et al. 2011, "Product quantization for nearest neighbor
search"). The product of a query with a row is then a sum of n_codes numbers, one from a table for each part. The tables
are int8, and so small that they stay in registers: one shuffle looks up the codes of 32 rows (Andre et al. 2015, "Cache
locality is not enough: high-performance nearest neighbor search with product quantization fast scan").

Layout: a codebook is (columns, CODES) f32, so that the distances to all centroids are vectors; the parts' codebooks are
contiguous. Codes are in blocks of BLOCK_ROWS rows: HALF_BLOCK bytes for each code, the first half of the rows in the
low 4 bits.
"""

from __future__ import annotations

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

#: Largest number in a table: the sums of 256 parts fit int16.
_LARGEST = 127

_TRIPLE = llvmlite.binding.get_default_triple()
_ON_ARM = _TRIPLE.startswith(("aarch64", "arm64"))


def block_bytes(n_codes: int) -> int:
    """Return the bytes of the codes of a block, n_codes for each row."""
    return n_codes * HALF_BLOCK


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
        Offsets of (2, group) f32, after the tables, (group, n_codes, CODES) int8; and of memory to work in. Its size.
    """
    most_codes = shape.head_dim // 2
    factors = most_codes * shape.group * CODES
    work = factors + (8 * shape.group + 63) // 64 * 64
    return factors, work, work + most_codes * CODES * 4


@kernel
def fill_tables(shape, query, n_codes, order, codebooks, room):
    """Make the tables of a token's query heads: the contribution of each centroid to a product, as int8.

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
    tables, factors = array_at(room, (group, n_codes, CODES), np.int8), factors_of(shape, room)
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
            middle = float32(0.5) * (low + high)
            offset += middle
            widest = max(widest, high - middle)
            for code in range(CODES):
                products[part, code] -= middle
        if math.isnan(sum_of(every)):  # the largest lane ignores NaN, which must reach the scores
            offset = float32(np.nan)
        unit = widest / float32(_LARGEST)
        inverse = float32(1) / unit if unit > 0 else float32(0)
        for part in range(n_codes):
            for code in range(CODES):
                tables[g, part, code] = np.int8(np.rint(products[part, code] * inverse))
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
        emit = Emit(builder)
        mask = ir.Constant(ir.VectorType(INT8, HALF_BLOCK), [15] * HALF_BLOCK)
        four = ir.Constant(ir.VectorType(INT8, HALF_BLOCK), [4] * HALF_BLOCK)
        wide = ir.VectorType(INT16, HALF_BLOCK)
        totals = [cgutils.alloca_once(builder, wide) for _ in range(2)]
        with cgutils.for_range(builder, ShapeParts(builder, shape).group()) as head:
            g = head.index
            for total in totals:
                builder.store(ir.Constant(wide, [0] * HALF_BLOCK), total)
            own_tables = builder.add(tables, builder.mul(n_codes, builder.mul(g, constant(CODES))))
            with cgutils.for_range(builder, n_codes) as loop:
                table = emit.load_bytes(own_tables, builder.mul(loop.index, constant(CODES)), CODES)
                packed = emit.load_bytes(codes, builder.mul(loop.index, constant(HALF_BLOCK)), HALF_BLOCK)
                for total, numbers in zip(
                    totals, (builder.and_(packed, mask), builder.lshr(packed, four)), strict=True
                ):
                    found = builder.sext(_shuffle(builder, table, numbers), wide)
                    builder.store(builder.add(builder.load(total), found), total)
            place = builder.mul(stride, g)
            factor = emit.splat(emit.load_scalar(factors, g))
            offset = emit.splat(emit.load_scalar(offsets, builder.mul(step, g)))
            for half, total in enumerate(totals):
                summed = builder.load(total)
                for lanes in parts(HALF_BLOCK, LANES):
                    part = builder.sext(emit.shuffle(summed, summed, list(lanes)), emit.integers)
                    result = emit.fma(builder.sitofp(part, emit.vector), factor, offset)
                    emit.store(result, scores, builder.add(place, constant(half * HALF_BLOCK + lanes.start)))
        return context.get_dummy_value()

    return types.void(SHAPE, *[types.int64] * 8), generate


@intrinsic
def add_by_code(
    typing: Any, shape: Any, weights: Any, stride: Any, factors: Any, codes: Any, step: Any, n_blocks: Any, sums: Any
) -> Any:
    """Add the weights of the rows of each code: sums[g, code] += factors[g] * the weights of its rows.

    A sum is a vector, whose lanes are still to be added. A row's code is compared with each possible number, for
    several query heads at once, so that no addition waits for the one before.

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
        Address of (group, CODES, LANES) f32.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        shape, weights, stride, factors, codes, step, n_blocks, sums = args
        emit = Emit(builder)
        mask = ir.Constant(ir.VectorType(INT8, HALF_BLOCK), [15] * HALF_BLOCK)
        four = ir.Constant(ir.VectorType(INT8, HALF_BLOCK), [4] * HALF_BLOCK)

        def write(start: Any, n_heads: int) -> None:
            heads = [builder.add(start, constant(g)) for g in range(n_heads)]
            scales = [emit.splat(emit.load_scalar(factors, head)) for head in heads]
            own_weights = [builder.add(weights, builder.mul(builder.mul(stride, constant(4)), head)) for head in heads]

            firsts = [builder.add(sums, builder.mul(head, constant(CODES * LANES * 4))) for head in heads]
            for numbers in parts(CODES, ACCUMULATORS // n_heads):
                places = [(number, g) for number in numbers for g in range(n_heads)]
                totals = [cgutils.alloca_once(builder, emit.vector) for _ in places]
                for (number, g), total in zip(places, totals, strict=True):
                    builder.store(emit.load_float(firsts[g], number * LANES), total)
                with cgutils.for_range(builder, n_blocks) as loop:
                    packed = emit.load_bytes(codes, builder.mul(loop.index, step), HALF_BLOCK)
                    first = builder.mul(loop.index, constant(BLOCK_ROWS))
                    for half, own in enumerate((builder.and_(packed, mask), builder.lshr(packed, four))):
                        for lanes in parts(HALF_BLOCK, LANES):
                            row = builder.add(first, constant(half * HALF_BLOCK + lanes.start))
                            found = builder.zext(emit.shuffle(own, own, list(lanes)), emit.integers)
                            weight = [emit.load_float(address, row) for address in own_weights]
                            for (number, g), total in zip(places, totals, strict=True):
                                equal = builder.icmp_signed("==", found, ir.Constant(emit.integers, [number] * LANES))
                                before = builder.load(total)
                                after = emit.fma(weight[g], scales[g], before)
                                builder.store(builder.select(equal, after, before), total)
                for (number, g), total in zip(places, totals, strict=True):
                    emit.store(builder.load(total), firsts[g], number * LANES)

        cover_evenly(builder, ShapeParts(builder, shape).group(), ACCUMULATORS // 4, write)
        return context.get_dummy_value()

    return types.void(SHAPE, *[types.int64] * 7), generate
