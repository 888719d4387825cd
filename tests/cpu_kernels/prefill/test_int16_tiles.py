"""Test the products of int16."""

import numpy as np
import pytest
from helpers.kernel_inputs import Room, address, halves, normal, relative_error

from octavo.cpu_kernels.numba_support.compile import kernel
from octavo.cpu_kernels.numba_support.machine_features import LANES
from octavo.cpu_kernels.numba_support.shape import Shape
from octavo.cpu_kernels.prefill import int16_tiles
from octavo.cpu_kernels.prefill.f32_tiles import TILE

SHAPES = [each for each in (Shape(48, 1), Shape(80, 1), Shape(208, 1)) if each.on_words]
pytestmark = pytest.mark.skipif(not SHAPES, reason="this CPU has no AVX2")

ROWS = 64
FINE = 1e-4  # 13 bits


@kernel
def score(shape, keys, queries, scores, key_words, query_words, key_scales, query_scales, room):
    int16_tiles.round_keys(shape, keys, ROWS, key_words, key_scales, room)
    length = int16_tiles.WORDS_LENGTH
    int16_tiles.round_columns(queries, shape.head_dim, TILE, length, query_words, query_scales, room)
    int16_tiles.score_words(shape, key_words, key_scales, query_words, query_scales, ROWS, scores)


@kernel
def weigh(shape, values, n_rows, weights, out, value_words, weight_words, scales, factors, room):
    int16_tiles.round_columns(values, n_rows, shape.head_dim, int16_tiles.VALUES_LENGTH, value_words, scales, room)
    scale = int16_tiles.splat(np.float32(int16_tiles.LARGEST_WEIGHT))
    for r in range(0, n_rows, 2):
        for q in range(0, TILE, LANES):
            even, target = weights + (r * TILE + q) * 4, weight_words + (r // 2 * TILE + q) * 4
            int16_tiles.store_pairs(int16_tiles.load(even), int16_tiles.load(even + TILE * 4), scale, target)
    int16_tiles.value_words(shape, weight_words, factors, value_words, scales, n_rows // 2, TILE, out)


def scores_of(shape, keys, queries):
    """What the kernel makes of (ROWS, head_dim) keys and (TILE, head_dim) queries."""
    columns = np.ascontiguousarray(queries.T)
    scores, places = Room(ROWS * TILE * 4), [Room(n) for n in (keys.nbytes // 2, columns.nbytes // 2, 4 * ROWS)]
    places += [Room(4 * TILE), Room(4 * TILE)]
    score(shape, address(keys), address(columns), scores.address, *(place.address for place in places))
    for room in (scores, *places):
        room.check()
    return scores.floats(ROWS, TILE)


def random_inputs(shape):
    """Keys, whose columns differ in size as those of models do, and queries."""
    rng = np.random.default_rng(1)
    keys = halves(rng, ROWS, shape.head_dim).astype(np.float32)
    keys[:, 3] += 30
    return keys, normal(rng, TILE, shape.head_dim)


@pytest.mark.parametrize("shape", SHAPES)
def test_scores_are_products(shape):
    keys, queries = random_inputs(shape)
    keys[5], queries[7] = 0, 0
    expected = keys.astype(np.float64) @ queries.T.astype(np.float64)
    length = np.linalg.norm(keys, axis=1)[:, None] * np.linalg.norm(queries, axis=1)
    assert (np.abs(scores_of(shape, keys, queries) - expected) <= 2 * FINE * length).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_no_sum_overflows(shape):
    keys, queries = np.full((ROWS, shape.head_dim), -6e4, np.float32), np.full((TILE, shape.head_dim), 1e6, np.float32)
    np.testing.assert_allclose(scores_of(shape, keys, queries), -6e10 * shape.head_dim, rtol=1e-3)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_shows(value):
    keys, queries = random_inputs(SHAPES[0])
    keys[9, 4], queries[11, 8] = value, value
    shows = np.isnan(scores_of(SHAPES[0], keys, queries))
    assert shows[9].all()
    assert shows[:, 11].all()
    assert shows.sum() == ROWS + TILE - 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_rows", [2, 64])
def test_weighted_values_are_added(shape, n_rows):
    rng = np.random.default_rng(2)
    values, weights = halves(rng, n_rows, shape.head_dim).astype(np.float32), rng.random((n_rows, TILE), np.float32)
    weights[0] = 1
    factors, before = normal(rng, TILE) / np.float32(int16_tiles.LARGEST_WEIGHT), normal(rng, TILE, shape.head_dim)
    out, places = Room(filled=before), [Room(values.nbytes), Room(weights.nbytes), Room(4 * shape.head_dim)]
    room = Room(4 * shape.head_dim)
    first = [place.address for place in places]
    weigh(shape, address(values), n_rows, address(weights), out.address, *first, address(factors), room.address)
    for each in (out, room, *places):
        each.check()
    added = factors[:, None] * int16_tiles.LARGEST_WEIGHT * (weights.T.astype(np.float64) @ values.astype(np.float64))
    assert relative_error(out.floats(*before.shape), before + added) < 10 * FINE


def test_the_largest_weights_and_values_do_not_overflow():
    shape, ones = SHAPES[0], np.ones((ROWS, TILE), np.float32)
    values, out = np.full((ROWS, shape.head_dim), 7, np.float32), np.zeros((TILE, shape.head_dim), np.float32)
    factors = np.full(TILE, 1 / int16_tiles.LARGEST_WEIGHT, np.float32)
    places = [Room(values.nbytes), Room(ones.nbytes), Room(4 * shape.head_dim)]
    room = Room(4 * shape.head_dim)
    first = [place.address for place in places]
    weigh(shape, address(values), ROWS, address(ones), address(out), *first, address(factors), room.address)
    np.testing.assert_allclose(out, 7 * ROWS, rtol=1e-3)
