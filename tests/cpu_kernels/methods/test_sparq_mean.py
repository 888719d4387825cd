"""The mean value: what SparQ reallocates of the rows that are left out, and its whole output."""

import numpy as np
import pytest
from helpers import oracle, papers
from helpers.attention_cases import attend_spans
from helpers.kernel_heads import (
    Head,
    partial_scores,
    queries_of,
    random_head,
)
from helpers.kernel_inputs import (
    EACH,
    SAME,
    SHAPE,
    Room,
    address,
    normal,
    relative_error,
    shapes,
)
from helpers.sparq_heads import bytes_of_moments, bytes_of_scores, select, spread_of

from octavo.cpu_kernels.methods import sparq
from octavo.cpu_kernels.methods.sparq import reallocate, score_rows, select_rows
from octavo.cpu_kernels.numba_support.shape import F16, Q8_0, Shape

SHAPES = shapes([(64, 3, F16), (72, 1, F16), (8, 16, Q8_0), (64, 3, Q8_0)], groups=(1, 2, 4, 8, 16))
ONE_HEAD = Shape(72, 1)


def left_to_the_mean(head, queries, n_selected):
    """The rows that are selected, and what the mean value gets: each query head's share of them, and the mean."""
    group, head_dim = head.shape.group, head.shape.head_dim
    head.set(reallocates=True)
    rows = select(head, queries, n_selected)
    left = head.scratch.floats(group + head_dim).copy()
    return rows, left[:group], left[group:]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_rows", [2, 255, 256, 257, 700])
@pytest.mark.parametrize("softcap", [0.0, 1.0])
def test_rows_that_are_left_out_leave_their_scores_to_the_mean(shape, n_rows, softcap):
    rng = np.random.default_rng(18)
    head = random_head(
        rng, shape, 0, n_rows, method=sparq, n_components=shape.head_dim // 4, n_recent=3, softcap=softcap
    )
    queries = queries_of(rng, shape, spread=1 / np.sqrt(shape.head_dim))
    for n_selected in (1, 30, n_rows - 1):
        if not 0 < n_selected < n_rows:
            continue
        head.set(bytes_read=0)
        rows, kept, mean = left_to_the_mean(head, queries, n_selected)
        scores = oracle.capped(partial_scores(head, queries[0], shape.head_dim // 4), softcap)
        np.testing.assert_allclose(kept, papers.softmax(scores)[:, rows].sum(axis=1), rtol=1e-4)
        np.testing.assert_allclose(mean, head.values.mean(axis=0), rtol=1e-4, atol=1e-5)
        of_sums = len(head.chunks) * shape.head_dim * 4
        of_scores = bytes_of_scores(shape, n_rows, shape.head_dim // 4) + bytes_of_moments(head)
        assert head.record["bytes_read"] == of_scores + of_sums


@pytest.mark.parametrize(("weight", "n_selected"), [(np.nan, 5), (1.0, 300)], ids=["a NaN", "a budget of 1"])
def test_where_everything_is_attended_nothing_is_left(weight, n_selected):
    rng = np.random.default_rng(19)
    options = {"n_components": 9, "n_recent": 2, "n_rows": n_selected, "reallocates": True}
    head = random_head(rng, SHAPE, 0, 300, method=sparq, **options)
    queries = queries_of(rng, SHAPE)
    queries[0, 1, 5] = weight
    head.score_and_select(score_rows, select_rows, queries, 4)
    assert head.scratch.floats(3).tolist() == [1, 1, 1]
    before = normal(rng, 3, 64)
    out = Room(filled=before)
    reallocate(SHAPE, head.address, out.address, 64 * 4)
    assert (out.floats(3, 64) == before).all(), "the mean is not there, and not used"


@pytest.mark.parametrize("shape", EACH)
def test_a_value_of_nan_shows_in_the_mean(shape):
    rng = np.random.default_rng(20)
    values = normal(rng, 300, 64)
    values[40, 7] = np.nan
    head = Head(shape, method=sparq, keys=normal(rng, 300, 64), values=values, n_components=9, n_recent=2)
    mean = left_to_the_mean(head, queries_of(rng, shape), 5)[2]
    assert (np.isnan(mean) == np.isnan(head.values[40])).all()


@pytest.mark.parametrize("shape", [ONE_HEAD, SHAPE, Shape(64, 4), Shape(72, 8)], ids=str)
@pytest.mark.parametrize("reallocates", [False, True])
@pytest.mark.parametrize("n_rows", [30, 256, 600])
def test_output_is_that_of_algorithm_1(shape, reallocates, n_rows):
    rng, n_components, n_selected = np.random.default_rng(21), shape.head_dim // 4, 24
    head = random_head(rng, shape, 0, n_rows, method=sparq, n_components=n_components, n_recent=6)
    queries = queries_of(rng, shape, spread=1 / shape.head_dim)
    head.set(n_rows=n_selected, reallocates=reallocates)
    spans = head.score_and_select(score_rows, select_rows, queries, len(head.chunks))
    rows = head.rows(spans)
    out = attend_spans(shape, queries, spans, n_rows - 1)[0]
    reallocate(shape, head.address, address(out), shape.head_dim * 4)
    query = queries[0].astype(np.float64) * np.sqrt(shape.head_dim)
    expected = papers.sparq(
        query, head.keys, head.values, n_components, n_selected, 6, reallocates, *2 * [spread_of(head)]
    )
    assert rows == expected[0].tolist()
    assert relative_error(out, expected[1]) < 5 * SAME
