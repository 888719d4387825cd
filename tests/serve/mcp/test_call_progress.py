"""What a client hears of a call, and how the call ends with it."""

import itertools
from types import SimpleNamespace

import pytest

from octavo.serve.mcp import call_progress
from octavo.serve.mcp.call_progress import CallEnded, CallProgress


@pytest.fixture
def slowly(monkeypatch):
    """Let a second pass between two looks at the clock."""
    clock = itertools.count(100)
    monkeypatch.setattr(call_progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))


def test_numbers_rise_over_several_tasks(slowly):
    reports = []
    progress = CallProgress(lambda *report: reports.append(report))
    progress.start("Reading a.txt", 1000, "tokens", done=200)
    progress.advance(300)
    progress.start("Reading b.txt", 500, "tokens")
    progress.start("Answering", 10, "tokens")
    progress.advance(1)
    reached = [report[0] for report in reports]
    assert all(before < after for before, after in itertools.pairwise(reached))
    assert reports[1] == (500.0, 1000.0, "Reading a.txt: 500 of 1,000 tokens")
    assert reports[-1] == (1501.0, 1510.0, "Answering: 1 of 10 tokens")
    assert all(reached <= total for reached, total, _ in reports)


def test_reports_within_a_task_are_not_many():
    reports = []
    progress = CallProgress(lambda *report: reports.append(report))
    progress.start("Answering", 1000, "tokens")
    for _ in range(1000):
        progress.advance(1)
    assert len(reports) < 100


def test_notices_are_kept_once_each():
    progress = CallProgress(lambda *report: None)
    for sentence in ("One.", "Two.", "One."):
        progress.notice(sentence)
    assert progress.notices == ["One.", "Two."]


@pytest.mark.parametrize(
    "work",
    [
        lambda progress: progress.advance(1),
        lambda progress: progress.start("Reading", 1, "tokens"),
        lambda progress: progress.notice("One."),
        lambda progress: progress.check(),
    ],
)
def test_each_report_ends_a_call_that_was_given_up(work):
    reports = []
    progress = CallProgress(lambda *report: reports.append(report))
    progress.end()
    with pytest.raises(CallEnded):
        work(progress)
    assert reports == []
