"""Appending to the tail: rows as they are stored, and what grows beside them."""

import numpy as np
import pytest
from helpers import oracle
from helpers.kernel_heads import moments_of_chunks, sums_of_chunks, transposed
from helpers.kernel_inputs import BOTH, QUANTISED, SHAPE, Room, address, before_a_hole, halves, read_rows, store_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels import append
from octavo.cpu_kernels.compile import Shape, kernel
from octavo.cpu_kernels.methods.quest import PAGE_ROWS
from octavo.cpu_kernels.spans import CHUNK_ROWS, HEAD, head_at


@kernel
def append_rows(shape, head, keys, key_stride, values, value_stride, n_tokens):
    append.append_rows(shape, head_at(head)[0], keys, key_stride, values, value_stride, n_tokens)


class Tail:
    """Chunks that hold nothing yet. beside : whether they have pages, columns, moments and sums"""

    def __init__(self, shape, n_chunks, beside=True):
        self.shape, self.beside, rows_bytes = shape, beside, CHUNK_ROWS * shape.row_bytes
        self.key_offset, self.value_offset, self.page_offset = 64, 64 + rows_bytes, 64 + 2 * rows_bytes
        self.column_offset = self.page_offset + CHUNK_ROWS // PAGE_ROWS * 4 * shape.head_dim
        self.moment_offset = self.column_offset + 2 * CHUNK_ROWS * shape.head_dim
        self.sum_offset = self.moment_offset + 8 * shape.head_dim
        size = self.sum_offset + 4 * shape.head_dim
        self.chunks = [Room(size) for _ in range(n_chunks)]
        self._table = before_a_hole(np.array([chunk.address for chunk in self.chunks], np.int64))
        self.record = np.zeros(1, HEAD)
        self.record["tail_chunks"] = address(self._table)
        names = ("page_offset", "column_offset", "moment_offset", "sum_offset") if beside else ()
        for name in ("key_offset", "value_offset", *names):
            self.record[name] = getattr(self, name)

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

    def check(self, keys, values):
        """That it holds these rows, f16, and what belongs beside them, and is poisoned everywhere else."""
        n_rows = len(keys)
        for offset, rows in ((self.key_offset, keys), (self.value_offset, values)):
            stored = self.rows(offset)
            assert (stored[n_rows:] == 0xFF).all(), "written behind the newest row"
            expected, actual = (read_rows(self.shape, x) for x in (store_rows(self.shape, rows), stored[:n_rows]))
            if self.shape.kv_type == "f16":
                assert (actual == expected).all()
            else:  # ties may be rounded either way
                step = np.abs(rows.astype(np.float64)).max(axis=1, keepdims=True) / 127
                assert (np.abs(actual - rows) <= 0.5001 * step).all()
        floats = read_rows(self.shape, self.rows(self.key_offset)[:n_rows]).astype(np.float32)
        pages = self.part(self.page_offset, np.float16, CHUNK_ROWS // PAGE_ROWS, 2, self.shape.head_dim)
        columns = self.part(self.column_offset, np.float16, self.shape.head_dim, CHUNK_ROWS)
        expected_pages, expected_columns = np.full_like(pages, np.nan), np.full_like(columns, np.nan)
        if self.beside and n_rows:
            bounds = oracle.page_bounds(floats, PAGE_ROWS).astype(np.float16)
            expected_pages.reshape(-1, 2, self.shape.head_dim)[: len(bounds)] = bounds
            filled = transposed(floats)
            expected_columns[: len(filled)] = filled
        np.testing.assert_array_equal(pages, expected_pages)
        np.testing.assert_array_equal(columns, expected_columns)
        self.check_sums(n_rows if self.beside else 0)

    def check_sums(self, n_rows):
        """That sums and moments are those of the first n_rows values and keys as they are stored."""
        keys, values = (read_rows(self.shape, self.rows(at)[:n_rows]) for at in (self.key_offset, self.value_offset))
        sums = self.part(self.sum_offset, np.float32, self.shape.head_dim)
        moments = self.part(self.moment_offset, np.float32, 2, self.shape.head_dim)
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
    shape=st.sampled_from([SHAPE, QUANTISED, Shape(72, 1)]),
    batches=st.lists(st.integers(0, 300), max_size=4),
    beside=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_tail_holds_what_was_appended_however_it_came(shape, batches, beside, seed):
    rng, tail = np.random.default_rng(seed), Tail(shape, 5, beside)
    keys, values = (halves(rng, sum(batches), shape.head_dim) for _ in range(2))
    first = 0
    for n in batches:
        tail.append(keys[first : first + n], values[first : first + n])
        first += n
    tail.check(keys, values)


@pytest.mark.parametrize("shape", BOTH)
@pytest.mark.parametrize("n_kept", [0, 16, 250, 256, 300])
def test_a_tail_goes_on_from_where_it_was_cut(shape, n_kept):
    """Rows, and columns; pages from the first whole one on."""
    rng, tail = np.random.default_rng(0), Tail(shape, 2)
    keys, values = halves(rng, 400, 64), halves(rng, 400, 64)
    tail.append(halves(rng, 400, 64), halves(rng, 400, 64))
    tail.record["n_tail"] = n_kept
    for offset, rows in ((tail.key_offset, keys), (tail.value_offset, values)):
        kept = tail.rows(offset)[:n_kept]
        rows[:n_kept] = read_rows(shape, kept)
    tail.append(keys[n_kept:], values[n_kept:])
    for offset, rows in ((tail.key_offset, keys), (tail.value_offset, values)):
        stored = read_rows(shape, tail.rows(offset)[:400])
        step = np.abs(rows.astype(np.float64)).max(axis=1, keepdims=True) / 127
        assert (np.abs(stored - rows) <= (0.5001 * step if shape == QUANTISED else 0)).all()
    floats = read_rows(shape, tail.rows(tail.key_offset)[:400]).astype(np.float32)
    columns = tail.part(tail.column_offset, np.float16, 64, CHUNK_ROWS)
    np.testing.assert_array_equal(columns, transposed(floats))
    first = -(-n_kept // PAGE_ROWS)
    pages = tail.part(tail.page_offset, np.float16, CHUNK_ROWS // PAGE_ROWS, 2, 64).reshape(-1, 2, 64)[:25]
    expected = oracle.page_bounds(floats, PAGE_ROWS).astype(np.float16)
    np.testing.assert_array_equal(pages[first:], expected[first:])
    assert (pages[:, 0] <= expected[:, 0]).all()  # a page that was cut may bound more than it holds
    assert (pages[:, 1] >= expected[:, 1]).all()


@pytest.mark.parametrize("shape", BOTH)
@pytest.mark.parametrize("n_kept", [16, 250, 256, 300])
def test_rows_that_are_taken_in_again_leave_nothing_of_those_that_were_cut(shape, n_kept):
    """From the start of their chunk on: bounds, moments and sums, too, are then as if the others had never come."""
    rng, tail = np.random.default_rng(2), Tail(shape, 2)
    tail.append(100 * halves(rng, 400, 64), 100 * halves(rng, 400, 64))
    tail.record["n_tail"] = n_kept
    append.native_take_in(shape).ctypes(address(tail.record), n_kept // CHUNK_ROWS * CHUNK_ROWS, n_kept, 0)
    tail.append(halves(rng, 400 - n_kept, 64), halves(rng, 400 - n_kept, 64))
    floats = read_rows(shape, tail.rows(tail.key_offset)[:400]).astype(np.float32)
    pages = tail.part(tail.page_offset, np.float16, CHUNK_ROWS // PAGE_ROWS, 2, 64).reshape(-1, 2, 64)[:25]
    np.testing.assert_array_equal(pages, oracle.page_bounds(floats, PAGE_ROWS).astype(np.float16))
    np.testing.assert_array_equal(tail.part(tail.column_offset, np.float16, 64, CHUNK_ROWS), transposed(floats))
    tail.check_sums(400)


@pytest.mark.parametrize("shape", BOTH)
def test_what_is_not_finite_is_stored_so_that_it_shows(shape):
    rng, tail = np.random.default_rng(1), Tail(shape, 1)
    keys, values = halves(rng, 9, 64), halves(rng, 9, 64)
    keys[3, 5], values[4, 6] = np.nan, np.inf
    tail.append(keys, values)
    for offset, row in ((tail.key_offset, 3), (tail.value_offset, 4)):
        finite = np.isfinite(read_rows(shape, tail.rows(offset)[:9])).all(axis=1)
        assert np.flatnonzero(~finite).tolist() == [row]
