"""Cluster the chunks of a tail, each once it is full and RECENT rows have followed it.

K-means runs over the directions of a chunk's keys, from evenly spaced keys and for a few rounds, in less time than a
token takes. The chunk's keys and values are then sorted by cluster, in place. A clustered chunk's extras are
  centroids : the mean key of each cluster, 0 for an empty one: (CHUNK_CLUSTERS, head_dim) f16
  starts : rows of the chunk where clusters start and stop: (CHUNK_CLUSTERS + 1,) int32. Rows before the first are
      outside clusters
  order : the original number of each row in the chunk: (CHUNK_ROWS,) uint8
and, if clusters that are not selected are estimated (see cluster_means.py),
  mean values : of each cluster, 0 for an empty one: CHUNK_CLUSTERS q8_0 rows
  spread : the variance of each column of the keys within clusters: (head_dim,) f32
"""

from __future__ import annotations

import numpy as np
from numba import float32, int32

from ..layout.head import chunk_at, chunk_extras, chunk_keys, chunk_values
from ..layout.scores import fill
from ..numba_support.compile import kernel
from ..numba_support.memory import borrow, copy_bytes, give_back
from ..numba_support.shape import Shape, shape_of_halves
from ..numba_support.views import array_at
from ..rows.rows import dot, narrow_row, widen_row
from ..rows.tiles import CHUNK_ROWS
from .cluster_means import mean_value_bytes, write_mean_values, write_spread

#: Clusters of a chunk: 5 % of its rows, as in a document.
CHUNK_CLUSTERS = 13

#: Newest rows of the tail outside clusters, and oldest rows of a sequence outside clusters: attention sinks.
RECENT, SINKS = 128, 4

#: Most rounds of Lloyd's algorithm. More hardly change the result.
_ROUNDS = 8

#: The square of the shortest key with a direction: the inverse of less may overflow.
_SHORTEST = float32(1e-30)


def lookup_extras_bytes(shape: Shape) -> int:
    """Return the size of a chunk's extras without means: centroids, starts and order."""
    return CHUNK_CLUSTERS * shape.head_dim * 2 + (CHUNK_CLUSTERS + 1) * 4 + CHUNK_ROWS


def extras_bytes(shape: Shape) -> int:
    """Return the size of a chunk's extras, including mean values and spread."""
    return lookup_extras_bytes(shape) + CHUNK_CLUSTERS * mean_value_bytes(shape.value_dim) + 4 * shape.head_dim


def order_of(shape: Shape, extras: np.ndarray) -> np.ndarray:
    """View the original number of each row in the extras of a clustered chunk, (CHUNK_ROWS,) uint8."""
    end = lookup_extras_bytes(shape)
    return extras[end - CHUNK_ROWS : end]


@kernel
def chunk_centroids(shape, head, number):
    """Return the address of the centroids of a clustered chunk."""
    return chunk_extras(chunk_at(head, number))


@kernel
def chunk_starts(shape, head, number):
    """View the starts and stops of a clustered chunk's clusters, (CHUNK_CLUSTERS + 1,) int32."""
    starts = chunk_centroids(shape, head, number) + CHUNK_CLUSTERS * shape.head_dim * 2
    return array_at(starts, (CHUNK_CLUSTERS + 1,), np.int32)


@kernel
def _chunk_order(shape, head, number):
    """View the original number of each row of a clustered chunk, (CHUNK_ROWS,) uint8."""
    order = chunk_centroids(shape, head, number) + CHUNK_CLUSTERS * shape.head_dim * 2 + (CHUNK_CLUSTERS + 1) * 4
    return array_at(order, (CHUNK_ROWS,), np.uint8)


@kernel
def chunk_mean_values(shape, head, number):
    """Return the address of the mean values of a clustered chunk."""
    size = CHUNK_CLUSTERS * shape.head_dim * 2 + (CHUNK_CLUSTERS + 1) * 4 + CHUNK_ROWS
    return chunk_centroids(shape, head, number) + size


@kernel
def chunk_spread(shape, head, number):
    """Return the address of the spread of a clustered chunk."""
    return chunk_mean_values(shape, head, number) + CHUNK_CLUSTERS * shape.of_bytes.row_bytes


@kernel
def _room_bytes(shape):
    """Return the size of a chunk's f16 rows, and of the working memory of `_find_clusters`."""
    floats = (2 * CHUNK_CLUSTERS + 1) * shape.longest + (CHUNK_CLUSTERS + 3) * CHUNK_ROWS
    return CHUNK_ROWS * shape.longest * 2 + floats * 4


@kernel
def cluster_chunk(shape, head, number, with_means):
    """Cluster the keys of a full chunk, and sort its rows by cluster.

    Parameters
    ----------
    with_means : bool
        Whether its extras have mean values and a spread.
    """
    chunk = chunk_at(head, number)
    first = SINKS if number == 0 and head.tail_position == 0 else 0
    rows = borrow(_room_bytes(shape))
    room = rows + CHUNK_ROWS * shape.longest * 2
    _normalise(shape, chunk_keys(chunk), rows, room)
    labels = _find_clusters(shape_of_halves(shape.head_dim, CHUNK_CLUSTERS), rows, first, room)
    starts, order = chunk_starts(shape, head, number), _chunk_order(shape, head, number)
    _sort(labels, first, starts, order)
    _reorder(chunk_keys(chunk), shape.row_bytes, order, rows)
    if not shape.latent:
        _reorder(chunk_values(chunk), shape.value_bytes, order, rows)
    _write_means(shape, chunk_keys(chunk), starts, chunk_centroids(shape, head, number), room)
    if with_means:
        values, centroids = chunk_mean_values(shape, head, number), chunk_centroids(shape, head, number)
        spread = chunk_spread(shape, head, number)
        write_mean_values(shape, chunk_values(chunk), starts, CHUNK_CLUSTERS, values, room)
        write_spread(shape, chunk_keys(chunk), starts, CHUNK_CLUSTERS, centroids, spread, room)
    give_back(rows, _room_bytes(shape))


@kernel
def _normalise(shape, keys, directions, room):
    """Write a chunk's keys, normalised to length 1, as f16. A key that is almost 0, or not finite, becomes 0.

    `room` is the address of head_dim f32 to work in.
    """
    values = array_at(room, (shape.head_dim,), np.float32)
    for row in range(CHUNK_ROWS):
        widen_row(shape, keys + row * shape.row_bytes, room)
        total = float32(0)
        for i in range(shape.head_dim):
            total += values[i] * values[i]
        if _SHORTEST < total < np.inf:
            inverse = float32(1) / np.sqrt(total)
            for i in range(shape.head_dim):
                values[i] *= inverse
        else:
            fill(room, 0, shape.head_dim, float32(0))
        narrow_row(shape, room, directions + row * shape.head_dim * 2)


@kernel
def _find_clusters(of_centroids, directions, first, room):
    """Find the cluster of each row from `first` on, int32, by Lloyd's algorithm.

    `directions` is the address of (CHUNK_ROWS, head_dim) f16, and `room` that of working memory (see `_room_bytes`).
    """
    head_dim, n_rows = of_centroids.head_dim, CHUNK_ROWS - first
    sums = room + CHUNK_CLUSTERS * head_dim * 4
    products = sums + (CHUNK_CLUSTERS + 1) * head_dim * 4
    best = products + CHUNK_CLUSTERS * CHUNK_ROWS * 4
    nearest = array_at(best + CHUNK_ROWS * 4, (CHUNK_ROWS,), np.int32)
    labels = array_at(best + CHUNK_ROWS * 8, (CHUNK_ROWS,), np.int32)
    for cluster in range(CHUNK_CLUSTERS):
        start = first + n_rows * cluster // CHUNK_CLUSTERS
        widen_row(of_centroids, directions + start * head_dim * 2, room + cluster * head_dim * 4)
    for row in range(CHUNK_ROWS):
        labels[row] = int32(-1)
    for _ in range(_ROUNDS):
        dot(of_centroids, room, directions, CHUNK_ROWS, products, CHUNK_ROWS)
        _assign(of_centroids, room, products, best, nearest)
        n_changed = 0
        for row in range(first, CHUNK_ROWS):
            n_changed += nearest[row] != labels[row]
            labels[row] = nearest[row]
        if n_changed == 0:
            break
        _move_centroids(of_centroids, room, directions, first, labels, sums)
    return labels


@kernel
def _assign(of_centroids, centroids, products, best, nearest):
    """Find the centroid nearest to each row: the one with the largest x . c - |c|^2 / 2, the first of equals.

    `products` is the address of the x . c, (CHUNK_CLUSTERS, CHUNK_ROWS) f32, and `best` that of CHUNK_ROWS f32 to work
    in.
    """
    means = array_at(centroids, (CHUNK_CLUSTERS, of_centroids.head_dim), np.float32)
    similar = array_at(products, (CHUNK_CLUSTERS, CHUNK_ROWS), np.float32)
    largest = array_at(best, (CHUNK_ROWS,), np.float32)
    fill(best, 0, CHUNK_ROWS, float32(-np.inf))
    for cluster in range(CHUNK_CLUSTERS):
        half = float32(0)
        for i in range(of_centroids.head_dim):
            half += float32(0.5) * means[cluster, i] * means[cluster, i]
        for row in range(CHUNK_ROWS):
            value = similar[cluster, row] - half
            nearer = value > largest[row]
            largest[row] = value if nearer else largest[row]
            nearest[row] = int32(cluster) if nearer else nearest[row]


@kernel
def _move_centroids(of_centroids, centroids, directions, first, labels, room):
    """Move each centroid to the mean of its rows. A centroid without rows stays.

    `room` is the address of (CHUNK_CLUSTERS + 1, head_dim) f32 to work in.
    """
    head_dim = of_centroids.head_dim
    means = array_at(centroids, (CHUNK_CLUSTERS, head_dim), np.float32)
    sums = array_at(room, (CHUNK_CLUSTERS + 1, head_dim), np.float32)
    fill(room, 0, (CHUNK_CLUSTERS + 1) * head_dim, float32(0))
    place = room + CHUNK_CLUSTERS * head_dim * 4
    for row in range(first, CHUNK_ROWS):
        widen_row(of_centroids, directions + row * head_dim * 2, place)
        cluster = labels[row]
        for i in range(head_dim):
            sums[cluster, i] += sums[CHUNK_CLUSTERS, i]
    for cluster in range(CHUNK_CLUSTERS):
        size = 0
        for row in range(first, CHUNK_ROWS):
            size += labels[row] == cluster
        if size > 0:
            for i in range(head_dim):
                means[cluster, i] = sums[cluster, i] / float32(size)


@kernel
def _sort(labels, first, starts, order):
    """Write the starts and stops of clusters after rows are sorted by cluster, and the source of each row."""
    for row in range(first):
        order[row] = row
    n = first
    for cluster in range(CHUNK_CLUSTERS):
        starts[cluster] = n
        for row in range(first, CHUNK_ROWS):
            if labels[row] == cluster:
                order[n] = row
                n += 1
    starts[CHUNK_CLUSTERS] = n


@kernel
def _reorder(rows, row_bytes, order, room):
    """Sort a chunk's keys or values, of row_bytes each. `room` is the address of as many bytes to work in."""
    copy_bytes(room, rows, CHUNK_ROWS * row_bytes)
    for row in range(CHUNK_ROWS):
        copy_bytes(rows + row * row_bytes, room + order[row] * row_bytes, row_bytes)


@kernel
def _write_means(shape, keys, starts, centroids, room):
    """Write the mean key of each cluster, f16. `room` is the address of 2 * head_dim f32 to work in."""
    place = room + shape.head_dim * 4
    total = array_at(room, (shape.head_dim,), np.float32)
    key = array_at(place, (shape.head_dim,), np.float32)
    for cluster in range(CHUNK_CLUSTERS):
        fill(room, 0, shape.head_dim, float32(0))
        size = starts[cluster + 1] - starts[cluster]
        for row in range(starts[cluster], starts[cluster + 1]):
            widen_row(shape, keys + row * shape.row_bytes, place)
            for i in range(shape.head_dim):
                total[i] += key[i]
        for i in range(shape.head_dim):
            total[i] = total[i] / float32(max(size, 1))
        narrow_row(shape, room, centroids + cluster * shape.head_dim * 2)
