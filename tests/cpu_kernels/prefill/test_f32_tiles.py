"""Test the two register tiles of prefill."""

import numpy as np
import pytest
from helpers.kernel_inputs import HEAD_DIMS, Room, address, before_a_hole, normal, relative_error
from numba import int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from octavo.cpu_kernels.numba_support.compile import kernel
from octavo.cpu_kernels.numba_support.shape import Shape
from octavo.cpu_kernels.numba_support.vector import INT64, constant
from octavo.cpu_kernels.prefill import f32_tiles as tiles
from octavo.cpu_kernels.prefill.f32_tiles import TILE, TILE_ROWS

SHAPES = [pytest.param(Shape(head_dim, 1), id=str(head_dim)) for head_dim in HEAD_DIMS]  # tiles know no group


@kernel
def score_one_tile(shape, keys, queries, scores):
    tiles.score_tile(shape, keys, queries, scores)


@kernel
def weigh_one_tile(shape, weights, values, n_rows, out):
    tiles.value_tile(shape, weights, values, int64(n_rows), out)


@intrinsic
def write_pieces(typing, count, room):
    """Write the start and the length of each of the pieces that cover a range; return their number."""

    def generate(context, builder, signature, args):
        count, room = args
        number = cgutils.alloca_once_value(builder, constant(0))

        def write(start, length):
            place = builder.inttoptr(room, INT64.as_pointer())
            for value in (start, constant(length)):
                builder.store(value, builder.gep(place, [builder.load(number)]))
                builder.store(builder.add(builder.load(number), constant(1)), number)

        tiles.cover_evenly(builder, count, 4, write)
        return builder.load(number)

    return types.int64(types.int64, types.int64), generate


@kernel
def pieces_of(count, room):
    return write_pieces(int64(count), room)


def test_pieces_cover_a_range_and_the_last_two_are_as_long():
    for count in range(30):
        room = np.zeros(64, np.int64)
        pieces = room[: pieces_of(count, address(room))].reshape(-1, 2)
        lengths = pieces[:, 1]
        np.testing.assert_array_equal(pieces[:, 0], np.cumsum(lengths) - lengths)
        assert lengths.sum() == count
        assert len(lengths) == -(-count // 4)
        assert (lengths[:-2] == 4).all()
        assert len(lengths) < 2 or lengths[-2] - lengths[-1] in (0, 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_score_tile_adds_the_products_of_its_rows(shape):
    rng = np.random.default_rng(2)
    keys = before_a_hole(normal(rng, TILE_ROWS, shape.head_dim))
    queries = before_a_hole(normal(rng, shape.head_dim, TILE))
    before = normal(rng, TILE_ROWS, TILE)
    scores = Room(filled=before)
    score_one_tile(shape, address(keys), address(queries), scores.address)
    scores.check()
    assert relative_error(scores.floats(TILE_ROWS, TILE), before + keys.astype(np.float64) @ queries) < 1e-5


@pytest.mark.parametrize("shape", SHAPES)
def test_value_tile_adds_the_weighted_rows(shape):
    rng = np.random.default_rng(3)
    first = 8  # the tile of queries 8 to 11
    for n_rows in (0, 1, 7, TILE):
        weights, values = normal(rng, n_rows, TILE), before_a_hole(normal(rng, n_rows, shape.head_dim))
        before = normal(rng, TILE_ROWS, shape.head_dim)
        out = Room(filled=before)
        weigh_one_tile(shape, address(weights) + first * 4, address(values), n_rows, out.address)
        out.check()
        expected = before + weights[:, first : first + TILE_ROWS].astype(np.float64).T @ values
        assert relative_error(out.floats(TILE_ROWS, shape.head_dim), expected) < 1e-5


def test_tiles_keep_nan():
    rng, shape = np.random.default_rng(4), Shape(64, 1)
    keys, queries = normal(rng, TILE_ROWS, 64), normal(rng, 64, TILE)
    keys[1, 5] = queries[7, 9] = np.nan
    scores = Room(filled=np.zeros((TILE_ROWS, TILE), np.float32))
    score_one_tile(shape, address(keys), address(queries), scores.address)
    expected = np.zeros((TILE_ROWS, TILE), bool)
    expected[1], expected[:, 9] = True, True
    assert (np.isnan(scores.floats(TILE_ROWS, TILE)) == expected).all()
