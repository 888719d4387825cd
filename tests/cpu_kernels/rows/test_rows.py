"""Test stored rows in both formats: the two sums over them that attention is made of, and quantisation."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import oracle
from helpers.kernel_inputs import (
    EACH,
    FEW,
    FLAT,
    QUANTISED,
    ROTATED,
    SHAPE,
    UNLIKE,
    LoadedQuery,
    Room,
    address,
    halves,
    list_of_addresses,
    normal,
    read_as_stored,
    read_pair,
    read_rows,
    relative_error,
    shapes,
    store_pair,
    store_rows,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from octavo.cpu_kernels.numba_support.shape import F16, FLAT_Q8_0, Q8_0, Shape
from octavo.cpu_kernels.rows import q8_0, rows

SHAPES = shapes(FEW)
FLAT_SHAPES = [Shape(head_dim, group, FLAT_Q8_0) for head_dim, group in ((8, 16), (40, 1), (64, 3), (72, 8), (256, 5))]


def dot(shape, loaded, keys, n_rows, stride):
    """Return the scores of the first n_rows rows, (group, n_rows). Check that nothing else was written."""
    scores = Room(4 * shape.group * stride)
    rows.dot(shape, loaded.address, address(keys), n_rows, scores.address, stride)
    scores.check()
    scores = scores.floats(shape.group, stride)
    assert np.isnan(scores[:, n_rows:]).all(), "written behind the last row"
    return scores[:, :n_rows]


def dot_listed(shape, loaded, keys, numbers):
    """Return the scores of listed rows, (group, rows). Check that nothing else was written."""
    listed, n_rows = list_of_addresses(shape, keys, numbers), len(numbers)
    stride = len(listed) - rows.rows_ahead(shape)
    scores = Room(4 * shape.group * stride)
    rows.dot_listed(shape, loaded.address, address(listed), n_rows, scores.address, stride)
    scores.check()
    return scores.floats(shape.group, stride)[:, :n_rows]


def assert_scores(scores, queries, keys):
    """Check scores by their error relative to the lengths of both vectors."""
    lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(keys, axis=1)
    assert (np.abs(scores - queries @ keys.T) / lengths).max(initial=0.0) < 1e-6


@pytest.mark.parametrize("shape", SHAPES + UNLIKE)
def test_dot_scores_each_row_for_each_head(shape):
    rng = np.random.default_rng(0)
    loaded = LoadedQuery(shape, normal(rng, shape.group, shape.head_dim))
    for n_rows in (0, 1, 3, 4, 5, 7, 8, 9, 33, 50):
        keys = store_rows(shape, normal(rng, n_rows, shape.head_dim))
        assert_scores(dot(shape, loaded, keys, n_rows, 53), loaded.floats, read_rows(shape, keys))


@pytest.mark.parametrize("shape", SHAPES + UNLIKE)
def test_dot_scores_listed_rows_in_any_order(shape):
    rng = np.random.default_rng(1)
    loaded = LoadedQuery(shape, normal(rng, shape.group, shape.head_dim))
    keys = store_rows(shape, normal(rng, 40, shape.head_dim))
    for n_rows in (0, 1, 4, 7, 8, 9, 40, 64):
        numbers = rng.integers(0, 40, n_rows)  # some of them twice
        assert_scores(dot_listed(shape, loaded, keys, numbers), loaded.floats, read_rows(shape, keys)[numbers])


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from([SHAPE, QUANTISED, ROTATED]),
    n_rows=st.integers(0, 70),
    spread=st.sampled_from([1e-6, 1e-3, 1.0, 1e3]),
    seed=st.integers(0, 2**32 - 1),
)
def test_dot_of_any_rows(shape, n_rows, spread, seed):
    rng = np.random.default_rng(seed)
    loaded = LoadedQuery(shape, normal(rng, 3, 64, spread=spread))
    keys = store_rows(shape, normal(rng, n_rows, 64, spread=rng.choice([1e-2, 1.0, 1e3])))
    expected = loaded.floats, read_rows(shape, keys)
    assert_scores(dot(shape, loaded, keys, n_rows, n_rows), *expected)
    assert_scores(dot_listed(shape, loaded, keys, np.arange(n_rows)), *expected)


@pytest.mark.parametrize("shape", FLAT_SHAPES)
@pytest.mark.parametrize("signs", ["++", "+-", "-+", "--"])
def test_largest_integers_do_not_overflow(shape, signs):
    """All elements of a row are +-127, which makes the sums of products as large as possible."""
    query_sign, key_sign = (1.0 if sign == "+" else -1.0 for sign in signs)
    loaded = LoadedQuery(shape, np.full((shape.group, shape.head_dim), query_sign, np.float32))
    keys = store_rows(shape, np.full((9, shape.head_dim), key_sign * 65504))
    expected = np.full((shape.group, 9), query_sign * key_sign * 65504 * shape.head_dim)
    np.testing.assert_allclose(dot(shape, loaded, keys, 9, 9), expected, rtol=1e-6)
    np.testing.assert_allclose(dot_listed(shape, loaded, keys, range(9)), expected, rtol=1e-6)


@pytest.mark.parametrize("column", range(72))
def test_every_column_of_a_quantised_row_counts(column):
    shape = Shape(72, 8, FLAT_Q8_0)  # blocks of several lengths
    query = np.zeros((8, 72), np.float32)
    query[:, column] = np.arange(-4, 4)
    key = np.zeros((9, 72))
    key[:, column] = 3
    scores = dot(shape, LoadedQuery(shape, query), store_rows(shape, key), 9, 9)
    np.testing.assert_allclose(scores, np.repeat(3.0 * query[:, column, None], 9, axis=1), rtol=1e-6)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), outlier=st.sampled_from([1.0, 10.0, 1000.0]))
def test_quantisation_costs_a_score_no_more_than_half_a_scale_of_each_factor(seed, outlier):
    rng, shape = np.random.default_rng(seed), FLAT
    query, keys = normal(rng, 3, 64), halves(rng, 30, 64).astype(np.float64)
    query[:, rng.integers(64)] *= outlier
    keys[:, rng.integers(64)] *= outlier
    loaded, stored = LoadedQuery(shape, query), store_rows(shape, keys)
    scores, stored = dot(shape, loaded, stored, 30, 30), read_rows(shape, stored)
    half_scales = np.abs(query).max(axis=1, keepdims=True) / 127 / 2
    of_query = half_scales * np.abs(stored).sum(axis=1)
    slack = 1e-6 * np.linalg.norm(query, axis=1)[:, None] * np.linalg.norm(keys, axis=1)
    assert (np.abs(scores - query.astype(np.float64) @ stored.T) <= of_query + slack).all()
    of_keys = np.abs(query).sum(axis=1, keepdims=True) * (np.abs(keys).max(axis=1) / 127 / 2)
    assert (np.abs(scores - query.astype(np.float64) @ keys.T) <= of_query + of_keys + slack).all()


@pytest.mark.parametrize("shape", EACH)
def test_dot_passes_on_a_nan_of_a_key_in_its_row_alone(shape):
    rng = np.random.default_rng(2)
    keys = normal(rng, 19, 64)
    keys[[4, 18], 5] = np.nan, np.inf
    loaded, keys = LoadedQuery(shape, normal(rng, 3, 64)), store_rows(shape, keys)
    expected = np.isin(np.arange(19), [4, 18])
    for scores in (dot(shape, loaded, keys, 19, 19), dot_listed(shape, loaded, keys, range(19))):
        assert (np.isfinite(scores) == ~expected).all()


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_dot_passes_on_a_query_that_is_not_finite_in_its_head_alone(shape, value):
    rng = np.random.default_rng(3)
    query = normal(rng, 3, 64)
    query[1, 63] = value
    scores = dot(shape, LoadedQuery(shape, query), store_rows(shape, normal(rng, 19, 64)), 19, 19)
    assert (np.isfinite(scores) == [[True], [False], [True]]).all()


# Sums of values.


@pytest.mark.parametrize("shape", SHAPES + UNLIKE)
def test_add_weighted_adds_to_what_is_there(shape):
    rng = np.random.default_rng(4)
    pair = store_pair(shape, normal(rng, 40, shape.head_dim), normal(rng, 40, shape.value_dim))
    values, floats = pair[1], read_pair(shape, *pair)[1]
    as_stored = oracle.rotate(floats) if shape.rotated else floats
    for n_rows in (0, 1, 7, 8, 9, 33):
        numbers, stride = rng.integers(0, 40, n_rows), n_rows + 3
        weights, before = normal(rng, shape.group, stride), normal(rng, shape.group, shape.value_dim)
        listed, out = list_of_addresses(shape, values, numbers), Room(filled=before)
        rows.add_weighted(shape, address(weights), stride, address(listed), n_rows, out.address)
        out.check()
        expected = before + weights[:, :n_rows].astype(np.float64) @ as_stored[numbers]
        assert relative_error(out.floats(*before.shape), expected) < 1e-5


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("kind", ["value", "weight"])
def test_add_weighted_passes_on_a_nan(shape, kind):
    rng = np.random.default_rng(5)
    values, weights = normal(rng, 9, 64), normal(rng, 3, 9)
    if kind == "value":
        values[7, 5] = np.nan
    else:
        weights[1, 2] = np.nan
    stored = store_rows(shape, values)
    out = Room(filled=np.zeros((3, 64), np.float32))
    listed = list_of_addresses(shape, stored, range(9))
    rows.add_weighted(shape, address(weights), 9, address(listed), 9, out.address)
    expected = np.isnan(weights.astype(np.float64) @ read_as_stored(shape, stored))
    assert expected.any()
    assert (np.isnan(out.floats(3, 64)) == expected).all()


@pytest.mark.parametrize("shape", SHAPES + UNLIKE)
def test_a_widened_row_equals_the_stored_one(shape):
    rng = np.random.default_rng(6)
    pair = store_pair(shape, normal(rng, 1, shape.head_dim), normal(rng, 1, shape.value_dim))
    expected = read_pair(shape, *pair)
    for widen, stored, floats in zip((rows.widen_row, rows.widen_value), pair, expected, strict=True):
        room = Room(4 * floats.shape[1])
        widen(shape, address(stored), room.address)
        room.check()
        atol = 1e-6 if shape.rotated else 0
        np.testing.assert_allclose(room.floats(), floats[0].astype(np.float32), rtol=0, atol=atol)


@pytest.mark.parametrize("shape", [shape for shape in UNLIKE if shape.values[0].kv_type != F16])
def test_each_part_of_a_latent_key_is_stored_apart(shape):
    """The other part may be a thousand times as large."""
    halves = normal(np.random.default_rng(7), 1, shape.head_dim, dtype=np.float16)
    halves[:, shape.value_dim :] *= 1000
    row = Room(shape.row_bytes)
    rows.quantise_halves(shape, address(halves), row.address)
    row.check()
    stored = row.bytes[None]
    np.testing.assert_allclose(read_rows(shape, stored), read_rows(shape, store_rows(shape, halves)), atol=1e-4)
    if shape.latent:
        error = np.abs(read_rows(shape, stored) - halves.astype(np.float64))[:, : shape.value_dim]
        assert error.max() < (0.02 if shape.kv_type == Q8_0 else 0.7)


# q8_0 rows.


def quantise(shape, floats):
    """Return the elements and the scale that `quantise` makes of a row of f32."""
    target = Room(shape.head_dim)
    scale = q8_0.quantise(shape.head_dim, address(floats), target.address)
    target.check()
    return target.view(np.int8).astype(np.int64), scale


def quantise_halves(shape, halves):
    """Return the elements and the scale that `quantise_halves` makes of a row of f16."""
    row = Room(shape.row_bytes)
    rows.quantise_halves(shape, address(halves), row.address)
    row.check()
    return row.view(np.int8, shape.head_dim).astype(np.int64), row.view(np.float32, at=shape.head_dim)[0]


def assert_quantised(floats, elements, scale):
    """Check that each element is off by at most half a scale, and that the largest is +-127."""
    floats = floats.astype(np.float64)
    largest = np.abs(floats).max()
    np.testing.assert_allclose(scale, largest / 127, rtol=1e-6)
    assert (np.abs(elements * np.float64(scale) - floats) <= scale * (0.5 + 1e-4)).all()
    if largest == 0:
        assert (elements == 0).all()
    else:
        peaks = np.abs(floats) == largest
        assert (elements[peaks] == 127 * np.sign(floats[peaks])).all()


@pytest.mark.parametrize("shape", FLAT_SHAPES)
def test_quantised_rows_are_within_half_a_scale(shape):
    rng = np.random.default_rng(7)
    for spread in (1e-3, 1.0, 1e4):
        floats = normal(rng, shape.head_dim, spread=spread)
        assert_quantised(floats, *quantise(shape, floats))
        halves = np.clip(floats, -65504, 65504).astype(np.float16)
        assert_quantised(halves, *quantise_halves(shape, halves))


@settings(max_examples=100, deadline=None)
@given(arrays(np.float32, 64, elements=st.floats(allow_nan=False, allow_infinity=False, width=32)))
def test_any_finite_floats_are_quantised(floats):
    elements, scale = quantise(FLAT, floats)
    if np.abs(floats).max() > 1e-36 or (floats == 0).all():
        assert_quantised(floats, elements, scale)
    else:  # too small for 127 / largest: the result must be small, too
        assert np.isfinite(scale)
        assert (np.abs(elements * np.float64(scale)) < 1e-35).all()


@settings(max_examples=100, deadline=None)
@given(arrays(np.float16, 64, elements=st.floats(allow_nan=False, allow_infinity=False, width=16)))
def test_any_finite_halves_are_quantised(halves):
    assert_quantised(halves, *quantise_halves(FLAT, halves))


@pytest.mark.parametrize("shape", [Shape(8, 16, FLAT_Q8_0), FLAT], ids=str)
def test_a_row_of_zeros_is_one_of_zeros(shape):
    for zero in (0.0, -0.0):
        elements, scale = quantise(shape, np.full(shape.head_dim, zero, np.float32))
        assert (elements == 0).all()
        assert scale == 0


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", [0, 31, 63])
def test_an_element_that_is_not_finite_makes_the_scale_nan(value, column):
    floats = normal(np.random.default_rng(8), 64)
    floats[column] = value
    assert np.isnan(quantise(FLAT, floats)[1])
    assert np.isnan(quantise_halves(QUANTISED, floats.astype(np.float16))[1])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), outlier=st.sampled_from([1.0, 30.0, 300.0]), head_dim=st.sampled_from([64, 128]))
def test_one_large_element_costs_the_others_little(seed, outlier, head_dim):
    """Rotation spreads it over the row: its share of each element is the root of head_dim smaller, and so is the step.

    Without rotation the step would be the outlier / 127, whatever the length of the row.
    """
    rng, shape = np.random.default_rng(seed), Shape(head_dim, 2, Q8_0)
    keys = normal(rng, 20, head_dim).astype(np.float64)
    keys[:, rng.integers(head_dim)] = outlier
    error = np.abs(oracle.rotate(read_rows(shape, store_rows(shape, keys)) - keys))
    largest = outlier / head_dim**0.5 + np.abs(oracle.rotate(np.where(keys == outlier, 0, keys))).max()
    assert error.max() <= 0.501 * largest / 127


def test_the_two_formats_of_q8_0_convert_into_each_other():
    rng = np.random.default_rng(10)
    for shape in (Shape(64, 1, Q8_0), Shape(72, 1, Q8_0), Shape(72, 1, Q8_0, 40, latent=True)):
        floats, flat = normal(rng, 7, shape.head_dim), replace(shape, kv_type=FLAT_Q8_0)
        for source, target in ((shape, flat), (flat, shape)):
            stored, room = store_rows(source, floats), Room(7 * target.row_bytes)
            rows.convert_rows(source, address(stored), 7, target, room.address)
            room.check()
            kept = read_rows(source, stored)
            expected = read_rows(target, store_rows(target, kept))
            one_step = np.abs(read_rows(target, store_rows(target, kept)) - kept).max() * 2
            np.testing.assert_allclose(read_rows(target, room.bytes.reshape(7, -1)), expected, atol=one_step)


def test_load_query_keeps_a_query_of_f16_keys_and_quantises_one_of_q8_0_keys_by_head():
    rng = np.random.default_rng(9)
    query = normal(rng, 3, 64) * np.float32([[1], [1e-3], [1e3]])
    assert rows.query_bytes(SHAPE) == 0
    loaded = LoadedQuery(FLAT, query)
    np.testing.assert_allclose(loaded.scales[:, 0], np.abs(query).max(axis=1) / 127, rtol=1e-6)
    assert (np.abs(loaded.floats - query) <= loaded.scales * 0.5001).all()
