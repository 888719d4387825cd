"""Test Lloyd's iterations against the same in NumPy."""

import numpy as np
import pytest
from helpers.kernel_inputs import as_bf16, normal

from octavo.cpu_kernels.numba_support.machine_features import HAS_AMX
from octavo.cpu_kernels.select.kmeans import improve_centroids

CENTRES = 40


def blobs(rng, n_rows, head_dim):
    """Rows around CENTRES places, and some of the rows to begin with."""
    places = normal(rng, CENTRES, head_dim) * 4
    rows = (places[rng.integers(CENTRES, size=n_rows)] + normal(rng, n_rows, head_dim)).astype(np.float32)
    return rows - rows.mean(axis=0), rng.choice(n_rows, min(n_rows, 3 * CENTRES), replace=False)


def iterate(rows, centroids):
    """One of Lloyd's iterations, in float64; rows and centroids are rounded before they are compared, as on AMX."""
    around, near = (as_bf16(each) if HAS_AMX and rows.shape[1] % 32 == 0 else each for each in (rows, centroids))
    scores = around.astype(np.float64) @ near.T.astype(np.float64) - (centroids.astype(np.float64) ** 2).sum(axis=1) / 2
    labels = scores.argmax(axis=1)
    means = [rows[labels == c].mean(axis=0) if (labels == c).any() else centroids[c] for c in range(len(centroids))]
    return np.array(means, np.float32)


@pytest.mark.parametrize("head_dim", [64, pytest.param(72, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("n_rows", "n_clusters"), [(1000, 100), (65, 64), (17, 1), (3, 3), (1, 1)])
def test_centroids_become_the_means_of_the_rows_that_are_nearest(head_dim, n_rows, n_clusters):
    rows, first = blobs(np.random.default_rng(3), n_rows, head_dim)
    expected = actual = rows[first[:n_clusters]]
    for _ in range(3):
        actual = actual.copy()
        improve_centroids(rows, actual, 1)
        expected = iterate(rows, expected)
        moved = np.abs(actual - expected).max(axis=1) > 1e-4
        assert moved.mean() < 0.05  # a row that is nearly as near to another one may move both
        actual = expected


def test_some_iterations_are_as_good_as_one_after_another():
    rows, first = blobs(np.random.default_rng(4), 500, 64)
    at_once, step_by_step = rows[first[:30]], rows[first[:30]]
    improve_centroids(rows, at_once, 5)
    for _ in range(5):
        improve_centroids(rows, step_by_step, 1)
    np.testing.assert_array_equal(at_once, step_by_step)


def test_a_centroid_that_no_row_is_near_stays():
    rows = normal(np.random.default_rng(5), 50, 64)
    centroids = np.vstack([rows[:2], np.full((1, 64), 1e3, np.float32)])
    improve_centroids(rows, centroids, 4)
    assert (centroids[2] == 1e3).all()


def test_clusters_come_out_smaller_than_at_random():
    rows, first = blobs(np.random.default_rng(6), 2000, 64)
    centroids = rows[first]

    def spread(near):
        return ((rows[:, None] - near) ** 2).sum(axis=2).min(axis=1).mean()

    before = spread(centroids)
    improve_centroids(rows, centroids, 10)
    assert spread(centroids) < 0.8 * before
