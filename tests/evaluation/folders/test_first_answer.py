"""Questions about a document before it is read, while it is, and after, on a tiny model."""

import pytest
from helpers import tiny_models

from octavo.errors import OctavoError
from octavo.evaluation.folders.evaluate_folder import FolderEvaluation, FolderSettings
from octavo.evaluation.folders.first_answer import FirstAnswer, sentence_with
from octavo.evaluation.folders.first_ways import FirstReading
from octavo.evaluation.tasks.qa import read_articles
from octavo.library.open_index import Indexer
from octavo.library.source_text import SourceFile
from octavo.progress import Silent
from octavo.runtime.llama import Llama
from octavo.runtime.store.library_snapshot import LibrarySnapshot
from octavo.runtime.store.model_library import Library
from octavo.settings import ReadSettings

WAYS = ["passages", "half read, and passages", "the whole document", "BM25 chunks, read"]


@pytest.fixture
def evaluated(reader, tiny_model, tmp_path):
    """evaluated(task, depth): the result of four questions."""

    def run(task, depth):
        settings = FolderSettings([depth], 4, 0, task.data)
        library = Library.of(tiny_model, tmp_path)
        return FolderEvaluation(reader, library, task, settings, Silent(), lambda said: None).run()

    return run


@pytest.fixture
def opened(reader, tiny_model, tmp_path):
    """opened(folder): a reading of the documents of a folder."""

    def open_all(folder):
        for name, text in folder.documents.items():
            (tmp_path / name).write_text(text)
        indexer = Indexer(reader, LibrarySnapshot(Library.of(tiny_model, tmp_path)), ReadSettings(), lambda said: None)
        return FirstReading(indexer, [SourceFile(tmp_path / name) for name in folder.documents], Silent())

    return open_all


def held(reader):
    return reader.detokenize(reader.sequence.tokens.tolist()).decode()


@pytest.mark.parametrize(
    ("task", "depth", "n"),
    [(FirstAnswer(), 3000, 20), (FirstAnswer(documents=1), 3000, 3), (FirstAnswer(documents=3, kind="qa"), 9000, 9)],
)
def test_each_answer_is_in_its_document(llama, task, depth, n):
    folder = task.folder(llama, task.data, depth, n, 0)
    assert (len(folder.asked), len(folder.documents)) == (n, task.documents)
    for asked in folder.asked:
        text = folder.documents[asked.document]
        assert text.startswith(asked.passage, round(asked.place * len(text)))
        assert task.score(f"It is {asked.answers[0]}.", asked) == 1
        assert any(answer in asked.passage for answer in asked.answers)
    assert [asked.document for asked in folder.asked] == sorted(asked.document for asked in folder.asked)
    assert folder == task.folder(llama, task.data, depth, n, 0) != task.folder(llama, task.data, depth, n, 1)


def test_paragraphs_take_half_of_a_document(words):
    task = FirstAnswer(documents=1, kind="qa")
    few, many = (task.folder(words, task.data, depth, 1, 0).documents["document-001.txt"] for depth in (2000, 6000))
    for text, depth in ((few, 2000), (many, 6000)):
        assert depth <= len(words.tokenize(text.encode())) < depth + 1000
    own = [paragraph.context for paragraph in read_articles(task.data) if paragraph.context in many]
    assert 0.3 * len(many) < sum(map(len, own)) < 0.65 * len(many)


def test_the_sentence_with_an_answer():
    text = "Dr. Hill lives in Bath. Mr. Poe lives in Rye since 1990. Rye is old."
    assert sentence_with(("Rye",), text) == "Mr. Poe lives in Rye since 1990."
    assert sentence_with(("York", "Bath"), text) == "Dr. Hill lives in Bath."
    assert sentence_with(("1990. Rye",), text) == text


@pytest.mark.parametrize("kind", ["needle", "qa"])
def test_too_many_questions_are_refused(llama, kind):
    task = FirstAnswer(documents=1, kind=kind)
    with pytest.raises(OctavoError, match=r"give fewer --samples, or more documents \(first-answer:documents=2\)"):
        task.folder(llama, task.data, 4000, 500, 0)


@pytest.mark.parametrize("kind", ["needle", "qa"])
def test_each_way_answers_all_questions(evaluated, kind):
    result = evaluated(FirstAnswer(documents=2, kind=kind), 5500)
    rows = {row["way"]: row for row in result["results"]}
    assert list(rows) == WAYS
    for row in rows.values():
        assert (row["documents"], row["depth"], row["samples"]) == (2, 5500, 4)
        halves = [row[half] for half in ("first_half", "second_half") if row[half] is not None]
        assert halves
        assert min(halves) <= row["score"] <= max(halves)
    assert rows["passages"]["found"] >= 0.75
    assert rows["the whole document"]["found"] == 1
    assert rows["passages"]["held"] < 2200 < rows["half read, and passages"]["held"] < 5400
    assert rows["the whole document"]["held"] > 5500


def test_documents_that_exceed_the_context_are_answered_from_what_words_find(evaluated):
    assert [row["way"] for row in evaluated(FirstAnswer(documents=1), 9000)["results"]] == [WAYS[0], WAYS[3]]


def test_the_half_is_left_out_where_passages_cannot_follow_it(llama, tmp_path):
    model = tiny_models.write_model(tmp_path / "gemma3.gguf", "gemma3", window=64)
    gemma, folder = Llama(model, n_ctx=8192, n_threads=2), FirstAnswer().folder(llama, FirstAnswer().data, 1500, 1, 0)
    for name, text in folder.documents.items():
        (tmp_path / name).write_text(text)
    indexer = Indexer(gemma, LibrarySnapshot(Library.of(model, tmp_path)), ReadSettings(), lambda said: None)
    reading = FirstReading(indexer, [SourceFile(tmp_path / name) for name in folder.documents], Silent())
    assert [way for way in WAYS if reading.can(way)] == [WAYS[0], WAYS[2], WAYS[3]]


def test_passages_follow_the_first_half(llama, reader, opened):
    folder = FirstAnswer(documents=1).folder(llama, FirstAnswer().data, 6000, 10, 0)
    reading, text = opened(folder), folder.documents["document-001.txt"]
    assert sum(asked.place < 0.5 for asked in folder.asked) in range(1, 10)
    for asked in folder.asked:
        assert reading.half(asked)
        after_head = held(reader)[held(reader).index(text[:200]) :]
        assert after_head.startswith(text[: int(0.49 * len(text))])
        assert after_head.count(asked.passage) == (1 if asked.place > 0.5 else 2)
        assert after_head.rindex(asked.passage) > 0.49 * len(text)
        assert len(after_head) < 0.9 * len(text)
        assert reading.whole(asked)
        assert text in held(reader)
        assert reading.passages(asked)
        assert text[: int(0.49 * len(text))] not in held(reader)
    reading.passages(folder.asked[0])
    assert not reading.has(reader.sequence.tokens.tolist()[:100], folder.asked[0])


def test_the_half_has_the_rows_of_the_whole(llama, opened):
    folder = FirstAnswer(documents=2).folder(llama, FirstAnswer().data, 2000, 20, 0)
    reading = opened(folder)
    for name in folder.documents:
        half, whole = reading._half_of(name), reading._whole(name).index
        n_tokens = len(half.tokens)
        assert half.text.text == folder.documents[name][: half.n_characters]
        for (keys, values), layer in zip(half.rows, whole.layers, strict=True):
            for place in range(len(keys)):
                places = layer.positions(place).argsort()[:n_tokens]
                assert (keys[place] == layer.keys[place][places]).all()
                assert (values[place] == layer.values[place][places]).all()
