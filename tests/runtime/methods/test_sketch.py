"""Sketches over a document: its rows are copied in order, and steps read as much as they should."""

import numpy as np
import pytest
from helpers import tiny_models
from helpers.index_builds import build, library_of, text_of

import octavo
from octavo.runtime.store.index_files import open_index

SAME = 0.02  # the same numbers, added up in another order; logits have a standard deviation of about three
TOKENS = np.random.default_rng(5).integers(32, 127, 40).tolist()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.write_model(tmp_path_factory.mktemp("tiny") / "gqa.gguf", "llama", n_layer=2)


@pytest.fixture(scope="module")
def document(model, tmp_path_factory):
    folder, reading = tmp_path_factory.mktemp("index"), octavo.Llama(model, n_ctx=8192, n_threads=2)
    built = build(reading, folder, text_of(3000))
    return open_index(built, library_of(reading, folder).model_hash)[0]


def attached(model, document, attention, budget):
    llama = octavo.Llama(model, n_ctx=8192, n_threads=2, attention=attention, budget=budget)
    llama.attach(document)
    return llama


def steps(llama):
    rows = []
    for token in TOKENS:
        llama.eval([token])
        rows.append(llama.logits())
    return np.array(rows)


def keys_of_document(llama, document):
    """The keys that the first KV head copied, (n_rows, head_dim)."""
    return np.concatenate([keys for keys, _ in llama.context.cache.tails[0].rows(0, len(document.tokens))])


def test_with_all_of_the_budget_a_document_is_dense(model, document):
    dense = steps(attached(model, document, "dense", 1.0))
    np.testing.assert_allclose(steps(attached(model, document, "sketch", 1.0)), dense, atol=SAME)


@pytest.mark.parametrize("attention", ["sketch:budget=0.25", "sketch:quality=0.9,most=0.3"])
def test_a_document_is_near_to_dense(model, document, attention):
    dense = steps(attached(model, document, "dense", 1.0))
    llama = attached(model, document, attention, 1.0)
    llama.context.bytes_read = 0
    sketched = steps(llama)
    whole = len(document.tokens) * llama.context.cache.layers[0].row_bytes * len(llama.context.cache.layers)
    assert llama.context.counted_bytes_read < 0.35 * whole * len(TOKENS)
    assert np.corrcoef(sketched.ravel(), dense.ravel())[0, 1] > 0.9


def test_what_follows_a_document_can_be_taken_back(model, document):
    llama = attached(model, document, "sketch", 0.25)
    first = steps(llama)
    llama.rewind(len(document.tokens))
    np.testing.assert_array_equal(steps(llama), first)
    assert not llama.context.cache.truncate(len(document.tokens) - 1), "the document itself stays whole"


@pytest.mark.parametrize("attention", ["sketch", "auto"])
def test_a_document_stays_in_order(model, document, attention):
    llama = attached(model, document, attention, 0.25)
    in_order = document.layers[0].keys[0][document.layers[0].positions(0).argsort()]
    assert (keys_of_document(llama, document) == in_order).all()
