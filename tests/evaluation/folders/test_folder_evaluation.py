"""Ways to answer from many documents, side by side on a tiny model."""

import pytest

from octavo.evaluation.folders import evaluate_folder as evaluate
from octavo.evaluation.folders.evaluate_folder import FolderEvaluation, FolderSettings
from octavo.evaluation.folders.multikey import FolderMultikey
from octavo.evaluation.folders.ways import FolderReading
from octavo.progress import Silent
from octavo.runtime.store.model_library import Library

WAYS = FolderReading.ways
TASK = FolderMultikey(documents=3, keys=2)


@pytest.fixture
def evaluation(reader, tiny_model, tmp_path):
    """evaluation(): one that measures four questions on documents of 1,500 tokens."""
    library = Library.of(tiny_model, tmp_path)
    settings = FolderSettings([1500], 4, 0, TASK.data)
    return lambda: FolderEvaluation(reader, library, TASK, settings, Silent(), lambda said: None)


@pytest.mark.slow
def test_each_way_answers_all_questions(evaluation, tmp_path):
    result = evaluation().run()
    rows = {row["way"]: row for row in result["results"]}
    assert list(rows) == list(WAYS)
    for row in rows.values():
        assert (row["documents"], row["depth"], row["samples"]) == (3, 1500, 4)
        assert 0 <= row["found"] <= 1
        assert row["first_token_s"] > 0
    assert rows["the right document"]["found"] == rows["all documents, read"]["found"] == 1
    assert rows["all documents, read"]["held"] > 2.5 * rows["the right document"]["held"]
    assert rows["passages, not read before"]["found"] == 1
    assert 1024 <= rows["excerpts"]["held"] < 1500 < rows["the right document"]["held"]
    assert [path.suffix for path in (tmp_path.glob("*/eval/*"))] == [".jsonl"]  # the documents are gone


def test_an_evaluation_goes_on_where_it_stopped(evaluation, monkeypatch):
    answered = []
    usual = FolderEvaluation._answered

    def counted(self, reading, way, asked, depth, number):
        if len(answered) == 6:
            raise KeyboardInterrupt
        answered.append((way, number))
        return usual(self, reading, way, asked, depth, number)

    with monkeypatch.context() as patch:
        patch.setattr(FolderEvaluation, "_answered", counted)
        with pytest.raises(KeyboardInterrupt):
            evaluation().run()
        first, answered[:] = list(answered), []
        with pytest.raises(KeyboardInterrupt):
            evaluation().run()
    assert not set(first) & set(answered)
    result = evaluation().run()
    assert [row["samples"] for row in result["results"]] == [4] * len(WAYS)
    monkeypatch.setattr(evaluate, "open_document_set", None)
    assert evaluation().run() == result  # nothing is read again


def test_all_documents_are_read_only_where_they_fit(evaluation, monkeypatch):
    monkeypatch.setattr(FolderReading, "n_all", 8000)
    ways = [row["way"] for row in evaluation().run()["results"]]
    assert ways == [way for way in WAYS if way != "all documents, read"]
