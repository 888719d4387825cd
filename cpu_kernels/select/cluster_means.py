"""Estimate the clusters that a step does not select, by their centroids and the mean values of their rows.

The expected weight of a cluster of N rows with mean key C is N exp(q . C) (1 + v / 2), where v is the variance of q . k
among them. A centroid's score alone gives too little, because the mean of exp exceeds exp of the mean. 1 + v / 2 is the
mean of exp(q . (k - C)) to second order; exp(v / 2), the mean for normally distributed scores, is far too much for
large v. The output takes half of the correction, 1 + v / 4: more weight for a mean value gains nothing if few of its
rows matter. v is a sum over columns, of q^2 times the variance of keys within clusters: one spread for all clusters of
a document, of its coarse level, or of a chunk. A spread for each cluster makes no difference (docs/methods.md).

Mean values are q8_0 rows (see rows.py), whatever the format of the stored values, and spreads f32.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from numba import float32

from ..attend.decode import add_to_partial, fill_list
from ..layout.head import head_at
from ..layout.scores import LIST_ROOM, fill, list_address, rest_of, scores_address, scores_of, share_of, sum_floats
from ..numba_support.compile import kernel
from ..numba_support.memory import borrow, give_back, write_float, write_int64
from ..numba_support.views import array_at
from ..rows.q8_0 import quantise
from ..rows.rows import add_weighted, widen_row, widen_value

_Sizes = TypeVar("_Sizes", int, np.ndarray)

#: Bytes of a mean value's scale.
_SCALE_BYTES = 4


def mean_value_bytes(value_dim: _Sizes) -> _Sizes:
    """Return the bytes of one mean value, for one value_dim or for many."""
    return value_dim + _SCALE_BYTES


@kernel
def leave_items(shape, head, query, first, n_own, n, values, spread):
    """Defer the items from `first` on to the estimate: list their mean values, and complete their weights.

    Until `end_items`, `rest_of` holds a sum of expected weights in place of its logarithm.

    Parameters
    ----------
    head : HEAD record
        Its scores are the weights without the variance, relative to the largest score in `rest_of`; 0 for an item that
        is attended exactly. Its list receives an address for each item.
    query : int64
        Address of (group, head_dim) f32, scaled.
    first, n_own, n : int64
        First item; items with a mean value, at least 1; and items.
    values : int64
        Address of the first item's mean value; 0 if the list has the addresses already.
    spread : int64
        Address of the variance of each column of the keys within clusters, (head_dim,) f32.
    """
    listed = list_address(shape, head) + first * 8
    if values != 0:
        for i in range(n_own):
            write_int64(listed + i * 8, values + i * shape.of_bytes.row_bytes)
    fill_list(listed, n_own, n)
    rest = rest_of(shape, head)
    for g in range(shape.group):
        variance = variance_of_scores(shape, query, g, spread)
        factor, total = weight_in_output(variance), float32(0)
        weights = array_at(scores_address(head, g) + first * 4, (n,), np.float32)
        for i in range(n):
            weights[i] = weights[i] * factor if weights[i] != 0 else float32(0)
            total += weights[i]
        rest[1, g] += total
        rest[2, g] += total / factor * expected_weight(variance)


@kernel
def expected_weight(variance):
    """Return the expected weight of a cluster, for a weight of 1 without the variance of its scores."""
    return float32(1) + float32(0.5) * variance


@kernel
def weight_in_output(variance):
    """Return the weight of a cluster in the output, for a weight of 1 without the variance of its scores."""
    return float32(1) + float32(0.25) * variance


@kernel
def variance_of_scores(shape, query, g, variances):
    """Return the variance of query head g's scores of keys whose columns have the given variances.

    `query` is the address of (group, head_dim) f32, and `variances` that of (head_dim,) f32.
    """
    columns = array_at(query + g * shape.head_dim * 4, (shape.head_dim,), np.float32)
    own = array_at(variances, (shape.head_dim,), np.float32)
    total = float32(0)
    for i in range(shape.head_dim):
        total += columns[i] * columns[i] * own[i]
    return total


@kernel
def end_items(shape, head, n):
    """Complete the remainder of n items: pad their list for prefetching, and set the logarithm of expected over sum."""
    if n > 0:
        fill_list(list_address(shape, head), n, n + LIST_ROOM)
    rest = rest_of(shape, head)
    for g in range(shape.group):
        rest[2, g] = float32(math.log(rest[2, g] / rest[1, g])) if rest[1, g] > 0 else float32(0)


@kernel
def raise_largest(shape, head, g, n, largest):
    """Make the weights of query head g's first n items relative to `largest`, if that exceeds the largest score."""
    rest = rest_of(shape, head)
    if largest > rest[0, g]:
        factor, weights = float32(math.exp(rest[0, g] - largest)), scores_of(head, g)
        for i in range(n):
            weights[i] *= factor
        rest[0, g] = largest
        rest[1, g] *= factor
        rest[2, g] *= factor


@kernel
def add_items(shape, head_address, n, partial, part, n_parts):
    """Add a share of n items to a partial result, by their weights and mean values: for `estimate` hooks."""
    start, stop = share_of(n, part, n_parts)
    if start >= stop:
        return
    head = head_at(head_address)
    rest, n_bytes = rest_of(shape, head), 4 * shape.group * shape.value_dim
    room = borrow(n_bytes)
    sums = array_at(room, (shape.group, shape.value_dim), np.float32)
    fill(room, 0, shape.group * shape.value_dim, float32(0))
    listed, weights = list_address(shape, head) + start * 8, scores_address(head, 0) + start * 4
    add_weighted(shape.of_bytes, weights, head.scratch_items, listed, stop - start, room)
    for g in range(shape.group):
        total = sum_floats(scores_address(head, g) + start * 4, stop - start)
        add_to_partial(shape, partial, g, rest[0, g], total, sums[g])
    give_back(room, n_bytes)


@kernel
def write_mean_values(shape, rows, starts, n_clusters, values, room):
    """Write the mean value of each cluster, 0 for an empty one.

    Parameters
    ----------
    rows : int64
        Address of the values, sorted by cluster.
    starts : int32 array, shape (n_clusters + 1,)
        Rows where clusters start and stop.
    values : int64
        Address of the mean values.
    room : int64
        Address of 2 * value_dim f32 to work in.
    """
    place = room + shape.value_dim * 4
    total, row_values = array_at(room, (shape.value_dim,), np.float32), array_at(place, (shape.value_dim,), np.float32)
    for cluster in range(n_clusters):
        fill(room, 0, shape.value_dim, float32(0))
        for row in range(starts[cluster], starts[cluster + 1]):
            widen_value(shape, rows + row * shape.value_bytes, place)
            for i in range(shape.value_dim):
                total[i] += row_values[i]
        inverse = float32(1) / float32(max(starts[cluster + 1] - starts[cluster], 1))
        for i in range(shape.value_dim):
            total[i] *= inverse
        target = values + cluster * shape.of_bytes.row_bytes
        write_float(target + shape.value_dim, quantise(shape.value_dim, room, target))


@kernel
def write_spread(shape, rows, starts, n_clusters, centroids, spread, room):
    """Write the variance of each column of the keys within clusters, averaged over all their rows.

    Parameters
    ----------
    centroids : int64
        Address of the clusters' mean keys, f16.
    spread : int64
        Address of (head_dim,) f32.
    """
    place = room + shape.head_dim * 4
    mean, key = array_at(room, (shape.head_dim,), np.float32), array_at(place, (shape.head_dim,), np.float32)
    variances = array_at(spread, (shape.head_dim,), np.float32)
    fill(spread, 0, shape.head_dim, float32(0))
    for cluster in range(n_clusters):
        widen_row(shape.of_halves, centroids + cluster * shape.head_dim * 2, room)
        for row in range(starts[cluster], starts[cluster + 1]):
            widen_row(shape, rows + row * shape.row_bytes, place)
            for i in range(shape.head_dim):
                variances[i] += (key[i] - mean[i]) * (key[i] - mean[i])
    inverse = float32(1) / float32(max(starts[n_clusters] - starts[0], 1))
    for i in range(shape.head_dim):
        variances[i] *= inverse
