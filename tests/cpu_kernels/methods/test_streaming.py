"""Sinks and a recent window: which rows each token of a step sees, and that no other is touched."""

import numpy as np
import pytest
from helpers import oracle, papers
from helpers.attention_cases import attend_spans
from helpers.kernel_heads import Head, queries_of, random_head
from helpers.kernel_inputs import (
    EACH,
    QUANTISED,
    SAME,
    SAME_IN_BATCHES,
    SHAPE,
    LoadedQuery,
    address,
    normal,
    relative_error,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.layout.head import ANY_ORDER
from octavo.cpu_kernels.layout.scores import items_holding
from octavo.cpu_kernels.layout.spans import SPAN
from octavo.cpu_kernels.methods import streaming
from octavo.cpu_kernels.methods.dense import select_all
from octavo.cpu_kernels.methods.streaming import select_recent
from octavo.cpu_kernels.numba_support.compile import native
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS


def streaming_head(rng, shape, n_rows, n_sinks, n_recent, n_dropped=0, **fields):
    """A head whose first chunks are dropped, but that of the sinks."""
    fields |= {"n_sinks": n_sinks, "n_recent": n_recent, "n_dropped": n_dropped}
    head = random_head(rng, shape, 0, n_rows, method=streaming, **fields)
    for chunk in range(1 if n_sinks else 0, n_dropped // CHUNK_ROWS):
        head._table[chunk] = 0
        head.chunks[chunk].bytes[:] = 0xFF
    return head


def select(head, queries):
    return head.select(select_recent, queries, len(head.chunks) + 2)


def shorten(head, n_rows):
    """As it was when it held so many rows."""
    head.n_tail = n_rows
    head.set(n_tail=n_rows)


def visible(n_rows, n_tokens, n_sinks, n_recent, n_dropped=0):
    """What section 3.2 keeps for each of the newest n_tokens: (n_tokens, n_rows) bool."""
    tokens, rows = np.arange(n_rows - n_tokens, n_rows)[:, None], np.arange(n_rows)
    recent = (tokens - rows < n_recent) & (rows >= n_dropped)
    return (rows <= tokens) & ((rows < n_sinks) | recent)


def seen(head, spans, n_tokens):
    """Which rows each token sees of spans by their positions and windows; a row that it sees twice counts twice."""
    counts = np.zeros((n_tokens, head.n_tail), int)
    for span in spans:
        assert span["position"] != ANY_ORDER
        rows = np.array(head.rows([span]))
        tokens = np.arange(head.n_tail - n_tokens, head.n_tail)
        counts[:, rows] += oracle.visible(tokens, rows, span["window"])
    return counts


def expected_output(head, queries, mask, loaded=False):
    """loaded : with the query as decoding loads it, of q8_0 rows"""
    floats = LoadedQuery(head.shape, queries[0]).floats[None] if loaded else queries
    used = mask.any(axis=0)  # what is dropped is poisoned
    options = {"visible": mask[:, used], "softcap": float(head.record["softcap"][0])}
    heads = [oracle.attention(floats[:, g], head.keys[used], head.values[used], **options) for g in range(3)]
    return np.stack(heads, axis=1)


def attend(head, queries):
    position = int(head.record["tail_position"][0]) + head.n_tail - len(queries)
    return attend_spans(head.shape, queries, select(head, queries), position, head.record["softcap"][0])


@settings(max_examples=200, deadline=None)
@given(
    n_rows=st.integers(1, 3 * CHUNK_ROWS + 10),
    n_tokens=st.integers(1, 300),
    n_sinks=st.sampled_from([0, 0, 1, 4, 100, 255, 256]),
    n_recent=st.sampled_from([1, 2, 30, 255, 256, 257, 700, 2000]),
    n_dropped=st.integers(0, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_each_token_sees_its_sinks_and_its_newest_rows_once(n_rows, n_tokens, n_sinks, n_recent, n_dropped, seed):
    n_tokens, rng = min(n_tokens, n_rows), np.random.default_rng(seed)
    n_dropped = min(n_dropped, (n_rows - n_tokens) // CHUNK_ROWS) * CHUNK_ROWS
    head = streaming_head(rng, SHAPE, n_rows, n_sinks, n_recent, n_dropped)
    spans = select(head, queries_of(rng, SHAPE, n_tokens))
    expected = visible(n_rows, n_tokens, n_sinks, n_recent, n_dropped)
    assert (seen(head, spans, n_tokens) == expected).all()
    assert (np.diff(spans["position"]) > 0).all()
    selected = head.rows(spans)
    first = n_rows - n_tokens
    assert selected == [row for row in range(n_rows) if expected[0, row] or row > first or row < n_sinks]
    if n_tokens == 1:
        assert len(selected) == expected.sum(), "decoding attends all of its spans"


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from([SHAPE, QUANTISED]),
    n_rows=st.integers(1, 2 * CHUNK_ROWS + 10),
    n_tokens=st.integers(1, 150),
    n_sinks=st.sampled_from([0, 1, 4, 100]),
    n_recent=st.sampled_from([1, 2, 30, 256, 2000]),
    softcap=st.sampled_from([0.0, 2.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_each_token_attends_its_sinks_and_its_newest_rows(shape, n_rows, n_tokens, n_sinks, n_recent, softcap, seed):
    n_tokens, rng = min(n_tokens, n_rows), np.random.default_rng(seed)
    needed = max(0, n_rows - n_tokens - n_recent + 1)
    n_dropped = needed // CHUNK_ROWS * CHUNK_ROWS  # all that no token of the step needs
    head = streaming_head(rng, shape, n_rows, n_sinks, n_recent, n_dropped, softcap=softcap)
    queries, mask = queries_of(rng, shape, n_tokens), visible(n_rows, n_tokens, n_sinks, n_recent)
    assert relative_error(attend(head, queries), expected_output(head, queries, mask, n_tokens == 1)) < 5 * SAME


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    n_rows=st.integers(2, 3 * CHUNK_ROWS + 10),
    n_tokens=st.integers(2, 300),
    n_sinks=st.sampled_from([0, 1, 4, 100, 256]),
    n_recent=st.sampled_from([1, 2, 30, 256, 700]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_chunk_sees_the_sinks_the_recent_rows_and_itself(n_rows, n_tokens, n_sinks, n_recent, seed):
    n_tokens, rng = min(n_tokens, n_rows), np.random.default_rng(seed)
    n_dropped = max(0, n_rows - n_tokens - n_recent) // CHUNK_ROWS * CHUNK_ROWS  # all that the chunk does not need
    head = streaming_head(rng, SHAPE, n_rows, n_sinks, n_recent, n_dropped, whole_batch=1)
    queries = queries_of(rng, SHAPE, n_tokens)
    expected = papers.duo_chunk(n_rows, n_tokens, n_sinks, n_recent)
    mask = np.array([np.isin(np.arange(n_rows), rows) for rows in expected])
    assert (seen(head, select(head, queries), n_tokens) == mask).all()
    assert relative_error(attend(head, queries), expected_output(head, queries, mask)) < 5 * SAME


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("n_sinks", [0, 4])
@pytest.mark.parametrize("n_past", [0, 2, 300])
def test_tokens_attend_the_same_one_by_one_and_in_a_batch(shape, n_past, n_sinks):
    """Sinks that the batch brings itself are seen from their own token on."""
    rng, n_tokens, n_recent = np.random.default_rng(0), 70, 20
    head = streaming_head(rng, shape, n_past + n_tokens, n_sinks, n_recent)
    queries = queries_of(rng, shape, n_tokens)
    for query in queries:  # decoding rounds it, for q8_0 rows
        query[:] = LoadedQuery(shape, query).floats
    batch = attend(head, queries)
    for i, query in enumerate(queries):
        shorten(head, n_past + i + 1)
        spans = select(head, query[None])
        mask = visible(head.n_tail, 1, n_sinks, n_recent)
        assert head.rows(spans) == np.flatnonzero(mask[0]).tolist()
        assert relative_error(attend(head, query[None]), batch[i : i + 1]) < SAME_IN_BATCHES


@pytest.mark.parametrize("n_tokens", [1, 90])
@pytest.mark.parametrize("n_recent", [1, 100, 256, 1000])
def test_without_sinks_it_is_a_sliding_window(n_tokens, n_recent):
    rng = np.random.default_rng(1)
    head = random_head(rng, SHAPE, 0, 600, method=streaming, n_recent=n_recent, window=n_recent)
    queries = queries_of(rng, SHAPE, n_tokens)
    np.testing.assert_array_equal(select(head, queries), head.select(select_all, queries, 4))


@pytest.mark.parametrize("n_rows", [1, 3, 4, 5])
def test_while_there_are_only_sinks_they_are_all(n_rows):
    """Whatever the window is then: a share of the sequence may leave it nothing."""
    rng = np.random.default_rng(2)
    for n_recent in (-3, 0, 1, 9) if n_rows <= 4 else (1, 9):
        head = streaming_head(rng, SHAPE, n_rows, 4, n_recent)
        for n_tokens in {1, n_rows}:
            spans = select(head, queries_of(rng, SHAPE, n_tokens))
            assert (seen(head, spans, n_tokens) == visible(n_rows, n_tokens, 4, max(n_recent, 1))).all()


def test_a_window_that_grows_over_what_is_gone_shows_what_is_left():
    rng = np.random.default_rng(3)
    head = streaming_head(rng, SHAPE, 600, 4, 500, n_dropped=CHUNK_ROWS)
    assert head.rows(select(head, queries_of(rng, SHAPE))) == [*range(4), *range(CHUNK_ROWS, 600)]


def test_nothing_is_read_to_select():
    rng = np.random.default_rng(4)
    head = streaming_head(rng, SHAPE, 600, 4, 100)
    select(head, queries_of(rng, SHAPE))
    assert head.record["bytes_read"] == 0


def test_the_native_function_is_the_kernel():
    rng, spans = np.random.default_rng(5), np.zeros(4, SPAN)
    head, queries = streaming_head(rng, SHAPE, 600, 4, 300), queries_of(rng, SHAPE)
    n_spans = native(select_recent).ctypes(head.address, address(queries), 1, address(spans))
    np.testing.assert_array_equal(spans[:n_spans], select(head, queries))


# Positions in the cache.


class TurningHead:
    """A head with keys as llama.cpp stores them, and what they were before RoPE."""

    def __init__(self, rng, shape, n_rows, n_sinks, n_recent, n_tokens=1, origin=0, n_pairs=None, interleaved=True):
        self.frequencies = 100.0 ** -np.linspace(0, 1, shape.head_dim // 2 if n_pairs is None else n_pairs)
        self.settings = n_sinks, n_recent, self.frequencies, interleaved
        self.keys = normal(rng, n_rows, shape.head_dim, spread=2.0)
        self.plain = normal(rng, n_tokens, shape.group, shape.head_dim)
        positions = np.arange(n_rows)
        since_origin = np.where(positions < n_sinks, positions, positions - origin)  # sinks stay as they were stored
        self.queries = np.stack([self.rotated(q, since_origin[i - n_tokens]) for i, q in enumerate(self.plain)])
        self.queries = (self.queries / np.sqrt(shape.head_dim)).astype(np.float32)
        self.head = Head(
            shape,
            self.rotated(self.keys, since_origin).astype(np.float32),
            normal(rng, n_rows, shape.head_dim),
            method=streaming,
            n_items=items_holding(shape.group, self.plain.size),
            n_sinks=n_sinks,
            n_recent=n_recent,
            n_turned=n_tokens,
            origin=origin,
            frequencies=address(self.frequencies),
            n_pairs=len(self.frequencies),
            interleaved=interleaved,
        )

    def rotated(self, rows, positions):
        return papers.rope(rows, positions, *self.settings[2:])

    def expected(self):
        """What each token gets by the paper, from the tokens up to it."""
        outputs = []
        for i, queries in enumerate(self.plain):
            end = len(self.keys) - len(self.plain) + i + 1
            values = self.head.values[:end]
            outputs.append(papers.streaming(queries, self.keys[:end], values, *self.settings))
        return np.stack(outputs)


ROUNDED = {SHAPE: 3e-3, QUANTISED: 6e-2}  # keys are rounded after RoPE here, and not at all there


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from([SHAPE, QUANTISED]),
    n_rows=st.integers(30, 2 * CHUNK_ROWS + 50),
    n_tokens=st.sampled_from([1, 1, 2, 60]),
    n_sinks=st.sampled_from([1, 4, 20]),
    n_recent=st.sampled_from([1, 5, 100, 400]),
    origin=st.sampled_from([0, 0, 25]),
    n_pairs=st.sampled_from([None, 0, 8]),
    interleaved=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_positions_are_those_in_the_cache(
    shape, n_rows, n_tokens, n_sinks, n_recent, origin, n_pairs, interleaved, seed
):
    rng, n_tokens = np.random.default_rng(seed), min(n_tokens, n_rows - 25)
    turning = TurningHead(rng, shape, n_rows, n_sinks, n_recent, n_tokens, origin, n_pairs, interleaved)
    assert relative_error(attend(turning.head, turning.queries), turning.expected()) < ROUNDED[shape]


def test_positions_in_the_sequence_give_something_else():
    turning = TurningHead(np.random.default_rng(6), SHAPE, 600, 4, 100)
    assert relative_error(attend(turning.head, turning.queries), turning.expected()) < ROUNDED[SHAPE]
    turning.head.set(n_turned=0)
    assert relative_error(attend(turning.head, turning.queries), turning.expected()) > 0.1


def test_turning_reads_no_rows():
    turning = TurningHead(np.random.default_rng(7), SHAPE, 600, 4, 100)
    select(turning.head, turning.queries)
    assert turning.head.record["bytes_read"] == 0
