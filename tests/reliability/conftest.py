"""Faults that are tried many times, and counted. `make test-reliability` tries all, and writes docs/reliability.md."""

import os
import re
from collections import Counter
from pathlib import Path

import pytest
from helpers.index_fixtures import dense_and_empty, index, llama, model_hash, tokens  # noqa: F401

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
START, END = "<!-- counts: written by `make test-reliability` -->", "<!-- end of counts -->"

#: Whether all is tried that the page counts, or the short form of each test.
FULL = os.environ.get("OCTAVO_TEST_RELIABILITY") == "full"

_COUNTS: dict[str, Counter] = {}


@pytest.fixture(scope="session")
def amount():
    """amount(full, short): how often to try."""
    return lambda full, short: full if FULL else short


@pytest.fixture(scope="session")
def tally():
    """tally(fault, outcome): count what came of a fault that was tried."""

    def count(fault: str, outcome: str, n: int = 1) -> None:
        _COUNTS.setdefault(fault, Counter())[outcome] += n

    return count


def pytest_sessionfinish(session):
    if FULL and session.testscollected and not session.testsfailed:
        before, rest = PAGE.read_text("utf-8").split(START)
        table, after = rest.split(END)
        rows = dict(re.findall(r"^\| (.+?) \| ([\d,]+ \| .+) \|$", table, re.MULTILINE))  # of tests that ran before
        rows |= {fault: f"{sum(of.values()):,} | {_in_words(of)}" for fault, of in _COUNTS.items()}
        lines = ["| tried | times | what came of it |", "| --- | ---: | --- |"]
        lines += [f"| {fault} | {found} |" for fault, found in sorted(rows.items())]
        PAGE.write_text("\n".join([f"{before}{START}", *lines, f"{END}{after}"]), "utf-8")


def _in_words(outcomes: Counter) -> str:
    return ", ".join(f"{n:,} {outcome}" for outcome, n in outcomes.most_common())
