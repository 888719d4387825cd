"""Compute estimates of the clusters that a step does not select: mean values, and the variance of keys within clusters.

A step uses them in cpu_kernels/select/cluster_means.py. They follow from a layer's rows, clusters and centroids.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...cpu_kernels.numba_support.shape import FLAT_Q8_0
from .stored_rows import as_floats, mean_rows, row_format, write_floats


class ClusterMeans(NamedTuple):
    """Estimates of a layer's clusters, in one or two levels, besides their mean keys. All arrays are C-contiguous.

    Parameters
    ----------
    mean_values : uint8 array, shape (n_kv_head, n_clusters, value_dim + 4)
        The mean value of each cluster, a q8_0 row (see rows.py); 0 for a cluster without rows.
    spread : float32 array, shape (n_kv_head, head_dim)
        The variance of each column of the keys within clusters, averaged over all rows in clusters.
    coarse_mean_values : uint8 array, shape (n_kv_head, n_coarse, value_dim + 4)
        The same for the coarse clusters.
    coarse_spread : float32 array, shape (n_kv_head, head_dim)
        The same within coarse clusters.
    """

    mean_values: np.ndarray
    spread: np.ndarray
    coarse_mean_values: np.ndarray
    coarse_spread: np.ndarray


def cluster_means(
    keys: np.ndarray, values: np.ndarray, cluster_starts: np.ndarray, coarse_starts: np.ndarray, split: int = 0
) -> ClusterMeans:
    """Compute the means of one layer's clusters, from stored rows; see stored_rows.py for the split."""
    heads = []
    for own_keys, own_values, starts, own_coarse in zip(keys, values, cluster_starts, coarse_starts, strict=True):
        of_keys = as_floats(own_keys[: starts[-1]], split)
        of_values = of_keys[:, :split] if split else as_floats(own_values[: starts[-1]])
        with np.errstate(invalid="ignore", over="ignore"):  # rows may hold NaN
            squares = np.square(of_keys).sum(axis=0, dtype=np.float64)
            levels = [
                _of_level(of_keys, of_values, squares, level_starts) for level_starts in (starts, starts[own_coarse])
            ]
        heads.append([array for level in levels for array in level])
    return ClusterMeans(*(np.stack(arrays) for arrays in zip(*heads, strict=True)))


def _of_level(
    keys: np.ndarray, values: np.ndarray, squares: np.ndarray, starts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean values of one head's clusters, and the spread of its keys, given the sum of their squares."""
    sizes, n_rows = np.diff(starts), int(starts[-1])
    dtype, length = row_format(values.shape[1], FLAT_Q8_0)
    rows = np.zeros((len(sizes), length), dtype)
    if n_rows == 0:
        return rows, np.zeros(keys.shape[1], np.float32)
    write_floats(rows, mean_rows(np.ascontiguousarray(values), starts))
    means = mean_rows(keys, starts).astype(np.float64)
    spread = (squares - sizes @ np.square(means)) / n_rows
    return rows, np.maximum(spread, 0).astype(np.float32)
