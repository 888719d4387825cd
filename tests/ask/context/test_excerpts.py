"""Spans that are laid out as one text, against reading that text."""

import numpy as np
import pytest
from helpers.index_builds import Recorded

from octavo.ask.context.answer_context import at_once
from octavo.ask.context.document_set import open_document_set
from octavo.ask.context.excerpts import CannotLayOut, lay_out
from octavo.ask.search.ranking import Span
from octavo.ask.sources.find_sources import TokenText
from octavo.library.file_texts import FileTexts
from octavo.library.open_index import Indexer
from octavo.library.source_text import SourceFile
from octavo.progress import Silent, of_many
from octavo.runtime.document.stored_rows import as_floats
from octavo.runtime.llama import Llama
from octavo.runtime.query_recorder import QueryHead
from octavo.runtime.store.library_snapshot import LibrarySnapshot
from octavo.runtime.store.model_library import Library
from octavo.settings import ReadSettings

TEXTS = {"a.txt": "The Petrel passed the island at noon. " * 30, "b.txt": "Nobody wrote down the ships. " * 20}


def laid_out_at_once(llama, document_set, spans):
    return at_once(lay_out(llama, document_set, spans, lambda: llama.n_batch))


@pytest.fixture
def opened(tiny_model, tmp_path):
    """opened(**settings): a model that has read the texts, and the document_set of them."""
    models = []

    def open_them(**settings):
        llama = Llama(tiny_model, n_ctx=4096, n_threads=2, **settings)
        models.append(llama)
        for name, text in TEXTS.items():
            (tmp_path / name).write_text(text)
        files = [SourceFile(tmp_path / name) for name in TEXTS]
        indexer = Indexer(
            llama, LibrarySnapshot(Library.of(tiny_model, tmp_path)), ReadSettings(prefill="dense"), lambda said: None
        )
        texts = FileTexts(indexer.library, Silent())
        document_set = open_document_set(indexer, files, texts, of_many(Recorded(), 1), [QueryHead(0, 0, 0)])
        return llama, document_set

    yield open_them
    for llama in models:
        llama.close()


@pytest.mark.parametrize(("type_kv", "tolerance"), [(1, 2e-3), (8, 2e-2)])  # f16, q8_0
def test_keys_of_the_first_layer_are_those_of_reading_the_excerpts(opened, type_kv, tolerance):
    """They depend on token and position alone."""
    llama, document_set = opened(type_k=type_kv, type_v=type_kv)
    a, b = document_set.documents
    excerpts = [Span(b, 200, 310), Span(a, 17, 400), Span(b, 0, 33)]
    index = laid_out_at_once(llama, document_set, excerpts).index
    own = {each: document_set.whole(each).index.tokens[document_set.n_prefix(each) :] for each in (a, b)}
    expected = [own[document][start:stop] for document, start, stop in excerpts]
    np.testing.assert_array_equal(index.tokens[index.n_prefix :], np.concatenate(expected))
    llama.reset()
    llama.prefill(index.tokens.tolist())
    for found, read in zip((index.layers[0].keys, index.layers[0].values), llama.context.cache.rows(0), strict=True):
        known = as_floats(read)
        np.testing.assert_allclose(as_floats(found), known, atol=tolerance * np.abs(known).max())


def test_a_whole_document_is_laid_out_as_it_was_read(opened):
    llama, document_set = opened()
    document = document_set.documents[0]
    n_tokens = len(document_set.whole(document).index.tokens)
    index = laid_out_at_once(llama, document_set, [Span(document, 0, n_tokens - document_set.n_prefix(document))]).index
    llama.reset()
    llama.attach(document_set.whole(document).index)
    llama.eval([65])
    expected = llama.logits().copy()
    llama.reset()
    llama.attach(index)
    llama.eval([65])
    np.testing.assert_allclose(llama.logits(), expected, atol=2e-2)


def test_an_attention_that_does_not_keep_all_keys_is_refused(opened, monkeypatch):
    llama, document_set = opened()
    monkeypatch.setattr("octavo.ask.context.excerpts.keep_all_rows", lambda layers: False)
    with pytest.raises(CannotLayOut, match='read "document" in place of "excerpts"'):
        laid_out_at_once(llama, document_set, [Span(document_set.documents[0], 0, 20)])


def test_what_is_attended_in_excerpts_is_a_passage_of_its_document(opened):
    llama, document_set = opened()
    a, b = document_set.documents
    laid_out = laid_out_at_once(llama, document_set, [Span(b, 200, 310), Span(a, 17, 400), Span(b, 0, 60)])
    assert laid_out.documents == [b, a]
    texts = {
        each: TokenText.of([llama.piece(token) for token in own.tolist()]) for each, own in document_set.texts.items()
    }
    attended = np.zeros((1, len(laid_out.index.tokens)), np.float32)
    at = laid_out.index.n_prefix + 110 + 200  # token 217 of a
    attended[0, at : at + 3] = 0.1
    attended[0, laid_out.index.n_prefix + 110 + 383 + 20] = 0.2  # token 20 of b
    found = laid_out.sources(attended, "", "", 5)
    assert [(document.name, round(passage.share, 1)) for document, passage in found] == [("a.txt", 0.3), ("b.txt", 0.2)]
    for (document, passage), token in zip(found, (217, 20), strict=True):
        assert passage.start <= texts[document].starts[token] < passage.stop
        assert passage.quote == TEXTS[document.name][passage.start : passage.stop].strip()
    assert laid_out.sources(attended, "", "", 1) == found[:1]
