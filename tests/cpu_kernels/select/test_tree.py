"""A tree sorts rows into leaves of one size that are alike."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.select.tree import sort_by_tree


def sorted_by_tree(rows, leaf_rows):
    order = np.full(len(rows), -1, np.int64)
    sort_by_tree(np.ascontiguousarray(rows, np.float32), leaf_rows, order)
    assert (np.sort(order) == np.arange(len(rows))).all(), "each row once"
    return order


def within(rows, leaf_rows):
    """The mean square of what is left of rows without the mean of their leaf."""
    leaves = rows.reshape(-1, leaf_rows, rows.shape[1])
    return ((leaves - leaves.mean(axis=1, keepdims=True)) ** 2).mean()


@pytest.mark.parametrize("n_leaves", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("leaf_rows", [1, 5, 64])
def test_rows_of_a_group_come_into_one_leaf(n_leaves, leaf_rows):
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(n_leaves), leaf_rows)
    rng.shuffle(groups)
    centres = np.linspace(-50, 50, n_leaves)[:, None] * np.ones(24)
    rows = centres[groups] + rng.standard_normal((len(groups), 24)) * 0.1
    found = groups[sorted_by_tree(rows, leaf_rows)].reshape(n_leaves, leaf_rows)
    assert (found == found[:, :1]).all()


def test_leaves_are_about_as_alike_as_by_exact_directions():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((40, 64))[rng.integers(0, 40, 4096)] + 0.5 * rng.standard_normal((4096, 64))
    rows *= np.geomspace(5, 0.5, 64)  # as keys have it: a few columns vary most

    def halved(own):
        if len(own) == 64:
            return [own]
        centred = rows[own] - rows[own].mean(axis=0)
        places = centred @ np.linalg.eigh(centred.T @ centred)[1][:, -1]
        half = np.argsort(places, kind="stable")
        return halved(own[half[: len(own) // 2]]) + halved(own[half[len(own) // 2 :]])

    exact = within(rows[np.concatenate(halved(np.arange(4096)))], 64)
    assert within(rows[sorted_by_tree(rows, 64)], 64) < 1.05 * exact < 0.8 * within(rows, 64)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 20), st.integers(1, 9), st.integers(1, 30), st.integers(0, 9))
def test_every_row_comes_once(n_leaves, leaf_rows, n_columns, seed):
    rng = np.random.default_rng(seed)
    sorted_by_tree(rng.integers(0, 3, (n_leaves * leaf_rows, n_columns)), leaf_rows)  # many are equal


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_rows_that_are_no_numbers_come_once_too(value):
    rows = np.random.default_rng(2).standard_normal((640, 16))
    rows[3], rows[400, 2] = value, value
    sorted_by_tree(rows, 64)
    sorted_by_tree(np.full((640, 16), value), 64)


def test_the_same_rows_are_sorted_the_same():
    rows = np.random.default_rng(3).standard_normal((1280, 64))
    assert (sorted_by_tree(rows, 64) == sorted_by_tree(rows.copy(), 64)).all()
