"""Unpack weights of each type: the table from ggml's number of a type to its kernels.

A type needs the function that unpacks columns of a row, and another that reads the scales of eight rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from ..numba_support.compile import LateStage, late_stage
from ..numba_support.vector import INT8, INT32, Emit, constant
from .activations import (
    BLOCK,
    SUPERBLOCK,
    round_superblocks,
    round_with_offset,
    round_with_sum,
)
from .integers import (
    ADDED,
    CODES,
    FLOATS,
    INTEGERS,
    LANES,
    WORDS,
    equal,
    gather,
    halves,
    joined,
    load,
    shift_right,
    splat,
    transposed,
)
from .multiplier import multiplier
from .panels import BlockType

_HALF_CODES = ir.VectorType(INT8, BLOCK // 2)

#: The values of nibbles of IQ4_NL and IQ4_XS.
_UNEVEN = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

#: The values of nibbles of MXFP4, twice, and the number that makes them positive.
_DOUBLED = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
_ADDED = 12

#: Added to codes of Q6_K.
_ADDED_6 = 32


def _times(builder: Any, number: Any, factor: int) -> Any:
    return builder.mul(number, constant(factor))


def _bytes_after(offset: int, n: int = BLOCK // 2) -> Any:
    """Return `read` of blocks with n bytes for some columns, and those for the next ones behind; an offset before."""
    kind = ir.VectorType(INT8, n)
    return lambda builder, block, part: [
        load(builder, kind, block, builder.add(_times(builder, part, n), constant(offset)))
    ]


def _nibbles(builder: Any, read: list[Any], _part: Any) -> list[Any]:
    """Return the codes of bytes that hold two: all low ones, then all high ones."""
    return [shift_right(builder, read[0], shift, 15) for shift in (0, 4)]


def _five_bits_after(offset: int) -> Any:
    """Return `read` of blocks with a bit for each column, and nibbles behind these: the codes."""

    def read(builder: Any, block: Any, part: Any) -> list[Any]:
        packed = builder.bitcast(splat(builder, load(builder, INT32, block, offset)), CODES)
        spread = Emit(builder).shuffle(packed, packed, [column // 8 for column in range(BLOCK)])
        own = builder.and_(spread, ir.Constant(CODES, [1 << column % 8 for column in range(BLOCK)]))
        is_high = builder.icmp_unsigned("!=", own, equal(CODES, 0))
        high = builder.select(is_high, equal(CODES, 16), equal(CODES, 0))
        packed = _bytes_after(offset + 4)(builder, block, part)
        return [builder.or_(joined(builder, *_nibbles(builder, packed, part)), high)]

    return read


def _lanes(builder: Any, rows: list[Any], offset: int) -> Any:
    """Return an int32 of each row as a vector."""
    return gather(builder, [load(builder, INT32, row, offset) for row in rows])


def _four_lanes(builder: Any, rows: list[Any], offset: int) -> list[Any]:
    """Return four int32, side by side in each row, as four vectors."""
    return transposed(builder, [load(builder, _HALF_CODES, row, offset) for row in rows])


def _scale(builder: Any, rows: list[Any]) -> list[Any]:
    return [halves(builder, _lanes(builder, rows, 0), 0)]


def _scale_and_minimum(builder: Any, rows: list[Any]) -> list[Any]:
    lanes = _lanes(builder, rows, 0)
    return [halves(builder, lanes, 0), halves(builder, lanes, 16)]


def _half_powers(builder: Any, rows: list[Any]) -> list[Any]:
    """Return the scales of MXFP4: half of a power of two, of whose f32 a byte is the exponent."""
    exponent = builder.zext(gather(builder, [load(builder, INT8, row) for row in rows]), INTEGERS)
    normal = builder.shl(builder.sub(exponent, equal(INTEGERS, 1)), equal(INTEGERS, 23))
    tiny = builder.shl(equal(INTEGERS, 1 << 21), builder.and_(exponent, equal(INTEGERS, 1)))
    is_tiny = builder.icmp_unsigned("<", exponent, equal(INTEGERS, 2))
    return [builder.bitcast(builder.select(is_tiny, tiny, normal), FLOATS)]


def _read_five_bits(builder: Any, block: Any, pair: Any) -> list[Any]:
    """Return nibbles of Q5_K, and the bytes of the fifth bits of all columns."""
    return [*_bytes_after(48, BLOCK)(builder, block, pair), load(builder, CODES, block, 16)]


def _five_bits(builder: Any, read: list[Any], pair: Any) -> list[Any]:
    """Return codes of Q5_K: bits 2 p and 2 p + 1 of byte c are the fifth ones of columns c of pair p."""
    high = shift_right(builder, read[1], _times(builder, pair, 2), 3)
    fifth = [shift_right(builder, high, -left, 16) for left in (4, 3)]
    return [builder.or_(*each) for each in zip(_nibbles(builder, read, pair), fifth, strict=True)]


def _read_six_bits(builder: Any, block: Any, half: Any) -> list[Any]:
    """Return 64 bytes of nibbles of a half of Q6_K, and 32 with two bits of each of its four parts."""
    own = builder.add(block, _times(builder, half, 64))
    return [*(load(builder, CODES, own, at) for at in (0, BLOCK)), *_bytes_after(128, BLOCK)(builder, block, half)]


def _six_bits(builder: Any, read: list[Any], _half: Any) -> list[Any]:
    *low, high = read
    nibbles = [shift_right(builder, packed, shift, 15) for shift in (0, 4) for packed in low]
    bits = [shift_right(builder, high, 2 * part - 4, 48) for part in range(4)]
    return [builder.or_(*each) for each in zip(nibbles, bits, strict=True)]


def _words_of(builder: Any, low: Any, high: Any) -> Any:
    """Return int32 lanes that hold two words each."""
    return builder.or_(builder.and_(low, equal(INTEGERS, 0xFFFF)), builder.shl(high, equal(INTEGERS, 16)))


def _words_of_bytes(builder: Any, four: Any, low: int, high: int, has_sign: bool = False) -> Any:
    """Return words that are two of the four bytes of the lanes of a vector."""
    lanes = [(4 * lane + byte, 4 * LANES) for lane in range(LANES) for byte in (low, high)]
    places = [at for pair in lanes for at in (reversed(pair) if has_sign else pair)]
    words = Emit(builder).shuffle(builder.bitcast(four, CODES), equal(CODES, 0), places)
    words = builder.bitcast(words, WORDS)
    return builder.ashr(words, equal(WORDS, 8)) if has_sign else words


def _scales_and_minima(builder: Any, rows: list[Any]) -> list[Any]:
    """Return the scales of Q4_K and Q5_K, of six bits each: eight of products, then pairs of eight to subtract."""
    _floats, first, second, third = _four_lanes(builder, rows, 0)

    def bits(lanes: Any, shift: int, mask: int) -> Any:
        return builder.and_(builder.lshr(lanes, equal(INTEGERS, shift)), equal(INTEGERS, mask))

    def upper(lanes: Any, last: int) -> Any:
        high = builder.shl(bits(lanes, 6, 0x03030303), equal(INTEGERS, 4))
        return builder.or_(bits(third, last, 0x0F0F0F0F), high)

    scales = bits(first, 0, 0x3F3F3F3F), upper(first, 0)
    minima = bits(second, 0, 0x3F3F3F3F), upper(second, 4)
    words = [_words_of_bytes(builder, four, i, i) for four in scales for i in range(4)]
    return words + [_words_of_bytes(builder, four, i, i + 1) for four in minima for i in (0, 2)]


def _scales_of_six_bits(builder: Any, rows: list[Any]) -> list[Any]:
    """Return the scales of Q6_K: sixteen of products, then pairs of them, to subtract 32 from codes."""
    four = _four_lanes(builder, rows, 192)
    scales = [_words_of_bytes(builder, lanes, i, i, has_sign=True) for lanes in four for i in range(4)]
    pairs = [_words_of_bytes(builder, lanes, i, i + 1, has_sign=True) for lanes in four for i in (0, 2)]
    return scales + [builder.mul(each, equal(WORDS, -_ADDED_6)) for each in pairs]


def _scales_less_32(builder: Any, rows: list[Any]) -> list[Any]:
    """Return the eight scales of IQ4_XS: four bits each, and two higher ones elsewhere, less 32."""
    low = _lanes(builder, rows, 4)
    high = builder.lshr(_lanes(builder, rows, 0), equal(INTEGERS, 16))
    scales = []
    for part in range(8):
        own = builder.and_(builder.lshr(low, equal(INTEGERS, 4 * part)), equal(INTEGERS, 15))
        upper = builder.and_(builder.lshr(high, equal(INTEGERS, 2 * part)), equal(INTEGERS, 3))
        own = builder.or_(own, builder.shl(upper, equal(INTEGERS, 4)))
        scales.append(builder.sub(own, equal(INTEGERS, 32)))
    words = [_words_of(builder, each, each) for each in scales]
    if ADDED:  # to codes
        pairs = [_words_of(builder, *pair) for pair in zip(scales[::2], scales[1::2], strict=True)]
        words += [builder.mul(builder.bitcast(pair, WORDS), equal(WORDS, -ADDED)) for pair in pairs]
    return words


def _scale_and_subtracted(builder: Any, rows: list[Any]) -> list[Any]:
    lanes = _four_lanes(builder, rows, 0)[0]
    return [halves(builder, lanes, 0), builder.fneg(halves(builder, lanes, 16))]


def _last_scale(builder: Any, rows: list[Any]) -> list[Any]:
    return [halves(builder, _lanes(builder, rows, 206), 16)]


#: Columns of a row in a vector of nibbles, if a block has 16 bytes of them.
_WIDTH = BLOCK // 2

Q4_0 = BlockType(18, _bytes_after(2), _scale, 15, _nibbles, width=_WIDTH, subtracted=8)
Q4_1 = BlockType(20, _bytes_after(4), _scale_and_minimum, 15, _nibbles, has_minimum=True, width=_WIDTH)
Q5_0 = BlockType(22, _five_bits_after(2), _scale, 31, subtracted=16)
Q5_1 = BlockType(24, _five_bits_after(4), _scale_and_minimum, 31, has_minimum=True)
Q8_0 = BlockType(34, _bytes_after(2, BLOCK), _scale, 128, has_sign=True, subtracted=ADDED)
IQ4_NL = BlockType(18, _bytes_after(2), _scale, 127, _nibbles, _UNEVEN, has_sign=True, width=_WIDTH, subtracted=ADDED)
MXFP4 = BlockType(
    n_bytes=17,
    read=_bytes_after(1),
    floats=_half_powers,
    largest=2 * _ADDED,
    codes=_nibbles,
    table=tuple(each + _ADDED for each in _DOUBLED),
    width=_WIDTH,
    subtracted=_ADDED,
)
Q4_K = BlockType(
    n_bytes=144,
    read=_bytes_after(16, BLOCK),
    floats=_scale_and_subtracted,
    largest=15,
    codes=_nibbles,
    columns=SUPERBLOCK,
    integers=_scales_and_minima,
    has_minimum=True,
    parts=2,
)
Q5_K = replace(Q4_K, n_bytes=176, read=_read_five_bits, largest=31, codes=_five_bits)
Q6_K = BlockType(
    n_bytes=210,
    read=_read_six_bits,
    floats=_last_scale,
    largest=63,
    codes=_six_bits,
    columns=SUPERBLOCK,
    integers=_scales_of_six_bits,
    scaled=16,
    parts=4,
    scale_bytes=192,
    subtracted=_ADDED_6,
)
IQ4_XS = BlockType(
    n_bytes=136,
    read=_bytes_after(8),
    floats=_scale,
    largest=127,
    codes=_nibbles,
    table=_UNEVEN,
    columns=SUPERBLOCK,
    integers=_scales_less_32,
    has_sign=True,
    width=_WIDTH,
)

_multiply_q4_0 = multiplier(Q4_0)
_multiply_q4_1 = multiplier(Q4_1)
_multiply_q5_0 = multiplier(Q5_0)
_multiply_q5_1 = multiplier(Q5_1)
_multiply_q8_0 = multiplier(Q8_0)
_multiply_mxfp4 = multiplier(MXFP4)
_multiply_q4_k = multiplier(Q4_K)
_multiply_q5_k = multiplier(Q5_K)
_multiply_q6_k = multiplier(Q6_K)
_multiply_iq4_nl = multiplier(IQ4_NL)
_multiply_iq4_xs = multiplier(IQ4_XS)


@late_stage(*[types.int64] * 4)
def multiply_q4_0(job, first, stop, _unused):
    """Multiply panels of Q4_0."""
    _multiply_q4_0(job, first, stop)


@late_stage(*[types.int64] * 4)
def multiply_q4_1(job, first, stop, _unused):
    """Multiply panels of Q4_1."""
    _multiply_q4_1(job, first, stop)


@late_stage(*[types.int64] * 4)
def multiply_q5_0(job, first, stop, _unused):
    """Multiply panels of Q5_0."""
    _multiply_q5_0(job, first, stop)


@late_stage(*[types.int64] * 4)
def multiply_q5_1(job, first, stop, _unused):
    """Multiply panels of Q5_1."""
    _multiply_q5_1(job, first, stop)


@late_stage(*[types.int64] * 4)
def multiply_q8_0(job, first, stop, _unused):
    """Multiply panels of Q8_0."""
    _multiply_q8_0(job, first, stop)


@late_stage(*[types.int64] * 4)
def multiply_mxfp4(job, first, stop, _unused):
    """Multiply panels of MXFP4."""
    _multiply_mxfp4(job, first, stop)


@late_stage(*[types.int64] * 4)
def multiply_q4_k(job, first, stop, _unused):
    """Multiply panels of Q4_K."""
    _multiply_q4_k(job, first, stop)


@late_stage(*[types.int64] * 4)
def multiply_q5_k(job, first, stop, _unused):
    """Multiply panels of Q5_K."""
    _multiply_q5_k(job, first, stop)


@late_stage(*[types.int64] * 4)
def multiply_q6_k(job, first, stop, _unused):
    """Multiply panels of Q6_K."""
    _multiply_q6_k(job, first, stop)


@late_stage(*[types.int64] * 4)
def multiply_iq4_nl(job, first, stop, _unused):
    """Multiply panels of IQ4_NL."""
    _multiply_iq4_nl(job, first, stop)


@late_stage(*[types.int64] * 4)
def multiply_iq4_xs(job, first, stop, _unused):
    """Multiply panels of IQ4_XS."""
    _multiply_iq4_xs(job, first, stop)


class Kernels(NamedTuple):
    """What multiplies weights of a type.

    Parameters
    ----------
    round : LateStage
        Rounds the inputs (activations.py).
    """

    of: BlockType
    round: LateStage
    multiply: LateStage

    @property
    def stages(self) -> tuple[LateStage, LateStage]:
        return self.round, self.multiply


#: The kernels for each of ggml's types.
KERNELS = {
    2: Kernels(Q4_0, round_with_offset, multiply_q4_0),
    3: Kernels(Q4_1, round_with_sum, multiply_q4_1),
    6: Kernels(Q5_0, round_with_offset, multiply_q5_0),
    7: Kernels(Q5_1, round_with_sum, multiply_q5_1),
    8: Kernels(Q8_0, round_with_offset, multiply_q8_0),
    12: Kernels(Q4_K, round_superblocks, multiply_q4_k),
    13: Kernels(Q5_K, round_superblocks, multiply_q5_k),
    14: Kernels(Q6_K, round_superblocks, multiply_q6_k),
    20: Kernels(IQ4_NL, round_with_offset, multiply_iq4_nl),
    23: Kernels(IQ4_XS, round_superblocks, multiply_iq4_xs),
    39: Kernels(MXFP4, round_with_offset, multiply_mxfp4),
}
