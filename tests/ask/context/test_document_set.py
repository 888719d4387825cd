"""Which document a question is about, against what reading the documents gives in float64."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from helpers.index_builds import Recorded

from octavo.ask.context import document_set as document_set_module
from octavo.ask.context.answer_context import at_once
from octavo.ask.context.document_set import open_document_set
from octavo.ask.search.question_queries import attention_shares, read_question
from octavo.ask.search.ranking import PIECE, WordScores, folding
from octavo.errors import OctavoError
from octavo.library.file_texts import FileTexts
from octavo.library.open_index import Indexer
from octavo.library.question_words import says_something
from octavo.library.source_text import SourceFile
from octavo.progress import Silent, of_many
from octavo.runtime.document.index import StreamingRows
from octavo.runtime.document.stored_rows import as_floats
from octavo.runtime.llama import Llama
from octavo.runtime.query_recorder import QueryHead
from octavo.runtime.store.index_files import read_layer, write_layer
from octavo.runtime.store.library_snapshot import LibrarySnapshot
from octavo.runtime.store.model_library import Library
from octavo.settings import ReadSettings
from octavo.system import files

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
    """open_on(names): a document_set, and the sentences that were said."""

    def opened(names):
        for name in names:
            if name in TEXTS:
                (tmp_path / name).write_text(TEXTS[name])
        said = []
        indexer = Indexer(llama, LibrarySnapshot(library), ReadSettings(prefill="dense"), said.append)
        files = [SourceFile(tmp_path / name) for name in names]
        texts = FileTexts(library, Silent())
        document_set = open_document_set(indexer, files, texts, of_many(Recorded(), 1), HEADS)
        return document_set, said

    return opened


def rows_of(llama, text):
    """Keys that reading a document gives, without those of the prompt's head; and how many tokens it has."""
    prompt = llama.prompt()
    llama.reset()
    llama.prefill(prompt.head() + prompt.document(text))
    keys = [as_floats(llama.context.cache.rows(node.kv_layer)[0]) for node in llama.context.nodes]
    n_tokens = llama.n_tokens
    llama.reset()
    return [keys[head.node][head.kv_head, len(prompt.head()) :] for head in HEADS], n_tokens


def subject_of(llama):
    """Weights of the tokens of the question, without case, that are not of words such as "which"."""
    tokens = llama.prompt().question(f" {QUESTION}")
    kept = [token for token in tokens if says_something(llama.piece(token).decode(errors="replace"))]
    return dict.fromkeys(folding(llama)[kept or tokens].tolist(), 1.0)


def test_documents_are_found_by_their_words_and_by_what_the_question_attends(llama, open_on):
    document_set, _ = open_on(TEXTS)
    found = document_set.rank(QUESTION).candidates
    assert llama.n_tokens == 0
    queries = at_once(read_question(llama, HEADS, QUESTION, ""))
    scores = np.zeros((len(HEADS), len(queries[0].queries), len(TEXTS)), np.float32)
    for number, text in enumerate(TEXTS.values()):
        keys, n_tokens = rows_of(llama, text)
        for head, (query, own) in enumerate(zip(queries, keys, strict=True)):
            turned = query.rope.turned(query.queries, n_tokens - query.n_before)
            n_pieces = max(-(-len(own) // PIECE), 1)
            scores[head, :, number] = (turned.astype(np.float64) @ own.T).max(axis=1) - 0.5 * np.log(n_pieces)
    shares = attention_shares(scores)
    prompt, same = llama.prompt(), folding(llama)
    words = WordScores([same[prompt.document(text)] for text in TEXTS.values()]).of(subject_of(llama))
    expected = (words - words.mean()) / words.std() + 0.5 * (shares - shares.mean()) / shares.std()
    by_name = {each.document.name: each for each in found}
    for name, share, score in zip(TEXTS, shares, expected, strict=True):
        assert by_name[name].share == pytest.approx(share, abs=1e-3)
        assert by_name[name].score == pytest.approx(score, abs=2e-2)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


def test_the_keys_of_the_documents_with_most_words_are_ranked(llama, open_on, monkeypatch):
    document_set, _ = open_on(TEXTS)
    monkeypatch.setattr(document_set_module, "_RANKED", 2)
    words = document_set.words.of(subject_of(llama))
    best = {document_set.documents[i].name for i in np.argsort(-words)[:2]}
    found = document_set.rank(QUESTION).candidates
    assert {each.document.name for each in found} == best
    assert sum(each.share for each in found) == pytest.approx(1, abs=1e-4)


def test_ranking_opens_no_index(open_on, monkeypatch):
    document_set, _ = open_on(TEXTS)
    monkeypatch.setattr(files, "MappedFile", None)  # from a cold disk the system reads megabytes around what is mapped
    assert len(document_set.rank(QUESTION).candidates) == len(TEXTS)


def test_a_head_that_streamed_while_documents_were_read_does_not_count(open_on):
    document_set, _ = open_on(TEXTS)
    before = document_set.rank(QUESTION).pieces
    for document in document_set.documents:
        layer = read_layer(document_set.folders[document], 1)
        streaming = StreamingRows((1,), 1, layer.keys[1:, :2], layer.values[1:, :2])
        seen = {name: getattr(layer, name)[:1] for name in ("keys", "values", "order")}
        write_layer(document_set.folders[document], 1, replace(layer, **seen, streaming=streaming))
    after = document_set.rank(QUESTION).pieces
    for scores, expected in zip(after, before, strict=True):
        assert (scores[1] == -np.inf).all()
        np.testing.assert_array_equal(scores[[0, 2]], expected[[0, 2]])


def test_without_a_head_that_sees_a_whole_document_words_decide(llama, open_on, monkeypatch):
    document_set, _ = open_on(TEXTS)
    document_set._heads = []
    words = document_set.words.of(subject_of(llama))
    assert document_set.rank(QUESTION).candidates[0].document.name == document_set.documents[int(words.argmax())].name


def test_a_damaged_index_is_made_again(llama, open_on):
    document_set, said = open_on(TEXTS)
    before = document_set.rank(QUESTION).candidates
    document_set, said = open_on(TEXTS)
    for folder in document_set.folders.values():
        (folder / "layer-001.safetensors").write_bytes(b"damaged")
    after = document_set.rank(QUESTION).candidates
    assert [(each.document.name, each.share, each.score) for each in after] == [
        (each.document.name, each.share, each.score) for each in before
    ]
    assert sum("is damaged, so it is made again" in sentence for sentence in said) == len(TEXTS)


def test_a_document_that_cannot_be_read_is_left_out(open_on, tmp_path):
    document_set, said = open_on(["short.txt", "gone.txt"])
    assert [document.name for document in document_set.documents] == ["short.txt"]
    assert [sentence for sentence in said if sentence.startswith("Left out: ")] != []
    (tmp_path / "copy.txt").write_text(TEXTS["short.txt"])
    document_set, _ = open_on(["short.txt", "copy.txt"])
    assert len(document_set.documents) == 1  # the same text is one document
    shutil.rmtree(document_set.folders[document_set.documents[0]])
    with pytest.raises(OctavoError, match="No document can be used"):
        open_on(["gone.txt", "gone too.txt"])
