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

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import float32, int8, int32, uint8
from numba.core import cgutils
from numba.extending import register_jitable

from ..numba_support.compile import NIBBLES, Shape, constant_attribute, kernel
from ..numba_support.memory import stack_floats, write_half
from ..numba_support.vector import FLOAT, HALF, INT8, INT16, INT32, Emit
from ..numba_support.views import array_at
from .q8_0 import VNNI_BYTES, quantise
from .rotation import rotate_row

#: Divisors of a block's largest element, besides llama.cpp's -8, that may give its scale: a smaller step is finer but
#: clips the largest elements, and a larger one has room on both sides of 0.
DIVISORS = (-7.0, -7.5, -8.5, -9.0)

_AVX2, _AVX512 = (bool(llvmlite.binding.get_host_cpu_features().get(name)) for name in ("avx2", "avx512f"))


def nibble_blocks(head_dim: int) -> list[tuple[int, int]]:
    """Return the first column and the length of each block of a row: NIBBLES, and the rest for the last block."""
    return [(column, min(NIBBLES, head_dim - column)) for column in range(0, head_dim, NIBBLES)]


def blocks_at_once(head_dim: int) -> int:
    """Return how many blocks of a row are multiplied at once: two if they fill a register."""
    return 2 if VNNI_BYTES == 2 * NIBBLES and head_dim % (2 * NIBBLES) == 0 else 1


def _low_and_high(emit: Emit, row: Any, column: int, length: int) -> tuple[Any, Any]:
    """Load the codes of neighbouring blocks: those in low bits, and those in high bits, int8 vectors."""
    codes = emit.load_bytes(row, column // 2, length // 2)
    low = emit.builder.and_(codes, ir.Constant(codes.type, [15] * (length // 2)))
    return low, emit.builder.lshr(codes, ir.Constant(codes.type, [4] * (length // 2)))


def load_codes(emit: Emit, shape: Shape, row: Any, column: int) -> Any:
    """Load the codes of blocks that are multiplied at once, in the order of the query's elements.

    Parameters
    ----------
    column : int
        First column of these blocks.

    Returns
    -------
    LLVM int8 vector
        The codes. A short block's missing codes are replaced by any others.
    """
    room, builder = NIBBLES * blocks_at_once(shape.head_dim) // 2, emit.builder
    half = min(room, (shape.head_dim - column) // 2)
    if half < room:
        low, high = _low_and_high(emit, row, column, 2 * half)
        return emit.shuffle(low, high, [min(lane % room, half - 1) + lane // room * half for lane in range(2 * room)])
    codes = builder.bitcast(emit.load_bytes(row, column // 2, half), ir.VectorType(INT32, half // 4))
    twice = emit.shuffle(codes, codes, [*range(half // 4)] * 2)
    shifts = ir.Constant(twice.type, [0] * (half // 4) + [4] * (half // 4))
    low_bits = builder.and_(builder.lshr(twice, shifts), ir.Constant(twice.type, [0x0F0F0F0F] * (half // 2)))
    return builder.bitcast(low_bits, ir.VectorType(INT8, 2 * half))


def load_scales(emit: Emit, shape: Shape, rows: list[Any], column: int, lanes: list[int]) -> Any:
    """Load the scales of blocks that are multiplied at once, for some rows.

    Parameters
    ----------
    column : int
        First column of these blocks.
    lanes : list of int
        The number of the scale in each lane of the result: that of block b of row r is r * blocks + b.
    """
    builder, n_blocks = emit.builder, blocks_at_once(shape.head_dim)
    element = INT32 if n_blocks == 2 else INT16
    loaded = ir.Constant(ir.VectorType(element, len(rows)), ir.Undefined)
    for r, row in enumerate(rows):
        place = emit.pointer(row, HALF, shape.head_dim // 4 + column // NIBBLES)
        of_row = builder.load(builder.bitcast(place, element.as_pointer()))
        of_row.align = 2
        loaded = builder.insert_element(loaded, of_row, ir.Constant(INT32, r))
    halves = builder.bitcast(loaded, ir.VectorType(HALF, n_blocks * len(rows)))
    scales = builder.fpext(halves, ir.VectorType(FLOAT, halves.type.count))
    return emit.shuffle(scales, scales, lanes)


def _row_scales(emit: Emit, shape: Shape, row: Any) -> list[Any]:
    """Load the scales of a row's blocks, each into all lanes of a vector."""
    halves = ir.VectorType(HALF, -(-shape.head_dim // NIBBLES))
    loaded = emit.builder.load(emit.builder.bitcast(emit.pointer(row, HALF, shape.head_dim // 4), halves.as_pointer()))
    loaded.align = 2
    scales = emit.builder.fpext(loaded, ir.VectorType(FLOAT, halves.count))
    return [emit.shuffle(scales, scales, [block] * emit.lanes) for block in range(halves.count)]


def load_nibbles(emit: Emit, shape: Shape, row: Any, columns: list[int]) -> dict[int, Any]:
    """Load vectors of a 4-bit row as f32, still rotated.

    Parameters
    ----------
    emit : Emit
        Writer of the function, of vectors that divide a row.
    columns : list of int
        Columns at which a vector starts.
    """
    builder, scales = emit.builder, _row_scales(emit, shape, row)
    loaded: dict[int, Any] = {}
    for block, (first, length) in enumerate(nibble_blocks(shape.head_dim)):
        own = [column for column in columns if first <= column < first + length]
        if not own:
            continue
        scale = scales[block]
        if _AVX512 and length == 2 * emit.lanes:
            loaded |= _look_up(emit, row, first, own, scale)
            continue
        low, high = _low_and_high(emit, row, first, length)
        minus_eight = builder.fmul(scale, emit.constant(-8.0))
        for column in own:
            codes = emit.shuffle(low, high, list(range(column - first, column - first + emit.lanes)))
            floats = builder.sitofp(builder.zext(codes, emit.integers), emit.vector)
            loaded[column] = emit.fma(floats, scale, minus_eight)  # exact: (code - 8) * scale has 15 bits
    return loaded


def _look_up(emit: Emit, row: Any, first: int, columns: list[int], scale: Any) -> dict[int, Any]:
    """Load vectors of a block of two vectors from a table with the values of the 16 codes.

    The instruction uses the low 4 bits of each index.
    """
    builder = emit.builder
    table = builder.fmul(ir.Constant(emit.vector, [float(code - 8) for code in range(16)]), scale)
    codes = builder.zext(emit.load_bytes(row, first // 2, emit.lanes), emit.integers)
    loaded: dict[int, Any] = {}
    for column in columns:
        four = ir.Constant(emit.integers, [4] * emit.lanes)
        numbers = codes if column == first else builder.lshr(codes, four)
        loaded[column] = _call(emit, "llvm.x86.avx512.permvar.sf.512", emit.vector, table, numbers)
    return loaded


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
    if _AVX2:
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


@register_jitable
def nibble_query(shape, address):
    """Return the addresses of the parts of a group's query."""
    n_elements = -(-shape.head_dim // NIBBLES) * NIBBLES
    starts = address + shape.group * n_elements
    scales = starts + shape.group * n_elements
    return NibbleQuery(starts, scales, scales + 4 * shape.group)


constant_attribute("blocks_at_once", lambda shape: blocks_at_once(shape.head_dim))


@kernel
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
    n_elements, at_once, floats = -(-head_dim // NIBBLES) * NIBBLES, shape.blocks_at_once, stack_floats(shape)
    flat = array_at(floats + head_dim * 4, (head_dim,), np.int8)
    elements = array_at(room, (group, n_elements), np.int8)
    starts = array_at(parts.starts, (group, n_elements // 4), np.int32)
    scales = array_at(parts.scales, (group,), np.float32)
    for g in range(group):
        rotate_row(shape, query + g * head_dim * 4, floats)
        scales[g] = quantise(shape, floats, floats + head_dim * 4)
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
