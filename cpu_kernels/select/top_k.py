"""List the k largest of many numbers without sorting them: find the k-th largest by counting, then list all from it up.

It can also find the number above which all must be taken for their sizes to add up to a wanted sum.

The numbers are f32 of at least 0, and such floats have the same order as their bits read as integers. So a bisection
over the bits ends after at most 31 counts, each vector by vector: the first 8 counts read all numbers, the others only
those still undecided.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import float32, int32, int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from ..numba_support.compile import kernel
from ..numba_support.machine_features import LANES
from ..numba_support.vector import INT32, INT64, Emit
from ..numba_support.views import array_at

_INFINITY_BITS = 0x7F800000

#: Bits that span a factor of 2. The few numbers between these are copied, and the bisection continues among them.
_NARROW = 1 << 23

_WITHOUT_SIGN = 0x7FFFFFFF  # 0.0 and -0.0 count as equal


@intrinsic
def _count_at_least(typing: Any, values: Any, n: Any, bits: Any) -> Any:
    """Count those of n f32, a multiple of LANES, that are at least the number with these bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values, n, bits = args
        emit = Emit(builder)
        least = emit.splat(builder.bitcast(bits, ir.FloatType()))
        total = cgutils.alloca_once_value(builder, ir.Constant(emit.integers, [0] * LANES))
        with cgutils.for_range(builder, builder.sdiv(n, ir.Constant(INT64, LANES))) as loop:
            numbers = emit.load_float(values, builder.mul(loop.index, ir.Constant(INT64, LANES)))
            above = builder.sext(builder.fcmp_ordered(">=", numbers, least), emit.integers)
            builder.store(builder.sub(builder.load(total), above), total)
        return builder.sext(emit.sum_integers(builder.load(total)), INT64)

    return types.int64(types.int64, types.int64, types.int32), generate


def _compress(emit: Emit, n: Any, kept: Any, vector_at: Callable[[Any], tuple[Any, Any]]) -> Any:
    """Write the wanted ones of n 4-byte lanes, side by side; return their number.

    `vector_at` returns the vector that begins at an index, and which of its lanes are wanted.
    """
    builder, flags, mask_bits = emit.builder, ir.VectorType(ir.IntType(1), LANES), ir.IntType(LANES)
    signature = ir.FunctionType(ir.VoidType(), [emit.integers, INT32.as_pointer(), flags])
    compress = cgutils.get_or_insert_function(builder.module, signature, f"llvm.masked.compressstore.v{LANES}i32")
    signature = ir.FunctionType(mask_bits, [mask_bits])
    popcount = cgutils.get_or_insert_function(builder.module, signature, f"llvm.ctpop.i{LANES}")
    count = cgutils.alloca_once_value(builder, ir.Constant(INT64, 0))
    with cgutils.for_range(builder, builder.sdiv(n, ir.Constant(INT64, LANES))) as loop:
        lanes, wanted = vector_at(builder.mul(loop.index, ir.Constant(INT64, LANES)))
        builder.call(compress, [lanes, emit.pointer(kept, INT32, builder.load(count)), wanted])
        taken = builder.zext(builder.call(popcount, [builder.bitcast(wanted, mask_bits)]), INT64)
        builder.store(builder.add(builder.load(count), taken), count)
    return builder.load(count)


@intrinsic
def _list_at_least(typing: Any, values: Any, n: Any, bits: Any, listed: Any) -> Any:
    """Write the indices, int32, rising, of the numbers that `_count_at_least` counts; return their number."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values, n, bits, listed = args
        emit = Emit(builder)
        least = emit.splat(builder.bitcast(bits, ir.FloatType()))

        def indices_at(first: Any) -> tuple[Any, Any]:
            start = builder.insert_element(
                ir.Constant(emit.integers, ir.Undefined), builder.trunc(first, INT32), ir.Constant(INT32, 0)
            )
            numbers = builder.add(
                emit.shuffle(start, start, [0] * LANES), ir.Constant(emit.integers, list(range(LANES)))
            )
            return numbers, builder.fcmp_ordered(">=", emit.load_float(values, first), least)

        return _compress(emit, n, listed, indices_at)

    return types.int64(types.int64, types.int64, types.int32, types.int64), generate


@intrinsic
def _copy_between(typing: Any, values: Any, n: Any, low: Any, high: Any, kept: Any) -> Any:
    """Copy the numbers of at least the bits `low` and less than the bits `high`; return their number."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values, n, low, high, kept = args
        emit = Emit(builder)
        least, limit = (emit.splat(builder.bitcast(bits, ir.FloatType())) for bits in (low, high))

        def numbers_at(first: Any) -> tuple[Any, Any]:
            numbers = emit.load_float(values, first)
            below = builder.fcmp_unordered("<", numbers, limit)  # true for the first limit, which is a NaN
            wanted = builder.and_(builder.fcmp_ordered(">=", numbers, least), below)
            return builder.bitcast(numbers, emit.integers), wanted

        return _compress(emit, n, kept, numbers_at)

    return types.int64(types.int64, types.int64, types.int32, types.int32, types.int64), generate


@intrinsic
def _sum_sizes(typing: Any, values: Any, sizes: Any, n: Any, bits: Any) -> Any:
    """Add up the sizes of the numbers that `_count_at_least` counts, f32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values, sizes, n, bits = args
        emit = Emit(builder)
        least = emit.splat(builder.bitcast(bits, ir.FloatType()))
        zero = emit.constant(0.0)
        total = cgutils.alloca_once_value(builder, zero)
        with cgutils.for_range(builder, builder.sdiv(n, ir.Constant(INT64, LANES))) as loop:
            first = builder.mul(loop.index, ir.Constant(INT64, LANES))
            above = builder.fcmp_ordered(">=", emit.load_float(values, first), least)
            own = builder.select(above, emit.load_float(sizes, first), zero)
            builder.store(builder.fadd(builder.load(total), own), total)
        return emit.sum(builder.load(total))

    return types.float32(types.int64, types.int64, types.int64, types.int32), generate


@intrinsic
def _float_of(typing: Any, bits: Any) -> Any:
    """Return the f32 with these bits, an int32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


@kernel
def find_least(values, sizes, n, wanted):
    """Find the number such that the sizes of the values above it add up to nearly `wanted`.

    Parameters
    ----------
    values, sizes : int64
        Addresses of n f32, none below 0.
    n : int64
        Count of the values, a multiple of LANES.
    wanted : float32
        Target for the sum of the sizes.

    Returns
    -------
    float32
        A number below the smallest value to take, and not below any other; -1 to take all. Equal values are taken
        together. A NaN is not taken.
    """
    low, high = int64(0), int64(_INFINITY_BITS + 1)  # sum(low) > wanted >= sum(high), unless sum(0) <= wanted
    at_low, at_high = _sum_sizes(values, sizes, n, int32(0)), float32(0)
    if at_low <= wanted:
        return float32(-1)
    while high - low > 1:
        middle = (low + high) // 2
        total = _sum_sizes(values, sizes, n, int32(middle))
        if total > wanted:
            low, at_low = middle, total
        else:
            high, at_high = middle, total
    first = low if at_low - wanted < wanted - at_high else high
    return _float_of(int32(first - 1)) if first > 0 else float32(-1)


@kernel
def find_covering(values, n, wanted, room):
    """Find the bits of the number from which on values must be taken, to add up to `wanted` or more.

    Parameters
    ----------
    values : int64
        Address of n f32, none below 0 and none NaN.
    n : int64
        Count of the values, a multiple of LANES.
    wanted : float32
        Target for the sum of the values.
    room : int64
        Address of n f32 to work in.

    Returns
    -------
    int64
        The bits, for `list_from`: those of 0 if all values add up to less.
    """
    low, high = int64(0), int64(_INFINITY_BITS + 1)  # sum(low) >= wanted > sum(high), unless sum(0) < wanted
    left, n_left, above, at_high = values, n, float32(0), float32(0)
    while high - low > 1:
        if left == values and high - low <= _NARROW:
            left, n_left, above = room, _keep_between(values, n, low, high, room), at_high
        middle = (low + high) // 2
        total = above + _sum_sizes(left, left, n_left, int32(middle))
        if total >= wanted:
            low = middle
        else:
            high, at_high = middle, total
    return low


@kernel
def _keep_between(values, n, low, high, room):
    """Copy the values between two numbers into `room`, padded with -1 to a multiple of LANES. Return its length."""
    n_kept = _copy_between(values, n, int32(low), int32(high), room)
    stop = -(-n_kept // LANES) * LANES
    kept = array_at(room, (stop,), np.float32)
    for i in range(n_kept, stop):
        kept[i] = float32(-1)
    return stop


@kernel
def list_from(values, n, bits, listed):
    """Write the indices of those of n numbers that are not below the one with these bits.

    Parameters
    ----------
    bits : int64
        Bits of a number, from `find_covering`.

    Returns
    -------
    int64
        Count of the indices written.
    """
    return _list_at_least(values, n, int32(bits), listed)


@kernel
def list_top(values, n, k, listed):
    """Write the indices of the k largest of n numbers. The first of equal numbers win.

    Parameters
    ----------
    values : int64
        Address of n f32. Numbers below 0 and NaN are never listed.
    n : int64
        Count of the numbers, a multiple of LANES.
    k : int64
        Count of the indices wanted.
    listed : int64
        Address of n int32, which receives the indices in rising order.

    Returns
    -------
    int64
        Count of the indices written: k, or fewer if fewer can be listed.
    """
    if k <= 0:
        return 0
    low, high = int64(0), int64(_INFINITY_BITS + 1)  # count(low) >= k > count(high), unless count(0) < k
    left, n_left, above, at_high = values, n, 0, 0
    while high - low > 1:
        if left == values and high - low <= _NARROW:
            left, n_left, above = listed, _keep_between(values, n, low, high, listed), at_high
        middle = (low + high) // 2
        count = above + _count_at_least(left, n_left, int32(middle))
        if count == k:
            return _list_at_least(values, n, int32(middle), listed)
        if count > k:
            low = middle
        else:
            high, at_high = middle, count
    count = _list_at_least(values, n, int32(low), listed)
    return count if count <= k else _drop_last_equals(values, low, listed, count, count - k)


@kernel
def _drop_last_equals(values, bits, listed, count, excess):
    """Remove the last `excess` of the listed numbers that have these bits, the smallest; return how many stay."""
    numbers = array_at(listed, (count,), np.int32)
    all_bits = array_at(values, (int64(numbers[count - 1]) + 1,), np.int32)
    equal = 0
    for i in range(count):
        equal += all_bits[numbers[i]] & _WITHOUT_SIGN == bits
    kept, n = equal - excess, 0
    for i in range(count):
        number = numbers[i]
        if all_bits[number] & _WITHOUT_SIGN == bits:
            if kept == 0:
                continue
            kept -= 1
        numbers[n] = number
        n += 1
    return n
