"""Count, add up, copy and list those of many numbers that are at least a threshold, vector by vector.

The numbers are f32, whose count is a multiple of LANES. A threshold is given by its bits: floats of at least 0 have the
same order as their bits read as integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..numba_support.machine_features import HAS_AVX2, LANES
from ..numba_support.vector import INT8, INT32, INT64, Emit, constant

#: Bits of infinity.
INFINITY_BITS = 0x7F800000

#: Vectors of numbers that are reduced at once.
_AT_ONCE = 4


def _reduced(builder: Any, n: Any, start: Any, add: Callable[[Any, Any], Any], merge: Callable[..., Any]) -> Any:
    """Reduce n numbers to a vector, several vectors of numbers at a time, so that none waits for the one before.

    Parameters
    ----------
    start : LLVM vector
        The result for no numbers.
    add : callable
        Takes a result and the index of a vector of numbers; returns the result with these.
    merge : callable
        Merges two results.
    """
    slots = [cgutils.alloca_once_value(builder, start) for _ in range(_AT_ONCE)]

    def write(slot: Any, first: Any) -> None:
        builder.store(add(builder.load(slot), first), slot)

    together = builder.and_(n, constant(-_AT_ONCE * LANES))
    with cgutils.for_range_slice(builder, constant(0), together, constant(_AT_ONCE * LANES), INT64) as (place, _count):
        for i, slot in enumerate(slots):
            write(slot, builder.add(place, constant(i * LANES)))
    with cgutils.for_range_slice(builder, together, n, constant(LANES), INT64) as (place, _count):
        write(slots[0], place)
    result, *others = (builder.load(slot) for slot in slots)
    for other in others:
        result = merge(result, other)
    return result


@intrinsic
def count_at_least(typing: Any, values: Any, n: Any, bits: Any) -> Any:
    """Count those of n f32, a multiple of LANES, that are at least the number with these bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values, n, bits = args
        emit = Emit(builder)
        least = emit.splat(builder.bitcast(bits, ir.FloatType()))

        def add(count: Any, first: Any) -> Any:
            above = builder.fcmp_ordered(">=", emit.load_float(values, first), least)
            return builder.sub(count, builder.sext(above, emit.integers))

        count = _reduced(builder, n, ir.Constant(emit.integers, [0] * LANES), add, builder.add)
        return builder.sext(emit.sum_integers(count), INT64)

    return types.int64(types.int64, types.int64, types.int32), generate


def _to_front(mask: int) -> list[int]:
    """Return all lanes of a vector, those of a mask first."""
    return sorted(range(LANES), key=lambda lane: not mask >> lane & 1)


def _store_wanted(emit: Emit, lanes: Any, wanted: Any, mask: Any, place: Any) -> None:
    """Store the wanted ones of a vector's 4-byte lanes side by side, and perhaps anything in the place of the others.

    `mask` has a bit for each lane. AVX2 has no instruction for that: a table says which lanes move to the front. Some
    CPUs with AVX-512 are slow to store only the wanted ones.
    """
    builder, flags = emit.builder, wanted.type
    vector = builder.bitcast(place, emit.integers.as_pointer())
    if LANES == 16:
        signature = ir.FunctionType(emit.integers, [emit.integers, emit.integers, flags])
        compress = cgutils.get_or_insert_function(builder.module, signature, "llvm.x86.avx512.mask.compress.v16i32")
        builder.store(builder.call(compress, [lanes, lanes, wanted]), vector).align = 4
    elif HAS_AVX2:
        lanes_of_masks = bytearray(lane for own in range(1 << LANES) for lane in _to_front(own))
        content = ir.Constant(ir.ArrayType(INT8, len(lanes_of_masks)), lanes_of_masks)
        table = builder.ptrtoint(cgutils.global_constant(builder, "octavo.fronts", content), INT64)
        front = emit.load_bytes(table, builder.mul(builder.zext(mask, INT64), constant(LANES)), LANES)
        signature = ir.FunctionType(emit.integers, [emit.integers] * 2)
        permute = cgutils.get_or_insert_function(builder.module, signature, "llvm.x86.avx2.permd")
        builder.store(builder.call(permute, [lanes, builder.zext(front, emit.integers)]), vector).align = 4
    else:
        signature = ir.FunctionType(ir.VoidType(), [emit.integers, INT32.as_pointer(), flags])
        compress = cgutils.get_or_insert_function(builder.module, signature, f"llvm.masked.compressstore.v{LANES}i32")
        builder.call(compress, [lanes, place, wanted])


def _compress(emit: Emit, n: Any, kept: Any, vector_at: Callable[[Any], tuple[Any, Any]]) -> Any:
    """Write the wanted ones of n 4-byte lanes, side by side; return their number.

    `vector_at` returns the vector that begins at an index, and which of its lanes are wanted. Lanes may be written to
    where they are read from, as none moves back.
    """
    builder, mask_bits = emit.builder, ir.IntType(LANES)
    signature = ir.FunctionType(mask_bits, [mask_bits])
    popcount = cgutils.get_or_insert_function(builder.module, signature, f"llvm.ctpop.i{LANES}")
    count = cgutils.alloca_once_value(builder, constant(0))
    with cgutils.for_range(builder, builder.sdiv(n, constant(LANES))) as loop:
        lanes, wanted = vector_at(builder.mul(loop.index, constant(LANES)))
        mask = builder.bitcast(wanted, mask_bits)
        _store_wanted(emit, lanes, wanted, mask, emit.pointer(kept, INT32, builder.load(count)))
        taken = builder.zext(builder.call(popcount, [mask]), INT64)
        builder.store(builder.add(builder.load(count), taken), count)
    return builder.load(count)


def _indices_at(emit: Emit, first: Any) -> Any:
    """Return a vector of the indices from one on."""
    builder = emit.builder
    start = builder.insert_element(
        ir.Constant(emit.integers, ir.Undefined), builder.trunc(first, INT32), ir.Constant(INT32, 0)
    )
    return builder.add(emit.shuffle(start, start, [0] * LANES), ir.Constant(emit.integers, list(range(LANES))))


@intrinsic
def list_at_least(typing: Any, values: Any, n: Any, bits: Any, listed: Any) -> Any:
    """Write the indices, int32, rising, of the numbers that `count_at_least` counts; return their number."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values, n, bits, listed = args
        emit = Emit(builder)
        least = emit.splat(builder.bitcast(bits, ir.FloatType()))

        def indices_at(first: Any) -> tuple[Any, Any]:
            return _indices_at(emit, first), builder.fcmp_ordered(">=", emit.load_float(values, first), least)

        return _compress(emit, n, listed, indices_at)

    return types.int64(types.int64, types.int64, types.int32, types.int64), generate


def _writer_between(lanes_at: Callable[[Emit, Any, Any], Any]) -> Any:
    """Make the intrinsic that writes something of the numbers from the bits `low` up to those below `high`.

    `lanes_at` returns what to write of a vector: it takes the emitter, the numbers, and the index of the first one.
    """

    @intrinsic
    def write_between(typing: Any, values: Any, n: Any, low: Any, high: Any, kept: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            values, n, low, high, kept = args
            emit = Emit(builder)
            least, limit = (emit.splat(builder.bitcast(bits, ir.FloatType())) for bits in (low, high))

            def vector_at(first: Any) -> tuple[Any, Any]:
                numbers = emit.load_float(values, first)
                below = builder.fcmp_unordered("<", numbers, limit)  # true for the limit after infinity, a NaN
                wanted = builder.and_(builder.fcmp_ordered(">=", numbers, least), below)
                return lanes_at(emit, numbers, first), wanted

            return _compress(emit, n, kept, vector_at)

        return types.int64(types.int64, types.int64, types.int32, types.int32, types.int64), generate

    return write_between


#: Write the indices of the numbers from the bits `low` up to those below `high`; return their number.
list_between = _writer_between(lambda emit, numbers, first: _indices_at(emit, first))

#: Copy these numbers; return their number.
copy_between = _writer_between(lambda emit, numbers, first: emit.builder.bitcast(numbers, emit.integers))


@intrinsic
def sum_sizes(typing: Any, values: Any, sizes: Any, n: Any, bits: Any) -> Any:
    """Add up the sizes of the numbers that `count_at_least` counts, f32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values, sizes, n, bits = args
        emit = Emit(builder)
        least, zero = emit.splat(builder.bitcast(bits, ir.FloatType())), emit.constant(0.0)

        def add(total: Any, first: Any) -> Any:
            above = builder.fcmp_ordered(">=", emit.load_float(values, first), least)
            return builder.fadd(total, builder.select(above, emit.load_float(sizes, first), zero))

        return emit.sum(_reduced(builder, n, zero, add, builder.fadd))

    return types.float32(types.int64, types.int64, types.int64, types.int32), generate


@intrinsic
def bits_of(typing: Any, number: Any) -> Any:
    """Return the bits of an f32, as an int32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], INT32)

    return types.int32(types.float32), generate


@intrinsic
def float_of(typing: Any, bits: Any) -> Any:
    """Return the f32 with these bits, an int32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate
