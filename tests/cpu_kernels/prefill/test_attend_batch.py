"""Test the attention of a batch of tokens: causal, in windows, over any spans."""

import numpy as np
import pytest
from helpers import oracle
from helpers.attention_cases import Decode, Prefill, random_prefill
from helpers.kernel_inputs import (
    EACH,
    HOSTILE_SCORES,
    LONG,
    QUANTISED,
    ROTATED,
    SAME_IN_BATCHES,
    SHAPE,
    UNLIKE,
    halves,
    normal,
    random_pieces,
    read_rows,
    relative_error,
    rows_with_scores,
    same_in_batches,
    shapes,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.numba_support.shape import F16, Q4_0, Q8_0
from octavo.cpu_kernels.prefill.integer_tiles import OF_BYTES
from octavo.cpu_kernels.prefill.tile_scratch import most_queries

pytestmark = pytest.mark.sampled

SHAPES = shapes([(64, 3, F16), (72, 8, F16), (40, 1, Q8_0), (64, 3, Q8_0), (64, 2, Q4_0), *LONG]) + UNLIKE


@pytest.mark.parametrize("shape", SHAPES)
def test_prefill_is_causal_attention(shape):
    rng, most = np.random.default_rng(12), same_in_batches(shape)
    for n_tokens, n_past in [(1, 0), (2, 1), (7, 0), (8, 64), (9, 63), (33, 100), (65, 0), (130, 61)]:
        assert random_prefill(rng, shape, n_tokens, n_past).error() < most, (n_tokens, n_past)


@pytest.mark.parametrize("shape", SHAPES)
def test_prefill_may_be_rounded(shape):
    """To 13 bits, to 8 or to 7: the largest error of a row's elements is six times that of the row as a whole."""
    is_rounded = shape.on_amx or shape.on_integers
    lost_bits = 5 if shape.on_amx else 6 if OF_BYTES else 0
    rng, most = np.random.default_rng(12), 2e-3 * max(1, shape.head_dim / 128) * 2**lost_bits
    for n_tokens, n_past in [(2, 1), (7, 0), (8, 64), (33, 100), (65, 0), (130, 61)]:
        prefill = random_prefill(rng, shape, n_tokens, n_past, rounds=1)
        assert prefill.error() < (most if is_rounded else same_in_batches(shape)), (n_tokens, n_past)
        rounded, prefill.rounds = prefill.run(), 0
        assert np.array_equal(rounded, prefill.run()) != is_rounded


@pytest.mark.parametrize("shape", SHAPES)
def test_prefill_of_lists_and_runs_equals_that_of_their_rows(shape):
    rng = np.random.default_rng(13)
    for n_cuts in (1, 5, 40):
        prefill = random_prefill(rng, shape, 20, 5, 200, position=200, pieces=random_pieces(rng, 200, n_cuts))
        assert prefill.error() < 1.5 * same_in_batches(shape), n_cuts


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("window", [1, 2, 31, 64, 65, 1000, -1, -31, -64, -100, -1000])
@pytest.mark.parametrize("n_past", [0, 1, 64, 200])
def test_prefill_inside_a_window(shape, n_past, window):
    assert random_prefill(np.random.default_rng(13), shape, 70, n_past, window=window).error() < same_in_batches(shape)


@pytest.mark.parametrize("shape", EACH)
def test_each_span_has_a_window_of_its_own(shape):
    """Check sinks, which all tokens see, before rows that leave the window."""
    rng = np.random.default_rng(19)
    prefill = random_prefill(rng, shape, 90, 100, window=20, cuts=[7])
    prefill.spans[1]["window"] = 0  # the first span is the document's, which is empty
    seen = oracle.visible(np.arange(100, 190), np.arange(190), 20) | (np.arange(190) < 7)
    keys, values = (read_rows(shape, rows) for rows in (prefill.keys, prefill.values))
    heads = [oracle.attention(prefill.query[:, g], keys, values, visible=seen) for g in range(3)]
    assert relative_error(prefill.run(), np.stack(heads, axis=1)) < SAME_IN_BATCHES


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("n_document", [1, 63, 64, 65, 300])
def test_prefill_sees_all_of_a_document(shape, n_document):
    rng = np.random.default_rng(14)
    prefill = random_prefill(rng, shape, 70, 10, n_document, position=n_document, cuts=[5, 75])
    assert prefill.error() < SAME_IN_BATCHES


@settings(max_examples=100, deadline=None)
@given(
    shape=st.sampled_from([SHAPE, QUANTISED, ROTATED]),
    n_tokens=st.integers(1, 90),
    n_past=st.integers(0, 200),
    n_document=st.integers(0, 150),
    n_cuts=st.integers(0, 30),
    position=st.sampled_from([0, 1, 77, 100_000, 4_000_000]),
    cuts=st.lists(st.integers(1, 290), max_size=4),
    window=st.sampled_from([0, 1, 20, 64, 100]),
    softcap=st.sampled_from([0.0, 2.0]),
    with_sinks=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_prefill_however_the_rows_are_split(
    shape, n_tokens, n_past, n_document, n_cuts, position, cuts, window, softcap, with_sinks, seed
):
    rng = np.random.default_rng(seed)
    prefill = random_prefill(
        rng,
        shape,
        n_tokens,
        n_past,
        n_document,
        position=position,
        window=window,
        softcap=softcap,
        sinks=normal(rng, 3, spread=3) if with_sinks else None,
        cuts=[cut for cut in cuts if cut < n_past + n_tokens],
        pieces=random_pieces(rng, n_document, n_cuts),
    )
    assert prefill.error() < 5 * SAME_IN_BATCHES


@settings(max_examples=40, deadline=None)
@given(
    shape=st.sampled_from([SHAPE, QUANTISED, ROTATED]),
    lists=st.lists(st.lists(st.integers(0, 99), max_size=150), max_size=5),
    seed=st.integers(0, 2**32 - 1),
)
def test_prefill_of_any_lists(shape, lists, seed):
    """List rows of the document in any order, some twice, others not at all."""
    rng = np.random.default_rng(seed)
    prefill = random_prefill(rng, shape, 9, 3, 100, position=100, pieces=[np.array(rows, int) for rows in lists])
    assert prefill.error() < 5 * SAME_IN_BATCHES


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("window", [0, 100])
@pytest.mark.parametrize("scores", HOSTILE_SCORES.values(), ids=HOSTILE_SCORES)
def test_prefill_with_hostile_scores(shape, scores, window):
    rng = np.random.default_rng(15)
    query, keys = rows_with_scores(scores, 64)
    queries = np.tile(np.stack([query, -query, query * 0.25]), (70, 1, 1))
    prefill = Prefill(shape, queries, keys, halves(rng, len(keys), 64), window=window, cuts=[40, 129])
    assert prefill.error() < (
        SAME_IN_BATCHES if shape == SHAPE else 5 * SAME_IN_BATCHES
    )  # q8_0 scores of 1e4 are exact to 5e-4


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("sink", [-10000, -20, 0, 5, 10000])
def test_prefill_with_sinks_above_and_below_all_scores(shape, sink):
    sinks = np.array([sink, 1, sink], np.float32)
    prefill = random_prefill(np.random.default_rng(16), shape, 30, 40, sinks=sinks)
    actual, expected = prefill.run(), prefill.expected()
    if sink == 10000:
        assert (actual[:, [0, 2]] == 0).all()
        actual, expected = actual[:, [1]], expected[:, [1]]
    assert relative_error(actual, expected) < SAME_IN_BATCHES


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("kind", ["keys", "values"])
def test_prefill_does_not_hide_a_nan_and_does_not_spread_it_far(shape, kind):
    """The mask hides a key's NaN from earlier tokens. A value's NaN reaches each tile that reads its block: 0 * NaN."""
    rng = np.random.default_rng(17)
    n_tokens, bad = 320, 300
    rows = {kind: halves(rng, 5 + n_tokens, 64) for kind in ("keys", "values")}
    rows[kind][5 + bad, 3] = np.nan
    prefill = Prefill(shape, normal(rng, n_tokens, 3, 64, spread=0.3), rows["keys"], rows["values"])
    out = prefill.run()
    assert np.isnan(out[bad:]).any(axis=-1).all()
    clean = bad if kind == "keys" else most_queries(shape) // 3  # tokens of the first tile
    assert relative_error(out[:clean], expected_without(prefill, 5 + bad)[:clean]) < SAME_IN_BATCHES


def expected_without(prefill, row):
    """Return what is expected of tokens that do not see a row."""
    for rows in (prefill.keys, prefill.values):
        rows[row] = 0
    return prefill.expected()


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_prefill_does_not_hide_a_query_that_is_not_finite(shape, value):
    prefill = random_prefill(np.random.default_rng(18), shape, 30, 5)
    prefill.query[11, 1, 7] = value
    shows = np.isnan(prefill.run()).any(axis=-1)
    assert shows[11, 1]
    assert shows.sum() == 1


def test_decode_and_prefill_of_one_token_agree():
    rng = np.random.default_rng(18)
    query, keys, values = normal(rng, 1, 3, 64, spread=0.3), halves(rng, 300, 64), halves(rng, 300, 64)
    prefill, decode = Prefill(SHAPE, query, keys, values), Decode(SHAPE, query[0], [keys], [values])
    assert relative_error(prefill.run()[0], decode.run(2)) < SAME_IN_BATCHES
