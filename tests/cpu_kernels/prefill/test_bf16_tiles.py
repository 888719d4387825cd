"""Test the products of AMX tiles, and that they leave no trace."""

import numpy as np
import pytest
from helpers.kernel_inputs import SAME_PRODUCTS as SAME
from helpers.kernel_inputs import Room, address, as_bf16, halves, normal, relative_error

from octavo.cpu_kernels.numba_support import amx, vector
from octavo.cpu_kernels.numba_support.compile import kernel
from octavo.cpu_kernels.numba_support.machine_features import HAS_AMX
from octavo.cpu_kernels.numba_support.shape import Shape
from octavo.cpu_kernels.prefill import bf16_tiles

pytestmark = pytest.mark.skipif(not HAS_AMX, reason="this CPU has no AMX")

ROWS = 64  # of a block
SPLIT, CUT, ROUND = range(3)
SHAPES = [Shape(head_dim, 1) for head_dim in (32, 64, 96, 256)]


def of_bf16(words):
    """f32 of the bits of bf16."""
    return (words.astype(np.uint32) << 16).view(np.float32)


@kernel
def split_all_pairs(floats, n_rows, highs, lows, way):
    for row in range(0, n_rows, 2):
        source, offset = floats + row * bf16_tiles.STRIP * 4, row * bf16_tiles.STRIP * 2
        even, odd = vector.load(source), vector.load(source + bf16_tiles.STRIP * 4)
        if way == CUT:
            bf16_tiles.split_weights(even, odd, highs + offset, lows + offset)
        elif way == ROUND:
            bf16_tiles.round_pairs(even, odd, highs + offset)
        else:
            bf16_tiles.split_pairs(even, odd, highs + offset, lows + offset)


@kernel
def score(shape, floats, keys, queries, scores, rough, configuration):
    amx.enter_tiles(configuration)
    for row in range(ROWS):
        offset = row * shape.head_dim * 2
        bf16_tiles.split_keys(
            shape, floats + 2 * offset, keys + offset, keys + ROWS * shape.head_dim * 2 + offset, rough
        )
    bf16_tiles.score_strip(shape, keys, queries, scores, rough)
    amx.leave_tiles(configuration)


@kernel
def add(shape, floats, values, weights, n_steps, sums, rough, configuration):
    amx.enter_tiles(configuration)
    bf16_tiles.split_values(shape, floats, values, n_steps, rough)
    bf16_tiles.add_strip(shape, values, weights, n_steps, sums, rough)
    amx.leave_tiles(configuration)


@kernel
def enter_twice(first, second):
    """Save what the tiles are configured as, before and after kernels configured them."""
    amx.enter_tiles(first)
    amx.leave_tiles(first)
    amx.enter_tiles(second)
    amx.leave_tiles(second)


def split(matrix, way=SPLIT):
    """The pairs of rows of (n, STRIP) f32 as highs and lows, (2, n / 2, STRIP, 2) bf16; rounded they have no lows."""
    n_rows = len(matrix)
    pairs = np.zeros((2, n_rows // 2, bf16_tiles.STRIP, 2), np.uint16)
    split_all_pairs(address(matrix), n_rows, address(pairs[0]), address(pairs[1]), way)
    return pairs


@pytest.mark.parametrize(("way", "error"), [(SPLIT, 2.0**-15), (CUT, 2.0**-15), (ROUND, 2.0**-8)])
def test_pairs_are_two_rows_interleaved_and_add_up_to_them(way, error):
    matrix = normal(np.random.default_rng(0), 8, bf16_tiles.STRIP)
    pairs = of_bf16(split(matrix, way)).sum(axis=0)
    np.testing.assert_allclose(pairs.transpose(0, 2, 1).reshape(matrix.shape), matrix, rtol=error)


def test_a_nan_stays_one_whatever_its_bits():
    bits = np.full((2, bf16_tiles.STRIP), 0x7FFFFFFF, np.uint32)
    bits[1] = 0xFFC00000
    assert np.isnan(of_bf16(split(bits.view(np.float32))[0])).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rough", [False, True])
def test_scores_are_products(shape, rough):
    rng = np.random.default_rng(1)
    keys, queries = halves(rng, ROWS, shape.head_dim).astype(np.float32), normal(rng, bf16_tiles.STRIP, shape.head_dim)
    places = Room(ROWS * shape.head_dim * 4), Room(ROWS * bf16_tiles.STRIP * 4), Room(amx.CONFIGURATION_BYTES)
    pairs = split(np.ascontiguousarray(queries.T))
    score(shape, address(keys), places[0].address, address(pairs), places[1].address, rough, places[2].address)
    for room in places:
        room.check()
    if rough:
        keys, queries = as_bf16(keys), as_bf16(queries)
    expected = keys.astype(np.float64) @ queries.T.astype(np.float64)
    assert relative_error(places[1].floats(ROWS, bf16_tiles.STRIP), expected) < SAME


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_rows", [32, 64])
@pytest.mark.parametrize("rough", [False, True])
def test_weighted_values_are_added(shape, n_rows, rough):
    rng = np.random.default_rng(2)
    values = halves(rng, ROWS, shape.head_dim).astype(np.float32)
    weights, before = rng.random((ROWS, bf16_tiles.STRIP), np.float32), normal(rng, shape.head_dim, bf16_tiles.STRIP)
    room, sums, saved = Room(values.nbytes), Room(filled=before), Room(amx.CONFIGURATION_BYTES)
    pairs = split(weights, ROUND if rough else CUT)
    add(shape, address(values), room.address, address(pairs), n_rows // 32, sums.address, rough, saved.address)
    for each in (room, sums, saved):
        each.check()
    if rough:
        values, weights = as_bf16(values), as_bf16(weights)
    expected = before + values[:n_rows].T.astype(np.float64) @ weights[:n_rows].astype(np.float64)
    assert relative_error(sums.floats(*before.shape), expected) < SAME


def test_the_configuration_of_a_thread_is_as_before():
    first, second = np.full((2, amx.CONFIGURATION_BYTES), 0xA5, np.uint8)
    enter_twice(address(first), address(second))
    np.testing.assert_array_equal(first, second)
