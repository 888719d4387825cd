"""Convert f32 to rows of 4 bits, and multiply these by a quantised query.

A row is rotated (rotation.py) and cut into blocks of NIBBLES elements; the last may be shorter. The row is
  codes : for each block of n elements n / 2 bytes: the low 4 bits of byte i are element i, the high ones n / 2 + i
  scales : one f16 for each block
An element is its code minus 8, times the scale of its block. This is llama.cpp's q4_0, except that the scales come last
and are chosen with care (see `pack_row`).

The query becomes int8 (q8_0.py). One or two blocks are multiplied at once. The query's elements are then in the order
of the codes: first those for the low bits of all these blocks, then those for the high bits; 0 where a short block has
none. Codes are read directly, from 0 to 15: the contribution of the 8 to each sum of products is computed once, and the
sums start with its negative. Values become f32: with AVX-512 their codes are looked up in a table of 16, times the
scale.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import float32, int8, int32, types, uint8
from numba.core import cgutils

from ..numba_support.compile import kernel, late_stage, layout
from ..numba_support.machine_features import HAS_AVX2
from ..numba_support.memory import borrow, give_back, write_half
from ..numba_support.shape import NIBBLES, SHAPE
from ..numba_support.vector import FLOAT, HALF, INT8, INT16, INT32, Emit, constant, parts
from ..numba_support.views import array_at
from .q8_0 import VNNI_BYTES, quantise
from .rotation import rotate_row

#: Divisors of a block's largest element, besides llama.cpp's -8, that may give its scale: a smaller step is finer but
#: clips the largest elements, and a larger one has room on both sides of 0.
DIVISORS = (-7.0, -7.5, -8.5, -9.0)


def nibble_blocks(head_dim: int) -> list[tuple[int, int]]:
    """Return the first column and the length of each block of a row: NIBBLES, and the rest for the last block."""
    return [(column, min(NIBBLES, head_dim - column)) for column in range(0, head_dim, NIBBLES)]


#: Whether two blocks are multiplied at once: they fill a register, if head_dim is a multiple of both.
PAIRS = VNNI_BYTES == 2 * NIBBLES


@layout
def blocks_at_once(head_dim):
    """Return how many blocks of a row are multiplied at once."""
    return 2 if PAIRS and head_dim % (2 * NIBBLES) == 0 else 1


def load_codes(emit: Emit, row: Any, column: Any, length: int) -> Any:
    """Load the codes of whole blocks that are multiplied at once, in the order of the query's elements.

    Parameters
    ----------
    column : LLVM int64
        First column of these blocks.
    length : int
        Elements of these blocks.
    """
    return _spread(emit, emit.load_bytes(row, emit.builder.lshr(column, constant(1)), length // 2))


def load_last_codes(emit: Emit, row: Any, column: Any, head_dim: Any) -> Any:
    """Load the codes of a last, shorter block; any codes replace the missing ones."""
    builder = emit.builder
    start = builder.lshr(column, constant(1))
    last = builder.sub(builder.lshr(head_dim, constant(1)), constant(4))
    codes = ir.Constant(ir.VectorType(INT32, 4), ir.Undefined)
    for i in range(4):
        place = builder.add(start, constant(4 * i))
        place = builder.select(builder.icmp_signed("<", place, last), place, last)
        four = builder.load(builder.bitcast(emit.pointer(row, INT8, place), INT32.as_pointer()))
        four.align = 1
        codes = builder.insert_element(codes, four, ir.Constant(INT32, i))
    return _spread(emit, builder.bitcast(codes, ir.VectorType(INT8, NIBBLES // 2)))


def _spread(emit: Emit, codes: Any) -> Any:
    """Return the low 4 bits of each byte, and then the high ones."""
    builder, n = emit.builder, codes.type.count // 4
    codes = builder.bitcast(codes, ir.VectorType(INT32, n))
    twice = emit.shuffle(codes, codes, [*range(n)] * 2)
    shifts = ir.Constant(twice.type, [0] * n + [4] * n)
    low_bits = builder.and_(builder.lshr(twice, shifts), ir.Constant(twice.type, [0x0F0F0F0F] * (2 * n)))
    return builder.bitcast(low_bits, ir.VectorType(INT8, 8 * n))


def load_scales(emit: Emit, head_dim: Any, rows: list[Any], column: Any, n_blocks: int, lanes: list[int]) -> Any:
    """Load the scales of blocks that are multiplied at once, for some rows.

    Parameters
    ----------
    column : LLVM int64
        First column of these blocks.
    lanes : list of int
        The number of the scale in each lane of the result: that of block b of row r is r * n_blocks + b.
    """
    builder, element = emit.builder, INT32 if n_blocks == 2 else INT16
    offset = builder.add(builder.lshr(head_dim, constant(2)), builder.lshr(column, constant(5)))
    loaded = ir.Constant(ir.VectorType(element, len(rows)), ir.Undefined)
    for r, row in enumerate(rows):
        of_row = builder.load(builder.bitcast(emit.pointer(row, HALF, offset), element.as_pointer()))
        of_row.align = 2
        loaded = builder.insert_element(loaded, of_row, ir.Constant(INT32, r))
    halves = builder.bitcast(loaded, ir.VectorType(HALF, n_blocks * len(rows)))
    scales = builder.fpext(halves, ir.VectorType(FLOAT, halves.type.count))
    return emit.shuffle(scales, scales, lanes)


def load_nibbles(emit: Emit, head_dim: Any, row: Any, block: Any, half: int | None = None) -> list[Any]:
    """Load a whole block of a 4-bit row as vectors of f32, still rotated.

    Parameters
    ----------
    block : LLVM int64
        Number of the block.
    half : int, optional
        0 or 1 to load only the first or the second half, which are in the low and in the high bits.
    """
    builder = emit.builder
    scale = _load_scale(emit, head_dim, row, block)
    codes = emit.load_bytes(row, builder.shl(block, constant(4)), NIBBLES // 2)
    if emit.lanes == NIBBLES // 2:  # the instruction uses the low 4 bits of each index
        table = builder.fmul(ir.Constant(emit.vector, [float(code - 8) for code in range(16)]), scale)
        low = builder.zext(codes, emit.integers)
        high = builder.lshr(low, ir.Constant(emit.integers, [4] * emit.lanes))
        return [_call(emit, "llvm.x86.avx512.permvar.sf.512", emit.vector, table, each) for each in (low, high)]
    minus_eight, floats = builder.fmul(scale, emit.constant(-8.0)), []
    low = builder.and_(codes, ir.Constant(codes.type, [15] * codes.type.count))
    halves = [low, builder.lshr(codes, ir.Constant(codes.type, [4] * codes.type.count))]
    for half_block in halves if half is None else [halves[half]]:
        for lanes in parts(NIBBLES // 2, emit.lanes):
            own = builder.zext(emit.shuffle(half_block, half_block, list(lanes)), emit.integers)
            floats.append(emit.fma(builder.sitofp(own, emit.vector), scale, minus_eight))  # exact: it has 15 bits
    return floats


def _load_scale(emit: Emit, head_dim: Any, row: Any, block: Any) -> Any:
    """Load the scale of a block into all lanes."""
    builder = emit.builder
    stored = builder.load(emit.pointer(row, HALF, builder.add(builder.lshr(head_dim, constant(2)), block)))
    stored.align = 2
    return emit.splat(builder.fpext(stored, FLOAT))


def count_last(builder: Any, head_dim: Any) -> Any:
    """Return how many pairs of vectors of 4 a last, shorter block has."""
    return builder.lshr(builder.and_(head_dim, constant(NIBBLES - 1)), constant(3))


def last_columns(builder: Any, head_dim: Any, i: Any) -> list[Any]:
    """Return the first columns of pair i of vectors of 4 in a last, shorter block."""
    length = builder.and_(head_dim, constant(NIBBLES - 1))
    low = builder.add(builder.sub(head_dim, length), builder.shl(i, constant(2)))
    return [low, builder.add(low, builder.lshr(length, constant(1)))]


def load_last_nibbles(emit: Emit, head_dim: Any, row: Any, i: Any) -> list[Any]:
    """Load pair i of vectors of 4 in a last, shorter block, as f32, still rotated; `emit` writes vectors of 4."""
    builder = emit.builder
    n_whole = builder.lshr(head_dim, constant(5))
    scale = _load_scale(emit, head_dim, row, n_whole)
    minus_eight = builder.fmul(scale, emit.constant(-8.0))
    place = builder.add(builder.shl(n_whole, constant(4)), builder.shl(i, constant(2)))
    codes = emit.load_bytes(row, place, 4)
    low = builder.and_(codes, ir.Constant(codes.type, [15] * 4))
    high = builder.lshr(codes, ir.Constant(codes.type, [4] * 4))
    floats = [builder.sitofp(builder.zext(own, emit.integers), emit.vector) for own in (low, high)]
    return [emit.fma(own, scale, minus_eight) for own in floats]


def _call(emit: Emit, name: str, result: Any, *arguments: Any) -> Any:
    """Call a CPU instruction by LLVM's name."""
    function_type = ir.FunctionType(result, [argument.type for argument in arguments])
    return emit.builder.call(cgutils.get_or_insert_function(emit.builder.module, function_type, name), arguments)


def multiply_codes(emit: Emit, codes: Any, query: Any, start: Any) -> Any:
    """Add the products of a block's codes and a query's elements, in fours.

    Parameters
    ----------
    codes, query : LLVM int8 vectors
        Codes from 0 to 15, and the query's elements.
    start : LLVM int32 vector
        Added to the sum of each four elements.

    Returns
    -------
    LLVM int32 vector
        The sums.
    """
    builder, count, sums = emit.builder, codes.type.count, start.type

    if VNNI_BYTES:
        codes, query = (builder.bitcast(each, sums) for each in (codes, query))
        return _call(emit, f"llvm.x86.avx512.vpdpbusd.{8 * count}", sums, start, codes, query)
    if HAS_AVX2:
        words = ir.VectorType(INT16, count // 2)
        pairs = _call(emit, "llvm.x86.avx2.pmadd.ub.sw", words, codes, query)  # at most 2 * 15 * 127: no overflow
        return builder.add(
            start, _call(emit, "llvm.x86.avx2.pmadd.wd", sums, pairs, ir.Constant(words, [1] * words.count))
        )
    words = ir.VectorType(INT16, count)
    products = builder.mul(builder.zext(codes, words), builder.sext(query, words))
    for length in (count, count // 2):  # four products are below 2 ** 15
        even, odd = (emit.shuffle(products, products, list(range(first, length, 2))) for first in (0, 1))
        products = builder.add(even, odd)
    return builder.add(start, builder.sext(products, sums))


class NibbleQuery(NamedTuple):
    """Addresses of the parts of a group's query, which begins with its elements: (group, elements) int8."""

    starts: int  # (group, elements / 4) int32: -8 times the sum of four elements
    scales: int  # (group,) f32
    end: int


@layout
def nibble_query(shape, address):
    """Return the addresses of the parts of a group's query."""
    n_elements = (shape.head_dim + NIBBLES - 1) // NIBBLES * NIBBLES
    starts = address + shape.group * n_elements
    scales = starts + shape.group * n_elements
    return NibbleQuery(starts, scales, scales + 4 * shape.group)


@late_stage(SHAPE, types.int64, types.int64)
def load_nibble_query(shape, query, room):
    """Rotate a group's query and convert it to int8.

    Parameters
    ----------
    query : int64
        Address of (group, head_dim) f32.
    room : int64
        Address that receives the parts of `nibble_query`.
    """
    head_dim, group, parts = shape.head_dim, shape.group, nibble_query(shape, room)
    n_elements, at_once, n_bytes = -(-head_dim // NIBBLES) * NIBBLES, blocks_at_once(head_dim), 5 * head_dim
    floats = borrow(n_bytes)
    flat = array_at(floats + head_dim * 4, (head_dim,), np.int8)
    elements = array_at(room, (group, n_elements), np.int8)
    starts = array_at(parts.starts, (group, n_elements // 4), np.int32)
    scales = array_at(parts.scales, (group,), np.float32)
    for g in range(group):
        rotate_row(shape, query + g * head_dim * 4, floats)
        scales[g] = quantise(head_dim, floats, floats + head_dim * 4)
        for first in range(0, head_dim, NIBBLES):
            low = first // (NIBBLES * at_once) * NIBBLES * at_once + first // NIBBLES % at_once * (NIBBLES // 2)
            high, half = low + NIBBLES // 2 * at_once, min(NIBBLES, head_dim - first) // 2
            for i in range(NIBBLES // 2):
                elements[g, low + i] = flat[first + i] if i < half else int8(0)
                elements[g, high + i] = flat[first + half + i] if i < half else int8(0)
        for i in range(n_elements // 4):
            total = int32(0)
            for k in range(4 * i, 4 * i + 4):
                total -= int32(8) * elements[g, k]
            starts[g, i] = total
    give_back(floats, n_bytes)


@kernel
def pack_row(shape, floats, row):
    """Convert a row to 4 bits, after rotating it in place.

    The scale of a block is its element of largest magnitude, divided by the one of the DIVISORS with the least squared
    error. It is NaN if an element of the block is not finite, and infinite if f16 cannot hold it: either way it shows
    in the scores.

    Parameters
    ----------
    floats : int64
        Address of head_dim f32.
    row : int64
        Address of the row, row_bytes bytes.
    """
    head_dim = shape.head_dim
    rotate_row(shape, floats, floats)
    source, codes = array_at(floats, (head_dim,), np.float32), array_at(row, (head_dim // 2,), np.uint8)
    for first in range(0, head_dim, NIBBLES):
        half = min(NIBBLES, head_dim - first) // 2
        block = source[first : first + 2 * half]
        largest, extreme, total = float32(0), float32(0), float32(0)
        for i in range(2 * half):
            if abs(block[i]) > largest:
                largest, extreme = abs(block[i]), block[i]
            total += block[i] * float32(0)  # 0, or NaN
        place = row + head_dim // 2 + first // NIBBLES * 2
        scale = write_half(place, extreme / float32(-8) + total)
        if total == 0:
            least = _squared_error(block, scale)
            for divisor in DIVISORS:
                other = write_half(place, extreme / float32(divisor))
                error = _squared_error(block, other)
                if error < least:
                    least, scale = error, other
        write_half(place, scale)
        inverse = _inverse(scale) if total == 0 else float32(0)
        for i in range(half):
            low, high = uint8(_step(block[i] * inverse) + 8), uint8(_step(block[half + i] * inverse) + 8)
            codes[first // 2 + i] = low | high << uint8(4)


@kernel
def _inverse(scale):
    """Return 1 / scale, or 0 for 0."""
    return float32(1) / scale if scale != 0 else float32(0)


@kernel
def _step(multiple):
    """Return the code of a multiple of the scale, minus 8, as f32; 0 for NaN."""
    step = min(max(np.rint(multiple), float32(-8)), float32(7))
    return step if multiple == multiple else float32(0)


@kernel
def _squared_error(block, scale):
    """Return the squared error of a block with this scale."""
    inverse, total = _inverse(scale), float32(0)
    for i in range(len(block)):
        error = _step(block[i] * inverse) * scale - block[i]
        total += error * error
    return total
