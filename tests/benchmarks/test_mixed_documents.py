"""benchmarks/mixed_documents.py: the documents that it writes are read, and it asks about them."""

import subprocess
import sys
from pathlib import Path

import pytest

from octavo.library.source_text import SourceFile

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    """The module that writes documents."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import write_mixed_documents

    return write_mixed_documents


@pytest.mark.parametrize("name", ["first", "second"])
def test_each_document_is_read_and_has_its_passage(benchmark, tmp_path, name):
    asked = benchmark.write_documents(tmp_path, name)
    assert len(asked) == len({each.file for each in asked}) == 20
    assert len({Path(each.file).suffix for each in asked}) >= 10
    lengths = []
    for each in asked:
        text = " ".join(SourceFile(tmp_path / each.file).extract().text.split()).lower()
        assert each.passage.lower() in text, each.file
        lengths.append(len(text))
    assert max(lengths) > 70_000 > 1_000 > min(lengths)


def test_questions_are_asked_and_counted(tiny_model, tmp_path):
    """Of a small model, in one way that needs no index."""
    command = [sys.executable, BENCHMARKS / "mixed_documents.py", tmp_path, "-m", tiny_model, "--ways", "unread"]
    shown = subprocess.run([*command, "--seeds", "1"], capture_output=True, text=True, check=True).stdout
    [row] = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown.strip().splitlines()[2:]]
    assert (row[0], row[4]) == ("unread", "")
    assert [int(cell.removesuffix(" of 20")) >= 19 for cell in row[2:4]] == [True, True]
