"""Clusters of the tail: a chunk is clustered once it is full, and RECENT rows came after it.

K-means over the directions of a chunk's keys, from evenly spaced keys and for a few rounds: a chunk takes less time
than a token. Its keys and values are then sorted by cluster, in place.
Beside them lie, at `cluster_offset`,
  centroids : (CHUNK_CLUSTERS, head_dim) f16, the mean key of each cluster, 0 where it has none
  starts : (CHUNK_CLUSTERS + 1,) int32, rows of the chunk; those before the first are in no cluster
  order : (CHUNK_ROWS,) uint8, where each row was before
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, float32, int32, types
from numba.core import cgutils
from numba.extending import intrinsic

from .compile import Shape, kernel, native_callback
from .memory import copy_bytes, pointer, read_int64
from .rows import dot, widen_row, width
from .scores import SIGNATURE
from .spans import CHUNK_ROWS, head_at
from .vector import FLOAT, HALF, INT64, Emit

#: Of a chunk: 5 % of its rows, as of a document's.
CHUNK_CLUSTERS = 13

#: Newest rows of the tail that are in no cluster, and the oldest rows of a sequence: attention sinks.
RECENT, SINKS = 128, 4

#: Rounds of Lloyd's algorithm, at most. More hardly change what is found.
_ROUNDS = 8

#: The square of the shortest key that has a direction: the inverse of less may not be a number.
_SHORTEST = float32(1e-30)


def cluster_bytes(head_dim: int) -> int:
    """Bytes beside a chunk."""
    return CHUNK_CLUSTERS * head_dim * 2 + (CHUNK_CLUSTERS + 1) * 4 + CHUNK_ROWS


def order_of(shape: Shape, part: np.ndarray) -> np.ndarray:
    """A view of where a chunk's rows were before, from its bytes at `cluster_offset` on."""
    end = cluster_bytes(shape.head_dim)
    return part[end - CHUNK_ROWS : end]


@kernel
def chunk_centroids(head, chunk):
    """Address of the centroids of a clustered chunk."""
    return read_int64(head.tail_chunks + chunk * 8) + head.cluster_offset


@kernel
def chunk_starts(shape, head, chunk):
    """Where the clusters of a clustered chunk start and stop: its rows."""
    starts = chunk_centroids(head, chunk) + CHUNK_CLUSTERS * shape.head_dim * 2
    return carray(pointer(starts), (CHUNK_CLUSTERS + 1,), np.int32)


@kernel
def cluster_chunks(shape, of_centroids, head_address):
    """Cluster the chunks that are due.

    of_centroids : the Shape of a product of f16 rows with CHUNK_CLUSTERS centroids
    """
    head = head_at(head_address)[0]
    while head.n_tail >= (head.n_clustered + 1) * CHUNK_ROWS + RECENT:
        _cluster_chunk(shape, of_centroids, head, head.n_clustered)
        head.n_clustered += 1


@intrinsic
def _stack_room(typing: Any, shape: Any) -> Any:
    """Address of room for a chunk's f16 rows, and then for `_find_clusters`, until the calling function returns."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        head_dim = shape.shape.head_dim
        floats = (2 * CHUNK_CLUSTERS + 1) * head_dim + (CHUNK_CLUSTERS + 3) * CHUNK_ROWS
        room = cgutils.alloca_once(builder, FLOAT, CHUNK_ROWS * head_dim // 2 + floats)
        room.align = 64
        return builder.ptrtoint(room, INT64)

    return types.int64(shape), generate


@kernel
def _cluster_chunk(shape, of_centroids, head, number):
    chunk = read_int64(head.tail_chunks + number * 8)
    first = SINKS if number == 0 and head.tail_position == 0 else 0
    rows = _stack_room(shape)
    room = rows + CHUNK_ROWS * shape.head_dim * 2
    _normalise(shape, chunk + head.key_offset, rows, room)
    labels = _find_clusters(of_centroids, rows, first, room)
    starts, order = chunk_starts(shape, head, number), _order(shape, head, number)
    _sort(labels, first, starts, order)
    for offset in (head.key_offset, head.value_offset):
        _reorder(shape, chunk + offset, order, rows)
    _write_means(shape, chunk + head.key_offset, starts, chunk_centroids(head, number), room)


@kernel
def _order(shape, head, number):
    place = chunk_centroids(head, number) + CHUNK_CLUSTERS * shape.head_dim * 2 + (CHUNK_CLUSTERS + 1) * 4
    return carray(pointer(place), (CHUNK_ROWS,), np.uint8)


@kernel
def _normalise(shape, keys, directions, room):
    """A chunk's keys at length 1, f16. A key that is almost 0, or not finite, becomes 0.

    room : address of head_dim f32
    """
    values = carray(pointer(room), (shape.head_dim,), np.float32)
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
            values[:] = float32(0)
        _narrow_row(shape, room, directions + row * shape.head_dim * 2)


@kernel
def _find_clusters(of_centroids, directions, first, room):
    """The cluster of each row from `first` on, int32: Lloyd's algorithm.

    directions : address of (CHUNK_ROWS, head_dim) f16    room : of f32 to work in (see `_stack_room`)
    """
    head_dim, n_rows = of_centroids.head_dim, CHUNK_ROWS - first
    sums = room + CHUNK_CLUSTERS * head_dim * 4
    products = sums + (CHUNK_CLUSTERS + 1) * head_dim * 4
    best = products + CHUNK_CLUSTERS * CHUNK_ROWS * 4
    nearest = carray(pointer(best + CHUNK_ROWS * 4), (CHUNK_ROWS,), np.int32)
    labels = carray(pointer(best + CHUNK_ROWS * 8), (CHUNK_ROWS,), np.int32)
    for cluster in range(CHUNK_CLUSTERS):
        start = first + n_rows * cluster // CHUNK_CLUSTERS
        widen_row(of_centroids, directions + start * head_dim * 2, room + cluster * head_dim * 4)
    labels[:] = int32(-1)
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
    """The nearest centroid to each row: the one with the largest x . c - |c|^2 / 2, the first of equals.

    products : address of (CHUNK_CLUSTERS, CHUNK_ROWS) f32, x . c    best : of CHUNK_ROWS f32 to work in
    """
    means = carray(pointer(centroids), (CHUNK_CLUSTERS, of_centroids.head_dim), np.float32)
    similar = carray(pointer(products), (CHUNK_CLUSTERS, CHUNK_ROWS), np.float32)
    largest = carray(pointer(best), (CHUNK_ROWS,), np.float32)
    largest[:] = float32(-np.inf)
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
    """Move each centroid to the mean of its rows. One that has none stays.

    room : address of (CHUNK_CLUSTERS + 1, head_dim) f32
    """
    head_dim = of_centroids.head_dim
    means = carray(pointer(centroids), (CHUNK_CLUSTERS, head_dim), np.float32)
    sums = carray(pointer(room), (CHUNK_CLUSTERS + 1, head_dim), np.float32)
    sums[:] = float32(0)
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
    """Where clusters start and stop once rows are sorted by them, and where each row comes from then."""
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
def _reorder(shape, rows, order, room):
    """Sort a chunk's keys or values.

    room : address of as many bytes
    """
    copy_bytes(room, rows, CHUNK_ROWS * shape.row_bytes)
    for row in range(CHUNK_ROWS):
        copy_bytes(rows + row * shape.row_bytes, room + order[row] * shape.row_bytes, shape.row_bytes)


@kernel
def _write_means(shape, keys, starts, centroids, room):
    """The mean key of each cluster, f16.

    room : address of 2 * head_dim f32
    """
    place = room + shape.head_dim * 4
    total = carray(pointer(room), (shape.head_dim,), np.float32)
    key = carray(pointer(place), (shape.head_dim,), np.float32)
    for cluster in range(CHUNK_CLUSTERS):
        total[:] = float32(0)
        size = starts[cluster + 1] - starts[cluster]
        for row in range(starts[cluster], starts[cluster + 1]):
            widen_row(shape, keys + row * shape.row_bytes, place)
            for i in range(shape.head_dim):
                total[i] += key[i]
        for i in range(shape.head_dim):
            total[i] = total[i] / float32(max(size, 1))
        _narrow_row(shape, room, centroids + cluster * shape.head_dim * 2)


@intrinsic
def _narrow_row(typing: Any, shape: Any, floats: Any, row: Any) -> Any:
    """Store head_dim f32 as f16; both are addresses."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, floats, row = args
        emit = Emit(builder, width(shape.shape))
        halves = ir.VectorType(HALF, emit.lanes)
        for column in range(0, shape.shape.head_dim, emit.lanes):
            place = builder.bitcast(emit.pointer(row, HALF, column), halves.as_pointer())
            builder.store(builder.fptrunc(emit.load_float(floats, column), halves), place).align = 2
        return context.get_dummy_value()

    return types.void(shape, types.int64, types.int64), generate


@cache
def native_cluster_chunks(shape: Shape) -> Any:
    """`cluster_chunks` for one shape as a native function."""
    of_centroids = Shape(shape.head_dim, CHUNK_CLUSTERS)

    @native_callback(SIGNATURE)
    def call(head, n_tokens, _, __):
        cluster_chunks(shape, of_centroids, head)
        return 0

    return call
