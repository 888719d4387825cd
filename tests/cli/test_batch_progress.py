"""How far many documents are: bars on a terminal, lines elsewhere."""

import re
import sys

import pytest

from octavo.cli import batch_progress as many
from octavo.cli.batch_progress import ManyProgress


@pytest.fixture
def now(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(many.time, "perf_counter", lambda: now[0])
    return now


def read(progress, now, names):
    """Two documents at once, of 100 and 300 tokens."""
    progress.begin(len(names))
    documents = [progress.document(name) for name in names]
    for number, document in enumerate(documents):
        document.start(f"Reading {names[number]}", 100 + 200 * number, "tokens", done=50 * number)
    for step in range(10):
        now[0] += 2
        for number, document in enumerate(documents):
            document.advance(10 + 15 * number)
        if step == 4:
            yield documents
    for document in documents:
        document.start("Clustering keys", 30, "layers")
        document.advance(30)
        document.end()


def test_off_a_terminal_a_line_comes_now_and_then(now, capsys):
    with ManyProgress() as progress:
        list(read(progress, now, ["a.txt", "b.txt"]))
    assert capsys.readouterr().err.splitlines() == [
        "Indexing: 0/2 documents 185 tokens 15 tokens/s; Reading a.txt 60/100 tokens; Reading b.txt 175/300 tokens",
        "Indexing: 2/2 documents 350 tokens 18 tokens/s in 0:20",
    ]


def test_a_single_document_is_shown_as_any_task(now, capsys):
    with ManyProgress() as progress:
        list(read(progress, now, ["a.txt"]))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Reading a.txt: 100 tokens"
    assert not [line for line in lines if line.startswith("Indexing")]


def test_on_a_terminal_there_are_bars(now, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "160")
    with ManyProgress() as progress:
        for _ in read(progress, now, ["a.txt", "b.txt"]):
            bars = [(task.description, task.completed, task.fields["about"]) for task in progress._bars.tasks]
            assert bars == [
                ("Indexing", pytest.approx(0.9 * (0.5 + 175 / 300)), "0/2 documents 175 tokens 18 tokens/s"),
                ("Reading a.txt", 50, "50/100 tokens"),
                ("Reading b.txt", 175, "175/300 tokens"),
            ]
        bars = [(task.description, task.completed, task.fields["about"]) for task in progress._bars.tasks]
        assert bars == [("Indexing", 2, "2/2 documents 350 tokens 18 tokens/s in 0:20")]
    assert re.search("Indexing.*2/2 documents 350 tokens 18 tokens/s in 0:20", capsys.readouterr().err)
