"""Test the k largest of many numbers against a stable sort."""

import numpy as np
import pytest
from helpers import oracle
from helpers.kernel_inputs import Room, address, before_a_hole
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.compile import LANES
from octavo.cpu_kernels.top_k import list_top

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


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_both_zeros_are_equal(k):
    assert top([-0.0, 0.0, -0.0, 0.0], k) == list(range(k))
