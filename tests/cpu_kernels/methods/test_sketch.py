"""Sketches: codes are those of the nearest centroids, and the output is what exact and estimated rows give together."""

import numpy as np
import pytest
from helpers import oracle
from helpers.kernel_heads import Head, queries_of, random_head
from helpers.kernel_inputs import EACH, QUANTISED, SHAPE, UNLIKE, shapes
from helpers.sketched_heads import (
    SKETCH,
    attended,
    before_the_newest,
    coded_head,
    codes_of_block,
    field,
    scores_of,
    tend,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.layout.scores import rest_of
from octavo.cpu_kernels.methods import sketch
from octavo.cpu_kernels.methods.sketch import BY_QUALITY, FEWEST, SINKS
from octavo.cpu_kernels.numba_support.shape import F16, Q4_0, Q8_0
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS
from octavo.cpu_kernels.select.product_quantisation import BLOCK_ROWS, CODES, HALF_BLOCK
from octavo.cpu_kernels.select.tail_codes import BLOCKS, ERROR_SAMPLE, RECENT, TRAINED

pytestmark = pytest.mark.sampled

FEW = [(64, 3, F16), (72, 1, F16), (8, 16, Q8_0), (64, 3, Q8_0)]
SHAPES, WITH_Q4_0 = (shapes(few, groups=(1, 2, 4, 8, 16)) for few in (FEW, [*FEW, (64, 2, Q4_0)]))


def stored_codes(head, n_blocks):
    """Codes of all rows that have some, (n_rows, n_codes + 1), and the mean keys of their blocks."""
    n_codes, head_dim = int(head.state["n_codes"][0]), head.shape.head_dim
    numbers, means = [], []
    for block in range(n_blocks):
        chunk, within = head.chunks[block // BLOCKS], block % BLOCKS
        means.append(chunk.view(np.float16, BLOCKS, head_dim, at=head._extras_offset)[within].astype(np.float32))
        first = head._extras_offset + BLOCKS * 2 * head_dim + within * (n_codes + 1) * HALF_BLOCK
        size = (n_codes + 1) * HALF_BLOCK
        numbers.append(codes_of_block(chunk.bytes[first : first + size], n_codes + 1))
    return np.concatenate(numbers), np.repeat(means, BLOCK_ROWS, axis=0)


def decoded(head):
    """Keys and values as their codes have them; checks that each code is that of the nearest centroid."""
    n_codes, head_dim = int(head.state["n_codes"][0]), head.shape.head_dim
    size = head_dim // n_codes
    numbers, means = stored_codes(head, int(head.state["n_coded"][0]))
    codebooks, weights = field(head, "codebooks", n_codes, size, CODES), field(head, "weights", n_codes, size)
    order, values = field(head, "order", head_dim), field(head, "values", head.shape.value_dim, CODES)
    assert (np.sort(order) == np.arange(head_dim)).all()
    n, keys = len(numbers), means.copy()
    rest = (head.keys[:n] - means)[:, order].reshape(n, n_codes, size)
    for part in range(n_codes):
        assert_nearest(numbers[:, part], rest[:, part], codebooks[part].T, weights[part])
        keys[:, order[part * size : (part + 1) * size]] += codebooks[part].T[numbers[:, part]]
    assert_nearest(numbers[:, n_codes], head.values[:n], values.T, np.ones(head.shape.value_dim))
    return keys, values.T[numbers[:, n_codes]]


def assert_nearest(numbers, points, centroids, weights):
    distances = (weights * (points[:, None].astype(np.float64) - centroids) ** 2).sum(axis=2)
    chosen = np.take_along_axis(distances, numbers[:, None], axis=1)[:, 0]
    assert (chosen <= distances.min(axis=1) * (1 + 1e-4) + 1e-9).all()


def assert_largest_but_for_a_bin(chosen, shares):
    """Of numbers within an eighth of each other, any may be chosen."""
    others = np.setdiff1d(np.arange(len(shares)), chosen)
    assert shares[others].max(initial=0) <= 1.126 * shares[chosen].min(initial=np.inf) + 1e-6


def raised(head, query):
    """By how much scores are above those of codes: half of the variance of their errors, (group, 1)."""
    errors = field(head, "errors", head.shape.head_dim)
    return 0.5 * (query[0].astype(np.float64) ** 2 @ errors)[:, None]


# Codes.


@pytest.mark.parametrize("shape", WITH_Q4_0)
def test_codes_are_those_of_the_nearest_centroids(shape):
    head = coded_head(np.random.default_rng(0), shape)
    keys, values = decoded(head)
    n = len(keys)
    assert n == (head.n_tail - 1 - RECENT) // BLOCK_ROWS * BLOCK_ROWS
    means = head.keys[:n].reshape(-1, BLOCK_ROWS, shape.head_dim).mean(axis=1).repeat(BLOCK_ROWS, axis=0)
    assert ((keys - head.keys[:n]) ** 2).mean() < 0.8 * ((means - head.keys[:n]) ** 2).mean(), "codes say something"
    assert ((values - head.values[:n]) ** 2).mean() < ((head.values[:n].mean(axis=0) - head.values[:n]) ** 2).mean()


def test_columns_where_the_mean_is_large_count_more():
    rng = np.random.default_rng(1)
    keys = rng.standard_normal((TRAINED + RECENT, 64)).astype(np.float32)
    keys[:, 10] += 8
    head = Head(SHAPE, keys, keys, method=SKETCH, n_codes=16)
    tend(head, 0)
    weights = np.zeros(64)
    weights[field(head, "order", 64)] = field(head, "weights", 64)
    assert weights.argmax() == 10
    assert weights[10] > 5 * np.delete(weights, 10).max()
    error = ((decoded(head)[0] - head.keys[:TRAINED]) ** 2).mean(axis=0)
    assert error[10] < 0.5 * np.delete(error, 10).mean()


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(0, 1200), st.integers(1, 500)), min_size=1, max_size=6))
def test_codes_follow_from_the_rows_alone(steps):
    """Each of `steps` cuts to so many rows, if there are as many, and appends some."""
    head = random_head(np.random.default_rng(2), SHAPE, 0, 1300, method=SKETCH, n_codes=16)
    n_rows = 0
    for cut, n_new in steps:
        n_rows = min(n_rows, cut)
        head.set(n_tail=n_rows)
        tend(head, 0)
        n_new = min(n_new, 1300 - n_rows)
        n_rows += n_new
        head.set(n_tail=n_rows)
        tend(head, n_new)
    fresh = random_head(np.random.default_rng(2), SHAPE, 0, 1300, method=SKETCH, n_codes=16)
    fresh.set(n_tail=n_rows)
    tend(fresh, n_rows)
    n_blocks = int(fresh.state["n_coded"][0])
    assert n_blocks == (max(n_rows - RECENT, 0) // BLOCK_ROWS if n_rows >= TRAINED + RECENT else 0)
    assert head.state["n_coded"][0] == n_blocks
    if n_blocks:
        for name in ("order", "weights", "codebooks", "values"):
            assert (head.state[name] == fresh.state[name]).all()
        for mine, others in zip(stored_codes(head, n_blocks), stored_codes(fresh, n_blocks), strict=True):
            assert (mine == others).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_errors_are_those_of_the_codes(shape):
    head = coded_head(np.random.default_rng(13), shape, TRAINED + RECENT + 1)
    missed = head.keys[:TRAINED] - decoded(head)[0]
    measured = field(head, "errors", shape.head_dim)
    step = TRAINED // ERROR_SAMPLE
    np.testing.assert_allclose(measured, (missed[::step] ** 2).mean(axis=0), rtol=1e-3, atol=1e-5)


# Selection and estimate.


@pytest.mark.parametrize("shape", SHAPES + UNLIKE)
@pytest.mark.parametrize("n_parts", [1, 3])
def test_the_output_is_what_exact_and_estimated_rows_give(shape, n_parts):
    rng = np.random.default_rng(3)
    head = coded_head(rng, shape)
    query = queries_of(rng, shape)
    rows, scores, output = attended(head, query, n_parts)
    keys, values = decoded(head)
    n = len(keys)
    chosen = rows[rows < n]
    assert (rows[len(chosen) :] == np.arange(n, head.n_tail)).all(), "all rows without codes are attended"
    assert set(range(SINKS)) <= set(chosen)
    shares = oracle.shares(scores)[:n]
    shares[:SINKS] = np.inf
    assert 100 - len(head.chunks) < len(chosen) <= 100
    assert_largest_but_for_a_bin(chosen, shares)
    products = query[0].astype(np.float64) @ keys.T.astype(np.float64)
    scores = scores - raised(head, query)
    spread = np.abs(products - products.mean(axis=1, keepdims=True)).max()
    assert np.abs(scores[:, SINKS:n] - products[:, SINKS:]).max() < 0.05 * spread
    mixed = scores.copy()
    mixed[:, rows] = query[0].astype(np.float64) @ head.keys[rows].T.astype(np.float64)
    all_values = head.values.copy()
    rest = np.delete(np.arange(n), chosen)
    all_values[rest] = values[rest]
    weights = np.exp(mixed - mixed.max(axis=1, keepdims=True))
    expected = weights / weights.sum(axis=1, keepdims=True) @ all_values
    np.testing.assert_allclose(output, expected, atol=2e-4 * np.abs(expected).max())


def test_the_estimate_is_nearer_to_dense_than_dropping():
    rng = np.random.default_rng(4)
    head, with_rest, without = coded_head(rng, SHAPE), [], []
    for _ in range(10):
        query = queries_of(rng, SHAPE)
        rows, _, output = attended(head, query)
        dense = oracle.attention(query[0], head.keys, head.values)
        dropped = oracle.attention(query[0], head.keys[rows], head.values[rows])
        with_rest.append(np.abs(output - dense).mean())
        without.append(np.abs(dropped - dense).mean())
    assert np.mean(with_rest) < 0.75 * np.mean(without)


@pytest.mark.parametrize("n_rows", [TRAINED + RECENT - 1, TRAINED + RECENT])
def test_everything_is_attended_until_codebooks_are_found(n_rows):
    rng = np.random.default_rng(5)
    head = coded_head(rng, SHAPE, n_rows)
    rows, _, _ = attended(head, queries_of(rng, SHAPE))
    assert (rows == np.arange(n_rows)).all(), "a step sees the codes of those before it only"


@pytest.mark.parametrize("shape", EACH)
def test_with_a_budget_for_all_rows_nothing_is_looked_up(shape):
    rng = np.random.default_rng(6)
    head = coded_head(rng, shape, n_exact=10**6)
    query = queries_of(rng, shape)
    rows, _, output = attended(head, query)
    assert (rows == np.arange(head.n_tail)).all()
    assert head.record["bytes_read"][0] == 0
    np.testing.assert_allclose(output, oracle.attention(query[0], head.keys, head.values), atol=1e-5)


def test_a_batch_attends_to_everything():
    rng = np.random.default_rng(7)
    head = coded_head(rng, SHAPE)
    assert head.rows(head.select(sketch.HOOKS.select, queries_of(rng, SHAPE, 2), 40)) == list(range(head.n_tail))


@pytest.mark.parametrize("row", [0, 700, TRAINED + 60])
def test_a_nan_reaches_the_output(row):
    rng = np.random.default_rng(8)
    keys = rng.standard_normal((TRAINED + 3 * CHUNK_ROWS, 64)).astype(np.float32)
    keys[row, 5] = np.nan
    head = before_the_newest(Head(SHAPE, keys, keys, method=SKETCH, n_codes=16, n_rows=50))
    rows, _, output = attended(head, queries_of(rng, SHAPE))
    assert (rows == np.arange(head.n_tail)).all()
    assert np.isnan(output).all()


def test_what_is_read_is_counted():
    head = coded_head(np.random.default_rng(9), QUANTISED)
    attended(head, queries_of(np.random.default_rng(9), QUANTISED))
    n_blocks = int(head.state["n_coded"][0])
    expected = n_blocks * (BLOCK_ROWS * 17 / 2 + 2 * 64) + 2 * 4 * CODES * 64
    assert head.record["bytes_read"][0] == expected


@pytest.mark.parametrize("quality", [0, 0.9])
@pytest.mark.parametrize("n_parts", [2, 5, 16])
def test_what_is_scored_and_attended_does_not_depend_on_the_number_of_threads(n_parts, quality):
    head, query = sharp(np.random.default_rng(14), SHAPE)
    head.set(n_rows=BY_QUALITY if quality else 200, quality=quality)
    one, several = attended(head, query), attended(head, query, n_parts)
    assert (several[0] == one[0]).all()
    assert (several[1] == one[1]).all()
    np.testing.assert_allclose(several[2], one[2], rtol=1e-4, atol=1e-6)


def test_scores_are_capped():
    head, query = coded_head(np.random.default_rng(15), SHAPE), queries_of(np.random.default_rng(15), SHAPE)
    scores = scores_of(head, query, 1)
    head.set(softcap=2.0)
    np.testing.assert_allclose(scores_of(head, query, 1), oracle.capped(scores, 2.0), atol=1e-4)


def test_what_is_left_to_the_estimate_is_told():
    """The sum of weights of rows that are not attended exactly, and how far scores are raised: see `rest_of`."""
    head, query = coded_head(np.random.default_rng(16), SHAPE), queries_of(np.random.default_rng(16), SHAPE, 1, 0.1)
    rows, scores, _ = attended(head, query)
    largest, weights, above = rest_of(SHAPE, head.record[0])
    expected = np.exp(np.delete(scores, rows, axis=1) - scores.max(axis=1, keepdims=True)).sum(axis=1)
    np.testing.assert_allclose(weights, expected, rtol=1e-3)
    np.testing.assert_allclose(above, raised(head, query)[:, 0], rtol=1e-5)
    np.testing.assert_allclose(largest, scores.max(axis=1) - above, rtol=1e-5)


# Quality.


def sharp(rng, shape):
    """A head, and a query that few rows answer."""
    head = coded_head(rng, shape, 3000)
    head.set(n_rows=BY_QUALITY, n_most=head.n_tail)
    return head, queries_of(rng, shape, 1, 0.35)


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("quality", [0.5, 0.9, 0.99])
def test_a_quality_is_covered_by_as_few_rows_as_do(shape, quality):
    """Of shares as codes have them, and exact ones for the rows that are attended in any case."""
    head, query = sharp(np.random.default_rng(10), shape)
    head.set(quality=quality)
    rows, scores, _ = attended(head, query)
    end = int(head.state["n_coded"][0]) * BLOCK_ROWS
    shares = oracle.shares(scores) / shape.group
    chosen = rows[(rows >= SINKS) & (rows < end)]
    assert_largest_but_for_a_bin(chosen, shares[:end] * (np.arange(end) >= SINKS))
    least = np.sort(shares[chosen])[: len(head.chunks)]  # each chunk may list one more, of the same eighth
    assert shares[rows].sum() >= quality - 1.126 * least.sum() - 1e-5
    assert shares[rows].sum() - least.sum() < quality or len(chosen) + SINKS - len(head.chunks) <= end // FEWEST
    if quality == 0.99:
        assert len(chosen) + SINKS > end // FEWEST, "more than the fewest"


@pytest.mark.parametrize("n_most", [200, 40, 1])
def test_a_quality_reads_no_more_than_the_most(n_most):
    """And those of most attention, however few the most allows."""
    head, query = sharp(np.random.default_rng(13), SHAPE)
    head.set(quality=0.99)
    whole, scores, _ = attended(head, query)
    head.set(n_most=n_most)
    rows, _, _ = attended(head, query)
    end = int(head.state["n_coded"][0]) * BLOCK_ROWS
    most = max(n_most, SINKS)
    assert max(most - len(head.chunks), SINKS) <= (rows < end).sum() <= most < (whole < end).sum()
    shares, chosen = oracle.shares(scores)[:end], rows[(rows >= SINKS) & (rows < end)]
    shares[:SINKS] = 0
    assert_largest_but_for_a_bin(chosen, shares)


@pytest.mark.parametrize("n_rows", [100, BY_QUALITY])
def test_scores_of_what_is_attended_in_any_case_are_exact(n_rows):
    head, query = sharp(np.random.default_rng(11), SHAPE)
    head.set(n_rows=n_rows)
    scores = scores_of(head, query, 3)
    end = int(head.state["n_coded"][0]) * BLOCK_ROWS
    exact = np.r_[:SINKS, end : head.n_tail]
    expected = query[0].astype(np.float64) @ head.keys[exact].T.astype(np.float64)
    np.testing.assert_allclose(scores[:, exact], expected, rtol=1e-4, atol=1e-4)


def test_a_quality_of_1_reads_everything():
    head, query = sharp(np.random.default_rng(12), SHAPE)
    head.set(quality=1.0)
    rows, _, output = attended(head, query)
    assert len(rows) >= head.n_tail - 2, "but for the last digits of a sum"
    np.testing.assert_allclose(output, oracle.attention(query[0], head.keys, head.values), atol=1e-4)
