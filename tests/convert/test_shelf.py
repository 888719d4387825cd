"""Which document a question is about: each step against what reading the documents gives."""

import shutil

import numpy as np
import pytest
from helpers.index_builds import Recorded

from octavo.convert import shelf as shelf_module
from octavo.convert.clusters import ClusterSettings
from octavo.convert.documents import Source
from octavo.convert.progress import of_many
from octavo.convert.shelf import open_shelf
from octavo.errors import OctavoError
from octavo.runtime.cache.rows import as_floats
from octavo.runtime.llama import Llama
from octavo.runtime.prompt import Prompt
from octavo.runtime.recorder import QueryHead
from octavo.runtime.routing import attention_shares, question_queries
from octavo.runtime.store.library import Library

QUESTION = "Which ship passed the island?"
HEADS = [QueryHead(0, 0, 0), QueryHead(1, 1, 1), QueryHead(2, 0, 1)]
TEXTS = {
    "short.txt": "The Petrel passed at noon.",
    "middle.txt": "Nobody wrote down the ships of that year. " * 9,
    "long.txt": "The keeper of the island lighthouse wrote down each ship. " * 26,
}


@pytest.fixture(scope="module")
def llama(tiny_model):
    return Llama(tiny_model, n_ctx=4096, n_threads=2)


@pytest.fixture
def library(tiny_model, tmp_path):
    return Library.of(tiny_model, tmp_path)


@pytest.fixture
def open_on(llama, library, tmp_path):
    """open_on(names): a shelf, and the sentences that were said."""

    def opened(names):
        for name in names:
            if name in TEXTS:
                (tmp_path / name).write_text(TEXTS[name])
        said = []
        sources = [Source(tmp_path / name) for name in names]
        shelf = open_shelf(llama, library, sources, HEADS, of_many(Recorded(), 1), 2, said.append, "dense")
        return shelf, said

    return opened


def rows_of(llama, text):
    """Keys that reading a document gives, without those of the prompt's head; and how many tokens it has."""
    prompt = Prompt(llama)
    llama.reset()
    llama.read(prompt.head() + prompt.document(text))
    keys = [as_floats(llama.context.cache.rows(node.kv_layer)[0]) for node in llama.context.nodes]
    n_tokens = llama.n_tokens
    llama.reset()
    return [keys[head.node][head.kv_head, len(prompt.head()) :] for head in HEADS], n_tokens


def test_documents_are_found_by_their_keys_and_ordered_by_the_questions_likelihood(llama, open_on):
    shelf, _ = open_on(TEXTS)
    found = shelf.route(QUESTION)
    assert llama.n_tokens == 0
    queries = question_queries(llama, HEADS, QUESTION)
    scores = np.zeros((len(HEADS), len(queries[0].queries), len(TEXTS)), np.float32)
    for number, text in enumerate(TEXTS.values()):
        keys, n_tokens = rows_of(llama, text)
        scores[:, :, number] = [query.best(own, n_tokens) for query, own in zip(queries, keys, strict=True)]
    shares = dict(zip(TEXTS, attention_shares(scores), strict=True))
    for each in found:
        assert each.share == pytest.approx(shares[each.document.name], abs=1e-3)
        assert each.likelihood == pytest.approx(likelihood(llama, TEXTS[each.document.name]), abs=0.05)
    assert [each.likelihood for each in found] == sorted((each.likelihood for each in found), reverse=True)


def likelihood(llama, text):
    """Logarithm of the probability of the question's tokens after a document, in float64."""
    prompt = Prompt(llama)
    tokens = prompt.head() + prompt.document(text) + prompt.first_question(QUESTION)
    logits = llama.eval_all(tokens).astype(np.float64)
    llama.reset()
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    stop = len(tokens) - len(prompt.tail())
    return sum(logits[i - 1, tokens[i]] for i in range(stop - len(prompt.question(QUESTION)), stop))


def test_first_all_documents_are_looked_at_then_fewer(llama, open_on, monkeypatch):
    shelf, _ = open_on(TEXTS)
    monkeypatch.setattr(shelf_module, "_LOOKED_AT", 2)
    monkeypatch.setattr(shelf_module, "_REREAD", 1)
    found = shelf.route(QUESTION)
    assert len(found) == 2
    assert [np.isfinite(each.likelihood) for each in found] == [True, False]
    assert found[0].share > found[1].share
    assert sum(each.share for each in found) == pytest.approx(1, abs=1e-4)


def test_means_are_those_of_clusters_and_of_pages(llama, open_on):
    shelf, _ = open_on(TEXTS)
    for document in shelf.documents:
        text = TEXTS[document.name]
        keys, _ = rows_of(llama, text)
        n_tokens, means = shelf._mean_keys(document)
        assert n_tokens == len(keys[0]) + len(Prompt(llama).head())
        if document.name == "long.txt":
            index, _ = shelf.open(document)
            n_centroids = index.n_clusters
            assert n_centroids > 50
            np.testing.assert_array_equal(means[0][:n_centroids], index.layers[0].centroids[0])
            assert len(means[0]) - n_centroids == -(-(index.n_exact - ClusterSettings().exact_first) // 16)
        else:
            pages = [keys[0][start : start + 16].mean(axis=0) for start in range(0, len(keys[0]), 16)]
            np.testing.assert_allclose(means[0], pages, atol=1e-2)


def test_a_damaged_index_is_made_again(llama, open_on):
    shelf, said = open_on(TEXTS)
    before = shelf.route(QUESTION)
    shelf, said = open_on(TEXTS)
    for document in shelf.documents:
        (document.folder / "layer-001.safetensors").write_bytes(b"damaged")
    after = shelf.route(QUESTION)
    assert [(each.document.name, each.share, each.likelihood) for each in after] == [
        (each.document.name, each.share, each.likelihood) for each in before
    ]
    assert sum("is damaged, so it is made again" in sentence for sentence in said) == len(TEXTS)


def test_a_document_that_cannot_be_read_is_left_out(open_on, tmp_path):
    shelf, said = open_on(["short.txt", "gone.txt"])
    assert [document.name for document in shelf.documents] == ["short.txt"]
    assert [sentence for sentence in said if sentence.startswith("Left out: ")] != []
    (tmp_path / "copy.txt").write_text(TEXTS["short.txt"])
    shelf, _ = open_on(["short.txt", "copy.txt"])
    assert len(shelf.documents) == 1  # the same text is one document
    shutil.rmtree(shelf.documents[0].folder)
    with pytest.raises(OctavoError, match="No document can be used"):
        open_on(["gone.txt", "gone too.txt"])
