"""Round the inputs of a product to bytes, as llama.cpp does for the type of the weights.

A block of columns has one scale: 32 with a scale that is an f16, or 256 with an f32. Behind a block's numbers lies what
its type of weights needs besides them, and the scale comes last:

| name | a block |
| --- | --- |
| `round_with_offset` | 32 bytes, their sum times a factor as int32 |
| `round_with_sum` | 32 bytes, their sum times the scale as f32 |
| `round_superblocks` | 256 bytes, the sums of each 16 of them and of each 32 as int16 |

All lie between -127 and 127. A block with NaN or infinity has such a scale, so that its products show it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..numba_support.compile import late_stage
from ..numba_support.vector import FLOAT, HALF, INT8, INT16, INT32, Emit, constant
from .integers import FLOATS, INTEGERS, LANES, equal, load, rounded, splat, store

#: Columns of a block and of a superblock, and bytes of their scale.
BLOCK, SUPERBLOCK = 32, 256
SCALE_BYTES = 4

#: Where a superblock holds the sums of so many neighbours, and the bytes of all its sums.
PLACES_OF_SUMS = {16: SUPERBLOCK, 32: SUPERBLOCK + 32}
SUMS_BYTES = 32 + 16

_LARGEST = 127


def _largest(builder: Any, source: Any, n: int) -> Any:
    """Return the largest magnitude of n f32 at an address; NaN if there is one."""
    emit, magnitudes = Emit(builder, LANES), equal(INTEGERS, 0x7FFFFFFF)
    found = [builder.and_(load(builder, INTEGERS, source, 4 * i), magnitudes) for i in range(0, n, LANES)]
    while len(found) > 1:  # as integers: they are in the order of the floats, and NaN is the largest
        pairs = zip(found[::2], found[1::2], strict=True)
        found = [builder.select(builder.icmp_signed(">", x, y), x, y) for x, y in pairs]
    total, step = found[0], LANES // 2
    while step:
        other = emit.shuffle(total, total, [(lane + step) % LANES for lane in range(LANES)])
        total, step = builder.select(builder.icmp_signed(">", total, other), total, other), step // 2
    return builder.extract_element(builder.bitcast(total, FLOATS), ir.Constant(INT32, 0))


def _block_scale(builder: Any, largest: Any) -> Any:
    """Return the scale of a block: an f16, as f32."""
    exact = builder.fdiv(largest, ir.Constant(FLOAT, _LARGEST))
    return builder.fpext(builder.fptrunc(exact, HALF), FLOAT)


def _superblock_scale(builder: Any, largest: Any) -> Any:
    """Return the scale of a superblock."""
    return builder.fdiv(largest, ir.Constant(FLOAT, _LARGEST))


def _offset_sum(builder: Any, elements: list[Any], scale: Any, factor: Any) -> list[Any]:
    return [builder.mul(_sum(builder, elements), builder.trunc(factor, INT32))]


def _scaled_sum(builder: Any, elements: list[Any], scale: Any, factor: Any) -> list[Any]:
    return [builder.fmul(builder.sitofp(_sum(builder, elements), FLOAT), scale)]


def _sums(builder: Any, elements: list[Any], scale: Any, factor: Any) -> list[Any]:
    of_16 = [_sum(builder, elements[i : i + 2]) for i in range(0, len(elements), 2)]
    of_32 = [builder.add(*pair) for pair in zip(of_16[::2], of_16[1::2], strict=True)]
    return [builder.trunc(each, INT16) for each in (*of_16, *of_32)]


def _sum(builder: Any, vectors: list[Any]) -> Any:
    """Return the sum of all lanes of vectors of int32."""
    total = vectors[0]
    for vector in vectors[1:]:
        total = builder.add(total, vector)
    return Emit(builder).sum_integers(total)


def _rounding(n: int, sums: Callable[[Any, list[Any], Any, Any], list[Any]], sums_bytes: int) -> Any:
    """Make the intrinsic that rounds blocks of n columns.

    Parameters
    ----------
    sums : callable
        Takes a builder, the rounded elements as vectors of int32, the scale and the factor. Returns what a block holds
        between its elements and its scale.
    sums_bytes : int
        Bytes of that.
    """
    scale_of = _block_scale if n == BLOCK else _superblock_scale

    @intrinsic
    def round_blocks(typing: Any, source: Any, n_blocks: Any, target: Any, factor: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            source, n_blocks, target, factor = args
            with cgutils.for_range(builder, n_blocks) as loop:
                own = builder.add(source, builder.mul(loop.index, constant(4 * n)))
                place = builder.add(target, builder.mul(loop.index, constant(n + sums_bytes + SCALE_BYTES)))
                largest = _largest(builder, own, n)
                scale = scale_of(builder, largest)
                inverse = builder.fdiv(ir.Constant(FLOAT, _LARGEST), largest)
                is_finite = builder.fcmp_ordered("<", inverse, ir.Constant(FLOAT, float("inf")))
                inverse = builder.select(is_finite, inverse, ir.Constant(FLOAT, 0.0))
                elements = []
                for i in range(0, n, LANES):
                    element = builder.fmul(load(builder, FLOATS, own, 4 * i), splat(builder, inverse))
                    element = rounded(builder, element)
                    narrow = builder.trunc(element, ir.VectorType(INT8, LANES))
                    store(builder, narrow, place, i)
                    elements.append(element)
                for i, value in enumerate(behind := sums(builder, elements, scale, factor)):
                    store(builder, value, place, n + i * sums_bytes // len(behind))
                store(builder, scale, place, n + sums_bytes)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), generate

    return round_blocks


_with_offset = _rounding(BLOCK, _offset_sum, 4)
_with_sum = _rounding(BLOCK, _scaled_sum, 4)
_superblocks = _rounding(SUPERBLOCK, _sums, SUMS_BYTES)


@late_stage(*[types.int64] * 4)
def round_with_offset(source, n_blocks, target, factor):
    """Round blocks of f32 at an address: see the file's table."""
    _with_offset(source, n_blocks, target, factor)


@late_stage(*[types.int64] * 4)
def round_with_sum(source, n_blocks, target, factor):
    """Round blocks of f32 at an address: see the file's table."""
    _with_sum(source, n_blocks, target, factor)


@late_stage(*[types.int64] * 4)
def round_superblocks(source, n_blocks, target, factor):
    """Round superblocks of f32 at an address: see the file's table."""
    _superblocks(source, n_blocks, target, factor)


@intrinsic
def round_to_bf16(typing: Any, source: Any, n_columns: Any, target: Any) -> Any:
    """Round f32 at an address to bf16, 32 columns at a time. A NaN stays one."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, n_columns, target = args
        half, top = equal(INTEGERS, 1 << 15), equal(INTEGERS, 16)
        with cgutils.for_range_slice(builder, constant(0), n_columns, constant(LANES)) as (column, _count):
            floats = load(builder, FLOATS, builder.add(source, builder.mul(column, constant(4))))
            bits = builder.bitcast(floats, INTEGERS)
            is_nan = builder.fcmp_unordered("uno", floats, floats)
            bits = builder.select(is_nan, equal(INTEGERS, 0x7FC00000), builder.add(bits, half))
            words = builder.trunc(builder.lshr(bits, top), ir.VectorType(INT16, LANES))
            store(builder, words, builder.add(target, builder.mul(column, constant(2))))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), generate
