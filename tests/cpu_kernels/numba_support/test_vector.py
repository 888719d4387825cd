"""Test the vector primitives, lane by lane."""

import numpy as np
import pytest
from helpers.kernel_inputs import Room, address, before_a_hole
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.numba_support import machine, vector
from octavo.cpu_kernels.numba_support.compile import kernel
from octavo.cpu_kernels.numba_support.machine_features import LANES


@kernel
def exp_of(source, target, n):
    for i in range(0, n, LANES):
        vector.store(target + i * 4, vector.exp_difference(vector.load(source + i * 4), vector.splat(np.float32(0))))


@kernel
def rough_exp_of(source, target, n):
    for i in range(0, n, LANES):
        vector.store(target + i * 4, vector.exp_roughly(vector.load(source + i * 4), vector.splat(np.float32(0))))


@kernel
def lane_reductions(source, target):
    x = vector.load(source)
    vector.store(target, vector.splat(vector.sum_of(x)))
    vector.store(target + LANES * 4, vector.splat(vector.max_of(x)))


@kernel
def kept_at_most(source, index, limits, target):
    vector.store(target, vector.keep_at_most(vector.load(source), index, vector.load(limits)))


@kernel
def arithmetic(x, y, target):
    x, y, step = vector.load(x), vector.load(y), LANES * 4
    vector.store(target, vector.add(x, y))
    vector.store(target + step, vector.subtract(x, y))
    vector.store(target + 2 * step, vector.multiply(x, y))
    vector.store(target + 3 * step, vector.maximum(x, y))


def vector_exp(numbers, of=exp_of):
    padded = np.zeros(-(-len(numbers) // LANES) * LANES, np.float32)
    padded[: len(numbers)] = numbers
    out = Room(padded.nbytes)
    of(address(padded), out.address, len(padded))
    out.check()
    return out.floats(len(padded))[: len(numbers)]


def test_exp_is_exact_to_what_rounding_its_argument_costs():
    steps = np.linspace(-86.5, 88, 100_001, dtype=np.float32)
    near_zero = np.concatenate([sign * np.geomspace(1e-30, 1, 10_001, dtype=np.float32) for sign in (-1, 1)])
    x = np.concatenate([steps, near_zero])
    expected = np.exp(x.astype(np.float64))
    errors = np.abs(vector_exp(x) / expected - 1)
    assert (errors <= 1e-7 * (2 + np.abs(x))).all()


def test_a_rough_exp_is_exact_to_a_ten_thousandth():
    x = np.concatenate([np.linspace(-86.5, 88, 100_001, dtype=np.float32), np.zeros(1, np.float32)])
    np.testing.assert_allclose(vector_exp(x, rough_exp_of), np.exp(x.astype(np.float64)), rtol=1e-4)


def test_exp_of_very_negative_numbers_is_0_and_of_0_is_1():
    x = np.array([-np.inf, -3e38, -1e30, -1e4, -88, 0, -0.0], np.float32)
    assert vector_exp(x).tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert ((vector_exp(x[:5], rough_exp_of) >= 0) & (vector_exp(x[:5], rough_exp_of) < 3e-38)).all()


def test_exp_keeps_nan():
    x = np.array([1, np.nan, -np.inf, -np.nan, 0], np.float32)
    for exp in (exp_of, rough_exp_of):
        assert np.isnan(vector_exp(x, exp)).tolist() == [False, True, False, True, False]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(max_value=88, allow_infinity=False, width=32), min_size=1, max_size=40))
def test_exp_of_any_finite_number_is_one(numbers):
    actual, expected = vector_exp(np.array(numbers, np.float32)), np.exp(np.array(numbers, np.float64))
    for each, number, exact in zip(actual, numbers, expected, strict=True):
        assert each == pytest.approx(0 if number < -87 else exact, rel=1e-7 * (2 + abs(number)), abs=1.5e-38)


def test_sum_and_maximum_use_every_lane():
    for lane in range(LANES):
        x = np.zeros(LANES, np.float32)
        x[lane] = 3
        out = Room(2 * LANES * 4)
        lane_reductions(address(x), out.address)
        out.check()
        assert (out.floats() == 3).all()


def test_maximum_of_negative_numbers():
    out, x = Room(2 * LANES * 4), np.arange(-LANES, 0, dtype=np.float32)
    lane_reductions(address(x), out.address)
    assert (out.floats(2, LANES)[1] == -1).all()


def test_mask_keeps_positions_up_to_the_limit():
    x, limits = np.arange(LANES, dtype=np.float32), np.arange(LANES, dtype=np.float32)
    out = Room(LANES * 4)
    kept_at_most(address(x), np.float32(3), address(limits), out.address)
    out.check()
    assert out.floats().tolist() == [-np.inf if lane < 3 else lane for lane in range(LANES)]


def test_arithmetic_works_on_each_lane_at_any_address():
    rng = np.random.default_rng(0)
    memory = before_a_hole(rng.standard_normal(2 * LANES + 1).astype(np.float32))
    x, y = memory[1 : LANES + 1], memory[LANES + 1 :]
    out = Room(4 * LANES * 4)
    arithmetic(address(x), address(y), out.address)
    out.check()
    assert (out.floats(4, LANES) == [x + y, x - y, x * y, np.maximum(x, y)]).all()


def test_the_bandwidth_measurement_reads_every_number():
    numbers = before_a_hole(np.arange(3 * 8 * LANES, dtype=np.float32))
    assert machine._sum(address(numbers), len(numbers)) == numbers.sum(dtype=np.float64)
    for i in range(0, len(numbers), 7):
        hit = np.zeros_like(numbers)
        hit[i] = 1
        assert machine._sum(address(hit), len(hit)) == 1
