"""Items that say the same are one, and each is written with its proof."""

from pathlib import Path

import pytest

from octavo.ask.context.whole.finding import Finding, KeptAnswer, KeptFindings
from octavo.ask.context.whole.items import rows_of, written
from octavo.ask.sources.find_sources import Passage
from octavo.library.source_text import SourceText

QUESTION = "List every ship and its captain."


def source(name):
    return SourceText(name, name, Path(name))


def passage(quote, start, line, page=None):
    return Passage(quote, 0.0, start, start + len(quote), line, page, None, by="words")


PETREL = passage("The captain of the Petrel was Ruth Ollery.", 10, 2)
AGAIN = passage("Ruth Ollery, captain of the ship Petrel, was there.", 90, 7)
HERON = passage("The captain of the Heron was Amos Carrow.", 40, 3, page="iv")


def test_items_of_the_same_words_or_the_same_sentence_are_one():
    first, second = source("a.txt"), source("b.txt")
    findings = [
        Finding(first, f"{PETREL.quote}\nHeron: Amos Carrow", (PETREL, HERON)),
        Finding(first, "Petrel", (PETREL,)),
        Finding(second, "The Petrel's captain was Ruth Ollery", (AGAIN,)),
    ]
    rows = rows_of(findings, QUESTION)
    assert [row.text for row in rows] == [PETREL.quote, "Heron: Amos Carrow"]
    assert [document for document, _ in rows[0].sources] == [first, second]
    text, places = written(rows, 0)
    assert text == (
        "2 found:\n\n"
        "1. “The captain of the Petrel was Ruth Ollery.” (a.txt, line 2; b.txt, line 7)\n"
        "2. Heron: Amos Carrow: “The captain of the Heron was Amos Carrow.” (a.txt, page iv)"
    )
    assert [text[slice(*place)] for place in places] == [
        "1. “The captain of the Petrel was Ruth Ollery.”",
        "2. Heron: Amos Carrow: “The captain of the Heron was Amos Carrow.”",
    ]


def test_parts_of_a_document_that_mentions_something_are_one():
    findings = [
        Finding(source("a.txt, part 1 of 2"), "Petrel", (PETREL,)),
        Finding(source("a.txt, part 2 of 2"), "Petrel", (AGAIN,)),
        Finding(source("b.txt"), "Petrel", (AGAIN,)),
    ]
    rows = rows_of(findings, "Which documents mention the Petrel?")
    assert [row.text for row in rows] == ["a.txt", "b.txt"]
    assert written(rows, 5)[0].startswith("2 of 5 documents found:\n\n1. a.txt: “")


@pytest.mark.parametrize("before", ["", "[]", '{"key": {"answer": 1}}'])
def test_answers_are_kept_by_their_keys(tmp_path, before):
    kept = KeptFindings(tmp_path)
    if before:
        (tmp_path / "found.json").write_text(before)
    assert kept.get("key") is None
    kept.add(QUESTION, {"key": KeptAnswer("Petrel", (PETREL, AGAIN))})
    kept.add(QUESTION, {"other": KeptAnswer("", ())})
    assert kept.get("key") == KeptAnswer("Petrel", (PETREL, AGAIN))
    assert kept.get("other") == KeptAnswer("", ())
