"""Documents that are attended at once: by what must hold for any model, and against one document alone."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from helpers.index_builds import ANSWER, QUESTION, TEXT, attached_logits, build, logits_after

from octavo.errors import OctavoError
from octavo.runtime.document.together import Together
from octavo.runtime.query_recorder import PART, QueryHead, Recorder
from octavo.runtime.store.index_files import open_index

pytest_plugins = ["helpers.index_fixtures"]

ATTENTIONS = ["dense", "squeezed", "squeezed:rest=off", "squeezed:select=head", "squeezed2", "sketch", "quest"]

#: Shares that steps read, and how near that is to the document alone, in whose share the tail's rows count.
BUDGETS = ((1.0, 1e-4), (0.4, 0.2))


@pytest.fixture(scope="module")
def document(index, model_hash):
    return open_index(index, model_hash)[0]


@pytest.fixture(scope="module")
def longer(llama, document, model_hash, tmp_path_factory):
    """Another document."""
    llama.reset()
    path = build(llama, tmp_path_factory.mktemp("longer"), "Jupiter has many moons. " * 40 + TEXT[: len(TEXT) // 2] * 3)
    other = open_index(path, model_hash)[0]
    assert len(other.tokens) > len(document.tokens)
    return other


def relative(actual, expected):
    return np.abs(actual - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("weights", [[1], [3, 1], [0.2, 0.3, 0.5]])
def test_a_document_several_times_is_the_document(llama, document, attention, weights):
    copies = Together.of([document] * len(weights), weights)
    for budget, tolerance in BUDGETS:
        alone = attached_logits(llama, document, attention, budget)
        assert relative(attached_logits(llama, copies, attention, budget), alone) < tolerance


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_document_with_all_of_the_weight_is_attended_as_if_alone(llama, document, longer, attention):
    """Also the shorter one, behind which queries are turned."""
    for first, second in ((document, longer), (longer, document)):
        together = Together.of([first, second], [1, 1e-12])
        for budget, tolerance in BUDGETS:
            alone, other = (attached_logits(llama, each, attention, budget) for each in (first, second))
            both = attached_logits(llama, together, attention, budget)
            assert relative(both, alone) < tolerance < relative(both, other)


def test_weights_change_the_answer_step_by_step(llama, document, longer):
    logits = [
        attached_logits(llama, Together.of([document, longer], [share, 1 - share]), "dense")
        for share in (0.999999, 0.7, 0.3, 1e-6)
    ]
    far = relative(logits[0], logits[3])
    assert far > 0.1
    assert all(relative(a, b) > 1e-3 for a, b in pairwise(logits))


def test_another_attention_goes_on_with_the_same_documents(llama, document, longer):
    together = Together.of([document, longer], [1, 1])
    expected = attached_logits(llama, together, "squeezed", 0.4)
    attached_logits(llama, together, "dense")
    llama.rewind(len(longer.tokens))
    llama.set_attention("squeezed", 0.4)
    assert relative(logits_after(llama), expected) < 2e-2
    llama.rewind(len(longer.tokens))
    assert relative(logits_after(llama), expected) < 2e-2


def test_a_fork_attends_the_same_documents(llama, document, longer):
    expected = attached_logits(llama, Together.of([document, longer], [1, 1]), "squeezed", 0.4)
    context, first = llama.context, llama.context.sequence
    sequence = context.new_sequence(first.cache.assignments)
    sequence.cache.fork(first.cache, len(longer.tokens))
    context.switch(sequence)
    try:
        llama.n_tokens = len(longer.tokens)
        assert relative(logits_after(llama), expected) < 1e-3
    finally:
        context.switch(first)


def test_bytes_read_are_those_of_all_documents(llama, document, longer):
    def read(index):
        attached_logits(llama, index, "dense")
        llama.context.bytes_read = 0
        llama.eval([1])
        return llama.context.bytes_read

    one, other, both = read(document), read(longer), read(Together.of([document, longer], [1, 1]))
    assert both == pytest.approx(one + other, rel=0.1)
    assert both > other


def test_documents_whose_files_have_changed_are_refused(document, longer):
    together = Together.of([document, longer], [1, 1])
    together.check()

    def changed():
        raise OctavoError("changed")

    for each in (document, longer):
        others = [replace(own, check=changed) if own is each else own for own in (document, longer)]
        with pytest.raises(OctavoError, match="changed"):
            Together.of(others, [1, 1]).check()


def test_a_model_whose_windows_slide_is_refused(llama, document, monkeypatch):
    layers = [replace(layer, window=99) for layer in llama.context.cache.layers]
    monkeypatch.setattr(llama.context.cache, "layers", layers)
    with pytest.raises(OctavoError, match="windows slide"):
        llama.context.attach(Together.of([document, document], [1, 1]))


def test_documents_of_two_lengths_need_the_rope(llama, document, longer, monkeypatch):
    layers = [replace(layer, rope=None) for layer in llama.context.cache.layers]
    monkeypatch.setattr(llama.context.cache, "layers", layers)
    llama.context.attach(Together.of([document, document], [1, 1]))
    with pytest.raises(OctavoError, match="RoPE"):
        llama.context.attach(Together.of([document, longer], [1, 1]))


@pytest.mark.parametrize("attention", ["sparq", "h2o", "streaming"])
def test_an_attention_that_cannot_is_refused(llama, document, attention):
    llama.set_attention(attention)
    with pytest.raises(OctavoError, match="several documents at once"):
        llama.attach(Together.of([document, document], [1, 1]))
    llama.set_attention("dense")
    llama.attach(document)
    llama.eval([1])


def test_documents_of_other_models_are_refused(llama, document, longer):
    broken = Together.of([document, longer], [1, 1])
    object.__setattr__(longer, "tokens", longer.tokens + 10**6)
    try:
        with pytest.raises(OctavoError):
            llama.attach(broken)
    finally:
        object.__setattr__(longer, "tokens", longer.tokens - 10**6)


def test_what_was_attended_is_told_of_each_document(llama, document, longer):
    """Of a document several times, each copy gets what its weight says."""
    context = llama.context
    recorder = Recorder(context.nodes, context.shapes, [QueryHead(1, 0, 0)])

    def attended(index):
        recorder.clear()
        llama.reset()
        llama.attach(index)
        context.record(recorder)
        try:
            llama.eval(QUESTION)
            for token in ANSWER:
                llama.eval([token])
        finally:
            context.record(None)
        assert recorder.n_steps < 2 * PART
        return recorder.attended(index)

    alone = attended(document)
    twice = attended(Together.of([document, document], [3, 1]))
    assert twice.shape == (1, 2 * len(document.tokens))
    for share, own in zip((0.75, 0.25), np.split(twice, 2, axis=1), strict=True):
        np.testing.assert_allclose(own, share * alone, atol=2e-3)
    hidden = attended(Together.of([longer, document], [1e-12, 1]))
    np.testing.assert_allclose(hidden[:, : len(longer.tokens)], 0, atol=1e-6)
    np.testing.assert_allclose(hidden[:, len(longer.tokens) :], alone, atol=2e-3)
