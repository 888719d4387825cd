"""Habits of speech that make octavo's prose hard to read: each may occur as often as it does now, and no more often."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest
from helpers.product import MODULES, ROOT, name

SCRIPTS = sorted((ROOT / "serve" / "page").glob("*.js"))

#: Every text of the product: modules, the page's scripts, benchmarks, and pages. The changelog tells the past.
TEXTS = [
    *MODULES,
    *SCRIPTS,
    *sorted((ROOT / "benchmarks").glob("*.py")),
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(path for path in ROOT.glob("*/README.md") if path.parent.name != "tests"),
]

#: The most occurrences of each habit, and what to write instead. Lower a number when you mend a place; never raise one.
#: Names count, too: an underscore is a space.
HABITS = {
    "is no": (r"(?<!there )is\s+no(?!\s+longer)", 0, "is not a"),
    "are no": (r"(?<!there )are\s+no(?!\s+longer)", 0, "are not"),
    "is said": (r"is\s+said", 0, "octavo prints"),
    "is told": (r"is\s+told", 0, "receives"),
    "are told": (r"are\s+told", 0, "receive"),
    "goes on": (r"goes\s+on", 1, "continues"),
    "go on": (r"go\s+on", 0, "continue"),
    "in any case": (r"in\s+any\s+case", 0, "always"),
    "nobody": (r"nobody", 0, "a sentence with a subject"),
    "what is": (r"(?-i:what)\s+(?:is|are|was|were|has|have|had)", 76, "a noun: the contents, the result, the rest"),
    "of what": (
        r"(?:of|from|by|to|for|with|than)\s+(?-i:what)(?!\s+to)",
        61,
        "a noun: the contents, the result, the rest",
    ),
    "that of": (r"(?:that|those)\s+of(?!\s+\w+\s+(?:is|are)\b)", 197, "the noun again, or a genitive"),
    "stands": (r"stands?(?!\s+for)", 46, "is"),
    "tells": (r"tells?(?!\s+(?:me|you|us)\b)", 64, "returns, prints, reports, says"),
    "as many as": (r"as\s+(?:many|much)\b[^.|]{0,60}?\sas", 44, "a number: n, or the same number"),
    "of which": (r"(?:of|by|with)\s+which", 96, "two sentences"),
}

#: Words of names that do not say what a value is, and the most definitions that have one.
WORDS = {"told": 14, "tell": 7, "tells": 0, "sees": 2, "seen": 9, "begun": 21, "asked": 41, "stands": 0}


def places(pattern):
    """Return where a pattern occurs, as `path:line: text`."""
    found = []
    spaced = pattern.replace(r"\s+", r"[\s_]+")
    for path in TEXTS:
        text = path.read_text("utf-8")
        for match in re.finditer(rf"(?<![^\W_])(?:{spaced})(?![^\W_])", text, re.I):
            number = text.count("\n", 0, match.start()) + 1
            found.append(f"{name(path)}:{number}: {text.splitlines()[number - 1].strip()}")
    return found


def defined_names(path):
    """Yield the names that a module or script defines."""
    text = path.read_text("utf-8")
    if path.suffix == ".js":
        yield from re.findall(r"\b(?:const|let|function)\s+(\w+)", text)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


@cache
def all_names():
    """Return the path, each name that it defines, and that name's words, of all modules and scripts."""
    return [
        (name(path), each, words_of(each)) for path in (*MODULES, *SCRIPTS) for each in sorted(set(defined_names(path)))
    ]


def words_of(defined):
    """Return the words of a name, in snake case or in camel case."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", defined).lower().split("_")


@pytest.mark.parametrize("habit", HABITS)
def test_habit_occurs_no_more_often(habit):
    pattern, most, instead = HABITS[habit]
    found = places(pattern)
    listed = "\n".join(found)
    assert len(found) <= most, f'{len(found)} times "{habit}", at most {most}: write "{instead}" instead.\n{listed}'


@pytest.mark.parametrize("word", WORDS)
def test_names_have_a_vague_word_no_more_often(word):
    found = [f"{path}: {each}" for path, each, words in all_names() if word in words]
    assert len(found) <= WORDS[word], "\n".join(found)


def test_names_and_scripts_are_searched():
    assert words_of("_goes_on") == ["", "goes", "on"]
    assert words_of("wasToldBefore") == ["was", "told", "before"]
    assert [path.name for path in TEXTS if path.suffix == ".js"]
