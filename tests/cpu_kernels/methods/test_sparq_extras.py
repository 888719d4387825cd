"""The extras of SparQ: the transposed copy of the keys, their moments, and the sums of the values."""

import numpy as np
import pytest
from helpers.kernel_heads import (
    Head,
    moments_of_chunks,
    transposed,
)
from helpers.kernel_inputs import (
    EACH,
    QUANTISED,
    SHAPE,
    normal,
    read_rows,
    shapes,
    store_rows,
)

from octavo.cpu_kernels.methods import sparq
from octavo.cpu_kernels.methods.sparq import append_to_extras, append_to_sums
from octavo.cpu_kernels.numba_support.shape import F16, Q4_0, Q8_0, Shape
from octavo.cpu_kernels.rows.columns import copy_bytes
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS

SHAPES = shapes([(64, 3, F16), (72, 1, F16), (8, 16, Q8_0), (64, 3, Q8_0)], groups=(1, 2, 4, 8, 16))
ONE_HEAD = Shape(72, 1)


class Extras:
    """The extras of two chunks, as rows are appended."""

    def __init__(self, shape, keys, values=None):
        n_rows = 2 * CHUNK_ROWS
        self.shape = shape
        self.head = Head(shape, np.zeros((n_rows, shape.head_dim)), method=sparq)
        for chunk in self.head.chunks:
            chunk.bytes[:] = 0xFF
        self.keys, self.values = keys, keys if values is None else values

    def append(self, rows, first=None, hook=append_to_extras):
        """Append these rows, from row `first` of the tail on; by default each where its number says."""
        first = rows[0] if first is None else first
        n_bytes = self.shape.row_bytes
        for place, row in enumerate(rows, first):
            chunk, at = self.head.chunks[place // CHUNK_ROWS].bytes, place % CHUNK_ROWS * n_bytes
            chunk[at : at + n_bytes] = self.keys[row].view(np.uint8)
            chunk[self.head._value_offset + at :][:n_bytes] = self.values[row].view(np.uint8)
        hook(self.shape, self.head.address, first, first + len(rows))
        for chunk in self.head.chunks:
            chunk.check()

    def _part(self, offset, dtype, *shape):
        start = self.head._extras_offset + offset
        return np.stack([chunk.view(dtype, *shape, at=start) for chunk in self.head.chunks])

    @property
    def moments(self):
        return self._part(0, np.float32, 2, self.shape.head_dim)

    @property
    def sums(self):
        return self._part(8 * self.shape.head_dim, np.float32, self.shape.head_dim)

    @property
    def copies(self):
        return self._part(12 * self.shape.head_dim, np.uint8, copy_bytes(self.shape))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_copy_is_the_keys_transposed(shape):
    """With q8_0 it is q8_0 too: the same int8, and the scales as f16."""
    n_rows, rng = CHUNK_ROWS + 20, np.random.default_rng(0)
    keys = store_rows(shape, normal(rng, n_rows, shape.head_dim))
    extras = Extras(shape, keys)
    for row in range(n_rows):
        extras.append([row])
        if row in (0, 5, CHUNK_ROWS - 1, CHUNK_ROWS, n_rows - 1):
            expected = np.full_like(extras.copies, 0xFF)
            filled = transposed(shape, keys[: row + 1])
            expected[: len(filled)] = filled
            np.testing.assert_array_equal(extras.copies, expected)  # what no row fills is not touched


@pytest.mark.parametrize("shape", EACH)
def test_a_copy_takes_what_the_keys_take(shape):
    """Half of the memory more, but for 2 bytes a row of q8_0 and what is summed for each chunk; of q4_0 as of q8_0."""
    of_keys = CHUNK_ROWS * (QUANTISED if shape.kv_type == Q4_0 else shape).row_bytes
    assert of_keys - 2 * CHUNK_ROWS <= copy_bytes(shape) <= of_keys
    assert sparq.extras_bytes(shape) == copy_bytes(shape) + 12 * shape.head_dim


@pytest.mark.parametrize("shape", EACH)
def test_without_a_copy_the_sums_are_the_same(shape):
    rng = np.random.default_rng(3)
    keys, values = (store_rows(shape, normal(rng, 300, shape.head_dim)) for _ in range(2))
    with_copy, without = Extras(shape, keys, values), Extras(shape, keys, values)
    with_copy.append(range(300))
    without.append(range(300), hook=append_to_sums)
    np.testing.assert_array_equal(without.moments, with_copy.moments)
    np.testing.assert_array_equal(without.sums, with_copy.sums)
    assert (without.copies == 0xFF).all()


def test_a_row_may_be_written_again():
    """As where the tail was truncated and goes on otherwise."""
    rng = np.random.default_rng(1)
    keys = store_rows(SHAPE, normal(rng, 30, 64))
    extras = Extras(SHAPE, keys)
    for row in [*range(20), *range(9, 30)]:
        extras.append([row])
    np.testing.assert_array_equal(extras.copies[:1], transposed(SHAPE, keys))


@pytest.mark.parametrize("shape", EACH)
def test_a_copy_shows_a_nan(shape):
    keys = normal(np.random.default_rng(2), 1, 64)
    keys[0, 9] = np.nan
    keys = store_rows(shape, keys)
    extras = Extras(shape, keys)
    extras.append([0], first=4)
    halves = extras.copies[0].view(np.float16)
    if shape != SHAPE:
        assert np.isnan(halves[4]), "the row's scale"
    else:
        assert np.isnan(halves.reshape(64, CHUNK_ROWS)[:, 4]).tolist() == [i == 9 for i in range(64)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_chunks_first_row_starts_its_moments_and_its_sum(shape):
    rng = np.random.default_rng(17)
    keys, values = (store_rows(shape, normal(rng, 20, shape.head_dim) + 2) for _ in range(2))
    extras = Extras(shape, keys, values)
    for rows in (range(5), range(5, 20)):
        extras.append(rows, first=0)
        read = [read_rows(shape, stored)[rows] for stored in (keys, values)]
        np.testing.assert_allclose(extras.moments[:1], moments_of_chunks(read[0]), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(extras.sums[0], read[1].sum(axis=0), rtol=1e-5, atol=1e-5)
        assert np.isnan(extras.moments[1]).all()
