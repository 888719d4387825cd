"""Sort rows by a tree, so that neighbours are alike: its leaves, all of one size.

A node is halved at the median along the direction in which its rows vary most (Boley 1998, "Principal direction
divisive partitioning"). That takes time in proportion to n log n, where K-means takes n times the number of clusters.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32

from ..numba_support.compile import kernel

#: Rows that a direction is found on, evenly spaced, at most; and rounds of the power iteration that finds it.
_SAMPLE, _ROUNDS = 512, 4

#: Nodes that wait to be halved at once, at most: one for each level of the tree, and one more.
_MOST_WAITING = 65


@kernel
def sort_by_tree(rows, leaf_rows, order):
    """Sort rows so that each leaf_rows of them, one after another, are a leaf.

    Parameters
    ----------
    rows : f32 array, shape (n_rows, n_columns)
        The rows.
    leaf_rows : int64
        Rows of a leaf; n_rows is a multiple of it.
    order : int64 array, shape (n_rows,)
        Receives the numbers of the rows, leaf after leaf.
    """
    n_rows, n_columns = rows.shape
    places, sample = np.empty(n_rows, np.float32), np.empty((min(n_rows, _SAMPLE), n_columns), np.float32)
    direction, following = np.empty(n_columns, np.float32), np.empty(n_columns, np.float32)
    waiting, n_waiting = np.empty((_MOST_WAITING, 2), np.int64), 1
    waiting[0, 0], waiting[0, 1] = 0, n_rows
    for i in range(n_rows):
        order[i] = i
    while n_waiting > 0:
        n_waiting -= 1
        start, stop = waiting[n_waiting, 0], waiting[n_waiting, 1]
        n_leaves = (stop - start) // leaf_rows
        if n_leaves < 2:
            continue
        _find_direction(rows, order, start, stop, sample, direction, following)
        for i in range(start, stop):
            place = _product(rows[order[i]], direction)
            places[i] = float32(0) if math.isnan(place) else place
        middle = start + n_leaves // 2 * leaf_rows
        _part(places, order, start, middle, stop)
        waiting[n_waiting, 0], waiting[n_waiting, 1] = start, middle
        waiting[n_waiting + 1, 0], waiting[n_waiting + 1, 1] = middle, stop
        n_waiting += 2


@kernel
def _product(a, b):
    """Return the sum of the products of two rows."""
    total = float32(0)
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@kernel
def _add_scaled(total, row, factor):
    """Add a row, times a factor, to `total`."""
    for i in range(len(row)):
        total[i] += factor * row[i]


@kernel
def _find_direction(rows, order, start, stop, sample, direction, following):
    """Find the direction in which the rows order[start:stop] vary most, by power iteration, of any length.

    It starts at the row that is farthest from the mean. `sample` and `following` are room to work in.
    """
    step = -(-(stop - start) // len(sample))
    n = -(-(stop - start) // step)
    direction[:] = float32(0)
    for i in range(n):
        sample[i] = rows[order[start + i * step]]
        _add_scaled(direction, sample[i], float32(1) / float32(n))  # the mean
    farthest, distance = 0, float32(-1)
    for i in range(n):
        _add_scaled(sample[i], direction, float32(-1))
        own = _product(sample[i], sample[i])
        if own > distance:
            farthest, distance = i, own
    direction[:] = sample[farthest]
    for _ in range(_ROUNDS):
        following[:] = float32(0)
        for i in range(n):
            _add_scaled(following, sample[i], _product(sample[i], direction))
        length = float32(math.sqrt(_product(following, following)))
        if not length > 0:  # all rows are equal, or one holds a NaN
            return
        direction[:] = following / length


@kernel
def _part(places, order, start, middle, stop):
    """Reorder `order` and `places` from start to stop, so that none before `middle` is placed above one after it."""
    low, high = start, stop - 1
    while low < high:
        pivot, i, j = places[(low + high) // 2], low, high
        while i <= j:
            while places[i] < pivot:
                i += 1
            while places[j] > pivot:
                j -= 1
            if i <= j:
                places[i], places[j] = places[j], places[i]
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return
