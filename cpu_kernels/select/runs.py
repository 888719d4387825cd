"""Compute the mean of each run of rows, such as those of a cluster."""

from __future__ import annotations

from numba import float32

from ..numba_support.compile import kernel


@kernel
def mean_of_runs(rows, starts, means):
    """Compute the mean of each run of rows.

    Parameters
    ----------
    rows : f32 array, shape (n_rows, n_columns)
        The rows.
    starts : int32 array, shape (n_runs + 1,)
        Where runs start and stop.
    means : f32 array, shape (n_runs, n_columns)
        Receives the means, 0 for an empty run.
    """
    n_columns = rows.shape[1]
    for i in range(len(starts) - 1):
        own = means[i]
        for j in range(n_columns):
            own[j] = float32(0)
        for r in range(starts[i], starts[i + 1]):
            for j in range(n_columns):
                own[j] += rows[r, j]
        size = float32(max(starts[i + 1] - starts[i], 1))
        for j in range(n_columns):
            own[j] /= size
