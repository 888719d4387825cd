"""List the largest of many numbers without sorting them.

Find the smallest one to list by counting, then list all from it up. The numbers are f32 of at least 0, and such floats
have the same order as their bits read as integers. So a bisection over the bits ends after at most 31 counts, of which
the later ones read only the numbers still undecided.
"""

from __future__ import annotations

import numpy as np
from numba import float32, int32, int64

from ..numba_support.compile import kernel
from ..numba_support.machine_features import LANES
from ..numba_support.views import array_at
from .counting import (
    INFINITY_BITS,
    copy_between,
    count_at_least,
    float_of,
    list_at_least,
    sum_sizes,
)

#: Bits that span a factor of 2. The few numbers between these are copied, and the bisection continues among them.
_NARROW = 1 << 23

_WITHOUT_SIGN = 0x7FFFFFFF  # 0.0 and -0.0 count as equal


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
    low, high = int64(0), int64(INFINITY_BITS + 1)  # sum(low) > wanted >= sum(high), unless sum(0) <= wanted
    at_low, at_high = sum_sizes(values, sizes, n, int32(0)), float32(0)
    if at_low <= wanted:
        return float32(-1)
    while high - low > 1:
        middle = (low + high) // 2
        total = sum_sizes(values, sizes, n, int32(middle))
        if total > wanted:
            low, at_low = middle, total
        else:
            high, at_high = middle, total
    first = low if at_low - wanted < wanted - at_high else high
    return float_of(int32(first - 1)) if first > 0 else float32(-1)


@kernel
def _keep_between(values, n, low, high, room):
    """Copy the values between two numbers into `room`, padded with -1 to a multiple of LANES. Return its length."""
    n_kept = copy_between(values, n, int32(low), int32(high), room)
    stop = -(-n_kept // LANES) * LANES
    kept = array_at(room, (stop,), np.float32)
    for i in range(n_kept, stop):
        kept[i] = float32(-1)
    return stop


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
    low, high = int64(0), int64(INFINITY_BITS + 1)  # count(low) >= k > count(high), unless count(0) < k
    left, n_left, above, at_high = values, n, 0, 0
    while high - low > 1:
        if left == values and high - low <= _NARROW:
            left, n_left, above = listed, _keep_between(values, n, low, high, listed), at_high
        middle = (low + high) // 2
        count = above + count_at_least(left, n_left, int32(middle))
        if count == k:
            return list_at_least(values, n, int32(middle), listed)
        if count > k:
            low = middle
        else:
            high, at_high = middle, count
    count = list_at_least(values, n, int32(low), listed)
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
