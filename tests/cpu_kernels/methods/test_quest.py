"""Page bounds: what appending keeps, that no key scores above its page, and which pages are selected."""

import numpy as np
import pytest
from helpers import oracle
from helpers.kernel_heads import Head, assert_largest, queries_of, random_head, read_in_f32
from helpers.kernel_inputs import (
    EACH,
    QUANTISED,
    SHAPE,
    THREADS,
    halves,
    normal,
    rows_with_scores,
    shapes,
    store_rows,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.layout.head import ANY_ORDER
from octavo.cpu_kernels.layout.spans import ALL_HEADS
from octavo.cpu_kernels.methods import quest
from octavo.cpu_kernels.methods.dense import select_all
from octavo.cpu_kernels.methods.quest import PAGE_ROWS, append_to_pages, score_pages
from octavo.cpu_kernels.methods.select_top import select_top
from octavo.cpu_kernels.numba_support.shape import F16, Q4_0, Q8_0, Shape
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS

FEW = [(64, 3, F16), (72, 1, F16), (8, 16, Q8_0), (64, 3, Q8_0)]
SHAPES, WITH_Q4_0 = (shapes(few, groups=(1, 2, 4, 8, 16)) for few in (FEW, [*FEW, (64, 2, Q4_0)]))
ONE_HEAD = Shape(72, 1)


def paged_head(rng, shape, n_rows, **fields):
    return random_head(rng, shape, 0, n_rows, n_items=-(-n_rows // PAGE_ROWS), method=quest, **fields)


def oracle_scores(head, query):
    """The upper bounds of all pages, by their bounds as they are stored."""
    return oracle.page_scores(query, oracle.page_bounds(head.keys, PAGE_ROWS).astype(np.float16))


def select(head, queries, n_selected):
    """The pages that are selected, by their number; checks that all their rows are, in order."""
    head.set(n_selected=n_selected)
    spans = head.score_and_select(score_pages, select_top, queries, max(n_selected, 1))
    assert (spans["position"] == ANY_ORDER).all()
    rows, pages = head.rows(spans), head.pages()
    chosen = [i for i, page in enumerate(pages) if page[0] in rows]
    assert rows == [row for i in chosen for row in pages[i]]
    return chosen


# Bounds.


class Pages:
    """The bounds of one chunk's pages, as rows are appended one by one."""

    def __init__(self, shape, keys):
        self.head = Head(shape, np.zeros((CHUNK_ROWS, shape.head_dim)), method=quest)
        self.chunk = self.head.chunks[0]
        self.chunk.bytes[:] = 0xFF
        self.rows = keys

    def append(self, row):
        n_bytes = self.head.shape.row_bytes
        self.chunk.bytes[row * n_bytes : (row + 1) * n_bytes] = self.rows[row].view(np.uint8)
        append_to_pages(self.head.shape, self.head.address, row, row + 1)
        self.chunk.check()

    @property
    def bounds(self):
        return self.chunk.view(
            np.float16, CHUNK_ROWS // PAGE_ROWS, 2, self.head.shape.head_dim, at=self.head._extras_offset
        )


@pytest.mark.parametrize("shape", WITH_Q4_0)
def test_bounds_are_the_least_and_the_largest_of_their_page(shape):
    rng = np.random.default_rng(0)
    keys = store_rows(shape, normal(rng, 40, shape.head_dim))
    pages, floats = Pages(shape, keys), read_in_f32(shape, keys).astype(np.float32)
    for row in range(40):
        pages.append(row)
        n_pages = row // PAGE_ROWS + 1
        expected = oracle.page_bounds(floats[: row + 1], PAGE_ROWS).astype(np.float16)
        assert (pages.bounds[:n_pages] == expected).all()
        assert np.isnan(pages.bounds[n_pages:]).all(), "later pages are not touched"


@settings(max_examples=60, deadline=None)
@given(
    appends=st.lists(st.tuples(st.integers(0, 47), st.integers(1, 20)), min_size=1, max_size=8),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_key_scores_above_its_page_after_any_appends_and_truncations(appends, seed):
    """Each of `appends` truncates to so many rows, if there are as many, and appends some."""
    rng = np.random.default_rng(seed)
    keys = np.zeros((68, 72), np.float16)
    pages = Pages(ONE_HEAD, keys)
    query, n_rows, restarted = normal(rng, 1, 72), 0, True
    for truncated, n_new in appends:
        if truncated < n_rows and truncated % PAGE_ROWS:
            restarted = False  # bounds still take in the rows that were cut off their page
        n_rows = min(n_rows, truncated)
        for row in range(n_rows, min(n_rows + n_new, len(keys))):
            keys[row] = halves(rng, 72)
            pages.append(row)
            n_rows = row + 1
    n_pages = -(-n_rows // PAGE_ROWS)
    bounds = pages.bounds[:n_pages]
    if restarted:
        assert (bounds == oracle.page_bounds(keys[:n_rows], PAGE_ROWS)).all()
    scores = (query.astype(np.float64) @ keys[:n_rows].astype(np.float64).T)[0]
    assert (oracle.page_scores(query, bounds)[0, np.arange(n_rows) // PAGE_ROWS] >= scores - 1e-9).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_no_key_scores_above_its_page(shape):
    rng = np.random.default_rng(1)
    head = paged_head(rng, shape, 570)
    for spread in (0.1, 10.0):
        query = queries_of(rng, shape, spread=spread)[0]
        bounds = head.score(score_pages, query)
        scores = query.astype(np.float64) @ head.keys.T
        size = np.abs(query).astype(np.float64) @ np.abs(head.keys).T
        slack = size * (2**-11 if shape.kv_type == Q8_0 else 1e-6)  # bounds of q8_0 keys are rounded
        for page, rows in enumerate(head.pages()):
            assert (bounds[:, page, None] >= scores[:, rows] - slack[:, rows]).all()


# Scores.


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_rows", [1, 16, 17, 255, 256, 257, 512, 850, 1000])
def test_scores_are_those_of_the_paper_whoever_computes_them(shape, n_rows):
    rng = np.random.default_rng(2)
    head = paged_head(rng, shape, n_rows)
    query, n_pages = queries_of(rng, shape)[0], len(head.pages())
    scores = [head.score(score_pages, query, n_parts)[:, :n_pages].copy() for n_parts in THREADS]
    expected = oracle_scores(head, query)
    np.testing.assert_allclose(scores[0], expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    for others in scores[1:]:
        np.testing.assert_array_equal(others, scores[0])


# Selection.


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("softcap", [0.0, 1.0])
def test_the_best_pages_of_the_group_are_selected(shape, softcap):
    rng = np.random.default_rng(3)
    head = paged_head(rng, shape, 1000, softcap=softcap)
    queries = queries_of(rng, shape, spread=1 / np.sqrt(shape.head_dim))
    importance = oracle.shares(oracle.capped(oracle_scores(head, queries[0]), softcap))
    importance[-1] = np.inf  # the newest
    for n_selected in (1, 2, 7, 40):
        assert_largest(select(head, queries, n_selected), importance, n_selected)
        np.testing.assert_allclose(head.scratch.floats(len(importance)), importance, rtol=1e-4)


@settings(max_examples=100, deadline=None)
@given(n_rows=st.integers(1, 1200), n_selected=st.integers(1, 90), seed=st.integers(0, 2**32 - 1))
def test_one_head_selects_by_algorithm_1(n_rows, n_selected, seed):
    rng = np.random.default_rng(seed)
    head = paged_head(rng, ONE_HEAD, n_rows)
    queries = queries_of(rng, ONE_HEAD, spread=0.1)
    scores = np.exp(oracle_scores(head, queries[0])[0])
    scores[-1] = np.inf
    assert_largest(select(head, queries, n_selected), scores, n_selected)


@settings(max_examples=100, deadline=None)
@given(
    shape=st.sampled_from([SHAPE, QUANTISED]),
    n_rows=st.integers(1, 1200),
    n_selected=st.integers(1, 90),
    spread=st.sampled_from([0.0, 0.1, 1.0, 100.0]),
    softcap=st.sampled_from([0.0, 3.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_pages_of_any_head(shape, n_rows, n_selected, spread, softcap, seed):
    rng = np.random.default_rng(seed)
    head = paged_head(rng, shape, n_rows, softcap=softcap)
    queries = queries_of(rng, shape, spread=spread)
    chosen = select(head, queries, n_selected)
    n_pages = len(head.pages())
    assert len(chosen) == min(n_selected, n_pages)
    assert chosen[-1] == n_pages - 1, "the newest page is always selected"
    assert head.record["bytes_read"] == n_pages * 4 * 64
    if spread in (0.1, 1.0):
        importance = oracle.shares(oracle.capped(oracle_scores(head, queries[0]), softcap))
        importance[-1] = np.inf
        assert_largest(chosen, importance, n_selected)


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("n_rows", [1, 2, 33, 255, 256, 257, 512, 1300])
def test_all_pages_are_all_rows(shape, n_rows):
    rng = np.random.default_rng(4)
    head = paged_head(rng, shape, n_rows)
    n_pages = len(head.pages())
    for n_selected in (n_pages, n_pages + 1, 10 * n_pages):
        assert select(head, queries_of(rng, shape), n_selected) == list(range(n_pages))


@pytest.mark.parametrize("shape", EACH)
def test_what_fills_up_a_vector_takes_no_pages_place(shape):
    """Not even where most pages get a share of 0, as it does."""
    rng = np.random.default_rng(10)
    head = paged_head(rng, shape, 600)
    queries = queries_of(rng, shape, spread=100)
    for n_selected in range(1, len(head.pages())):
        assert len(select(head, queries, n_selected)) == n_selected


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("softcap", [0.0, 30.0])
def test_query_heads_select_their_own_pages(shape, softcap):
    """Each its best ones, or fewer if they would be too many together; the newest always among them."""
    rng = np.random.default_rng(11)
    head = paged_head(rng, shape, 1000, softcap=softcap)
    queries = queries_of(rng, shape, spread=1 / np.sqrt(shape.head_dim))
    scores = np.exp(oracle.capped(oracle_scores(head, queries[0]), softcap))
    scores[:, -1] = np.inf  # the newest
    for n_own, n_selected in ((1, 40), (5, 1000), (1000, 12), (20, 20), (1000, 1000)):
        head.set(n_selected=n_selected, n_own=n_own)
        spans = head.score_and_select(score_pages, select_top, queries, 63)
        expected = oracle.choices_apart(scores, n_own, n_selected)
        for g, own in enumerate(expected):
            rows = head.rows(spans[(spans["heads"] == ALL_HEADS) | (spans["heads"] >> g & 1 == 1)])
            assert rows == [row for i in np.flatnonzero(own) for row in head.pages()[i]], (n_own, n_selected, g)


def test_neighbouring_pages_are_one_span():
    rng = np.random.default_rng(5)
    head = paged_head(rng, SHAPE, 700, n_selected=99)
    spans = head.score_and_select(score_pages, select_top, queries_of(rng, SHAPE), 99)
    assert spans["n_rows"].tolist() == [CHUNK_ROWS, CHUNK_ROWS, 700 - 2 * CHUNK_ROWS]


def test_the_newest_page_is_selected_however_low_it_scores():
    query, keys = rows_with_scores([10000] * 100 + [-10000], 72)
    newest = 100 // PAGE_ROWS
    head = Head(ONE_HEAD, keys, n_items=newest + 1, method=quest)
    for n_selected, expected in ((1, [newest]), (2, [0, newest]), (3, [0, 1, newest])):
        assert select(head, query[None, None], n_selected) == expected


@pytest.mark.parametrize(
    ("scores", "best"),
    [([-10000, 10000, -10000, -10000], 1), ([-10000, -10000, -9992, -10000], 2), ([10000] * 4, 0), ([0] * 4, 0)],
    ids=str,
)
def test_hostile_scores_select_the_best_page(scores, best):
    query, keys = rows_with_scores(np.repeat(scores, PAGE_ROWS), 72)
    assert select(Head(ONE_HEAD, keys, n_items=4, method=quest), query[None, None], 2) == [best, 3]


@pytest.mark.parametrize("n_tokens", [2, 300])
def test_a_batch_attends_everything(n_tokens):
    rng = np.random.default_rng(6)
    head = paged_head(rng, SHAPE, 700, n_selected=1, window=0)
    queries = queries_of(rng, SHAPE, n_tokens)
    spans = head.select(select_top, queries, 5)
    np.testing.assert_array_equal(spans, head.select(select_all, queries, 5))
    assert head.rows(spans) == list(range(700))


@pytest.mark.parametrize("shape", EACH)
def test_a_query_of_nan_attends_everything(shape):
    """Where the NaN shows."""
    rng = np.random.default_rng(7)
    head = paged_head(rng, shape, 400, n_selected=3)
    queries = queries_of(rng, shape)
    queries[0, 1, 5] = np.nan
    assert head.rows(head.score_and_select(score_pages, select_top, queries, 3)) == list(range(400))


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("row", [0, 5])
def test_a_key_of_nan_shows_in_the_bounds_of_its_page(shape, row):
    keys = halves(np.random.default_rng(8), 16, 64)
    keys[row, 3] = np.nan
    pages = Pages(shape, store_rows(shape, keys))
    for i in range(16):
        pages.append(i)
    assert np.isnan(pages.bounds[0, :, 3]).all()


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("chunk", [0, 1])
def test_bounds_of_nan_attend_everything(shape, chunk):
    """Where the NaN shows: their page is not passed over."""
    head = paged_head(np.random.default_rng(9), shape, 400)
    bounds = head.chunks[chunk].view(np.float16, CHUNK_ROWS // PAGE_ROWS, 2, 64, at=head._extras_offset)
    bounds[3, :, 7] = np.nan
    head.set(n_selected=4)
    spans = head.score_and_select(score_pages, select_top, queries_of(np.random.default_rng(9), shape), 4)
    assert head.rows(spans) == list(range(400))
