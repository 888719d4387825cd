"""benchmarks/indexing.py: what it measures, with a tiny model."""

from pathlib import Path

import pytest

from octavo.settings import ModelSettings

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import indexing

    return indexing


def test_each_way_reads_the_same_tokens(script, tiny_model, tmp_path):
    documents = script.write_documents(tmp_path, 2, 300)
    assert [path.stat().st_size for path in documents] == [300, 300]
    assert len({path.read_text()[:40] for path in documents}) == 2
    one, alone, at_once = script.measure(documents, ModelSettings(tiny_model), [1, 2], [], 2, 1)
    assert (one["documents"], alone["documents"], at_once["documents"]) == (1, 2, 2)
    assert alone["tokens"] == at_once["tokens"] > one["tokens"]
    assert at_once["threads each"] == 1
    assert set(one) == set(script.COLUMNS)
