"""Test rows of 4 bits: their rotation, how rows and queries are rounded, and products at the edges."""

import numpy as np
import pytest
from helpers import oracle
from helpers.kernel_inputs import (
    ROTATED,
    LoadedQuery,
    Room,
    address,
    before_a_hole,
    halves,
    normal,
    read_rows,
    store_rows,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from octavo.cpu_kernels.numba_support.compile import kernel
from octavo.cpu_kernels.numba_support.shape import Q4_0, Shape
from octavo.cpu_kernels.rows import rows
from octavo.cpu_kernels.rows.rotation import rotate_row

HEAD_DIMS = [8, 64, 80, 128]
HEAD_DIMS += [pytest.param(head_dim, marks=pytest.mark.slow) for head_dim in (24, 72, 96, 120, 256)]


@kernel
def _rotate(shape, source, target):
    rotate_row(shape, source, target)


def rotate(floats):
    """Rotate a row of f32 with the kernel, in place."""
    room = Room(filled=floats)
    _rotate(Shape(len(floats), 1, Q4_0), room.address, room.address)
    room.check()
    return room.floats().copy()


def packed(shape, floats):
    """Return the bytes that the kernel makes of a row of f16."""
    row = Room(shape.row_bytes)
    rows.quantise_halves(shape, address(floats), row.address)
    row.check()
    return row.bytes.copy()


def dot(shape, query, stored):
    """Return the query as it is loaded, and the scores of stored rows."""
    loaded, scores = LoadedQuery(shape, query), Room(4 * shape.group * len(stored))
    rows.dot(shape, loaded.address, address(stored), len(stored), scores.address, len(stored))
    scores.check()
    return loaded, scores.floats(shape.group, len(stored))


# Rotation.


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_a_row_is_rotated_by_the_hadamard_matrix_and_twice_not_at_all(head_dim):
    row = normal(np.random.default_rng(0), head_dim)
    once = rotate(row)
    np.testing.assert_allclose(once, oracle.rotate(row[None].astype(np.float64))[0], atol=1e-5)
    assert np.abs(once - row).max() > 0.1
    np.testing.assert_allclose(rotate(once), row, atol=1e-5)


def test_rotation_spreads_one_element_over_its_block():
    row = np.zeros(80, np.float32)
    row[21] = 8
    assert np.abs(rotate(row)).tolist() == [0.0] * 16 + [2.0] * 16 + [0.0] * 48


# How rows are rounded.


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_rows_are_packed_as_the_oracle_packs_them(head_dim):
    rng, shape = np.random.default_rng(1), Shape(head_dim, 1, Q4_0)
    for spread in (1e-3, 1.0, 1e3):
        row = normal(rng, head_dim, spread=spread).astype(np.float16)
        expected = read_rows(shape, oracle.pack(row[None].astype(np.float64)))
        actual = read_rows(shape, packed(shape, row)[None])
        different = np.abs(actual - expected) > 1e-6 * spread
        assert different.mean() == 0 or head_dim * different.mean() <= 2 * 256  # a tie moves one rotated element
        np.testing.assert_allclose(actual, row[None], atol=0.6 * np.abs(row).max())
        assert np.abs(actual - row).mean() < 0.15 * spread


@settings(max_examples=100, deadline=None)
@given(arrays(np.float16, 64, elements=st.floats(-60_000, 60_000, width=16)))
@example(np.array([0.0, *[34.0] * 31, 6.104e-05, *[34.0] * 31], np.float16))
def test_each_element_of_a_rotated_row_is_within_two_scales(row):
    """Half a scale, but for the largest: with a 9th of it as the scale, 9 becomes 7.

    The rotation rounds seven times, each at most by 2^-24 of an eighth of the row's sum.
    """
    stored = packed(ROTATED, row)[None]
    scales = np.abs(np.ascontiguousarray(stored[:, 32:]).view(np.float16).astype(np.float64))
    error = np.abs(oracle.unpack(stored, 64) - oracle.rotate(row[None].astype(np.float64)))
    rounding = 2.0**-24 * np.abs(row.astype(np.float64)).sum() + 1e-6
    assert (error <= 2.01 * np.repeat(scales, 32, axis=1) + rounding).all()


def test_a_large_element_costs_the_others_less_than_without_rotation():
    row = halves(np.random.default_rng(2), 64)
    row[5] = 30
    error = np.abs(read_rows(ROTATED, packed(ROTATED, row)[None])[0] - row)
    plain = np.rint(row.astype(np.float64) / (30 / 8)) * (30 / 8)
    assert np.delete(error, 5).mean() < 0.8 * np.abs(np.delete(plain - row, 5)).mean()


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_row_of_zeros_is_one_of_zeros(zero):
    assert (read_rows(ROTATED, packed(ROTATED, np.full(64, zero, np.float16))[None]) == 0).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("head_dim", "column", "spoiled"), [(64, 0, 64), (64, 63, 64), (80, 79, 16), (256, 100, 256)])
def test_an_element_that_is_not_finite_makes_its_blocks_nan(value, head_dim, column, spoiled):
    row, shape = normal(np.random.default_rng(3), head_dim).astype(np.float16), Shape(head_dim, 1, Q4_0)
    row[column] = value
    assert np.isnan(read_rows(shape, packed(shape, row)[None])).sum() == spoiled


def test_a_row_beyond_the_largest_scale_shows_in_its_score():
    """A rotated element may be 16 times the largest f16, and its scale an 8th of that."""
    shape = Shape(256, 1, Q4_0)
    stored = before_a_hole(packed(shape, np.full(256, 65504, np.float16))[None])
    _, scores = dot(shape, np.ones((1, 256), np.float32), stored)
    assert not np.isfinite(scores).any()


# Products.


@pytest.mark.parametrize("shape", [ROTATED, Shape(80, 1, Q4_0), Shape(24, 4, Q4_0), Shape(256, 2, Q4_0)], ids=str)
@pytest.mark.parametrize("codes", [0x00, 0xFF, 0x0F, 0xF0])
def test_the_largest_products_do_not_overflow(shape, codes):
    query = np.zeros((shape.group, shape.head_dim), np.float32)
    query[:, :: shape.head_dim & -shape.head_dim] = 1  # rotated: all elements alike
    stored = np.full((9, shape.row_bytes), codes, np.uint8)
    stored[:, shape.head_dim // 2 :] = np.full(1, 3, np.float16).view(np.uint8).tolist() * (
        (shape.row_bytes - shape.head_dim // 2) // 2
    )
    loaded, scores = dot(shape, query, before_a_hole(stored))
    np.testing.assert_allclose(scores, loaded.floats @ read_rows(shape, stored).T, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("shape", [Shape(72, 2, Q4_0), Shape(128, 1, Q4_0)], ids=str)
def test_every_column_counts(shape):
    query = normal(np.random.default_rng(4), shape.group, shape.head_dim)
    stored = store_rows(shape, 3 * np.eye(shape.head_dim))
    loaded, scores = dot(shape, query, stored)
    np.testing.assert_allclose(scores, loaded.floats @ read_rows(shape, stored).T, atol=1e-4)
    np.testing.assert_allclose(scores, 3 * query, atol=1)


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_a_loaded_query_is_the_query_to_half_a_scale_of_its_rotation(head_dim):
    shape = Shape(head_dim, 3, Q4_0)
    query = normal(np.random.default_rng(5), 3, head_dim) * np.float32([[1], [1e-3], [1e3]])
    loaded = LoadedQuery(shape, query)
    rotated = oracle.rotate(query.astype(np.float64))
    np.testing.assert_allclose(loaded.scales[:, 0], np.abs(rotated).max(axis=1) / 127, rtol=1e-5)
    assert (np.abs(oracle.rotate(loaded.floats) - rotated) <= 0.501 * loaded.scales).all()


def test_room_for_a_query_is_what_its_parts_take():
    for head_dim, group in ((64, 3), (80, 1), (8, 16)):
        shape = Shape(head_dim, group, Q4_0)
        assert rows.query_bytes(shape) == group * (2 * 32 * -(-head_dim // 32) + 4)
