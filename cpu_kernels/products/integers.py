"""Write products of small integers as LLVM IR, in AVX2, AVX-512 and NEON, and the memory that they read and write.

A vector has 8 lanes, or 16 with AVX-512: four codes, two words, an integer or an f32 each. `Vectors` names the types.
Weights are unpacked in vectors of 8 lanes. An address is an int64, as for `Emit`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from ..numba_support.machine_features import HAS_DOT, HAS_VNNI
from ..numba_support.vector import FLOAT, HALF, INT8, INT16, INT32, INT64, Emit, constant

#: Lanes of f32 and of int32.
LANES = 8


class Vectors(NamedTuple):
    """The types of a vector's lanes."""

    codes: ir.VectorType
    words: ir.VectorType
    integers: ir.VectorType
    floats: ir.VectorType


def vectors_of(lanes: int) -> Vectors:
    """Return the types of vectors of so many lanes."""
    kinds = (INT8, 4 * lanes), (INT16, 2 * lanes), (INT32, lanes), (FLOAT, lanes)
    return Vectors(*(ir.VectorType(*each) for each in kinds))


CODES, WORDS, INTEGERS, FLOATS = vectors_of(LANES)

#: What is added to codes with a sign before `add_products`, which takes codes without one on x86.
ADDED = 128 if HAS_VNNI else 0


def equal(vector: Any, value: int) -> Any:
    """Return a vector of equal integers, of a type."""
    return ir.Constant(vector, [value] * vector.count)


def field(builder: Any, record: Any, dtype: np.dtype[Any], name: str) -> Any:
    """Load an int64 field of the record at an address."""
    assert dtype.fields is not None
    return load(builder, INT64, record, dtype.fields[name][1])


def load(builder: Any, kind: Any, address: Any, offset: int | Any = 0) -> Any:
    """Load a value of a type from some bytes after an address of any alignment."""
    offset = constant(offset) if isinstance(offset, int) else offset
    loaded = builder.load(builder.inttoptr(builder.add(address, offset), kind.as_pointer()))
    loaded.align = 1
    return loaded


def store(builder: Any, value: Any, address: Any, offset: int | Any = 0) -> None:
    """Store a value some bytes after an address of any alignment."""
    offset = constant(offset) if isinstance(offset, int) else offset
    builder.store(value, builder.inttoptr(builder.add(address, offset), value.type.as_pointer())).align = 1


def splat(builder: Any, scalar: Any, lanes: int = LANES) -> Any:
    """Return a vector with a scalar in each lane."""
    vector = ir.VectorType(scalar.type, lanes)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(INT32, 0))
    return builder.shuffle_vector(first, first, equal(ir.VectorType(INT32, lanes), 0))


def gather(builder: Any, scalars: list[Any]) -> Any:
    """Return a vector of scalars."""
    vector = ir.Constant(ir.VectorType(scalars[0].type, len(scalars)), ir.Undefined)
    for lane, scalar in enumerate(scalars):
        vector = builder.insert_element(vector, scalar, ir.Constant(INT32, lane))
    return vector


def halves(builder: Any, lanes: Any, bits: int) -> Any:
    """Return the f16 that are so many bits from the right in lanes of int32, as f32."""
    words = builder.trunc(builder.lshr(lanes, equal(INTEGERS, bits)), ir.VectorType(INT16, LANES))
    return builder.fpext(builder.bitcast(words, ir.VectorType(HALF, LANES)), FLOATS)


def shift_right(builder: Any, codes: Any, bits: int | Any, mask: int) -> Any:
    """Shift codes right, by a constant or an int64, or left by a negative one, and keep their own bits."""
    words = ir.VectorType(INT16, codes.type.count // 2)
    if isinstance(bits, int):
        shift, by = builder.lshr if bits > 0 else builder.shl, equal(words, abs(bits))
    else:
        shift, by = builder.lshr, splat(builder, builder.trunc(bits, INT16), words.count)
    shifted = builder.bitcast(shift(builder.bitcast(codes, words), by), codes.type)
    return builder.and_(shifted, equal(codes.type, mask))


def joined(builder: Any, low: Any, high: Any) -> Any:
    """Return the lanes of two vectors, one after the other."""
    return Emit(builder).shuffle(low, high, list(range(2 * low.type.count)))


def split(builder: Any, vector: Any) -> tuple[Any, Any]:
    """Return the halves of a vector, as `joined` takes them."""
    half = vector.type.count // 2
    low, high = ([*range(first, first + half)] for first in (0, half))
    return Emit(builder).shuffle(vector, vector, low), Emit(builder).shuffle(vector, vector, high)


def rounded(builder: Any, floats: Any) -> Any:
    """Return eight f32 as the nearest int32."""
    name, lanes = ("llvm.aarch64.neon.fcvtns.v4i32.v4f32", 4) if HAS_DOT else ("llvm.x86.avx.cvt.ps2dq.256", LANES)
    kinds = vectors_of(lanes)
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kinds.integers, [kinds.floats]), name)
    if lanes == LANES:
        return builder.call(function, [floats])
    return joined(builder, *(builder.call(function, [each]) for each in split(builder, floats)))


def four_of(builder: Any, address: Any, group: int, lanes: int) -> Any:
    """Return bytes 4 g to 4 g + 3 at an address, in each lane."""
    if HAS_DOT:  # takes one of the lanes that it loads at once
        four = load(builder, ir.VectorType(INT32, 4), address, group // 4 * 16)
        return Emit(builder).shuffle(four, four, [group % 4] * lanes)
    return splat(builder, load(builder, INT32, address, 4 * group), lanes)


def look_up(builder: Any, table: tuple[int, ...], codes: Any) -> Any:
    """Return the entries of a table of 16 bytes that 32 codes below 16 name."""
    if HAS_DOT:
        half = ir.VectorType(INT8, 16)
        signature = ir.FunctionType(half, [half] * 2)
        function = cgutils.get_or_insert_function(builder.module, signature, "llvm.aarch64.neon.tbl1.v16i8")
        return joined(builder, *(builder.call(function, [ir.Constant(half, table), x]) for x in split(builder, codes)))
    signature = ir.FunctionType(CODES, [CODES] * 2)
    function = cgutils.get_or_insert_function(builder.module, signature, "llvm.x86.avx2.pshuf.b")
    return builder.call(function, [ir.Constant(CODES, [*table, *table]), codes])


def magnitudes_of(builder: Any, codes: Any) -> Any:
    """Return the magnitudes of signed codes, as codes without sign."""
    return builder.select(builder.icmp_signed("<", codes, equal(CODES, 0)), builder.neg(codes), codes)


def with_signs(builder: Any, elements: Any, codes: Any) -> Any:
    """Return bytes, negated where a code is negative, and 0 where it is 0."""
    signature = ir.FunctionType(CODES, [CODES] * 2)
    function = cgutils.get_or_insert_function(builder.module, signature, "llvm.x86.avx2.psign.b")
    return builder.call(function, [builder.bitcast(elements, CODES), codes])


def multiply_codes(builder: Any, codes: Any, elements: Any) -> Any:
    """Multiply unsigned codes by signed bytes; return sums of two neighbours, int16, which must not overflow."""
    signature = ir.FunctionType(WORDS, [CODES] * 2)
    function = cgutils.get_or_insert_function(builder.module, signature, "llvm.x86.avx2.pmadd.ub.sw")
    return builder.call(function, [builder.bitcast(each, CODES) for each in (codes, elements)])


def add_products(builder: Any, total: Any, codes: Any, elements: Any) -> Any:
    """Add products of codes and signed bytes to int32, four neighbours to each, if the CPU `ADDS_PRODUCTS`."""
    elements = builder.bitcast(elements, codes.type)
    if HAS_DOT:
        four = vectors_of(4)
        signature = ir.FunctionType(four.integers, [four.integers, four.codes, four.codes])
        function = cgutils.get_or_insert_function(builder.module, signature, "llvm.aarch64.neon.sdot.v4i32.v16i8")
        halves_of = zip(*(split(builder, each) for each in (total, codes, elements)), strict=True)
        return joined(builder, *(builder.call(function, each) for each in halves_of))
    signature = ir.FunctionType(total.type, [total.type, codes.type, codes.type])
    name = f"llvm.x86.avx512.vpdpbusd.{32 * total.type.count}"
    function = cgutils.get_or_insert_function(builder.module, signature, name)
    return builder.call(function, [total, codes, elements])


def multiply_words(builder: Any, left: Any, right: Any) -> Any:
    """Multiply words; return sums of two neighbours, int32."""
    lanes = right.type.count * right.type.element.width // 32
    own, name = vectors_of(lanes), "llvm.x86.avx2.pmadd.wd" if lanes == LANES else "llvm.x86.avx512.pmaddw.d.512"
    left, right = (builder.bitcast(each, own.words) for each in (left, right))
    if HAS_DOT:
        emit, places = Emit(builder), [range(first, 2 * lanes, 2) for first in (0, 1)]
        pairs = [[builder.sext(emit.shuffle(x, x, [*at]), own.integers) for x in (left, right)] for at in places]
        return builder.add(*(builder.mul(*pair) for pair in pairs))
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(own.integers, [own.words] * 2), name)
    return builder.call(function, [left, right])


#: How two vectors are interleaved, by lanes, by pairs and by halves of them, and how much further the lanes lie that
#: are left out.
_STEPS = (
    ((0, 8, 1, 9, 4, 12, 5, 13), 2),
    ((0, 1, 8, 9, 4, 5, 12, 13), 2),
    ((0, 1, 2, 3, 8, 9, 10, 11), 4),
)


def _interleaved(builder: Any, vectors: list[Any], step: int) -> tuple[list[Any], list[Any]]:
    """Interleave each vector with the next one; return the results, then the lanes that these leave out."""
    (lanes, further), emit = _STEPS[step], Emit(builder)
    pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
    first = [emit.shuffle(*pair, list(lanes)) for pair in pairs]
    return first, [emit.shuffle(*pair, [lane + further for lane in lanes]) for pair in pairs]


def transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Transpose eight vectors of codes, each of 16 or 32: vector j of the result holds codes 4 j to 4 j + 3 of each."""
    count = rows[0].type.count // 4
    rows = [builder.bitcast(each, ir.VectorType(INT32, count)) for each in rows]
    columns = []
    for first in range(0, count, 4):
        lanes = [*range(first, first + 4), *range(count + first, count + first + 4)]
        four = [Emit(builder).shuffle(*pair, lanes) for pair in zip(rows[:4], rows[4:], strict=True)]
        for step in range(2):
            low, high = _interleaved(builder, four, step)
            four = low + high
        columns += [four[i] for i in (0, 2, 1, 3)]
    return columns


def sums_of_lanes(builder: Any, rows: list[Any]) -> Any:
    """Return a vector whose lane r is the sum of the lanes of vector r, of eight vectors of int32.

    Of four vectors it is the sum of four lanes: lane r of vector r's first ones, lane r + 4 of its last ones.
    """
    for step in range(len(rows).bit_length() - 1):
        rows = [builder.add(*each) for each in zip(*_interleaved(builder, rows, step), strict=True)]
    return rows[0]
