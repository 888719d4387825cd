"""Test the operations of simd groups against NumPy."""

import numpy as np
import pytest
from metal_simulator import simulator
from metal_simulator.small_kernels import kernel, run

pytestmark = pytest.mark.sampled

simulator.require()

THREADS = 48  # the second simd group has 16 lanes


def simd(expression, x, **options):
    """Compute out[i] = expression, where x is the lane's value."""
    kind = {"f": "float", "i": "int", "u": "uint", "e": "half"}[
        x.dtype.char.lower() if x.dtype.kind == "f" else x.dtype.kind
    ]
    source = kernel(
        f"{kind} x = in[i]; out[i] = {expression};",
        f"device const {kind} *in [[buffer(0)]], device {kind} *out [[buffer(1)]],",
    )
    return run(source, x, np.zeros_like(x), threads=len(x), **options)


def in_groups(function, x):
    """Apply a function to the lanes of each simd group."""
    return np.concatenate([np.broadcast_to(function(part), part.shape) for part in (x[:32], x[32:])])


@pytest.fixture
def ints():
    return np.random.default_rng(1).integers(1, 1000, THREADS).astype(np.int32)


REDUCTIONS = {
    "simd_sum": np.sum,
    "simd_max": np.max,
    "simd_min": np.min,
    "simd_and": np.bitwise_and.reduce,
    "simd_or": np.bitwise_or.reduce,
    "simd_xor": np.bitwise_xor.reduce,
    "simd_broadcast_first": lambda x: x[0],
    "simd_prefix_inclusive_sum": np.cumsum,
    "simd_prefix_exclusive_sum": lambda x: np.cumsum(x) - x,
}


@pytest.mark.parametrize("schedule", [0, 1, 2])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_simd_reductions(name, ints, schedule):
    np.testing.assert_array_equal(simd(f"{name}(x)", ints, schedule=schedule), in_groups(REDUCTIONS[name], ints))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_simd_sum_of_floats(dtype):
    x = np.random.default_rng(2).standard_normal(64).astype(dtype)
    expected = in_groups(lambda part: part.astype(np.float64).sum(), x)
    np.testing.assert_allclose(simd("simd_sum(x)", x), expected, rtol=0, atol=40 * np.finfo(dtype).eps)


def test_simd_product_and_its_prefixes():
    x = np.tile(np.array([1, 2, 1, 3], np.int32), 8)
    np.testing.assert_array_equal(simd("simd_product(x)", x), np.full(32, 6**8))
    np.testing.assert_array_equal(simd("simd_prefix_inclusive_product(x)", x), np.cumprod(x))


def test_simd_shuffles():
    x = np.arange(100, 132, dtype=np.uint32)
    lanes = np.arange(32)
    np.testing.assert_array_equal(simd("simd_shuffle(x, ushort(31 - lane))", x), x[::-1])
    np.testing.assert_array_equal(simd("simd_shuffle_xor(x, 5)", x), x[lanes ^ 5])
    np.testing.assert_array_equal(simd("simd_shuffle_down(x, 3)", x)[:29], x[3:])
    np.testing.assert_array_equal(simd("simd_shuffle_up(x, 3)", x)[3:], x[:29])
    np.testing.assert_array_equal(simd("simd_shuffle_rotate_down(x, 3)", x), np.roll(x, -3))
    np.testing.assert_array_equal(simd("simd_shuffle_rotate_up(x, 3)", x), np.roll(x, 3))
    np.testing.assert_array_equal(simd("simd_broadcast(x, 7)", x), np.full(32, x[7]))


def test_a_lane_that_does_not_exist_reads_as_nan():
    x = np.ones(THREADS, np.float32)
    assert np.isnan(simd("simd_shuffle(x, 20)", x)[32:]).all()


def test_simd_votes():
    x = np.arange(64, dtype=np.uint32)
    every = in_groups(lambda part: np.bitwise_or.reduce((part % 3 == 0) << np.arange(32, dtype=np.uint64)), x)
    np.testing.assert_array_equal(simd("uint(ulong(simd_ballot(x % 3 == 0)))", x), every)
    np.testing.assert_array_equal(simd("simd_any(x == 40)", x), x >= 32)
    np.testing.assert_array_equal(simd("simd_all(x < 40)", x), x < 32)
    assert simd("simd_all(x < 100)", np.arange(40, dtype=np.uint32)).all()


def test_simd_operations_of_vectors():
    source = kernel(
        "float4 v = simd_sum(in[i]); out[i] = simd_shuffle_xor(v + in[i], 1);",
        "device const float4 *in [[buffer(0)]], device float4 *out [[buffer(1)]],",
    )
    x = np.random.default_rng(3).integers(0, 9, (32, 4)).astype(np.float32)
    expected = (x.sum(axis=0) + x)[np.arange(32) ^ 1]
    np.testing.assert_array_equal(run(source, x, np.zeros_like(x), threads=32), expected)
