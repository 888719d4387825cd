"""Test the attention of one token: any rows in any spans, split over any number of threads."""

import time

import numpy as np
import pytest
from helpers import oracle, papers
from helpers.attention_cases import Decode, random_decode, span_array
from helpers.kernel_inputs import (
    EACH,
    FEW,
    FLAT,
    HOSTILE_SCORES,
    LONG,
    QUANTISED,
    ROTATED,
    SAME,
    SHAPE,
    THREADS,
    UNLIKE,
    LoadedQuery,
    Room,
    SpanOf,
    address,
    halves,
    in_threads,
    normal,
    random_pieces,
    read_rows,
    relative_error,
    rows_with_scores,
    shapes,
    store_rows,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.attend.decode import BLOCK, list_rows
from octavo.cpu_kernels.layout.head import ANY_ORDER
from octavo.cpu_kernels.numba_support.memory import barrier

pytestmark = pytest.mark.sampled

SHAPES = shapes([*FEW, *LONG]) + UNLIKE
N_ROWS = [1, 7, 8, 9, 61, 63, 64, 65, 127, 128, 129, 700]


@pytest.mark.parametrize("shape", SHAPES)
def test_decode_is_softmax_attention(shape):
    rng = np.random.default_rng(4)
    for n in N_ROWS:
        decode = random_decode(rng, shape, [n, n])
        for n_threads in THREADS:
            assert decode.error(n_threads) < SAME, (n, n_threads)


@pytest.mark.parametrize("shape", SHAPES)
def test_decode_of_lists_and_runs_equals_that_of_their_rows(shape):
    rng = np.random.default_rng(5)
    for n_cuts in (1, 3, 40):
        assert random_decode(rng, shape, [300, 50], n_cuts).error(2) < SAME, n_cuts


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize(
    "n_rows", [[1, 500], [500, 1, 1], [3, 0, 5], [0, 130], [1, 1, 1, 1], [2000, 3, 17, 256]], ids=str
)
def test_decode_splits_uneven_heads(shape, n_rows, n_threads):
    decode = random_decode(np.random.default_rng(5), shape, n_rows, n_cuts=5)
    actual, expected = (x.reshape(len(n_rows), -1) for x in (decode.run(n_threads), decode.expected()))
    with_rows = np.array(n_rows) > 0
    assert relative_error(actual[with_rows], expected[with_rows]) < SAME
    assert np.isnan(actual[~with_rows]).all()  # 0 / 0: a head without rows must not look like a result


@pytest.mark.parametrize("n_threads", THREADS)
def test_a_head_without_rows_gives_all_weight_to_its_sink(n_threads):
    decode = random_decode(np.random.default_rng(6), SHAPE, [0, 9], sinks=np.float32([-1e4, 0, 1e4, 0, 0, 0]))
    actual = decode.run(n_threads)
    assert (actual[:3] == 0).all()
    assert relative_error(actual[3:], decode.expected()[3:]) < SAME


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("n_threads", THREADS)
def test_decode_with_fewer_rows_than_threads(shape, n_threads):
    assert random_decode(np.random.default_rng(6), shape, [1]).error(n_threads) < SAME


@settings(max_examples=100, deadline=None)
@given(
    shape=st.sampled_from([SHAPE, QUANTISED, ROTATED]),
    n_rows=st.lists(st.integers(1, 400), min_size=1, max_size=4),
    n_cuts=st.integers(0, 60),
    n_threads=st.integers(1, 6),
    spread=st.sampled_from([0.0, 1e-3, 0.3, 3.0]),
    softcap=st.sampled_from([0.0, 2.0, 50.0]),
    with_sinks=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_decode_however_the_rows_are_split(shape, n_rows, n_cuts, n_threads, spread, softcap, with_sinks, seed):
    rng = np.random.default_rng(seed)
    sinks = normal(rng, len(n_rows) * 3, spread=3) if with_sinks else None
    decode = random_decode(rng, shape, n_rows, n_cuts, spread, softcap=softcap, sinks=sinks)
    assert decode.error(n_threads) < 5 * SAME


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from([SHAPE, QUANTISED, ROTATED]),
    lists=st.lists(st.lists(st.integers(0, 99), max_size=150), min_size=1, max_size=5),
    n_threads=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_decode_of_any_lists(shape, lists, n_threads, seed):
    """List rows in any order, some twice, others not at all."""
    rng = np.random.default_rng(seed)
    lists = [*map(np.array, lists), np.array([5])]
    query = normal(rng, shape.group, 64, spread=0.3)
    decode = Decode(shape, query, [halves(rng, 100, 64)], [halves(rng, 100, 64)], [lists])
    assert decode.error(n_threads) < 5 * SAME


@pytest.mark.parametrize("shape", SHAPES)
def test_a_query_head_attends_to_its_own_spans(shape):
    rng = np.random.default_rng(20)
    for n_cuts in (1, 5, 60):
        assert random_decode(rng, shape, [300, 70], n_cuts, some_heads=True).error(2) < SAME, n_cuts


@settings(max_examples=100, deadline=None)
@given(
    shape=st.sampled_from([SHAPE, QUANTISED, ROTATED]),
    n_rows=st.lists(st.integers(1, 400), min_size=1, max_size=3),
    n_cuts=st.integers(1, 60),
    n_threads=st.integers(1, 6),
    softcap=st.sampled_from([0.0, 2.0]),
    with_sinks=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_query_heads_with_spans_of_their_own_however_they_are_split(
    shape, n_rows, n_cuts, n_threads, softcap, with_sinks, seed
):
    rng = np.random.default_rng(seed)
    sinks = normal(rng, len(n_rows) * 3, spread=3) if with_sinks else None
    decode = random_decode(rng, shape, n_rows, n_cuts, softcap=softcap, sinks=sinks, some_heads=True)
    assert decode.error(n_threads) < 5 * SAME


def test_a_row_of_other_query_heads_may_be_anything():
    """Its score is not a number for the query head that does not attend it: its weight is 0 all the same."""
    rng = np.random.default_rng(21)
    keys, values = halves(rng, 100, 64), halves(rng, 100, 64)
    keys[70:] = np.nan
    decode = Decode(SHAPE, normal(rng, 3, 64), [keys], [values], [[range(70), range(70, 100)]], heads=[[0b111, 0b010]])
    out = decode.run(2)
    expected = oracle.attention(decode.query, keys[:70], values[:70])
    assert relative_error(out[[0, 2]], expected[[0, 2]]) < SAME
    assert np.isnan(out[1]).all()


def test_a_query_head_without_rows_does_not_look_like_a_result():
    decode = random_decode(np.random.default_rng(22), SHAPE, [90])
    decode.spans["heads"] = 0b101
    assert (np.isnan(decode.run(2)).all(axis=1) == [False, True, False]).all()


def test_a_list_may_count_from_a_row_far_away():
    """Its int32 times the bytes of a row exceeds 32 bits."""
    rng = np.random.default_rng(7)
    decode = random_decode(rng, SHAPE, [50])
    expected, base = decode.expected(), 50 - 2**31
    far = SpanOf(decode.keys[0], decode.values[0], np.arange(50), ANY_ORDER, base=base)
    decode.spans[0, :1] = span_array([far])
    assert relative_error(decode.run(2), expected) < SAME


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("scores", HOSTILE_SCORES.values(), ids=HOSTILE_SCORES)
@pytest.mark.parametrize("shape", EACH)
def test_decode_with_hostile_scores(shape, scores, n_threads):
    rng = np.random.default_rng(7)
    query, keys = rows_with_scores(scores, 64)
    queries = np.stack([query, -query, query * 0.25])
    pieces = [[range(130, len(keys)), rng.permutation(130)]]
    decode = Decode(shape, queries, [keys], [halves(rng, len(keys), 64)], pieces)
    assert decode.error(n_threads) < SAME


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("sink", [-10000, -20, 0, 5, 10000])
def test_decode_with_sinks_above_and_below_all_scores(shape, sink, n_threads):
    decode = random_decode(np.random.default_rng(8), shape, [200, 3], 2, sinks=np.full(6, sink, np.float32))
    decode.sinks[4] = 1  # each query head has its own
    actual, expected = decode.run(n_threads), decode.expected()
    if sink == 10000:
        assert (actual[[0, 1, 2, 3, 5]] == 0).all()  # all weight is the sink's
        actual, expected = actual[[4]], expected[[4]]
    assert relative_error(actual, expected) < SAME


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("softcap", [2.0, 30.0])
def test_decode_caps_scores(shape, softcap):
    decode = random_decode(np.random.default_rng(9), shape, [300, 9], n_cuts=3, spread=3.0, softcap=softcap)
    assert decode.error(2) < SAME
    uncapped = oracle.attention(decode.query[:3], *decode.attended(0))
    assert relative_error(decode.out[:3], uncapped) > 0.1  # these scores exceed the cap by far


@pytest.mark.parametrize("spread", [0.03, 0.3, 1.0])
def test_a_quantised_query_stays_within_its_error_bound(spread):
    """Check the error bound: scores off by at most e make weights off by a factor of at most exp(2 e)."""
    decode = random_decode(np.random.default_rng(10), QUANTISED, [500], spread=spread)
    keys, values = decode.attended(0)
    half_scales = np.abs(decode.query).max(axis=1, keepdims=True) / 127 / 2
    e = (half_scales * np.abs(keys).sum(axis=1)).max(axis=1, keepdims=True)
    error = np.abs(decode.run(2) - decode.expected(loaded=False))
    assert (error <= (np.exp(2 * e) - 1) * np.abs(values).max(axis=0) + 1e-5).all()
    assert error.max() > 1e-4 * spread  # the query is indeed quantised


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("kind", ["keys", "values"])
def test_decode_does_not_hide_a_nan(shape, kind):
    """A NaN in the cache must reach the output, not become a plausible number."""
    rng = np.random.default_rng(10)
    rows = {kind: [halves(rng, 200, 64), halves(rng, 50, 64)] for kind in ("keys", "values")}
    rows[kind][0][77, 5] = np.nan
    for n_threads in THREADS:
        out = Decode(shape, normal(rng, 6, 64), rows["keys"], rows["values"]).run(n_threads)
        assert np.isnan(out[:3]).any(axis=1).all()
        assert np.isfinite(out[3:]).all()


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_decode_does_not_hide_a_query_that_is_not_finite(shape, value):
    decode = random_decode(np.random.default_rng(11), shape, [200, 50])
    decode.query[1, 5] = value
    out = decode.run(2)
    assert (np.isnan(out).any(axis=1) == [False, True, False, False, False, False]).all()


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("n_threads", THREADS)
def test_decode_in_real_threads(shape, n_threads):
    rng = np.random.default_rng(11)
    counter = np.zeros(1, np.int64)
    decodes = [random_decode(rng, shape, rng.integers(1, 600, 3), n_cuts=4) for _ in range(12)]
    decodes[0].run(n_threads)  # compiles it
    for decode in decodes:
        decode.start(n_threads)

    def work(ith):
        for i, decode in enumerate(decodes):
            if i % n_threads == ith:
                time.sleep(0.001)
            decode.attend(ith, n_threads)
            barrier(address(counter), n_threads)
            for head in range(ith, 3, n_threads):
                decode.merge(head, n_threads)

    in_threads(n_threads, work)
    for decode in decodes:
        decode.check()
        assert relative_error(decode.out, decode.expected()) < SAME


# Lists of rows.


@settings(max_examples=100, deadline=None)
@given(
    shape=st.sampled_from([SHAPE, QUANTISED, ROTATED]),
    n_rows=st.integers(1, 200),
    n_cuts=st.integers(0, 30),
    counts=st.lists(st.integers(0, BLOCK), min_size=1, max_size=6),
    seed=st.integers(0, 2**32 - 1),
)
def test_rows_are_listed_one_list_after_another(shape, n_rows, n_cuts, counts, seed):
    """A list that the rows do not fill goes on with any readable rows."""
    rng = np.random.default_rng(seed)
    keys, values = (store_rows(shape, halves(rng, n_rows, 64)) for _ in range(2))
    pieces = random_pieces(rng, n_rows, n_cuts)
    held = [SpanOf(keys, values, piece, ANY_ORDER, base=rng.integers(-9, 9)) for piece in pieces]
    spans, left = span_array(held), np.concatenate(pieces).astype(np.int64)
    readable = [address(stored) + row * stored.strides[0] for stored in (keys, values) for row in range(n_rows)]
    at = row = 0
    for count in counts:
        count = min(count, len(left))
        rooms = [Room(8 * BLOCK), Room(8 * BLOCK)]
        at, row, _heads = list_rows(shape, spans, at, row, count, rooms[0].address, rooms[1].address)
        for room, stored in zip(rooms, (keys, values), strict=True):
            room.check()
            listed = room.view(np.int64)
            assert (listed[:count] == address(stored) + left[:count] * stored.strides[0]).all()
            assert (np.isin(listed[count:], readable) if count else listed == -1).all()
        left = left[count:]
    assert len(left) == sum(len(piece) for piece in pieces[at:]) - row


def test_rows_stored_by_the_test_helpers_keep_their_values():
    rows = halves(np.random.default_rng(12), 20, 64)
    assert (read_rows(SHAPE, store_rows(SHAPE, rows)) == rows).all()
    error = np.abs(read_rows(FLAT, store_rows(FLAT, rows)) - rows)
    assert (error <= np.abs(rows.astype(np.float64)).max(axis=1, keepdims=True) / 127 * 0.5001).all()


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("shape", EACH)
def test_the_first_span_may_have_queries_of_its_own(shape, n_threads):
    """As rows of a head that the other queries attend, wherever the threads' shares are cut."""
    rng, n_first = np.random.default_rng(9), 40
    keys, values = ([halves(rng, n, shape.head_dim) for n in (100, 300)] for _ in range(2))
    query = normal(rng, 2 * shape.group, shape.head_dim, spread=0.3)
    decode = Decode(shape, query, keys, values, [[range(100)], [range(n_first), range(n_first, 300)]])
    other = normal(rng, shape.group, shape.head_dim, spread=0.3)
    decode.spans[1, 0]["queries"] = address(other)
    actual = decode.run(n_threads)
    expected = decode.expected()
    keys, values = decode.attended(1)
    for g in range(shape.group):
        own, step = (LoadedQuery(shape, q).floats[g] for q in (other, decode.query[shape.group :]))
        scores = np.concatenate([keys[:n_first] @ own, keys[n_first:] @ step])
        expected[shape.group + g] = papers.softmax(scores) @ values
    assert relative_error(actual, expected) < SAME
