"""Multiply int8 rows: compute the products of a quantised query with q8_0 keys, and convert f32 to int8.

A product of two int8 rows is an integer product, for which CPUs have an instruction; it is then multiplied by the
scales of both rows. VNNI takes one of its two sides unsigned: keys are then read as 128 more than they are, and 128
times the sum of the query's elements, computed once, is subtracted from each score.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import float32, int8, types
from numba.core import cgutils

from ..numba_support.compile import kernel, late_stage, layout
from ..numba_support.machine_features import HAS_AVX2, LANES
from ..numba_support.memory import borrow, give_back
from ..numba_support.shape import SHAPE
from ..numba_support.vector import INT16, INT32, Emit, constant
from ..numba_support.views import array_at
from .rotation import rotate_row

_FEATURES = llvmlite.binding.get_host_cpu_features()

#: Bytes in a register of the instruction that multiplies int8 and adds the products in fours: AVX-512 VNNI, AVX-VNNI,
#: or 0 if the CPU has neither.
VNNI_BYTES = 64 if _FEATURES.get("avx512vnni") else 32 if _FEATURES.get("avxvnni") else 0


class QuantisedQuery(NamedTuple):
    """Addresses of the parts of a group's quantised query, which begins with (group, head_dim) int8."""

    scales: int  # (2, group) f32: of the first part and of the second part, which only a latent key has
    offsets: int  # (2, group) int32, added to a product by flipped signs
    end: int


@layout
def quantised_query(shape, address):
    """Return the addresses of the parts of a group's quantised query."""
    scales = address + shape.group * shape.head_dim
    offsets = scales + 8 * shape.group
    return QuantisedQuery(scales, offsets, offsets + 8 * shape.group)


def load_scale(emit: Emit, n: Any, row: Any, number: Any = 0) -> Any:
    """Load a scale of a q8_0 row, behind its n int8. A row has one, and a latent key one for each part."""
    return emit.load_scalar(emit.builder.add(row, n), number)


#: Lengths of the blocks in which int8 rows are multiplied: as many of the first as a row has, then at most one of each.
BYTE_BLOCKS = [n for n in (64, 32, 16, 8) if n <= (VNNI_BYTES or 2 * LANES)]


def _flips_signs(length: int) -> bool:
    """Return whether keys of a block of this length are read as unsigned."""
    return VNNI_BYTES > 0 and length > 8


def sums_of_bytes(length: int) -> int:
    """Return how many sums the products of a block of this length have."""
    return length // (4 if _flips_signs(length) else 2)


def add_products(emit: Emit, key: Any, query: Any, total: Any) -> Any:
    """Add the products of two blocks of int8 to sums, a few neighbouring products to each sum.

    Parameters
    ----------
    key, query : LLVM int8 vectors
        The blocks, of one length.
    total : LLVM int32 vector
        Sums of the previous blocks.

    Returns
    -------
    LLVM int32 vector
        The sums, whose lanes are still to be added.
    """
    lanes = sums_of_bytes(key.type.count)
    if total.type.count == lanes:
        return _multiply_bytes(emit, key, query, total)
    zeros = ir.Constant(ir.VectorType(INT32, lanes), [0] * lanes)
    short = _multiply_bytes(emit, key, query, zeros)  # of a last, shorter block
    lengthened = [min(lane, lanes) for lane in range(total.type.count)]  # lane `lanes` is the first zero
    return emit.builder.add(total, emit.shuffle(short, zeros, lengthened))


def _multiply_bytes(emit: Emit, key: Any, query: Any, total: Any) -> Any:
    """Return total + key * query: VNNI adds products in fours, other instructions in pairs."""
    builder, length = emit.builder, key.type.count
    if _flips_signs(length):
        integers = ir.VectorType(INT32, length // 4)
        name, function_type = f"llvm.x86.avx512.vpdpbusd.{length * 8}", ir.FunctionType(integers, [integers] * 3)
        function = cgutils.get_or_insert_function(builder.module, function_type, name)
        flipped = builder.xor(key, ir.Constant(key.type, [-128] * length))
        return builder.call(function, [total, builder.bitcast(flipped, integers), builder.bitcast(query, integers)])
    words, integers = ir.VectorType(INT16, length), ir.VectorType(INT32, length // 2)
    key, query = builder.sext(key, words), builder.sext(query, words)
    if HAS_AVX2 and length == 16:
        function_type = ir.FunctionType(integers, [words] * 2)
        function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.x86.avx2.pmadd.wd")
        pairs = builder.call(function, [key, query])
    else:
        products = builder.sext(builder.mul(key, query), ir.VectorType(INT32, length))  # 127 * 127 fits a word
        even, odd = (emit.shuffle(products, products, list(range(first, length, 2))) for first in (0, 1))
        pairs = builder.add(even, odd)
    return builder.add(total, pairs)


def scores_of_products(emit: Emit, sizes: Any, part: Any, g: Any, products: Any, scales: Any) -> Any:
    """Turn integer products into scores.

    Parameters
    ----------
    sizes : Sizes
        Sizes of the rows, and address of the group's quantised query (products.py).
    part : LLVM int64
        Number of the part of the rows.
    g : LLVM int64
        Query head inside the group.
    products : LLVM int32, or a vector of them
        Products with one key, or with several.
    scales : LLVM f32, or a vector of them
        Scales of these keys.
    """
    builder = emit.builder
    first = builder.add(sizes.query, builder.mul(sizes.group, sizes.head_dim))  # see `quantised_query`
    own = builder.add(builder.mul(part, sizes.group), g)
    scale = emit.load_scalar(first, own)
    offset = builder.load(emit.pointer(first, INT32, builder.add(builder.shl(sizes.group, constant(1)), own)))
    if isinstance(products.type, ir.VectorType):
        scale, offset = (_repeat(emit, value, products.type.count) for value in (scale, offset))
    floats = builder.sitofp(builder.sub(products, offset), scale.type)
    return builder.fmul(floats, builder.fmul(scale, scales))


def _repeat(emit: Emit, value: Any, count: int) -> Any:
    """Return a vector with a scalar in each of `count` lanes."""
    undefined = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    return emit.shuffle(emit.builder.insert_element(undefined, value, ir.Constant(INT32, 0)), undefined, [0] * count)


@layout
def _flipped_columns(n):
    """Return how many first columns of n are read as unsigned."""
    return n // 16 * 16 if VNNI_BYTES > 0 else 0


@kernel
def quantise(n, floats, target):
    """Convert n elements to int8, so that the largest becomes 127 or -127.

    Parameters
    ----------
    floats : int64
        Address of n f32.
    target : int64
        Address of n int8.

    Returns
    -------
    float32
        The scale: an element is its int8 times the scale. NaN if an element is not finite, so that it shows in scores.
    """
    source, elements = array_at(floats, (n,), np.float32), array_at(target, (n,), np.int8)
    largest, total = float32(0), float32(0)
    for i in range(n):
        largest = max(largest, abs(source[i]))
        total += source[i] * float32(0)  # 0, or NaN
    inverse = float32(127) / largest if largest > 0 else float32(0)
    for i in range(n):
        elements[i] = int8(np.rint(source[i] * inverse)) if total == 0 else int8(0)
    return largest / float32(127) + total


@late_stage(SHAPE, types.int64, types.int64)
def quantise_query(shape, query, room):
    """Convert a group's query to int8, rotated as the keys are; and compute the effect of flipped signs on products.

    Parameters
    ----------
    query : int64
        Address of (group, head_dim) f32.
    room : int64
        Address that receives the parts of `quantised_query`.
    """
    parts = quantised_query(shape, room)
    scales = array_at(parts.scales, (2, shape.group), np.float32)
    offsets = array_at(parts.offsets, (2, shape.group), np.int32)
    elements = array_at(room, (shape.group, shape.head_dim), np.int8)
    floats = borrow(4 * shape.head_dim)
    for g in range(shape.group):
        source = query + g * shape.head_dim * 4
        if shape.rotated:
            rotate_row(shape, source, floats)
            source = floats
        part, start, stop = 0, 0, shape.value_dim if shape.latent else shape.head_dim
        while start < shape.head_dim:
            first = g * shape.head_dim + start
            scales[part, g] = quantise(stop - start, source + start * 4, room + first)
            total = 0
            for i in range(start, start + _flipped_columns(stop - start)):
                total += elements[g, i]
            offsets[part, g] = np.int32(128 * total)
            part, start, stop = 1, stop, shape.head_dim
    give_back(floats, 4 * shape.head_dim)
