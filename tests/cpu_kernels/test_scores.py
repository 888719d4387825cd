"""What selectors share, and the one that selects everything."""

import numpy as np
import pytest
from helpers import oracle
from helpers.kernel_heads import Head, queries_of, random_head
from helpers.kernel_inputs import BOTH, QUANTISED, SHAPE, Room, address, halves, normal
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels import scores as select
from octavo.cpu_kernels.compile import LANES
from octavo.cpu_kernels.methods.squeezed import native_score_clusters, native_select_clusters
from octavo.cpu_kernels.scores import native_select_all, select_all, share_of
from octavo.cpu_kernels.spans import ANY_ORDER, CHUNK_ROWS, SPAN, add_run


def chunks_of(n_rows):
    return -(-n_rows // CHUNK_ROWS)


@settings(max_examples=200, deadline=None)
@given(n_items=st.integers(0, 3000), n_parts=st.integers(1, 20))
def test_shares_are_all_items_once(n_items, n_parts):
    bounds = [share_of(n_items, part, n_parts) for part in range(n_parts)]
    assert [item for start, stop in bounds for item in range(start, stop)] == list(range(n_items))
    assert all(start % select.ITEMS_STEP == 0 for start, _ in bounds)
    steps = -(-n_items // select.ITEMS_STEP)
    assert max(stop - start for start, stop in bounds) <= -(-steps // n_parts) * select.ITEMS_STEP


@pytest.mark.parametrize("softcap", [0.0, 2.0, 50.0])
def test_capped_scores(softcap):
    scores = np.float32([-1e4, -51, -1, 0, 1e-3, 2, 1e4, np.nan, np.inf])
    room = Room(filled=scores)
    select.cap_scores(room.address, len(scores) - 1, np.float32(softcap))
    room.check()
    expected = [*oracle.capped(scores[:-1].astype(np.float64), softcap), np.inf]
    np.testing.assert_allclose(room.floats(), expected, rtol=1e-6)


@pytest.mark.parametrize("spread", [0.0, 1.0, 1e4])
def test_shares_of_scores_are_their_softmax(spread):
    rng = np.random.default_rng(0)
    for n in (1, LANES - 1, LANES, 100):
        padded = -(-n // LANES) * LANES
        scores = normal(rng, padded, spread=spread)
        scores[n:] = -np.inf
        before, room = np.ones(padded, np.float32), Room(filled=scores)
        total = Room(filled=before)
        select.exp_scores(room.address, padded)
        select.add_shares(room.address, padded, total.address)
        room.check()
        total.check()
        np.testing.assert_allclose(total.floats(), 1 + oracle.shares(scores[None].astype(np.float64)), rtol=1e-5)


def test_shares_do_not_hide_a_nan():
    room = Room(filled=np.float32([0, np.nan] + [0] * (2 * LANES - 2)))
    total = Room(filled=np.zeros(2 * LANES, np.float32))
    select.exp_scores(room.address, 2 * LANES)
    select.add_shares(room.address, 2 * LANES, total.address)
    assert np.isnan(total.floats()).all()


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (3, 3), (5, 2), (0, 9), (2, 5)])
def test_fill_sets_what_it_says(start, stop):
    room = Room(filled=np.zeros(9, np.float32))
    select.fill(room.address, start, stop, np.float32(7))
    room.check()
    assert room.floats().tolist() == [7 if start <= i < stop else 0 for i in range(9)]


# Spans.


def runs(spans, n_spans):
    return [
        tuple(int(span[name]) for name in ("keys", "values", "n_rows", "position", "window"))
        for span in spans[:n_spans]
    ]


def test_a_run_that_follows_the_last_lengthens_it():
    spans = np.zeros(4, SPAN)
    n = add_run(128, 1000, 5000, 3, ANY_ORDER, 0, spans, 0)
    n = add_run(128, 1000 + 3 * 128, 5000 + 3 * 128, 2, ANY_ORDER, 0, spans, n)
    assert runs(spans, n) == [(1000, 5000, 5, ANY_ORDER, 0)]


@pytest.mark.parametrize(
    ("keys", "values", "position"),
    [(1384, 5384, 3), (1385, 5384, -1), (1384, 9384, -1), (1000, 5000, -1), (872, 4872, -1)],
    ids=["it has a position", "other keys", "other values", "the same again", "the one before"],
)
def test_other_runs_are_spans_of_their_own(keys, values, position):
    spans = np.zeros(4, SPAN)
    n = add_run(128, 1000, 5000, 3, ANY_ORDER, 0, spans, 0)
    n = add_run(128, keys, values, 2, position, 9, spans, n)
    assert runs(spans, n) == [(1000, 5000, 3, ANY_ORDER, 0), (keys, values, 2, position, 9)]


def test_runs_with_positions_are_not_joined():
    """The last has a position: what follows it in any order must stay visible to all."""
    spans = np.zeros(4, SPAN)
    n = add_run(128, 1000, 5000, 3, 0, 0, spans, 0)
    assert add_run(128, 1384, 5384, 2, ANY_ORDER, 0, spans, n) == 2


@pytest.mark.parametrize("n_rows", [0, -3])
def test_a_run_of_nothing_is_no_span(n_rows):
    spans = np.zeros(1, SPAN)
    assert add_run(128, 1000, 5000, n_rows, ANY_ORDER, 0, spans, 0) == 0
    assert spans[0]["keys"] == 0


# Everything.


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from([SHAPE, QUANTISED]),
    n_tail=st.integers(1, 3 * CHUNK_ROWS + 10),
    n_tokens=st.integers(1, 300),
    window=st.sampled_from([0, 1, 2, 100, 255, 256, 257, 600]),
)
def test_dense_selects_the_tail_that_the_first_token_may_see(shape, n_tail, n_tokens, window):
    n_tokens, rng = min(n_tokens, n_tail), np.random.default_rng(0)
    head = Head(shape, halves(rng, n_tail, 64), window=window)
    spans = head.select(select_all, queries_of(rng, shape, n_tokens), chunks_of(n_tail) + 2)
    first_token = n_tail - n_tokens
    first = max(0, first_token - window + 1) if window else 0
    assert head.rows(spans) == list(range(first, n_tail))
    assert (spans["position"] != ANY_ORDER).all()
    assert (spans["window"] == window).all()


@pytest.mark.parametrize("shape", BOTH)
@pytest.mark.parametrize("n_tail", [1, CHUNK_ROWS, CHUNK_ROWS + 1, 3 * CHUNK_ROWS - 1])
def test_dense_selects_a_document_as_one_span(shape, n_tail):
    rng = np.random.default_rng(1)
    head = random_head(rng, shape, 16, n_tail)
    spans = head.select(select_all, queries_of(rng, shape), chunks_of(n_tail) + 2)
    assert head.rows(spans) == list(range(16 + n_tail))
    assert spans["position"].tolist() == [ANY_ORDER, *range(16, 16 + n_tail, CHUNK_ROWS)]


@pytest.mark.parametrize(("n_tail", "n_tokens"), [(1, 1), (3, 1), (3, 3), (49, 1), (50, 1), (51, 1), (300, 280)])
def test_dense_selects_what_a_window_still_shows_of_a_document(n_tail, n_tokens):
    """The document had 100 tokens and keeps the newest 50 in this layer, whose window is 50."""
    rng = np.random.default_rng(2)
    head = random_head(rng, SHAPE, 50, n_tail, document_position=50, window=50)
    spans = head.select(select_all, queries_of(rng, SHAPE, n_tokens), 4)
    oldest = max(0, 100 + n_tail - n_tokens - 49)  # of the first token, which sees itself and 49 more
    assert head.rows(spans) == list(range(min(oldest, 100) - 50 if oldest < 100 else oldest - 50, 50 + n_tail))
    assert (spans["position"] != ANY_ORDER).all()


def test_native_functions_are_the_kernels():
    rng = np.random.default_rng(3)
    starts = np.int32([0, 4, 9])
    centroids, queries = halves(rng, 2, 64), queries_of(rng, SHAPE)
    head = random_head(rng, SHAPE, 12, 5, n_clusters=2, threshold=0.05)
    head.set(centroids=address(centroids), cluster_starts=address(starts))
    for native_score, native_select, n_spans in (
        (None, native_select_all, 2),
        (native_score_clusters, native_select_clusters, 3),
    ):
        spans = np.zeros(4, SPAN)
        if native_score:
            native_score(SHAPE).ctypes(head.address, address(queries), 0, 1)
        n = native_select(SHAPE).ctypes(head.address, address(queries), 1, address(spans))
        assert n <= n_spans
        assert head.rows(spans[:n])[-5:] == list(range(12, 17))
