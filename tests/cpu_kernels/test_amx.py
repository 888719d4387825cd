"""Test the products of AMX tiles, and that they leave no trace."""

import numpy as np
import pytest
from helpers.kernel_inputs import Room, address, halves, normal, relative_error

from octavo.cpu_kernels import amx, vector
from octavo.cpu_kernels.compile import HAS_AMX, Shape, kernel

pytestmark = pytest.mark.skipif(not HAS_AMX, reason="this CPU has no AMX")

ROWS = 64  # of a block
SAME = 6e-5  # halves have 16 of the 24 bits of an f32
SHAPES = [Shape(head_dim, 1) for head_dim in (32, 64, 96, 256)]


def of_bf16(words):
    """f32 of the bits of bf16."""
    return (words.astype(np.uint32) << 16).view(np.float32)


@kernel
def split_all_pairs(floats, n_rows, highs, lows):
    for row in range(0, n_rows, 2):
        source, offset = floats + row * amx.STRIP * 4, row * amx.STRIP * 2
        amx.split_pairs(vector.load(source), vector.load(source + amx.STRIP * 4), highs + offset, lows + offset)


@kernel
def round_all_pairs(floats, n_rows, pairs):
    for row in range(0, n_rows, 2):
        source = floats + row * amx.STRIP * 4
        amx.round_pairs(vector.load(source), vector.load(source + amx.STRIP * 4), pairs + row * amx.STRIP * 2)


@kernel
def weigh_all(scores, n, largest, weights):
    for i in range(0, n, amx.STRIP):
        shift = vector.splat(np.float32(largest * vector.LOG2_E))
        vector.store(weights + 4 * i, amx.weight(vector.load(scores + 4 * i), shift))


@kernel
def score(shape, floats, keys, queries, scores, configuration):
    amx.enter_tiles(configuration)
    for row in range(ROWS):
        offset = row * shape.head_dim * 2
        amx.split_keys(shape, floats + 2 * offset, keys + offset, keys + ROWS * shape.head_dim * 2 + offset)
    amx.score_strip(shape, keys, queries, scores)
    amx.leave_tiles(configuration)


@kernel
def add(shape, floats, values, weights, n_steps, sums, configuration):
    amx.enter_tiles(configuration)
    amx.split_values(shape, floats, values, n_steps)
    amx.add_strip(shape, values, weights, n_steps, sums)
    amx.leave_tiles(configuration)


@kernel
def enter_twice(first, second):
    """Save what the tiles are configured as, before and after kernels configured them."""
    amx.enter_tiles(first)
    amx.leave_tiles(first)
    amx.enter_tiles(second)
    amx.leave_tiles(second)


def split(matrix):
    """The pairs of rows of (n, STRIP) f32 as highs and lows, (2, n / 2, STRIP, 2) bf16."""
    n_rows = len(matrix)
    pairs = np.zeros((2, n_rows // 2, amx.STRIP, 2), np.uint16)
    split_all_pairs(address(matrix), n_rows, address(pairs[0]), address(pairs[1]))
    return pairs


def rounded(matrix):
    """The pairs of rows of (n, STRIP) f32, (n / 2, STRIP, 2) bf16."""
    pairs = np.zeros((len(matrix) // 2, amx.STRIP, 2), np.uint16)
    round_all_pairs(address(matrix), len(matrix), address(pairs))
    return pairs


def as_rows(pairs):
    """Rows of f32 (n, STRIP) from pairs of bf16."""
    return of_bf16(pairs).transpose(0, 2, 1).reshape(-1, amx.STRIP)


def test_pairs_are_two_rows_interleaved_and_add_up_to_them():
    matrix = normal(np.random.default_rng(0), 8, amx.STRIP)
    highs, lows = split(matrix)
    np.testing.assert_allclose(as_rows(highs) + as_rows(lows), matrix, rtol=2.0**-15)


def test_weights_are_rounded_to_the_nearest():
    weights = np.random.default_rng(0).random((64, amx.STRIP), np.float32)
    weights[0] = 0
    np.testing.assert_allclose(as_rows(rounded(weights)), weights, rtol=2.0**-8)
    assert abs((as_rows(rounded(weights)) - weights).mean()) < 1e-4  # cut off, they were .002 too small


@pytest.mark.parametrize("largest", [0.0, -3.5, 40.0])
def test_weights_are_exp_of_the_distance_to_the_largest_score(largest):
    distances = np.concatenate([np.linspace(0, 80, 1000), [90, 200, 1e30, np.inf]]).astype(np.float32)
    scores = np.resize(np.float32(largest) - distances, 64 * amx.STRIP)
    weights = np.empty_like(scores)
    weigh_all(address(scores), len(scores), np.float32(largest), address(weights))
    expected = np.exp(scores.astype(np.float64) - largest)
    np.testing.assert_allclose(weights, np.where(expected < 2.0**-125, 0, expected), rtol=1e-4)


def test_a_score_that_is_no_number_gets_no_number():
    scores = np.full(amx.STRIP, np.nan, np.float32)
    weights = np.zeros_like(scores)
    weigh_all(address(scores), len(scores), np.float32(1), address(weights))
    assert np.isnan(weights).all()


def test_a_nan_stays_one_whatever_its_bits():
    bits = np.full((2, amx.STRIP), 0x7FFFFFFF, np.uint32)
    bits[1] = 0xFFC00000
    assert np.isnan(of_bf16(split(bits.view(np.float32))[0])).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_scores_are_products(shape):
    rng = np.random.default_rng(1)
    keys, queries = halves(rng, ROWS, shape.head_dim).astype(np.float32), normal(rng, amx.STRIP, shape.head_dim)
    places = Room(ROWS * shape.head_dim * 4), Room(ROWS * amx.STRIP * 4), Room(amx.CONFIGURATION_BYTES)
    pairs = split(np.ascontiguousarray(queries.T))
    score(shape, address(keys), places[0].address, address(pairs), places[1].address, places[2].address)
    for room in places:
        room.check()
    expected = keys.astype(np.float64) @ queries.T.astype(np.float64)
    assert relative_error(places[1].floats(ROWS, amx.STRIP), expected) < SAME


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_rows", [32, 64])
def test_weighted_values_are_added(shape, n_rows):
    rng = np.random.default_rng(2)
    values = halves(rng, ROWS, shape.head_dim).astype(np.float32)
    weights, before = rng.random((ROWS, amx.STRIP), np.float32), normal(rng, shape.head_dim, amx.STRIP)
    room, sums, saved = Room(values.nbytes), Room(filled=before), Room(amx.CONFIGURATION_BYTES)
    pairs = rounded(weights)
    add(shape, address(values), room.address, address(pairs), n_rows // 32, sums.address, saved.address)
    for each in (room, sums, saved):
        each.check()
    expected = before + values[:n_rows].T.astype(np.float64) @ as_rows(pairs)[:n_rows].astype(np.float64)
    assert relative_error(sums.floats(*before.shape), expected) < SAME


def test_the_configuration_of_a_thread_is_as_before():
    first, second = np.full((2, amx.CONFIGURATION_BYTES), 0xA5, np.uint8)
    enter_twice(address(first), address(second))
    np.testing.assert_array_equal(first, second)
