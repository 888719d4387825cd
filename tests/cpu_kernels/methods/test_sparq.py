"""Partial scores: scores by some components of the keys, and which rows are selected."""

import numpy as np
import pytest
from helpers import oracle, papers
from helpers.kernel_heads import (
    ONE_COPY,
    Head,
    as_copied,
    assert_largest,
    head_of_unlike_chunks,
    head_with_constant_components,
    partial_scores,
    queries_of,
    random_head,
)
from helpers.kernel_inputs import (
    EACH,
    QUANTISED,
    SHAPE,
    THREADS,
    normal,
    rows_with_scores,
    shapes,
)
from helpers.sparq_heads import bytes_of_moments, bytes_of_scores, select, spread_of
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.methods import sparq
from octavo.cpu_kernels.methods.dense import select_all
from octavo.cpu_kernels.methods.sparq import score_rows, select_rows
from octavo.cpu_kernels.numba_support.shape import F16, Q4_0, Q8_0, Shape
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS

pytestmark = pytest.mark.sampled

FEW = [(64, 3, F16), (72, 1, F16), (8, 16, Q8_0), (64, 3, Q8_0)]
SHAPES, WITH_Q4_0 = (shapes(few, groups=(1, 2, 4, 8, 16)) for few in (FEW, [*FEW, (64, 2, Q4_0)]))
ONE_HEAD = Shape(72, 1)
SCORE_AND_SELECT_ROWS = ONE_COPY.HOOKS.score, ONE_COPY.HOOKS.select


def with_newest(importance, n_recent):
    importance[len(importance) - n_recent :] = np.inf
    return importance


# Scores.


@pytest.mark.parametrize("shape", WITH_Q4_0)
@pytest.mark.parametrize("n_rows", [2, 3, 255, 256, 257, 300, 512, 850, 1000])
def test_scores_are_those_of_the_oracle_whoever_computes_them(shape, n_rows):
    rng = np.random.default_rng(3)
    head = random_head(rng, shape, 0, n_rows, method=sparq)
    query = queries_of(rng, shape)[0]
    for n_components in (1, 3, shape.head_dim // 2, shape.head_dim, 10 * shape.head_dim):
        head.set(n_components=n_components)
        scores = [head.score(score_rows, query, n_parts)[:, :n_rows].copy() for n_parts in THREADS]
        expected = partial_scores(head, query, n_components)
        np.testing.assert_allclose(scores[0], expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
        for others in scores[1:]:
            np.testing.assert_array_equal(others, scores[0])


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("n_chunks", [1, 5, 7.9, 8, 8.5, 9, 20])
def test_the_spread_is_that_of_some_full_chunks(shape, n_chunks):
    """Of all up to 8, and of 8 of more. What the others hold does not matter, nor does what is not full."""
    rng, n_rows = np.random.default_rng(23), int(n_chunks * CHUNK_ROWS)
    head = head_of_unlike_chunks(rng, shape, n_rows, n_components=5)
    query = queries_of(rng, shape)[0]
    expected = partial_scores(head, query, 5)
    scores = head.score(score_rows, query, 2)[:, :n_rows]
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("n_rows", [1, 2, 256])
def test_where_no_component_varies_the_first_score_as_they_are(n_rows):
    rng = np.random.default_rng(26)
    head = Head(SHAPE, method=sparq, keys=np.repeat(rng.integers(-9, 9, (1, 64)), n_rows, axis=0), n_components=5)
    query = queries_of(rng, SHAPE)[0]
    scores = head.score(score_rows, query)[:, :n_rows]
    np.testing.assert_allclose(scores, query[:, :5] @ head.keys[:, :5].T, rtol=1e-5, atol=1e-5)


def test_components_are_chosen_by_their_sum_over_the_group():
    """Each head's own largest is another; column 5 is nobody's largest but the group's."""
    query = np.zeros((3, 64), np.float32)
    query[[0, 1, 2], [1, 2, 3]] = 3, -3, 3
    query[:, 5] = 2, -2, 2
    rng = np.random.default_rng(4)
    head = random_head(rng, SHAPE, 0, 30, method=sparq, n_components=1)
    scores = head.score(score_rows, query)[:, :30]
    variances = spread_of(head) ** 2
    share = 4 * variances[5] / (9 * variances[[1, 2, 3]] + 4 * variances[5])
    expected = query[:, 5, None] / np.sqrt(share[:, None]) * head.keys[:, 5]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


def test_of_equal_components_the_first_are_chosen():
    rng = np.random.default_rng(5)
    signs = rng.permuted(np.repeat([[-1], [1]], 15, axis=0) * np.ones(64), axis=0)  # of each component, half are 1
    head = Head(SHAPE, method=sparq, keys=signs, n_components=4)
    scores = head.score(score_rows, np.ones((3, 64), np.float32))[:, :30]
    expected = np.sqrt(64 / 4) * head.keys[:, :4].sum(axis=1)
    np.testing.assert_allclose(scores, np.tile(expected, (3, 1)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("query", "n_components"), [(0.0, 4), (1.0, 0)])
def test_a_query_of_zeros_and_no_components_score_0(query, n_components):
    rng = np.random.default_rng(6)
    head = random_head(rng, SHAPE, 0, 30, method=sparq, n_components=n_components, n_recent=2)
    queries = np.full((1, 3, 64), query, np.float32)
    assert (head.score(score_rows, queries)[:, :30] == 0).all()
    assert select(head, queries, 5) == [0, 1, 2, 28, 29]  # of equal ones the first


def test_a_head_of_zeros_among_others_scores_0():
    """Its part of the chosen components is 0: no temperature is infinite."""
    rng = np.random.default_rng(7)
    queries = queries_of(rng, SHAPE)
    queries[0, 1] = 0
    head = random_head(rng, SHAPE, 0, 30, method=sparq, n_components=4)
    scores = head.score(score_rows, queries)[:, :30]
    assert np.isfinite(scores).all()
    assert (scores[1] == 0).all()


@pytest.mark.parametrize(
    ("shape", "method"),
    [*((shape, sparq) for shape in (SHAPE, QUANTISED, ONE_HEAD, Shape(8, 16, Q8_0)))]
    + [(shape, ONE_COPY) for shape in (SHAPE, ONE_HEAD, Shape(8, 16))],
    ids=lambda each: str(each) if isinstance(each, Shape) else "one copy" if each is ONE_COPY else "two copies",
)
@pytest.mark.parametrize("n_rows", [2, 255, 257, 850])
@pytest.mark.parametrize("components", ["spread", "query"])
@pytest.mark.parametrize("temperature", ["spread", "l1"])
def test_each_rule_scores_as_the_oracle(shape, n_rows, method, components, temperature):
    rng = np.random.default_rng(27)
    head = head_of_unlike_chunks(rng, shape, n_rows, method)
    head.set(by_query=components == "query", by_coverage=temperature == "l1")
    query = queries_of(rng, shape)[0]
    for n_components in (1, 5, shape.head_dim):
        head.set(n_components=n_components)
        expected = partial_scores(head, query, n_components, components=components, temperature=temperature)
        for n_parts in (1, 2):
            scores = head.score(method.HOOKS.score, query, n_parts)[:, :n_rows]
            np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("shape", [SHAPE, ONE_HEAD, Shape(80, 2), Shape(256, 1)], ids=str)
@pytest.mark.parametrize("n_rows", [2, 33, 255, 256, 700])
def test_without_a_copy_the_cache_lines_of_the_components_are_counted(shape, n_rows):
    """However few components a line holds."""
    rng = np.random.default_rng(28)
    head = random_head(rng, shape, 0, n_rows, method=ONE_COPY, n_rows=1)
    queries = queries_of(rng, shape)
    for n_components in (1, 2, 7, shape.head_dim):
        head.set(n_components=n_components, bytes_read=0)
        chosen = oracle.top((np.abs(queries[0]) * spread_of(head)).sum(axis=0), n_components)
        lines = {
            (row // CHUNK_ROWS, (row % CHUNK_ROWS * shape.row_bytes + 2 * component) // 64)
            for row in range(n_rows)
            for component in chosen
        }
        head.score_and_select(*SCORE_AND_SELECT_ROWS, queries, len(head.chunks))
        assert head.record["bytes_read"] == 64 * len(lines) + bytes_of_moments(head)


@pytest.mark.parametrize("n_bytes", [0, 20_000, 100_000, 10_000_000])
def test_lines_that_hold_no_component_leave_room_for_rows(n_bytes):
    rng, shape = np.random.default_rng(29), Shape(256, 1)
    options = {"n_rows": 3, "n_components": 2, "n_recent": 1, "n_bytes": n_bytes, "reallocates": 1}
    head = random_head(rng, shape, 0, 300, method=ONE_COPY, **options)
    rows = head.rows(head.score_and_select(*SCORE_AND_SELECT_ROWS, queries_of(rng, shape), len(head.chunks)))
    n_lookup = int(head.record["bytes_read"][0])
    assert len(rows) == min(max((n_bytes - n_lookup) // (2 * shape.row_bytes), 3), 300)


# Selection.


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("softcap", [0.0, 1.0])
def test_the_best_rows_of_the_group_are_selected(shape, softcap):
    rng = np.random.default_rng(8)
    n_components = shape.head_dim // 4
    head = random_head(rng, shape, 0, 1000, method=sparq, softcap=softcap, n_components=n_components, n_recent=3)
    queries = queries_of(rng, shape, spread=1 / np.sqrt(shape.head_dim))
    importance = oracle.shares(oracle.capped(partial_scores(head, queries[0], n_components), softcap))
    importance = with_newest(importance, 3)
    for n_selected in (3, 4, 20, 500):
        assert_largest(select(head, queries, n_selected), importance, n_selected)
        np.testing.assert_allclose(head.scratch.floats(1000), importance, rtol=1e-4)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if not shape.values[0].rotated])  # none is there
@pytest.mark.parametrize("n_rows", [1, 2, 30, 255, 256, 300, 8 * CHUNK_ROWS, 9 * CHUNK_ROWS + 5])
def test_components_that_are_the_same_in_all_keys_choose_nothing(shape, n_rows):
    """However large they are in the query: what is selected is what attention is given to, by all components."""
    rng = np.random.default_rng(24)
    head, queries = head_with_constant_components(rng, shape, n_rows, n_recent=1)
    importance = oracle.shares(queries[0].astype(np.float64) @ as_copied(shape, head.keys).T)
    importance = with_newest(importance, 1)
    for n_selected in (1, 4, 20, 200):
        assert_largest(select(head, queries, n_selected), importance, n_selected)
    if n_rows > 200:
        n_components, by_the_paper = shape.head_dim // 4, queries[0] * np.sqrt(shape.head_dim)
        rows = papers.sparq(by_the_paper, head.keys, head.keys, n_components, 20, 1, False)[0]
        assert rows.tolist() != select(head, queries, 20)


@settings(max_examples=100, deadline=None)
@given(
    shape=st.sampled_from([SHAPE, QUANTISED, ONE_HEAD]),
    n_rows=st.integers(1, 1200),
    n_recent=st.integers(1, 40),
    n_more=st.integers(0, 700),
    n_components=st.integers(1, 64),
    spread=st.sampled_from([0.0, 0.1, 1.0, 100.0]),
    softcap=st.sampled_from([0.0, 3.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_rows_of_any_head(shape, n_rows, n_recent, n_more, n_components, spread, softcap, seed):
    rng = np.random.default_rng(seed)
    head = random_head(
        rng, shape, 0, n_rows, method=sparq, softcap=softcap, n_components=n_components, n_recent=n_recent
    )
    queries, n_selected = queries_of(rng, shape, spread=spread), n_recent + n_more
    chosen = select(head, queries, n_selected)
    assert len(chosen) == min(n_selected, n_rows)
    newest = list(range(max(0, n_rows - n_recent), n_rows))
    assert chosen[-len(newest) :] == newest, "the newest rows are always selected"
    of_scores = bytes_of_scores(shape, n_rows, n_components) + bytes_of_moments(head)
    assert head.record["bytes_read"] == (of_scores if n_selected < n_rows else 0)
    if spread in (0.1, 1.0):
        importance = oracle.shares(oracle.capped(partial_scores(head, queries[0], n_components), softcap))
        assert_largest(chosen, with_newest(importance, len(newest)), n_selected)


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("n_rows", [1, 2, 33, 255, 256, 257, 512, 1300])
def test_all_rows_are_selected(shape, n_rows):
    rng = np.random.default_rng(9)
    head = random_head(rng, shape, 0, n_rows, method=sparq, n_components=9)
    for n_selected in (n_rows, n_rows + 1, 10 * n_rows):
        assert select(head, queries_of(rng, shape), n_selected) == list(range(n_rows))


def test_the_newest_rows_are_selected_even_where_fewer_are_asked_for():
    rng = np.random.default_rng(16)
    head = random_head(rng, SHAPE, 0, 30, method=sparq, n_recent=15)
    assert select(head, queries_of(rng, SHAPE), 4) == list(range(15, 30))


@pytest.mark.parametrize("shape", EACH)
def test_what_fills_up_a_chunk_takes_no_rows_place(shape):
    """Not even where most rows get a share of 0, as it does."""
    rng = np.random.default_rng(15)
    head = random_head(rng, shape, 0, 600, method=sparq, n_components=9, n_recent=1)
    queries = queries_of(rng, shape, spread=100)
    for n_selected in range(1, 600, 17):
        assert len(select(head, queries, n_selected)) == n_selected


@pytest.mark.parametrize("n_rows", [1, 255, 256, 257, 600, 1200])
@pytest.mark.parametrize("n_recent", [0, 1, 5, 9])
def test_lists_name_rows_of_several_chunks(n_rows, n_recent):
    """Rows that score high lie on both sides of every border."""
    borders = {*range(0, n_rows, CHUNK_ROWS), n_rows}
    high = sorted({row for border in borders for row in (border - 1, border) if 0 <= row < n_rows})
    query, keys = rows_with_scores(np.isin(np.arange(n_rows), high) * 10, 72)
    head = Head(ONE_HEAD, method=sparq, keys=keys, n_components=1, n_recent=n_recent)
    newest = set(range(max(0, n_rows - n_recent), n_rows))
    expected = sorted(newest | set(high))
    assert select(head, query[None, None], len(expected)) == expected


def test_recent_rows_go_on_into_the_chunk_before():
    rng = np.random.default_rng(10)
    head = random_head(rng, SHAPE, 0, 260, method=sparq, n_components=9, n_recent=10)
    assert select(head, queries_of(rng, SHAPE), 10) == list(range(250, 260))
    head.set(n_recent=1000)
    assert select(head, queries_of(rng, SHAPE), 1000) == list(range(260))


def test_nothing_is_selected_of_nothing():
    rng = np.random.default_rng(11)
    assert select(random_head(rng, SHAPE, 0, 34, method=sparq, n_components=9), queries_of(rng, SHAPE), 0) == []


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([-10000, 10000, -10000, -10000], [1]),
        ([-10000, -10000, -9992, -10000], [2]),
        ([10000] * 4, [0]),
        ([-10000] * 4, [0]),
    ],
    ids=str,
)
def test_hostile_scores_select_the_best_row(scores, best):
    query, keys = rows_with_scores(scores, 72)
    head = Head(ONE_HEAD, method=sparq, keys=keys, n_components=1, n_recent=1)
    assert select(head, query[None, None], 2) == [*best, 3]


@pytest.mark.parametrize("n_tokens", [2, 300])
def test_a_batch_attends_everything(n_tokens):
    rng = np.random.default_rng(12)
    head = random_head(rng, SHAPE, 0, 700, method=sparq, n_rows=1)
    queries = queries_of(rng, SHAPE, n_tokens)
    spans = head.select(select_rows, queries, 5)
    np.testing.assert_array_equal(spans, head.select(select_all, queries, 5))
    assert head.rows(spans) == list(range(700))


@pytest.mark.parametrize("shape", EACH)
def test_a_query_of_nan_attends_everything(shape):
    """Where the NaN shows."""
    rng = np.random.default_rng(13)
    head = random_head(rng, shape, 0, 400, method=sparq, n_components=9, n_recent=2, n_rows=5)
    queries = queries_of(rng, shape)
    queries[0, 1, 5] = np.nan
    assert head.rows(head.score_and_select(score_rows, select_rows, queries, 3)) == list(range(400))


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("row", [50, 300])
def test_a_key_of_nan_attends_everything(shape, row):
    """Where the NaN shows: its row is not passed over."""
    rng = np.random.default_rng(14)
    keys = normal(rng, 400, 64)
    keys[row] = np.nan
    head = Head(shape, method=sparq, keys=keys, n_components=9, n_recent=2, n_rows=5)
    spans = head.score_and_select(score_rows, select_rows, queries_of(rng, shape), 3)
    assert head.rows(spans) == list(range(400))


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("n_components", [1, 64])
@pytest.mark.parametrize("weight", [0.0, 0.1])
@pytest.mark.parametrize("n_rows", [60, 400])
def test_one_component_of_one_key_that_is_not_finite_attends_everything(bad, n_components, weight, n_rows):
    """In a chunk whose spread is measured, however small that component of the query is."""
    rng = np.random.default_rng(25)
    keys, queries = normal(rng, n_rows, 64), queries_of(rng, SHAPE)
    keys[50, 30], queries[..., 30] = bad, weight
    head = Head(SHAPE, method=sparq, keys=keys, n_components=n_components, n_recent=2, n_rows=5)
    spans = head.score_and_select(score_rows, select_rows, queries, 3)
    assert head.rows(spans) == list(range(n_rows))
