"""Find the largest of a head's numbers together: all threads count their own, then each lists those of its share.

The threads count in one histogram, by exponent and first bits of the mantissa. It holds integers, so that its content
does not depend on the order in which they add. From it each thread finds the same cut: the bins whose numbers are all
listed, and of the next bin how many. A stretch of numbers lists of that bin in proportion to what it has there.

The numbers are f32 of at least 0, whose bits read as integers have the same order. Numbers below 0 are never listed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import float32, int32, int64

from ..layout.scores import BINS
from ..numba_support.compile import kernel
from ..numba_support.memory import fetch_add, read_int64
from ..numba_support.views import array_at
from .counting import INFINITY_BITS, copy_between, count_at_least, list_at_least, list_between

#: Bits of a float below those that say its bin: a bin has an eighth of the numbers between two powers of 2.
_BELOW_BIN = 20

#: Bin of the first numbers, without an offset. The last bin ends at 2**8, more than any group's shares add up to; the
#: first one has all numbers below 2**-56 as well.
_FIRST_BIN = (127 + 8) * 8 - BINS

#: An entry of the histogram is a count times this, plus the sum of the numbers, in units of 1 / _UNITS.
_COUNTED, _UNITS = 1 << 40, np.float32(2.0**32)

#: If one in _ENOUGH numbers of a stretch is above the smallest number that may be listed by so many bits, a factor of
#: 64, the smaller ones do not count.
_ENOUGH, _ENOUGH_ABOVE = 16, 6 << 23


class Cut(NamedTuple):
    """Which numbers are listed.

    Parameters
    ----------
    low, high : int64
        Bits of the first number of the bin that is listed in part, and of the first one above it.
    listed, counted : int64
        Of so many numbers of that bin as are counted, so many are listed.
    rounded : int64
        Added before the division by `counted`: 0 to round the share of a stretch down, `counted` - 1 to round it up.
    enough : int64
        Bits of the smallest number that is listed of a stretch where smaller ones did not count.
    """

    low: int
    high: int
    listed: int
    counted: int
    rounded: int
    enough: int


@kernel
def as_units(number):
    """Return a number as a histogram adds it up."""
    return int64(number * _UNITS)


@kernel
def of_units(total):
    """Return the number that a sum of `as_units` stands for."""
    return float32(total) / _UNITS


@kernel
def entry_of(number):
    """Return what a number adds to an entry of a histogram."""
    return _COUNTED + as_units(number)


@kernel
def is_counted(histogram):
    """Return whether the histogram at an address counts any number that is taken whatever the cut."""
    return read_int64(histogram + BINS * 8) != 0


@kernel
def count_numbers(values, n, least, own, room):
    """Count numbers in a thread's own histogram.

    Parameters
    ----------
    values : int64
        Address of n f32, a multiple of LANES.
    least : int64
        Bits of the smallest number that counts; of many, only those count that are well above it.
    own : int64 array, shape (2, BINS + 1)
        The histogram, in two parts, so that equal numbers do not wait for each other. Its last entry is not a bin: what
        is added there is taken, whatever the cut.
    room : int64
        Address of n f32 to work in.
    """
    n_kept = copy_between(values, n, int32(least + _ENOUGH_ABOVE), int32(INFINITY_BITS), room)
    if not _are_enough(n_kept, n):
        n_kept = copy_between(values, n, int32(least), int32(INFINITY_BITS), room)
    numbers, bits = array_at(room, (n_kept,), np.float32), array_at(room, (n_kept,), np.int32)
    for i in range(n_kept):
        own[i & 1, min(max((bits[i] >> _BELOW_BIN) - _FIRST_BIN, 0), BINS - 1)] += entry_of(numbers[i])


@kernel
def _are_enough(n_above, n):
    """Return whether so many large ones of n numbers are enough for smaller ones not to count."""
    return n_above * _ENOUGH >= n


@kernel
def add_histogram(own, histogram):
    """Add a thread's own histogram to the shared one at an address."""
    for number in range(BINS + 1):
        entry = own[0, number] + own[1, number]
        if entry != 0:
            fetch_add(histogram + number * 8, entry)


@kernel
def find_cut(histogram, wanted, taken, fewest, most, least):
    """Return the Cut with which the largest numbers add up to a sum.

    Parameters
    ----------
    histogram : int64
        Address of the shared histogram, (BINS + 1,) int64.
    wanted : float32
        The sum.
    taken : int64
        Count of the numbers that are taken whatever the cut.
    fewest, most : int64
        Least and largest count, whatever the sum; the largest goes first.
    least : int64
        Bits of the smallest number that may be listed, and was counted.
    """
    bins = array_at(histogram, (BINS + 1,), np.int64)
    left, n_listed = int64(wanted * _UNITS) - bins[BINS] % _COUNTED, taken
    for number in range(BINS - 1, -1, -1):
        counted, total = bins[number] // _COUNTED, bins[number] % _COUNTED
        if n_listed + counted >= most:
            return _cut(number, least, max(most - n_listed, 0), counted, 0)
        if n_listed + counted >= fewest and total >= left:
            n_wanted = int64(math.ceil(max(left, 0) / max(total, 1) * counted))
            return _cut(number, least, min(max(n_wanted, fewest - n_listed), counted), counted, max(counted - 1, 0))
        n_listed += counted
        left -= total
    return _cut(0, least, 0, 0, 0)


@kernel
def _cut(number, least, listed, counted, rounded):
    """Return the Cut in a bin."""
    first = int64(number + _FIRST_BIN) << _BELOW_BIN
    low = max(first, least) if number > 0 else least
    return Cut(low, max(first + (1 << _BELOW_BIN), low), listed, counted, rounded, least + _ENOUGH_ABOVE)


@kernel
def _count_finite(values, n, bits):
    """Count the numbers of at least these bits, without infinity."""
    return count_at_least(values, n, int32(bits)) - count_at_least(values, n, int32(INFINITY_BITS))


@kernel
def list_largest(values, n, cut, listed):
    """Write the indices of the numbers that a cut takes, those above the last bin first. Return their count.

    Parameters
    ----------
    values : int64
        Address of n f32 of a chunk, a multiple of LANES. Infinity is always taken.
    listed : int64
        Address of n int32, and LANES more to work in.
    """
    low, high = cut.low, cut.high
    if low < cut.enough and _are_enough(_count_finite(values, n, cut.enough), n):
        low, high = cut.enough, max(high, cut.enough)
    count = list_at_least(values, n, int32(high), listed)
    n_in_bin = list_between(values, n, int32(low), int32(high), listed + count * 4)
    if cut.listed < cut.counted:
        n_in_bin = (n_in_bin * cut.listed + cut.rounded) // cut.counted
    return count + n_in_bin
