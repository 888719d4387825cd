"""The k largest of many numbers without sorting them: find the k-th by counting, then list what is not below it.

Numbers are f32 of at least 0, whose order is that of their bits read as integers: bisection over these ends after at
most 31 counts, each of which reads the numbers once, a vector at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, int32, int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from .compile import LANES, kernel
from .memory import pointer
from .vector import INT32, INT64, Emit

_INFINITY_BITS = 0x7F800000
_WITHOUT_SIGN = 0x7FFFFFFF  # both zeros are one number


@intrinsic
def _count_at_least(typing: Any, values: Any, n: Any, bits: Any) -> Any:
    """How many of n f32 at an address, a multiple of LANES, are not below the number with these bits."""

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


@intrinsic
def _list_at_least(typing: Any, values: Any, n: Any, bits: Any, listed: Any) -> Any:
    """Write the indices, int32, of those that `_count_at_least` counts, in order, to an address; returns how many.

    Writes whole vectors: up to LANES - 1 elements after the last are overwritten.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values, n, bits, listed = args
        emit = Emit(builder)
        least = emit.splat(builder.bitcast(bits, ir.FloatType()))
        flags = ir.VectorType(ir.IntType(1), LANES)
        signature = ir.FunctionType(ir.VoidType(), [emit.integers, INT32.as_pointer(), flags])
        compress = cgutils.get_or_insert_function(builder.module, signature, f"llvm.masked.compressstore.v{LANES}i32")
        mask_bits = ir.IntType(LANES)
        popcount = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(mask_bits, [mask_bits]), f"llvm.ctpop.i{LANES}"
        )
        count = cgutils.alloca_once_value(builder, ir.Constant(INT64, 0))
        with cgutils.for_range(builder, builder.sdiv(n, ir.Constant(INT64, LANES))) as loop:
            first = builder.mul(loop.index, ir.Constant(INT64, LANES))
            above = builder.fcmp_ordered(">=", emit.load_float(values, first), least)
            start = builder.insert_element(
                ir.Constant(emit.integers, ir.Undefined), builder.trunc(first, INT32), ir.Constant(INT32, 0)
            )
            numbers = builder.add(
                emit.shuffle(start, start, [0] * LANES), ir.Constant(emit.integers, list(range(LANES)))
            )
            builder.call(compress, [numbers, emit.pointer(listed, INT32, builder.load(count)), above])
            taken = builder.zext(builder.call(popcount, [builder.bitcast(above, mask_bits)]), INT64)
            builder.store(builder.add(builder.load(count), taken), count)
        return builder.load(count)

    return types.int64(types.int64, types.int64, types.int32, types.int64), generate


@kernel
def list_top(values, n, k, listed):
    """Write the indices of the k largest of n f32 to an address, int32, rising; returns how many: k, or fewer of n.

    values : address of n f32, a multiple of LANES; those below 0, and NaN, are never listed
    listed : address of n int32
    Of equal numbers the first are taken.
    """
    if k <= 0:
        return 0
    low, high = int64(0), int64(_INFINITY_BITS + 1)  # count(low) >= k > count(high), or fewer than k are listed
    while high - low > 1:
        middle = (low + high) // 2
        count = _count_at_least(values, n, int32(middle))
        if count == k:
            return _list_at_least(values, n, int32(middle), listed)
        if count > k:
            low = middle
        else:
            high = middle
    count = _list_at_least(values, n, int32(low), listed)
    return count if count <= k else _drop_last_equals(values, low, listed, count, count - k)


@kernel
def _drop_last_equals(values, bits, listed, count, excess):
    """Take the last `excess` of those whose bits are the least off a list."""
    numbers = carray(pointer(listed), (count,), np.int32)
    equal = 0
    all_bits = carray(pointer(values), (int64(numbers[count - 1]) + 1,), np.int32)
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
