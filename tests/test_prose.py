"""Habits of speech that make octavo's prose hard to read: each may occur as often as it does now, and no more often."""

from __future__ import annotations

import re

import pytest
from helpers.product import MODULES, ROOT, name

#: Every text of the product: modules, benchmarks, and pages.
TEXTS = [
    *MODULES,
    *sorted((ROOT / "benchmarks").glob("*.py")),
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(path for path in ROOT.glob("*/README.md") if path.parent.name != "tests"),
]

#: The most occurrences of each habit, and what to write instead. Lower a number when you mend a place; never raise one.
HABITS = {
    "is no": (r"(?<!there )is\s+no(?!\s+longer)", 0, "is not a"),
    "are no": (r"(?<!there )are\s+no(?!\s+longer)", 0, "are not"),
    "is said": (r"is\s+said", 0, "octavo prints"),
    "is told": (r"is\s+told", 0, "receives"),
    "are told": (r"are\s+told", 0, "receive"),
    "goes on": (r"goes\s+on", 0, "continues"),
    "go on": (r"go\s+on", 0, "continue"),
    "in any case": (r"in\s+any\s+case", 0, "always"),
    "nobody": (r"nobody", 0, "a sentence with a subject"),
}


def places(pattern):
    """Return where a pattern occurs, as `path:line: text`."""
    found = []
    for path in TEXTS:
        text = path.read_text("utf-8")
        for match in re.finditer(rf"\b{pattern}\b", text, re.I):
            number = text.count("\n", 0, match.start()) + 1
            found.append(f"{name(path)}:{number}: {text.splitlines()[number - 1].strip()}")
    return found


@pytest.mark.parametrize("habit", HABITS)
def test_habit_occurs_no_more_often(habit):
    pattern, most, instead = HABITS[habit]
    found = places(pattern)
    listed = "\n".join(found)
    assert len(found) <= most, f'{len(found)} times "{habit}", at most {most}: write "{instead}" instead.\n{listed}'
