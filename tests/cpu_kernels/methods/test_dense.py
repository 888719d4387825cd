"""Dense attention: every row that the window shows is selected."""

import numpy as np
import pytest
from helpers.kernel_heads import Head, queries_of, random_head
from helpers.kernel_inputs import EACH, QUANTISED, SHAPE, halves
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cpu_kernels.layout.head import ANY_ORDER
from octavo.cpu_kernels.methods.dense import select_all
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS


def chunks_of(n_rows):
    return -(-n_rows // CHUNK_ROWS)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from([SHAPE, QUANTISED]),
    n_tail=st.integers(1, 3 * CHUNK_ROWS + 10),
    n_tokens=st.integers(1, 300),
    window=st.sampled_from([0, 1, 2, 100, 255, 256, 257, 600]),
    chunked=st.booleans(),
)
def test_dense_selects_the_tail_that_the_first_token_may_see(shape, n_tail, n_tokens, window, chunked):
    n_tokens, rng = min(n_tokens, n_tail), np.random.default_rng(0)
    head = Head(shape, halves(rng, n_tail, 64), window=window, chunked=chunked)
    spans = head.select(select_all, queries_of(rng, shape, n_tokens), chunks_of(n_tail) + 2)
    first_token = n_tail - n_tokens
    first = max(0, first_token - window + 1) if window else 0
    if chunked and window:
        window, first = -window, first_token // window * window
    assert head.rows(spans) == list(range(first, n_tail))
    assert (spans["position"] != ANY_ORDER).all()
    assert (spans["window"] == window).all()


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("n_tail", [1, CHUNK_ROWS, CHUNK_ROWS + 1, 3 * CHUNK_ROWS - 1])
def test_dense_selects_a_document_as_one_span(shape, n_tail):
    rng = np.random.default_rng(1)
    head = random_head(rng, shape, 16, n_tail)
    spans = head.select(select_all, queries_of(rng, shape), chunks_of(n_tail) + 2)
    assert head.rows(spans) == list(range(16 + n_tail))
    assert spans["position"].tolist() == [ANY_ORDER, *range(16, 16 + n_tail, CHUNK_ROWS)]


@pytest.mark.parametrize(("n_tail", "n_tokens"), [(1, 1), (20, 1), (20, 20), (21, 1), (300, 270), (300, 290)])
def test_dense_selects_what_a_chunk_still_shows_of_a_document(n_tail, n_tokens):
    """The document had 100 tokens and keeps the newest 50 in this layer, whose chunks have 60."""
    rng = np.random.default_rng(2)
    head = random_head(rng, SHAPE, 50, n_tail, document_position=50, window=60, chunked=1)
    spans = head.select(select_all, queries_of(rng, SHAPE, n_tokens), 4)
    oldest = (100 + n_tail - n_tokens) // 60 * 60  # of the first token
    assert head.rows(spans) == list(range(oldest - 50, 50 + n_tail))
    assert (spans["window"] == -60).all()


@pytest.mark.parametrize(("n_tail", "n_tokens"), [(1, 1), (3, 1), (3, 3), (49, 1), (50, 1), (51, 1), (300, 280)])
def test_dense_selects_what_a_window_still_shows_of_a_document(n_tail, n_tokens):
    """The document had 100 tokens and keeps the newest 50 in this layer, whose window is 50."""
    rng = np.random.default_rng(2)
    head = random_head(rng, SHAPE, 50, n_tail, document_position=50, window=50)
    spans = head.select(select_all, queries_of(rng, SHAPE, n_tokens), 4)
    oldest = max(0, 100 + n_tail - n_tokens - 49)  # of the first token, which sees itself and 49 more
    assert head.rows(spans) == list(range(min(oldest, 100) - 50 if oldest < 100 else oldest - 50, 50 + n_tail))
    assert (spans["position"] != ANY_ORDER).all()
