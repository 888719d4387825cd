"""Progress that shows itself: in a notebook, on a terminal, and elsewhere."""

import io
import sys
import types

import pytest
from helpers.clock import Clock
from rich.cells import cell_len

from octavo import progress as module
from octavo.progress import AsOne, Progress, ShownProgress, TimeLeft


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def cell(monkeypatch):
    """The output of a notebook's cell: lines, of which some were changed; and the number of messages."""
    lines, messages = [], []

    class Handle:
        def __init__(self, place):
            self.place = place

        def update(self, data, raw):
            messages.append(data)
            lines[self.place] = data["text/plain"]

    def display(data, raw, display_id=None):
        messages.append(data)
        lines.append(data["text/plain"])
        return Handle(len(lines) - 1) if display_id else None

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    shown = types.ModuleType("IPython.display")
    shown.display = display
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    return lines, messages


def read(progress, clock, n_batches=100, seconds=0.1):
    progress.notice("Indexing a.txt, once.")
    progress.start("Reading a.txt", 10 * n_batches, "tokens")
    for _ in range(n_batches):
        clock.now += seconds
        progress.advance(10)
    progress.notice("Indexed.")


END = "Reading a.txt: 1,000/1,000 tokens, 100.0 tokens/s, in 0:10"


def test_a_notebook_gets_a_line_that_changes_and_no_flood(cell, clock):
    lines, messages = cell
    read(ShownProgress(), clock)
    assert lines == ["Indexing a.txt, once.", END, "Indexed."]
    assert 10 < len(messages) < 50
    assert {"text/plain": "Reading a.txt: 300/1,000 tokens, 100.0 tokens/s, 0:07 left"} in messages


def test_a_terminal_gets_a_line_that_changes(monkeypatch, clock):
    out = io.StringIO()
    out.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", out)
    read(ShownProgress(), clock)
    first, line, last, rest = out.getvalue().split("\n")
    assert (first, last, rest) == ("Indexing a.txt, once.", "Indexed.", "")
    assert line.split("\r")[-1].rstrip() == END
    assert 10 < len(line.split("\r")) < 50


def test_elsewhere_a_line_comes_now_and_then(monkeypatch, clock):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    read(ShownProgress(), clock, seconds=0.5)
    lines = out.getvalue().splitlines()
    assert len(lines) == 8  # two notices, the beginning, and every ten of 50 seconds
    assert lines[-2] == "Reading a.txt: 1,000/1,000 tokens, 20.0 tokens/s, in 0:50"


def test_a_notice_within_a_task_has_a_line_of_its_own(monkeypatch, clock):
    out = io.StringIO()
    out.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", out)
    progress = ShownProgress()
    progress.start("Reading a.txt", 100, "tokens")
    progress.notice("Half of it is blank.")
    assert out.getvalue() == "\rReading a.txt: 0/100 tokens\nHalf of it is blank.\n"


@pytest.mark.parametrize("name", ["a.txt", "the-minutes-of-the-harbour-masters-of-leith-1810.txt", "港の記録" * 12])
@pytest.mark.parametrize("columns", [80, 40, 12])
def test_a_line_that_changes_fits_the_terminal(name, columns, monkeypatch, clock):
    out = io.StringIO()
    out.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setenv("COLUMNS", str(columns))
    progress = ShownProgress()
    for task in (f"Reading {name}", "Clustering"):
        progress.start(task, 100_000, "tokens")
        for _ in range(10):
            clock.now += 1
            progress.advance(3000)
    lines = out.getvalue().split("\r")[1:]
    widths = [cell_len(line) for line in lines]
    assert max(widths) < columns
    shortest = [cell_len(line.rstrip()) for line in lines]
    assert all(width >= before for width, before in zip(widths[1:], shortest, strict=False))  # nothing of it is left
    assert columns < 80 or "30,000/100,000 tokens, 3,000.0 tokens/s, 0:23 left" in lines[10]


def test_what_was_done_before_counts_as_no_speed(cell, clock):
    lines, _ = cell
    progress = ShownProgress()
    progress.start("Reading a.txt", 1000, "tokens", done=900)
    clock.now += 10
    progress.advance(50)
    assert lines == ["Reading a.txt: 950/1,000 tokens, 5.0 tokens/s"]


def test_the_time_is_told_once_two_measurements_agree():
    left = TimeLeft(100, now=0)
    assert left.of(900) is None
    for now, done in [(0.5, 500), (1, 200), (2, 900)]:  # 100 a second, and then 700: the first is too short to count
        left.note(done, now)
        assert left.of(900) is None
    left.note(1500, 3)
    assert left.of(1300) == pytest.approx(2)
    left.note(1500, 60)  # nothing was done meanwhile
    assert left.of(1300) == pytest.approx(2)


def test_a_pause_counts_for_nothing():
    left = TimeLeft(0, now=0)
    left.note(100, 1)
    left.note(200, 2)
    assert left.of(300) == pytest.approx(3)
    left.restart(200, 1000)
    left.note(300, 1001)
    assert left.of(200) == pytest.approx(2)


def test_the_parts_of_a_document_are_one_task():
    class Log(Progress):
        def __init__(self):
            self.said = []

        def start(self, task, total, unit, done=0):
            self.said.append((task, total, unit, done))

        def advance(self, amount):
            self.said.append(amount)

    log = Log()
    whole = AsOne(log, "book.md", [100, 60, 40])
    for number, known in ((0, 10), (1, 20)):
        part = whole.part(number)
        part.start(f"Reading book.md, part {number + 1} of 3", 100, "tokens", known)
        part.advance(30)
        part.start("Clustering keys", 30, "layers")
        part.advance(30)
    whole.part(2).start("Reading book.md, part 3 of 3", 40, "tokens")
    assert log.said == [("Reading book.md", 200, "tokens", 10), 30, 80, 30, 10]
