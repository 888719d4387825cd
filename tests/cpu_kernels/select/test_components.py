"""Choosing components of a query: for a group together, and for each query head apart."""

import numpy as np
import pytest
from helpers import oracle
from helpers.kernel_inputs import SHAPE, Room, address, normal
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.numba_support.shape import Shape
from octavo.cpu_kernels.select.components import choose_apart, choose_together, list_chosen, weigh

SHAPES = [SHAPE, Shape(72, 1)]


def together(shape, query, weights, n):
    room, flags = Room(8 * (shape.head_dim + 16)), np.full((shape.group, shape.head_dim), np.nan, np.float32)
    choose_together(shape, address(query), weights, n, room.address, flags)
    room.check()
    return flags


def apart(shape, query, weights, n_own, n_all):
    flags = np.full((shape.group, shape.head_dim), np.nan, np.float32)
    choose_apart(shape, address(query), weights, n_own, n_all, flags)
    return flags


@settings(max_examples=50, deadline=None)
@given(shape=st.sampled_from(SHAPES), n=st.integers(0, 80), seed=st.integers(0, 2**32 - 1))
def test_a_group_chooses_by_the_sum(shape, n, seed):
    rng = np.random.default_rng(seed)
    query, weights = normal(rng, shape.group, shape.head_dim), np.exp(normal(rng, shape.head_dim))
    expected = np.zeros_like(query)
    expected[:, oracle.top((np.abs(query) * weights).sum(axis=0), n)] = 1
    np.testing.assert_array_equal(together(shape, query, weights, n), expected)


@settings(max_examples=50, deadline=None)
@given(shape=st.sampled_from(SHAPES), n=st.integers(0, 80), seed=st.integers(0, 2**32 - 1))
def test_query_heads_choose_their_own(shape, n, seed):
    rng = np.random.default_rng(seed)
    query, weights = normal(rng, shape.group, shape.head_dim), np.exp(normal(rng, shape.head_dim))
    expected = np.zeros_like(query)
    for g in range(shape.group):
        expected[g, oracle.top(np.abs(query[g]) * weights, n)] = 1
    np.testing.assert_array_equal(apart(shape, query, weights, n, shape.head_dim), expected)


@settings(max_examples=50, deadline=None)
@given(n_own=st.integers(1, 80), n_all=st.integers(1, 64), seed=st.integers(0, 2**32 - 1))
def test_query_heads_choose_no_more_than_a_number_for_all(n_own, n_all, seed):
    """In turn, each its next largest; they stop where one would need a component more."""
    rng = np.random.default_rng(seed)
    query, weights = normal(rng, 3, 64), np.exp(normal(rng, 64))
    orders = [np.argsort(-np.abs(query[g]) * weights, kind="stable") for g in range(3)]
    expected, chosen = np.zeros_like(query), set()
    for g, i in ((g, orders[g][rank]) for rank in range(min(n_own, 64)) for g in range(3)):
        if len(chosen | {i}) > n_all:
            break
        chosen.add(i)
        expected[g, i] = 1
    flags = apart(SHAPE, query, weights, n_own, n_all)
    np.testing.assert_array_equal(flags, expected)
    components = np.full(64, -1)
    n = list_chosen(SHAPE, flags, components)
    assert components[:n].tolist() == sorted(chosen)


@pytest.mark.parametrize("by_coverage", [False, True])
def test_elements_make_up_for_those_that_are_left_out(by_coverage):
    rng = np.random.default_rng(0)
    query, deviations = normal(rng, 3, 64), np.exp(normal(rng, 64))
    weights = apart(SHAPE, query, deviations, 5, 64)
    flags, components = weights.copy(), np.zeros(64, np.int64)
    n = list_chosen(SHAPE, flags, components)
    weigh(SHAPE, address(query), deviations, by_coverage, components, n, weights)
    covered = np.abs(query) if by_coverage else (query * deviations).astype(np.float64) ** 2
    factors = np.sqrt(covered.sum(axis=1) / (covered * flags).sum(axis=1))
    expected = (query * flags)[:, components[:n]] * factors[:, None]
    np.testing.assert_allclose(weights[:, :n], expected, rtol=1e-5)


def test_a_nan_shows():
    query, deviations = normal(np.random.default_rng(1), 3, 64), np.ones(64, np.float32)
    query[1, 9] = np.nan
    for flags in (together(SHAPE, query, deviations, 4), apart(SHAPE, query, deviations, 4, 64)):
        components = np.zeros(64, np.int64)
        n = list_chosen(SHAPE, flags, components)
        weigh(SHAPE, address(query), deviations, True, components, n, flags)
        assert np.isnan(flags[1, :n]).any()
        assert np.isfinite(flags[[0, 2], :n]).all()
