"""Appending to the tail: rows as they are stored, and the extras that grow with them."""

import numpy as np
import pytest
from helpers import oracle
from helpers.kernel_heads import chunk_table, extras_offset, moments_of_chunks, read_in_f32, sums_of_chunks, transposed
from helpers.kernel_inputs import EACH, QUANTISED, ROTATED, SHAPE, Room, address, before_a_hole, halves, read_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.layer import append_rows
from octavo.cpu_kernels.layout.head import HEAD
from octavo.cpu_kernels.methods import quest, sparq
from octavo.cpu_kernels.methods.quest import PAGE_ROWS
from octavo.cpu_kernels.numba_support.compile import native
from octavo.cpu_kernels.numba_support.shape import Q4_0, Q8_0, Shape
from octavo.cpu_kernels.rows.columns import copy_bytes
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS
from octavo.runtime.cache.tail import chunk_bytes

METHODS = pytest.mark.parametrize("method", [quest, sparq], ids=["quest", "sparq"])


def assert_rounded(shape, stored, rows):
    """That rows are stored as they are, of q8_0 to half a step of their rotation, and of q4_0 to two."""
    rows, step = rows.astype(np.float64), 0
    if shape.rotated:
        stored, rows = oracle.rotate(stored), oracle.rotate(rows)
    if shape.kv_type == Q4_0:
        step = 2.01 * np.abs(rows).max(axis=1, keepdims=True, initial=0) / 9
    elif shape.kv_type == Q8_0:
        step = 0.501 * np.abs(rows).max(axis=1, keepdims=True, initial=0) / 127
    assert (np.abs(stored - rows) <= step).all()


class Tail:
    """Chunks that hold nothing yet. method : kernel module whose extras they have, or None"""

    def __init__(self, shape, n_chunks, method=None):
        self.shape, self.method = shape, method
        self.extras = extras_offset(shape)
        self.value_offset = self.extras // 2
        size = chunk_bytes(shape, method.extras_bytes(shape) if method else 0)
        self.chunks = [Room(size) for _ in range(n_chunks)]
        self._table = before_a_hole(chunk_table(shape, self.chunks))
        self.record = np.zeros(1, HEAD)
        self.record["shape"] = shape.packed
        self.record["tail_chunks"] = address(self._table)
        if method:
            self.record["append"] = native(method.HOOKS.append).address

    def append(self, keys, values):
        """Rows of f16, with gaps between them."""
        self.record["n_tail"] += len(keys)
        with_gaps, sources = [], []
        for gap, rows in ((3, keys), (5, values)):
            with_gaps.append(np.full((len(rows), rows.shape[1] + gap), np.nan, np.float16))
            with_gaps[-1][:, : rows.shape[1]] = rows
            sources += [address(with_gaps[-1]), with_gaps[-1].strides[0]]
        append_rows(self.shape, address(self.record), *sources, len(keys))
        for chunk in self.chunks:
            chunk.check()

    def part(self, offset, dtype, *shape):
        return np.stack([chunk.view(dtype, *shape, at=offset) for chunk in self.chunks])

    def rows(self, offset):
        """Of all chunks: (n_chunks * CHUNK_ROWS, row_bytes)."""
        return self.part(offset, np.uint8, CHUNK_ROWS, self.shape.row_bytes).reshape(-1, self.shape.row_bytes)

    @property
    def keys(self):
        """Of all chunks, as numbers."""
        return read_in_f32(self.shape, self.rows(0))

    @property
    def values(self):
        return read_in_f32(self.shape, self.rows(self.value_offset))

    @property
    def pages(self):
        return self.part(self.extras, np.float16, CHUNK_ROWS // PAGE_ROWS, 2, self.shape.head_dim)

    @property
    def copies(self):
        return self.part(self.extras + 12 * self.shape.head_dim, np.uint8, copy_bytes(self.shape))

    @property
    def moments(self):
        return self.part(self.extras, np.float32, 2, self.shape.head_dim)

    @property
    def sums(self):
        return self.part(self.extras + 8 * self.shape.head_dim, np.float32, self.shape.head_dim)

    def check(self, keys, values):
        """That it holds these rows, f16, and their extras, and is poisoned everywhere else."""
        n_rows = len(keys)
        for offset, rows in ((0, keys), (self.value_offset, values)):
            stored = self.rows(offset)
            assert (stored[n_rows:] == 0xFF).all(), "written behind the newest row"
            assert_rounded(self.shape, read_rows(self.shape, stored[:n_rows]), rows)
        if self.method:
            self.check_extras(n_rows)

    def check_extras(self, n_rows):
        """That the extras are those of the first n_rows rows as they are stored."""
        floats = self.keys[:n_rows].astype(np.float32)
        if self.method is quest:
            expected = np.full_like(self.pages, np.nan)
            if n_rows:
                bounds = oracle.page_bounds(floats, PAGE_ROWS).astype(np.float16)
                expected.reshape(-1, 2, self.shape.head_dim)[: len(bounds)] = bounds
            np.testing.assert_array_equal(self.pages, expected)
            return
        expected = np.full_like(self.copies, 0xFF)
        if n_rows:
            filled = transposed(self.shape, self.rows(0)[:n_rows])
            expected[: len(filled)] = filled
        np.testing.assert_array_equal(self.copies, expected)
        self.check_sums(n_rows)

    def check_sums(self, n_rows):
        """That sums and moments are those of the first n_rows values and keys as they are stored."""
        keys, values = self.keys[:n_rows], self.values[:n_rows]
        sums, moments = self.sums, self.moments
        n_chunks = -(-n_rows // CHUNK_ROWS)
        if n_rows:
            slack = 1e-6 * CHUNK_ROWS
            expected = moments_of_chunks(keys)
            np.testing.assert_allclose(sums[:n_chunks], sums_of_chunks(values), atol=slack * np.abs(values).max())
            np.testing.assert_allclose(moments[:n_chunks, 0], expected[:, 0], atol=slack * np.abs(keys).max())
            np.testing.assert_allclose(moments[:n_chunks, 1], expected[:, 1], rtol=1e-5)
        assert np.isnan(sums[n_chunks:]).all()
        assert np.isnan(moments[n_chunks:]).all()


@settings(max_examples=30, deadline=None)
@given(
    shape=st.sampled_from([SHAPE, QUANTISED, ROTATED, Shape(72, 1)]),
    batches=st.lists(st.integers(0, 300), max_size=4),
    method=st.sampled_from([None, quest, sparq]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_tail_holds_what_was_appended_however_it_came(shape, batches, method, seed):
    rng, tail = np.random.default_rng(seed), Tail(shape, 5, method)
    keys, values = (halves(rng, sum(batches), shape.head_dim) for _ in range(2))
    first = 0
    for n in batches:
        tail.append(keys[first : first + n], values[first : first + n])
        first += n
    tail.check(keys, values)


@METHODS
@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("n_kept", [0, 16, 250, 256, 300])
def test_a_tail_goes_on_from_where_it_was_cut(shape, n_kept, method):
    """Rows, and columns; pages from the first whole one on."""
    rng, tail = np.random.default_rng(0), Tail(shape, 2, method)
    keys, values = halves(rng, 400, 64), halves(rng, 400, 64)
    tail.append(halves(rng, 400, 64), halves(rng, 400, 64))
    tail.record["n_tail"] = n_kept
    for stored, rows in ((tail.keys, keys), (tail.values, values)):
        rows[:n_kept] = stored[:n_kept]
    tail.append(keys[n_kept:], values[n_kept:])
    for stored, rows in ((tail.keys, keys), (tail.values, values)):
        assert_rounded(shape, stored[:400], rows)
    floats = tail.keys[:400].astype(np.float32)
    if method is sparq:
        np.testing.assert_array_equal(tail.copies, transposed(shape, tail.rows(0)[:400]))
        return
    first = -(-n_kept // PAGE_ROWS)
    pages = tail.pages.reshape(-1, 2, 64)[:25]
    expected = oracle.page_bounds(floats, PAGE_ROWS).astype(np.float16)
    np.testing.assert_array_equal(pages[first:], expected[first:])
    assert (pages[:, 0] <= expected[:, 0]).all()  # a page that was cut may bound more than it holds
    assert (pages[:, 1] >= expected[:, 1]).all()


@METHODS
@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("n_kept", [16, 250, 256, 300])
def test_rows_that_are_appended_again_leave_nothing_of_those_that_were_cut(shape, n_kept, method):
    """From the start of their chunk on: extras are then as if the others had never come."""
    rng, tail = np.random.default_rng(2), Tail(shape, 2, method)
    tail.append(100 * halves(rng, 400, 64), 100 * halves(rng, 400, 64))
    tail.record["n_tail"] = n_kept
    first = n_kept // CHUNK_ROWS * CHUNK_ROWS
    native(method.HOOKS.append).ctypes(address(tail.record), first, n_kept, 0)
    tail.append(halves(rng, 400 - n_kept, 64), halves(rng, 400 - n_kept, 64))
    if method is sparq:
        tail.check_extras(400)
        return
    bounds = oracle.page_bounds(tail.keys[:400].astype(np.float32), PAGE_ROWS).astype(np.float16)
    np.testing.assert_array_equal(tail.pages.reshape(-1, 2, 64)[:25], bounds)


@pytest.mark.parametrize("shape", EACH)
def test_what_is_not_finite_is_stored_so_that_it_shows(shape):
    rng, tail = np.random.default_rng(1), Tail(shape, 1)
    keys, values = halves(rng, 9, 64), halves(rng, 9, 64)
    keys[3, 5], values[4, 6] = np.nan, np.inf
    tail.append(keys, values)
    for stored, row in ((tail.keys, 3), (tail.values, 4)):
        finite = np.isfinite(stored[:9]).all(axis=1)
        assert np.flatnonzero(~finite).tolist() == [row]
