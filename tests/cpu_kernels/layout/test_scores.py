"""What methods share that score items and select the best."""

import numpy as np
import pytest
from helpers import oracle
from helpers.kernel_inputs import Room, normal
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.layout.scores import (
    EXP_STEP,
    ITEMS_STEP,
    add_shares,
    cap_scores,
    exp_rows,
    exp_scores,
    fill,
    share_of,
)
from octavo.cpu_kernels.numba_support.machine_features import LANES


@settings(max_examples=200, deadline=None)
@given(n_items=st.integers(0, 3000), n_parts=st.integers(1, 20))
def test_shares_are_all_items_once(n_items, n_parts):
    bounds = [share_of(n_items, part, n_parts) for part in range(n_parts)]
    assert [item for start, stop in bounds for item in range(start, stop)] == list(range(n_items))
    assert all(start % ITEMS_STEP == 0 for start, _ in bounds)
    steps = -(-n_items // ITEMS_STEP)
    assert max(stop - start for start, stop in bounds) <= -(-steps // n_parts) * ITEMS_STEP


@pytest.mark.parametrize("softcap", [0.0, 2.0, 50.0])
def test_capped_scores(softcap):
    scores = np.float32([-1e4, -51, -1, 0, 1e-3, 2, 1e4, np.nan, np.inf])
    room = Room(filled=scores)
    cap_scores(room.address, len(scores) - 1, np.float32(softcap))
    room.check()
    expected = [*oracle.capped(scores[:-1].astype(np.float64), softcap), np.inf]
    np.testing.assert_allclose(room.floats(), expected, rtol=1e-6)


@pytest.mark.parametrize("spread", [0.0, 1.0, 1e4])
@pytest.mark.parametrize("n", [1, EXP_STEP - 1, EXP_STEP, 200])
def test_rows_are_raised_to_exp_and_summed(n, spread):
    room = Room(filled=normal(np.random.default_rng(n), -(-n // EXP_STEP) * EXP_STEP, spread=spread))
    scores = room.floats()[:n].astype(np.float64)
    largest, total = exp_rows(room.address, n)
    room.check()
    expected = np.exp(scores - scores.max())
    np.testing.assert_allclose(room.floats(), np.append(expected, [0] * (-n % EXP_STEP)), rtol=1e-4, atol=1e-30)
    assert largest == scores.max()
    assert total == pytest.approx(expected.sum(), rel=1e-4)


def test_a_nan_among_rows_reaches_their_sum():
    room = Room(filled=np.zeros(EXP_STEP, np.float32))
    room.floats()[LANES + 1] = np.nan
    assert np.isnan(exp_rows(room.address, EXP_STEP)[1])


@pytest.mark.parametrize("spread", [0.0, 1.0, 1e4])
def test_shares_of_scores_are_their_softmax(spread):
    rng = np.random.default_rng(0)
    for n in (1, LANES - 1, LANES, 100):
        padded = -(-n // LANES) * LANES
        scores = normal(rng, padded, spread=spread)
        scores[n:] = -np.inf
        before, room = np.ones(padded, np.float32), Room(filled=scores)
        total = Room(filled=before)
        exp_scores(room.address, padded)
        add_shares(room.address, padded, total.address)
        room.check()
        total.check()
        np.testing.assert_allclose(total.floats(), 1 + oracle.shares(scores[None].astype(np.float64)), rtol=1e-5)


def test_shares_do_not_hide_a_nan():
    room = Room(filled=np.float32([0, np.nan] + [0] * (2 * LANES - 2)))
    total = Room(filled=np.zeros(2 * LANES, np.float32))
    exp_scores(room.address, 2 * LANES)
    add_shares(room.address, 2 * LANES, total.address)
    assert np.isnan(total.floats()).all()


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (3, 3), (5, 2), (0, 9), (2, 5)])
def test_fill_sets_what_it_says(start, stop):
    room = Room(filled=np.zeros(9, np.float32))
    fill(room.address, start, stop, np.float32(7))
    room.check()
    assert room.floats().tolist() == [7 if start <= i < stop else 0 for i in range(9)]
