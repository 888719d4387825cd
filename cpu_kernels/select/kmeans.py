"""Improve the centroids of K-means by Lloyd's iterations, on the register tiles of prefill.

Rows are assigned to the centroid c with the largest x . c - c . c / 2, strip by strip, as prefill scores keys
(strips.py): centroids take the place of keys, and rows that of queries. With AMX both are rounded to bf16, because the
effect of near ties matters little.
"""

from __future__ import annotations

import numpy as np
from numba import float32, int64, types

from ..numba_support.amx import CONFIGURATION_BYTES, enter_tiles, leave_tiles
from ..numba_support.compile import kernel, late_stage
from ..numba_support.machine_features import HAS_AMX, LANES
from ..numba_support.shape import SHAPE, Shape
from ..numba_support.vector import CACHE_LINE, add, load, maximum, select_above, splat, store
from ..numba_support.views import array_at
from ..prefill.bf16_tiles import round_pairs, split_keys
from ..prefill.strips import score_block
from ..prefill.tile_scratch import BLOCK, strip_queries

#: A score below those of all finite rows.
_LOWEST = float32(-3e38)


def improve_centroids(rows: np.ndarray, centroids: np.ndarray, n_iterations: int) -> None:
    """Move centroids to the means of their nearest rows, repeatedly.

    Parameters
    ----------
    rows : float32 array, shape (n_rows, head_dim)
        Rows to cluster. Their mean should be near 0, where rounding costs least.
    centroids : float32 array, shape (n_clusters, head_dim)
        Initial centroids, replaced by the final ones. A centroid without nearest rows stays.
    """
    n_rows, head_dim = rows.shape
    shape = Shape(head_dim, 1)
    n_blocks, width = -(-len(centroids) // BLOCK), strip_queries(shape)
    padded = np.zeros((n_blocks * BLOCK, head_dim), np.float32)
    padded[: len(centroids)] = centroids
    n_strips = -(-n_rows // width)
    n_floats = n_strips * width * (head_dim + 2) + len(padded) * (head_dim + 1) + max(BLOCK, head_dim) * width
    scratch = np.empty(4 * n_floats + CONFIGURATION_BYTES + CACHE_LINE, np.uint8)
    start = -(-scratch.ctypes.data // CACHE_LINE) * CACHE_LINE
    rows, sizes = np.ascontiguousarray(rows), np.empty(len(padded), np.int64)
    places = [array.ctypes.data for array in (rows, padded, sizes)]
    improve(shape, n_rows, n_blocks * BLOCK, len(centroids), n_iterations, *places, start)
    centroids[:] = padded[: len(centroids)]


@late_stage(SHAPE, *[types.int64] * 8)
def improve(shape, n_rows, n_padded_centroids, n_clusters, n_iterations, rows_at, centroids_at, sizes_at, scratch):
    """Do what `improve_centroids` does, with centroids padded to whole blocks, and with memory at addresses."""
    head_dim, width = shape.head_dim, strip_queries(shape)
    rows = array_at(rows_at, (n_rows, head_dim), np.float32)
    centroids = array_at(centroids_at, (n_padded_centroids, head_dim), np.float32)
    sizes = array_at(sizes_at, (n_padded_centroids,), np.int64)
    n_padded = -(-n_rows // width) * width
    queries = scratch + CONFIGURATION_BYTES
    best = queries + n_padded * head_dim * 4
    labels = best + n_padded * 4
    keys = labels + n_padded * 4
    biases = keys + len(centroids) * head_dim * 4
    scores = biases + len(centroids) * 4
    _load_rows(shape, rows, queries, scores)
    label_of = array_at(labels, (n_padded,), np.float32)
    for _ in range(n_iterations):
        if HAS_AMX and shape.on_amx:
            enter_tiles(scratch)
        _assign(shape, centroids, n_clusters, n_padded, queries, keys, biases, scores, best, labels)
        if HAS_AMX and shape.on_amx:
            leave_tiles(scratch)
        _move(rows, label_of, centroids, n_clusters, sizes)


@kernel
def _load_rows(shape, rows, queries, floats):
    """Transpose the rows strip by strip, to bf16 with AMX; pad the last strip with 0. `floats` is working memory."""
    n_rows, head_dim = rows.shape
    width = strip_queries(shape)
    for first in range(0, n_rows, width):
        place = queries + first * head_dim * (2 if HAS_AMX and shape.on_amx else 4)
        target = array_at(floats if HAS_AMX and shape.on_amx else place, (head_dim, width), np.float32)
        for r in range(width):
            for i in range(head_dim):
                target[i, r] = rows[first + r, i] if first + r < n_rows else float32(0)
        if HAS_AMX and shape.on_amx:
            for i in range(0, head_dim, 2):
                even = floats + i * width * 4
                round_pairs(load(even), load(even + width * 4), place + i * width * 2)


@kernel
def _assign(shape, centroids, n_clusters, n_padded, queries, keys, biases, scores, best, labels):
    """Find the nearest centroid of each row."""
    head_dim, width = shape.head_dim, strip_queries(shape)
    bias = array_at(biases, (len(centroids),), np.float32)
    for c in range(n_clusters):
        total = float32(0)
        for i in range(head_dim):
            total += centroids[c, i] * centroids[c, i]
        bias[c] = total * float32(-0.5)
    for i in range(0, n_padded, LANES):
        store(best + i * 4, splat(_LOWEST))
        store(labels + i * 4, splat(float32(0)))
    for block in range(0, n_clusters, BLOCK):
        n, source = min(BLOCK, n_clusters - block), centroids.ctypes.data + block * head_dim * 4
        if HAS_AMX and shape.on_amx:
            for r in range(n):
                split_keys(shape, source + r * head_dim * 4, keys + r * head_dim * 2, 0, True)
            source = keys
        for first in range(0, n_padded, width):
            place = queries + first * head_dim * (2 if HAS_AMX and shape.on_amx else 4)
            score_block(shape, source, place, n, True, scores)
            for q in range(0, width, LANES):
                own, at = scores + q * 4, (first + q) * 4
                highest, label = load(best + at), load(labels + at)
                for r in range(n):
                    score = add(load(own + r * width * 4), splat(bias[block + r]))
                    label = select_above(score, highest, splat(float32(block + r)), label)
                    highest = maximum(highest, score)
                store(best + at, highest)
                store(labels + at, label)


@kernel
def _move(rows, labels, centroids, n_clusters, sizes):
    """Make each centroid the mean of its rows, if it has any. `sizes` is working memory."""
    n_rows, head_dim = rows.shape
    sizes[:n_clusters] = 0
    for r in range(n_rows):
        own = int64(labels[r])
        if sizes[own] == 0:
            centroids[own] = float32(0)
        sizes[own] += 1
        for i in range(head_dim):
            centroids[own, i] += rows[r, i]
    for c in range(n_clusters):
        if sizes[c]:
            for i in range(head_dim):
                centroids[c, i] /= float32(sizes[c])
