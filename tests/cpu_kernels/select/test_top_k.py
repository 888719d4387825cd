"""Test the k largest of many numbers against a stable sort, and the number above which sizes add up to a sum."""

import numpy as np
import pytest
from helpers import oracle
from helpers.kernel_inputs import Room, address, before_a_hole
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.numba_support.machine_features import LANES
from octavo.cpu_kernels.select.top_k import find_least, list_top

INFINITY = float("inf")
SIZES = [1, LANES - 1, LANES, LANES + 1, 100, 1000]


def top(values, k):
    """Return what `list_top` lists, of values padded with -1."""
    values = np.asarray(values, np.float32)
    padded = np.full(-(-len(values) // LANES) * LANES, -1, np.float32)
    padded[: len(values)] = values
    padded = before_a_hole(padded)
    listed = Room(4 * len(padded))
    n = list_top(address(padded), len(padded), k, listed.address)
    listed.check()
    return listed.view(np.int32)[:n].tolist()


@pytest.mark.parametrize("n", SIZES)
def test_list_top_equals_a_stable_sort(n):
    values = np.random.default_rng(n).random(n, np.float32)
    for k in {0, 1, 2, n // 2, n - 1, n, n + 1, 10 * n}:
        assert top(values, k) == oracle.top(values, k), k


@settings(max_examples=300, deadline=None)
@given(
    values=st.lists(
        st.one_of(
            st.sampled_from([0.0, 1.0, 1.5, INFINITY, -INFINITY, -1.0, float("nan"), 1e-45, 3e38]),
            st.floats(0, 1, width=32),
            st.floats(width=32).map(lambda x: 0.0 if x == 0 else x),
        ),
        max_size=90,
    ),
    k=st.integers(-1, 100),
)
def test_list_top_of_any_numbers_equals_a_stable_sort(values, k):
    assert top(values, k) == oracle.top(np.array(values, np.float32), k)


@pytest.mark.parametrize("value", [0.0, 1e-45, 0.25, 3.4e38, INFINITY])
@pytest.mark.parametrize("n", SIZES)
def test_of_equal_numbers_the_first_are_taken(n, value):
    for k in {0, 1, 2, n // 2, n - 1, n, n + 1}:
        assert top([value] * n, k) == list(range(min(max(k, 0), n)))


def test_ties_at_the_border_are_cut_in_order():
    values = np.random.default_rng(0).integers(0, 5, 500).astype(np.float32)
    for k in range(0, 501, 7):
        assert top(values, k) == oracle.top(values, k)


def test_neighbouring_floats_are_told_apart():
    """Check that the bisection goes on to single bits, not to a tolerance."""
    values = np.nextafter(np.ones(3, np.float32), np.float32([1, 2, 0]))
    assert [top(values, k) for k in (1, 2, 3)] == [[1], [0, 1], [0, 1, 2]]


def test_negative_numbers_and_nan_are_never_listed():
    values = [-1.0, np.nan, 3.0, -INFINITY, -1e-45, -np.nan, 0.0]
    assert top(values, 7) == [2, 6]
    assert top([-1.0, np.nan], 2) == []


HOSTILE = {
    "close together": 1 + np.arange(2000) % 7 * np.float32(2**-23),
    "all but one equal": np.r_[np.full(1999, 0.5), 0.75],
    "on both sides of a power of 2": np.tile(np.nextafter(np.float32(2), np.float32([0, 2, 3])), 500),
    "as infinities and zeros": np.tile([INFINITY, 0.0, -0.0, 1e-45, 3.4e38], 400),
    "mostly NaN": np.tile([np.nan, 1.0, -1.0, 2.0, np.nan], 400),
    "each of another size": 2.0 ** (np.arange(2000) % 250 - 125),
    "shares": np.random.default_rng(2).exponential(size=2000) ** 4,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_list_top_of_many_hostile_numbers_equals_a_stable_sort(name):
    values = np.float32(HOSTILE[name])
    for k in [0, 1, 2, 399, 400, 401, 1000, 1599, 1600, 1999, 2000, 2001]:
        assert top(values, k) == oracle.top(values, k), k


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_both_zeros_are_equal(k):
    assert top([-0.0, 0.0, -0.0, 0.0], k) == list(range(k))


# The number above which sizes add up to what is wanted.


def least(values, sizes, wanted):
    """Return what `find_least` finds; what is after the numbers has no size."""
    both = np.zeros((2, -(-len(values) // LANES) * LANES), np.float32)
    both[:, : len(values)] = values, sizes
    values, sizes = (before_a_hole(row) for row in both)
    found = find_least(address(values), address(sizes), len(values), np.float32(wanted))
    assert not np.isnan(found)
    return found


def assert_nearest(values, sizes, wanted):
    """Check that no other number gives a sum that is nearer, and that numbers are taken that are above any left out."""
    values, sizes = np.array(values, np.float32), np.array(sizes, np.float64)
    found = least(values, sizes, wanted)
    numbers = ~np.isnan(values)
    values, sizes = values[numbers], sizes[numbers]
    sums = [sizes[values >= value].sum() for value in [*values, np.inf]] + [0]
    assert abs(sizes[values > found].sum() - wanted) == min(abs(total - wanted) for total in sums)


@pytest.mark.parametrize("n", SIZES)
def test_sizes_above_the_least_are_nearest_to_what_is_wanted(n):
    rng = np.random.default_rng(n)
    values, sizes = rng.random(n, np.float32), rng.integers(0, 50, n)
    for wanted in (0, 0.4, 1, 30, sizes.sum() / 2, sizes.sum() - 1, sizes.sum()):
        assert_nearest(values, sizes, wanted)


@settings(max_examples=300, deadline=None)
@given(
    pairs=st.lists(
        st.tuples(
            st.one_of(
                st.sampled_from([0.0, 1.0, 1.5, INFINITY, float("nan"), 1e-45, 3e38]),
                st.floats(0, 1, width=32).map(abs),
            ),
            st.integers(0, 40),
        ),
        min_size=1,
        max_size=60,
    ),
    wanted=st.floats(-10, 2500, width=32),
)
def test_the_least_of_any_numbers_is_nearest(pairs, wanted):
    values, sizes = zip(*pairs, strict=True)
    assert_nearest(values, sizes, wanted)


def test_if_more_is_wanted_than_there_is_all_is_taken():
    assert least([0.0, 0.5, 0.25], [3, 4, 5], 12) == -1
    assert least([0.0, 0.5, np.nan], [3, 4, 5], 100) == -1
    assert least([], [], 1) == -1


@pytest.mark.parametrize("wanted", [0, -5])
def test_if_nothing_is_wanted_only_a_nan_is_taken(wanted):
    values = np.float32([0.0, 0.5, INFINITY, np.nan])
    taken = ~(values <= least(values, [3, 4, 5, 6], wanted))
    assert taken.tolist() == [False, False, False, True]


def test_equal_numbers_are_taken_together():
    assert least([0.5] * 20, [1] * 20, 4) == 0.5
    assert least([0.5] * 20, [1] * 20, 16) < 0.5
    values = np.nextafter(np.ones(3, np.float32), np.float32([1, 2, 0]))
    assert [np.sum(values > least(values, [1, 1, 1], wanted)) for wanted in (0, 1, 2, 3)] == [0, 1, 2, 3]
