"""Codebooks: columns are dealt and centroids found as plain NumPy does it."""

import numpy as np
import pytest
from helpers import oracle
from helpers.kernel_inputs import Room, address, normal
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.numba_support.compile import kernel
from octavo.cpu_kernels.numba_support.machine_features import LANES
from octavo.cpu_kernels.select import codebooks
from octavo.cpu_kernels.select.product_quantisation import CODES


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_columns_are_dealt_there_and_back_the_largest_first(n_parts, seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 6))
    variances = rng.exponential(size=n_parts * size).astype(np.float32)
    order, dealt = np.full(len(variances), -1, np.int32), variances.copy()
    codebooks.deal_columns(len(variances), n_parts, address(dealt), address(order))
    laps = np.argsort(-variances, kind="stable").reshape(size, n_parts)
    laps[1::2] = laps[1::2, ::-1]
    assert (laps == order.reshape(n_parts, size).T).all()


@kernel
def transpose(rows, n_rows, n_columns, columns, stride):
    """Call the intrinsic, which is no function in Python."""
    codebooks.transpose(rows, n_rows, n_columns, columns, stride)


@pytest.mark.parametrize(("n_rows", "n_columns"), [(8, 8), (64, 72), (16, 40)])
def test_rows_are_written_column_by_column(n_rows, n_columns):
    rows, stride = normal(np.random.default_rng(n_rows), n_rows, n_columns), n_rows + 8
    columns = Room(stride * n_columns * 4)
    transpose(address(rows), n_rows, n_columns, columns.address, stride)
    columns.check()
    written = columns.floats(n_columns, stride)
    assert (written[:, :n_rows] == rows.T).all()
    assert np.isnan(written[:, n_rows:]).all(), "nothing is written between columns"


@kernel
def nearest_of_many(points, stride, n, size, weights, codebook, found):
    """Call the intrinsic, which is no function in Python."""
    codebooks.nearest_of_many(points, stride, n, size, weights, codebook, found)


def nearest_in_f32(points, codebook, weights):
    """Numbers of the nearest centroids, the first of equal ones, by sums of f32 in the order of the columns."""
    distances = np.zeros((len(points), CODES), np.float32)
    for point, centroids, weight in zip(points.T, codebook, weights, strict=True):
        difference = centroids - point[:, None]
        distances += difference * difference * weight
    return np.where(np.isnan(points).any(axis=1), 0, distances.argmin(axis=1))


@pytest.mark.parametrize("size", [1, 4, 64])
@pytest.mark.parametrize("n", [0, LANES, 3 * LANES])
def test_the_nearest_centroids_are_found_by_weighted_distance(n, size):
    """Of ties, NaNs and infinities, too."""
    rng = np.random.default_rng(n + size)
    codebook, weights = np.round(normal(rng, size, CODES)), rng.exponential(size=size).astype(np.float32)
    points, found = np.round(normal(rng, n, size)), Room(4 * n)
    points[1::7], points[2::7, 0], points[3::7, -1] = 0, np.nan, np.inf
    columns = np.hstack([points.T, np.zeros((size, 3), np.float32)])
    nearest_of_many(address(columns), n + 3, n, size, address(weights), address(codebook), found.address)
    found.check()
    assert found.view(np.int32, n).tolist() == nearest_in_f32(points, codebook, weights).tolist()


@pytest.mark.parametrize("size", [1, 4, 6, 64])
@pytest.mark.parametrize("n", [CODES, 112, 704])
def test_centroids_are_those_of_lloyds_algorithm(n, size):
    rng = np.random.default_rng(n + size)
    points, weights = normal(rng, n, size), rng.exponential(size=size).astype(np.float32)
    columns, codebook = points.T.copy(), Room(size * CODES * 4)
    room = Room(codebooks.training_bytes(n, size))
    codebooks.train(address(columns), n, size, address(weights), codebook.address, room.address)
    for each in (codebook, room):
        each.check()
    found, expected = codebook.view(np.float32, size, CODES).T, oracle.lloyd(points, CODES, weights, 8)
    assert np.allclose(found, expected, atol=1e-4)


def test_a_centroid_that_loses_all_points_stays():
    points, weights = np.zeros((CODES, 1), np.float32), np.ones(1, np.float32)
    codebook, room = Room(CODES * 4), Room(codebooks.training_bytes(CODES, 1))
    codebooks.train(address(points), CODES, 1, address(weights), codebook.address, room.address)
    assert (codebook.view(np.float32, CODES) == 0).all()
