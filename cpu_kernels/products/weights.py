"""Unpack weights of each type: the table from ggml's number of a type to its kernels.

A type needs the function that unpacks columns of a row, and another that reads the scales of eight rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from ..numba_support.compile import LateStage, late_stage
from ..numba_support.vector import INT8, INT16, INT32, Emit, constant
from .activations import (
    BLOCK,
    round_superblocks,
    round_with_offset,
    round_with_sum,
)
from .integers import (
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
    look_up,
    shift_right,
    splat,
)
from .panels import BlockType, multiplier

_HALF_CODES = ir.VectorType(INT8, BLOCK // 2)

#: The values of nibbles of IQ4_NL and IQ4_XS.
_UNEVEN = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

#: The values of nibbles of MXFP4, twice, and the number that makes them positive.
_DOUBLED = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
_ADDED = 12

#: Added to codes of Q6_K.
_ADDED_6 = 32


def _after(builder: Any, address: Any, offset: int | Any) -> Any:
    return builder.add(address, constant(offset) if isinstance(offset, int) else offset)


def _times(builder: Any, number: Any, factor: int) -> Any:
    return builder.mul(number, constant(factor))


def _nibbles(builder: Any, address: Any) -> Any:
    """Return 32 nibbles of 16 bytes: all low ones, then all high ones."""
    packed = load(builder, _HALF_CODES, address)
    return joined(builder, shift_right(builder, packed, 0, 15), shift_right(builder, packed, 4, 15))


def _nibbles_after(offset: int) -> Any:
    """Return `codes` of blocks with 16 bytes of nibbles that far from their start."""
    return lambda builder, block, _part: [_nibbles(builder, _after(builder, block, offset))]


def _five_bits_after(offset: int) -> Any:
    """Return `codes` of blocks with a bit for each column, and nibbles behind these."""

    def codes(builder: Any, block: Any, _part: Any) -> Any:
        packed = builder.bitcast(splat(builder, load(builder, INT32, block, offset)), CODES)
        spread = Emit(builder).shuffle(packed, packed, [column // 8 for column in range(BLOCK)])
        own = builder.and_(spread, ir.Constant(CODES, [1 << column % 8 for column in range(BLOCK)]))
        is_high = builder.icmp_unsigned("!=", own, equal(CODES, 0))
        high = builder.select(is_high, equal(CODES, 16), equal(CODES, 0))
        return [builder.or_(_nibbles(builder, _after(builder, block, offset + 4)), high)]

    return codes


def _scale(builder: Any, rows: list[Any]) -> list[Any]:
    return [halves(builder, rows)]


def _scale_and_minimum(builder: Any, rows: list[Any]) -> list[Any]:
    return [halves(builder, rows), halves(builder, rows, 2)]


def _bytes(builder: Any, block: Any, _part: Any) -> Any:
    return [load(builder, CODES, block, 2)]


def _uneven_after(offset: int) -> Any:
    """Return `codes` of blocks with 16 bytes of nibbles of uneven values that far from their start."""
    return lambda builder, block, _part: [look_up(builder, _UNEVEN, _nibbles(builder, _after(builder, block, offset)))]


def _parts_of_uneven(builder: Any, block: Any, part: Any) -> Any:
    """Return codes of IQ4_XS."""
    own = _after(builder, block, builder.add(_times(builder, part, BLOCK // 2), constant(8)))
    return [look_up(builder, _UNEVEN, _nibbles(builder, own))]


def _small_floats(builder: Any, block: Any, _part: Any) -> Any:
    """Return the codes of a block of MXFP4: twice its values, and _ADDED."""
    return [look_up(builder, tuple(each + _ADDED for each in _DOUBLED), _nibbles(builder, _after(builder, block, 1)))]


def _half_powers(builder: Any, rows: list[Any]) -> list[Any]:
    """Return the scales of MXFP4: half of a power of two, of whose f32 a byte is the exponent."""
    exponent = builder.zext(gather(builder, [load(builder, INT8, row) for row in rows]), INTEGERS)
    normal = builder.shl(builder.sub(exponent, equal(INTEGERS, 1)), equal(INTEGERS, 23))
    tiny = builder.shl(equal(INTEGERS, 1 << 21), builder.and_(exponent, equal(INTEGERS, 1)))
    is_tiny = builder.icmp_unsigned("<", exponent, equal(INTEGERS, 2))
    return [builder.bitcast(builder.select(is_tiny, tiny, normal), FLOATS)]


def _pairs_of_nibbles(offset: int) -> Any:
    """Return `codes` of superblocks whose nibbles lie in 32 bytes for 64 columns: all low ones, then all high ones."""

    def codes(builder: Any, block: Any, pair: Any) -> Any:
        packed = load(builder, CODES, block, builder.add(_times(builder, pair, BLOCK), constant(offset)))
        return [shift_right(builder, packed, shift, 15) for shift in (0, 4)]

    return codes


def _five_bits_of_superblock(builder: Any, block: Any, pair: Any) -> Any:
    """Return codes of Q5_K: bits 2 p and 2 p + 1 of byte c are the fifth ones of columns c of pair p."""
    high = shift_right(builder, load(builder, CODES, block, 16), _times(builder, pair, 2), 3)
    fifth = builder.shl(builder.and_(high, equal(CODES, 1)), equal(CODES, 4))
    next_fifth = builder.shl(builder.and_(high, equal(CODES, 2)), equal(CODES, 3))
    low, upper = _pairs_of_nibbles(48)(builder, block, pair)
    return [builder.or_(low, fifth), builder.or_(upper, next_fifth)]


def _six_bits(builder: Any, block: Any, half: Any) -> Any:
    """Return codes of Q6_K. Of each half, four parts lie in 64 bytes of nibbles, and 32 of two bits for each part."""
    low = [load(builder, CODES, block, builder.add(_times(builder, half, 64), constant(at))) for at in (0, BLOCK)]
    nibbles = [shift_right(builder, packed, shift, 15) for shift in (0, 4) for packed in low]
    high = load(builder, CODES, block, builder.add(_times(builder, half, BLOCK), constant(128)))
    bits = [shift_right(builder, high, 2 * part, 3) for part in range(4)]
    return [builder.or_(nibble, builder.shl(two, equal(CODES, 4))) for nibble, two in zip(nibbles, bits, strict=True)]


def _words_of(builder: Any, low: Any, high: Any) -> Any:
    """Return int32 lanes that hold two words each."""
    return builder.or_(builder.and_(low, equal(INTEGERS, 0xFFFF)), builder.shl(high, equal(INTEGERS, 16)))


def _words_of_bytes(builder: Any, four: Any, low: int, high: int) -> Any:
    """Return int32 lanes with two words, whose upper bytes are two of the four bytes of the lanes of a vector."""
    places = [at for lane in range(LANES) for at in (4 * LANES, 4 * lane + low, 4 * LANES, 4 * lane + high)]
    shuffled = Emit(builder).shuffle(builder.bitcast(four, CODES), equal(CODES, 0), places)
    return builder.bitcast(shuffled, WORDS)


def _shifted(builder: Any, words: Any, bits: int) -> Any:
    """Shift signed words right, and return them as int32 lanes."""
    return builder.bitcast(builder.ashr(words, equal(WORDS, bits)), INTEGERS)


def _scales_and_minima(builder: Any, rows: list[Any]) -> list[Any]:
    """Return the scales of Q4_K and Q5_K, of six bits each: eight of products, then eight that are subtracted."""
    first, second, third = (gather(builder, [load(builder, INT32, row, 4 + 4 * i) for row in rows]) for i in range(3))

    def bits(lanes: Any, shift: int, mask: int) -> Any:
        return builder.and_(builder.lshr(lanes, equal(INTEGERS, shift)), equal(INTEGERS, mask))

    def upper(lanes: Any, last: int) -> Any:
        high = builder.shl(bits(lanes, 6, 0x03030303), equal(INTEGERS, 4))
        return builder.or_(bits(third, last, 0x0F0F0F0F), high)

    scales = bits(first, 0, 0x3F3F3F3F), upper(first, 0)
    minima = bits(second, 0, 0x3F3F3F3F), upper(second, 4)
    words = [_words_of_bytes(builder, four, i, i) for four in (*scales, *minima) for i in range(4)]
    return [_shifted(builder, each, 8) for each in words]


def _scales_of_six_bits(builder: Any, rows: list[Any]) -> list[Any]:
    """Return the scales of Q6_K: sixteen of products, then pairs of them, to subtract 32 from codes."""
    four = [gather(builder, [load(builder, INT32, row, 192 + 4 * i) for row in rows]) for i in range(4)]
    scales = [_words_of_bytes(builder, lanes, i, i) for lanes in four for i in range(4)]
    pairs = [_words_of_bytes(builder, lanes, i, i + 1) for lanes in four for i in (0, 2)]
    offsets = [builder.mul(builder.ashr(each, equal(WORDS, 8)), equal(WORDS, -_ADDED_6)) for each in pairs]
    return [_shifted(builder, each, 8) for each in scales] + [builder.bitcast(each, INTEGERS) for each in offsets]


def _scales_less_32(builder: Any, rows: list[Any]) -> list[Any]:
    """Return the eight scales of IQ4_XS: four bits each, and two higher ones elsewhere, less 32."""
    low = gather(builder, [load(builder, INT32, row, 4) for row in rows])
    high = builder.zext(gather(builder, [load(builder, INT16, row, 2) for row in rows]), INTEGERS)
    scales = []
    for part in range(8):
        own = builder.and_(builder.lshr(low, equal(INTEGERS, 4 * part)), equal(INTEGERS, 15))
        upper = builder.and_(builder.lshr(high, equal(INTEGERS, 2 * part)), equal(INTEGERS, 3))
        own = builder.or_(own, builder.shl(upper, equal(INTEGERS, 4)))
        scales.append(builder.sub(own, equal(INTEGERS, 32)))
    return [_words_of(builder, each, each) for each in scales]


def _scale_and_subtracted(builder: Any, rows: list[Any]) -> list[Any]:
    return [halves(builder, rows), builder.fneg(halves(builder, rows, 2))]


def _last_scale(builder: Any, rows: list[Any]) -> list[Any]:
    return [halves(builder, rows, 208)]


Q4_0 = BlockType(18, _nibbles_after(2), _scale, largest=15)
Q4_1 = BlockType(20, _nibbles_after(4), _scale_and_minimum, largest=15, has_minimum=True)
Q5_0 = BlockType(22, _five_bits_after(2), _scale, largest=31)
Q5_1 = BlockType(24, _five_bits_after(4), _scale_and_minimum, largest=31, has_minimum=True)
Q8_0 = BlockType(34, _bytes, _scale, largest=128, has_sign=True)
IQ4_NL = BlockType(18, _uneven_after(2), _scale, largest=127, has_sign=True)
MXFP4 = BlockType(17, _small_floats, _half_powers, largest=2 * _ADDED)
Q4_K = BlockType(
    144, _pairs_of_nibbles(16), _scale_and_subtracted, 15, 256, _scales_and_minima, has_minimum=True, parts=2
)
Q5_K = BlockType(
    176, _five_bits_of_superblock, _scale_and_subtracted, 31, 256, _scales_and_minima, has_minimum=True, parts=2
)
Q6_K = BlockType(210, _six_bits, _last_scale, 63, 256, _scales_of_six_bits, scaled=16, parts=4)
IQ4_XS = BlockType(136, _parts_of_uneven, _scale, 127, 256, _scales_less_32, has_sign=True)

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
    factor : int
        Of the sums of rounded inputs: minus the number that is added to codes.
    """

    of: BlockType
    round: LateStage
    multiply: LateStage
    factor: int = 0

    @property
    def stages(self) -> tuple[LateStage, LateStage]:
        return self.round, self.multiply


#: The kernels for each of ggml's types.
KERNELS = {
    2: Kernels(Q4_0, round_with_offset, multiply_q4_0, -8),
    3: Kernels(Q4_1, round_with_sum, multiply_q4_1),
    6: Kernels(Q5_0, round_with_offset, multiply_q5_0, -16),
    7: Kernels(Q5_1, round_with_sum, multiply_q5_1),
    8: Kernels(Q8_0, round_with_offset, multiply_q8_0),
    12: Kernels(Q4_K, round_superblocks, multiply_q4_k),
    13: Kernels(Q5_K, round_superblocks, multiply_q5_k),
    14: Kernels(Q6_K, round_superblocks, multiply_q6_k),
    20: Kernels(IQ4_NL, round_with_offset, multiply_iq4_nl),
    23: Kernels(IQ4_XS, round_superblocks, multiply_iq4_xs),
    39: Kernels(MXFP4, round_with_offset, multiply_mxfp4, -_ADDED),
}
