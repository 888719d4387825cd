"""Sketches of a document with leaves: the best leaves are looked up, the others are estimated by their means."""

import numpy as np
import pytest
from helpers import oracle
from helpers.estimates import estimated, merged
from helpers.kernel_heads import queries_of, random_head
from helpers.kernel_inputs import EACH, QUANTISED, SHAPE, shapes
from helpers.sketched_heads import COLUMNS, SKETCH, before_the_newest, field, tend

from octavo.cpu_kernels.attend.head import CHUNK_ROWS
from octavo.cpu_kernels.methods import sketch
from octavo.cpu_kernels.methods.sketch import BY_QUALITY, SINKS
from octavo.cpu_kernels.numba_support.compile import F16, LANES, Q8_0
from octavo.cpu_kernels.select import leaves
from octavo.cpu_kernels.select.product_quantisation import BLOCK_ROWS, CODES
from octavo.cpu_kernels.select.scores import rest_of
from octavo.cpu_kernels.select.tail_codes import BLOCKS, RECENT, ready_blocks

SHAPES = shapes([(64, 3, F16), (64, 3, Q8_0)], groups=(1, 2, 4, 8, 16))
N_ROWS, N_LEAVES, N_LOOKED_UP = 2700, 32, 12

#: Spread of queries by which all leaves get attention, also those that are not looked up.
FLAT = 0.15


def head_with_leaves(rng, shape, n_looked_up=N_LOOKED_UP, n_rows=N_ROWS, **fields):
    """A head whose blocks from chunk 1 on are leaves, N_LEAVES of them, in a step of one token."""
    n_chunks = -(-n_rows // CHUNK_ROWS)
    head = random_head(
        rng,
        shape,
        0,
        n_rows,
        n_items=n_chunks * (CHUNK_ROWS + BLOCKS) + LANES,
        method=SKETCH,
        n_codes=shape.head_dim // COLUMNS,
        first_trained=ready_blocks(n_rows - 1) * BLOCK_ROWS,
        n_leaves=N_LEAVES,
        n_looked_up=n_looked_up,
        **{"n_rows": 100, **fields},
    )
    return before_the_newest(head)


def leaf_rows(leaf_numbers):
    """The rows of some leaves, (len(leaf_numbers), BLOCK_ROWS)."""
    return CHUNK_ROWS + np.asarray(leaf_numbers)[:, None] * BLOCK_ROWS + np.arange(BLOCK_ROWS)


def step(head, query, n_parts=1):
    """The rows that are attended exactly, the leaves that are looked up, and the output: (group, head_dim)."""
    head.score(sketch.score_codes, query, n_parts)
    rows = np.array(head.rows(head.select(sketch.select_coded, query, 60)))
    chosen = leaves.looked_up(head.shape, head.record[0], head.state[0]).copy()
    exact = np.zeros((head.shape.group, len(head.keys)), bool)
    exact[:, rows] = True
    return rows, chosen, merged(head, query[0], exact, estimated(head, sketch.estimate_rest, n_parts))


def means(head):
    """Mean keys and mean values of the leaves, (N_LEAVES, head_dim), and the variance of columns within leaves."""
    own = leaf_rows(np.arange(N_LEAVES))
    keys, values = head.keys[own].astype(np.float64), head.values[own].astype(np.float64)
    return keys.mean(axis=1), values.mean(axis=1), field(head, "spread", head.shape.head_dim).astype(np.float64)


def expected_weights(head, query, factor):
    """Logarithms of what each leaf weighs by its mean key: factor is that of the variance, (group, N_LEAVES)."""
    mean_keys, _, spread = means(head)
    query = query[0].astype(np.float64)
    return query @ mean_keys.T + np.log(BLOCK_ROWS * (1 + factor * (query**2 @ spread)))[:, None]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_spread_is_the_variance_within_leaves(shape):
    head = head_with_leaves(np.random.default_rng(0), shape)
    own = head.keys[leaf_rows(np.arange(N_LEAVES))].astype(np.float64)
    sampled = ((own - own.mean(axis=1, keepdims=True)) ** 2)[:, ::2].mean(axis=(0, 1))
    np.testing.assert_allclose(means(head)[2], sampled, rtol=0.02, atol=1e-3)


@pytest.mark.parametrize("shape", SHAPES)
def test_leaves_of_most_attention_are_looked_up(shape):
    rng = np.random.default_rng(1)
    head = head_with_leaves(rng, shape)
    query = queries_of(rng, shape, 1, FLAT)
    rows, chosen, _ = step(head, query)
    end = CHUNK_ROWS + N_LEAVES * BLOCK_ROWS
    others = np.r_[:CHUNK_ROWS, end : head.n_tail]
    scores = np.hstack([expected_weights(head, query, 0.5), query[0].astype(np.float64) @ head.keys[others].T])
    importance = oracle.shares(scores)[:N_LEAVES]
    left_out = np.setdiff1d(np.arange(N_LEAVES), chosen)
    assert len(set(chosen)) == N_LOOKED_UP
    assert (np.diff(chosen) > 0).all()
    assert importance[chosen].min() >= importance[left_out].max() * 0.97
    assert not set(rows) & set(leaf_rows(left_out).ravel()), "no row of the others is attended"
    assert set(rows) & set(leaf_rows(chosen).ravel())
    assert set(range(SINKS)) | set(range(head.n_tail - RECENT, head.n_tail)) <= set(rows)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_parts", [1, 3])
def test_other_leaves_are_estimated_by_their_means(shape, n_parts):
    """With all candidates attended exactly, the output is that of exact rows and of means alone."""
    rng = np.random.default_rng(2)
    head = head_with_leaves(rng, shape)
    n_candidates = head.n_tail - (N_LEAVES - N_LOOKED_UP) * BLOCK_ROWS
    head.set(n_rows=n_candidates - 64)
    query = queries_of(rng, shape, 1, FLAT)
    rows, chosen, output = step(head, query, n_parts)
    left_out = np.setdiff1d(np.arange(N_LEAVES), chosen)
    candidates = np.setdiff1d(np.arange(head.n_tail), leaf_rows(left_out))
    assert set(rows) <= set(candidates)
    assert len(rows) > 0.95 * len(candidates)
    products = query[0].astype(np.float64) @ head.keys[candidates].T.astype(np.float64)
    scores = np.hstack([products, expected_weights(head, query, 0.25)[:, left_out]])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    values = np.vstack([head.values[candidates], means(head)[1][left_out]])
    wanted = weights / weights.sum(axis=1, keepdims=True) @ values
    np.testing.assert_allclose(output, wanted, atol=0.03 * np.abs(wanted).max())
    total, own = weights.sum(axis=1), weights[:, len(candidates) :].sum(axis=1)
    assert (own > 0.05 * total).all(), "leaves that are left out matter here"


@pytest.mark.parametrize("shape", EACH)
def test_how_far_the_estimate_is_below_what_is_expected_is_told(shape):
    """Of leaves that are not looked up: 1 + v / 2 above 1 + v / 4 (see `rest_of`)."""
    rng = np.random.default_rng(3)
    head = head_with_leaves(rng, shape)
    head.set(n_rows=head.n_tail - (N_LEAVES - N_LOOKED_UP) * BLOCK_ROWS - 64)
    query = queries_of(rng, shape, 1, FLAT)
    _, chosen, _ = step(head, query)
    left_out = np.setdiff1d(np.arange(N_LEAVES), chosen)
    largest, total, above = rest_of(shape, head.record[0]).astype(np.float64)
    half, quarter = (np.exp(expected_weights(head, query, factor)[:, left_out]).sum(axis=1) for factor in (0.5, 0.25))
    np.testing.assert_allclose(np.exp(largest) * total, quarter, rtol=0.05)
    np.testing.assert_allclose(above, np.log(half / quarter), rtol=0.1, atol=0.01)


@pytest.mark.parametrize("shape", EACH)
def test_the_estimate_is_nearer_to_dense_than_dropping(shape):
    rng = np.random.default_rng(4)
    head, with_rest, without = head_with_leaves(rng, shape), [], []
    for _ in range(10):
        query = queries_of(rng, shape, 1, FLAT)
        rows, _, output = step(head, query)
        dense = oracle.attention(query[0], head.keys, head.values)
        with_rest.append(np.abs(output - dense).mean())
        without.append(np.abs(oracle.attention(query[0], head.keys[rows], head.values[rows]) - dense).mean())
    assert np.mean(with_rest) < 0.75 * np.mean(without)


def test_to_look_up_all_leaves_is_to_have_none():
    """Scores and rows are those of blocks in order."""
    rng = np.random.default_rng(5)
    head, query = head_with_leaves(rng, SHAPE, n_looked_up=N_LEAVES), queries_of(rng, SHAPE)
    rows, _, output = step(head, query)
    head.set(n_leaves=0, n_looked_up=0)
    others, _, same = step(head, query)
    assert (rows == others).all()
    assert (output == same).all()


@pytest.mark.parametrize("n_parts", [2, 5])
def test_the_output_does_not_depend_on_who_scores(n_parts):
    head, query = head_with_leaves(np.random.default_rng(6), SHAPE), queries_of(np.random.default_rng(6), SHAPE)
    rows, _, output = step(head, query)
    others, _, same = step(head, query, n_parts)
    assert (rows == others).all()
    np.testing.assert_allclose(output, same, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("row", [0, 700, N_ROWS - 2])
def test_a_nan_reaches_the_output(row):
    rng = np.random.default_rng(7)
    head = head_with_leaves(rng, SHAPE)
    chunk = head.chunks[row // CHUNK_ROWS]
    keys = chunk.view(np.float16, CHUNK_ROWS, SHAPE.head_dim)
    keys[row % CHUNK_ROWS, 5] = np.nan
    head.keys[row, 5] = np.nan
    head.set(n_coded=0, trained=0)
    tend(head, 1)
    rows, _, output = step(head, queries_of(rng, SHAPE))
    assert (rows == np.arange(head.n_tail)).all()
    assert np.isnan(output).all()


def test_what_is_read_is_counted():
    head = head_with_leaves(np.random.default_rng(8), QUANTISED)
    step(head, queries_of(np.random.default_rng(8), QUANTISED))
    n_blocks = int(head.state["n_coded"][0])
    looked_up = (n_blocks - N_LEAVES + N_LOOKED_UP) * BLOCK_ROWS * (64 // COLUMNS + 1) / 2
    expected = looked_up + n_blocks * 2 * 64 + N_LEAVES * 68 + 2 * 4 * CODES * 64
    assert head.record["bytes_read"][0] == expected


@pytest.mark.parametrize("quality", [0.2, 0.4])
def test_a_quality_is_a_share_of_all_attention(quality):
    """That of leaves which are not looked up is counted by what is expected of them."""
    rng = np.random.default_rng(9)
    head, query = head_with_leaves(rng, SHAPE, n_rows=N_ROWS), queries_of(rng, SHAPE, 1, FLAT)
    head.set(n_rows=BY_QUALITY, n_most=N_ROWS, quality=quality)
    rows, chosen, _ = step(head, query)
    left_out = np.setdiff1d(np.arange(N_LEAVES), chosen)
    candidates = np.setdiff1d(np.arange(head.n_tail), leaf_rows(left_out))
    products = query[0].astype(np.float64) @ head.keys[candidates].T.astype(np.float64)
    scores = np.hstack([products, expected_weights(head, query, 0.5)[:, left_out]])
    shares = oracle.shares(scores)[: len(candidates)] / SHAPE.group
    covered = shares[np.isin(candidates, rows)].sum()
    assert quality - 0.03 < covered < quality + 0.03
