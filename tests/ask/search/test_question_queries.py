"""What the words of a question attend in documents, against queries that are read after them and float64."""

import numpy as np
import pytest

import octavo
from octavo.ask.context.answer_context import at_once
from octavo.ask.search.question_queries import HeadQueries, attention_shares, read_question
from octavo.library.question_words import says_something
from octavo.runtime.query_recorder import QueryHead

TEXT = "Which ship passed the island?"


@pytest.fixture(scope="module")
def llama(tiny_model):
    return octavo.Llama(tiny_model, n_ctx=2048, n_batch=64, n_threads=2)


def heads_of_the_first_layer(llama):
    """Their queries follow from token and position alone."""
    return [QueryHead(0, k, m) for k in range(llama.context.nodes[0].n_kv_head) for m in range(2)]


def queries_of(llama, question):
    return at_once(read_question(llama, heads_of_the_first_layer(llama), question, ""))


@pytest.mark.parametrize("n_document", [5, 700])
def test_queries_turn_to_where_the_question_stands_after_a_document(llama, n_document):
    prompt = llama.prompt()
    found = queries_of(llama, TEXT)
    assert llama.n_tokens == 0
    llama.prefill([65 + i % 20 for i in range(n_document)])
    tokens = prompt.first_question(TEXT)
    stop = len(tokens) - len(prompt.tail())
    own = slice(stop - len(prompt.question(TEXT)), stop)
    says = [says_something(llama.piece(token).decode(errors="replace")) for token in tokens[own]]
    assert 0 < sum(says) < len(says)
    with llama.context.captured_queries(len(tokens)) as queries:
        llama.prefill(tokens)
    llama.reset()
    for each in found:
        expected = queries[0][each.head.kv_head, own, each.head.member][says]
        turned = each.rope.turned(each.queries, n_document - each.n_before)
        np.testing.assert_allclose(turned, expected, atol=2e-4 * np.abs(expected).max())


def test_of_a_long_question_the_end_counts(llama):
    long = "Which ship? " * 40
    [whole, *_] = queries_of(llama, long)
    tokens, n_tail = llama.prompt().first_question(long), len(llama.prompt().tail())
    end = tokens[len(tokens) - llama.n_batch : len(tokens) - n_tail]
    assert whole.queries.shape == (n_said(llama, end), llama.context.shapes[0].head_dim)
    [short, *_] = queries_of(llama, TEXT)
    assert len(short.queries) == n_said(llama, llama.prompt().question(TEXT))


def n_said(llama, tokens):
    """Number of tokens that say something about a subject."""
    return sum(says_something(llama.piece(token).decode(errors="replace")) for token in tokens)


def test_a_question_without_a_subject_counts_whole(llama):
    [each, *_] = queries_of(llama, "?!")
    assert len(each.queries) == len(llama.prompt().question("?!"))


def test_the_question_before_is_read_first_and_does_not_count(llama):
    heads = heads_of_the_first_layer(llama)
    [alone, *_], [after, *_] = (at_once(read_question(llama, heads, TEXT, before)) for before in ("", "Who wrote it?"))
    assert after.queries.shape == alone.queries.shape


@pytest.mark.parametrize("softcap", [0.0, 3.0])
@pytest.mark.parametrize(("n_hidden", "n_piece"), [(0, 0), (3, 0), (0, 16), (3, 10), (39, 4), (7, 33)])
def test_the_best_score_is_that_of_all_keys_of_a_piece(n_hidden, n_piece, softcap):
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(5, 16)).astype(np.float32), rng.normal(size=(40, 16)).astype(np.float16)
    order = rng.permutation(40)
    expected = queries.astype(np.float64) @ keys[np.argsort(order)].T
    expected = softcap * np.tanh(expected / softcap) if softcap else expected
    each = HeadQueries(QueryHead(0, 0, 0), 0, queries, 0, None, softcap)
    found = each.best(keys, order, 40, n_hidden, n_piece)
    borders = range(n_hidden, 40, n_piece or 40)
    pieces = [expected[:, first : min(first + (n_piece or 40), 40)].max(axis=1) for first in borders]
    np.testing.assert_allclose(found, np.stack(pieces, axis=1), rtol=1e-5)


@pytest.mark.parametrize("n_piece", [0, 8])
def test_a_document_without_keys_has_no_score(n_piece):
    queries, keys = np.ones((5, 16), np.float32), np.ones((3, 16), np.float16)
    each = HeadQueries(QueryHead(0, 0, 0), 0, queries, 0, None, 0.0)
    assert (each.best(keys, np.arange(3), 3, 3, n_piece) == -np.inf).all()


def test_shares_are_a_softmax_of_each_word_over_documents():
    scores = np.random.default_rng(1).normal(0, 30, size=(3, 7, 11)).astype(np.float32)
    scores[2] = -np.inf  # a head that streamed in all documents
    scores[0, :, 4] = -np.inf
    weights = np.exp(scores[:2].astype(np.float64) - scores[:2].max(axis=2, keepdims=True))
    expected = (weights / weights.sum(axis=2, keepdims=True)).sum(axis=(0, 1)) / (3 * 7)
    np.testing.assert_allclose(attention_shares(scores), expected, atol=1e-6)


def test_without_heads_no_document_gets_attention():
    np.testing.assert_array_equal(attention_shares(np.zeros((0, 0, 3), np.float32)), np.zeros(3))


def test_a_long_question_is_read_in_batches(llama):
    """Others are computed between them."""
    long, sizes = "Which ship? " * 40, iter([7, 16, 5] * 100)
    whole = queries_of(llama, long)
    read, prefill = [], llama.prefill
    llama.prefill = lambda tokens: (read.append(len(tokens)), prefill(tokens))[1]
    try:
        steps, n_steps = read_question(llama, heads_of_the_first_layer(llama), long, "", lambda: next(sizes)), 0
        while True:
            try:
                next(steps)
                n_steps += 1
            except StopIteration as end:
                found = end.value
                break
    finally:
        del llama.prefill
    assert (read[:3], n_steps) == ([7, 16, 5], len(read) - 1)
    for one, other in zip(found, whole, strict=True):
        np.testing.assert_allclose(one.queries, other.queries, atol=1e-4 * np.abs(other.queries).max())
