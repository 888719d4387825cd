"""Test the products of integers."""

import numpy as np
import pytest
from helpers.kernel_inputs import Room, address, halves, normal

from octavo.cpu_kernels.numba_support.compile import kernel
from octavo.cpu_kernels.numba_support.machine_features import LANES
from octavo.cpu_kernels.numba_support.shape import Shape
from octavo.cpu_kernels.numba_support.vector import load, splat, store
from octavo.cpu_kernels.prefill import integer_tiles
from octavo.cpu_kernels.prefill.f32_tiles import TILE
from octavo.cpu_kernels.prefill.integer_tiles import GROUP, OF_BYTES

SHAPES = [each for each in (Shape(48, 1), Shape(80, 1), Shape(208, 1)) if each.on_integers]
pytestmark = pytest.mark.skipif(not SHAPES, reason="this CPU has no AVX2")

ROWS = 64


@kernel
def score(shape, keys, queries, scores, key_integers, query_integers, key_scales, query_scales, sums, room):
    integer_tiles.round_keys(shape, keys, ROWS, key_integers, key_scales, room)
    largest = integer_tiles.LARGEST_ELEMENT
    integer_tiles.round_columns(queries, shape.head_dim, TILE, largest, query_integers, query_scales, room)
    integer_tiles.sum_queries(queries, shape.head_dim, room, sums)
    integer_tiles.score_integers(shape, key_integers, key_scales, query_integers, query_scales, sums, ROWS, scores)


@kernel
def weigh(shape, values, n_rows, weights, out, value_integers, weight_integers, scales, factors, room):
    largest, scale = integer_tiles.LARGEST_VALUE, splat(np.float32(integer_tiles.LARGEST_WEIGHT))
    integer_tiles.round_columns(values, n_rows, shape.head_dim, largest, value_integers, scales, room)
    for r in range(0, n_rows, GROUP):
        for q in range(0, TILE, LANES):
            group = splat(np.float32(0))
            for place in range(GROUP):
                own = load(weights + ((r + place) * TILE + q) * 4)
                group = integer_tiles.put_integers(group, place, own, scale)
            store(weight_integers + (r // GROUP * TILE + q) * 4, group)
    integer_tiles.value_integers(shape, weight_integers, factors, value_integers, scales, n_rows // GROUP, TILE, out)


def scores_of(shape, keys, queries):
    """What the kernel makes of (ROWS, head_dim) keys and (TILE, head_dim) queries."""
    columns = np.ascontiguousarray(queries.T)
    scores, places = Room(ROWS * TILE * 4), [Room(n // GROUP) for n in (keys.nbytes, columns.nbytes)]
    places += [Room(4 * n) for n in (ROWS, TILE, TILE, TILE)]
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
    errors = np.abs(scores_of(shape, keys, queries) - expected)
    assert (errors <= most_error(keys, queries)).all()


def most_error(keys, queries):
    """The most that rounding may change scores: each element is off by half of a step at most, and f32 by 2^-22."""
    steps = [sizes(rows) / integer_tiles.LARGEST_ELEMENT for rows in (keys, queries)]
    absolute = [np.abs(rows).sum(axis=1) for rows in (keys, queries)]
    exact = 2.0**-22 * np.linalg.norm(keys, axis=1)[:, None] * np.linalg.norm(queries, axis=1)
    both = keys.shape[1] * steps[0][:, None] * steps[1] / 4
    return steps[0][:, None] / 2 * absolute[1] + absolute[0][:, None] * steps[1] / 2 + both + exact


def sizes(rows):
    """What `LARGEST_ELEMENT` says of a row: its largest element, or its length."""
    return np.abs(rows).max(axis=1) if OF_BYTES else np.linalg.norm(rows, axis=1)


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
@pytest.mark.parametrize("n_rows", [GROUP, 64])
def test_weighted_values_are_added(shape, n_rows):
    rng = np.random.default_rng(2)
    values, weights = halves(rng, n_rows, shape.head_dim).astype(np.float32), rng.random((n_rows, TILE), np.float32)
    weights[0] = 1
    factors, before = normal(rng, TILE) / np.float32(integer_tiles.LARGEST_WEIGHT), normal(rng, TILE, shape.head_dim)
    out, places = Room(filled=before), [Room(values.nbytes), Room(weights.nbytes), Room(4 * shape.head_dim)]
    room = Room(4 * shape.head_dim)
    first = [place.address for place in places]
    weigh(shape, address(values), n_rows, address(weights), out.address, *first, address(factors), room.address)
    for each in (out, room, *places):
        each.check()
    added = factors[:, None] * integer_tiles.LARGEST_WEIGHT * (weights.T.astype(np.float64) @ values.astype(np.float64))
    value_steps, weight_step = sizes(values.T) / integer_tiles.LARGEST_VALUE, 1 / integer_tiles.LARGEST_WEIGHT
    absolute = weights.sum(axis=0)[:, None] + n_rows * weight_step / 2
    most = absolute * value_steps / 2 + np.abs(values).sum(axis=0) * weight_step / 2 + 2.0**-20 * n_rows
    errors = np.abs(out.floats(*before.shape) - (before + added))
    assert (errors <= np.abs(factors[:, None]) * integer_tiles.LARGEST_WEIGHT * most + 2.0**-22 * np.abs(before)).all()


def test_the_largest_weights_and_values_do_not_overflow():
    shape, ones = SHAPES[0], np.ones((ROWS, TILE), np.float32)
    values, out = np.full((ROWS, shape.head_dim), 7, np.float32), np.zeros((TILE, shape.head_dim), np.float32)
    factors = np.full(TILE, 1 / integer_tiles.LARGEST_WEIGHT, np.float32)
    places = [Room(values.nbytes), Room(ones.nbytes), Room(4 * shape.head_dim)]
    room = Room(4 * shape.head_dim)
    first = [place.address for place in places]
    weigh(shape, address(values), ROWS, address(ones), address(out), *first, address(factors), room.address)
    np.testing.assert_allclose(out, 7 * ROWS, rtol=1e-3)
