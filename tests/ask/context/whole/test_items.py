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


@pytest.mark.parametrize(
    ("question", "first", "second"),
    [
        ("List every invoice.", "Invoice INV-2024001 is unpaid.", "Invoice INV-2024017 is unpaid."),
        ("List every payment.", "Paid 1,000 euros.", "Paid 1,000,000 euros."),
        ("List every payment.", "Paid €100 for it.", "Paid $100 for it."),
        ("List every captain.", "Christian was a captain.", "Christopher was a captain."),
        ("List every captain.", "Adam was a captain.", "Adams was a captain."),
        ("List every lamp.", "The lamp was lit.", "The lamp was not lit."),
        ("List every lamp.", "The lamp was lit.", "The lamp wasn't lit."),
        ("Liste alle Lampen auf.", "Die Lampe ist an.", "Die Lampe ist nicht an."),
        ("List every lawsuit.", "Smith sued Jones.", "Jones sued Smith."),
        ("List every payment between Smith and Jones.", "Smith paid Jones.", "Jones paid Smith."),
        ("List every voyage.", "She sailed from Hull.", "She sailed to Hull."),
        ("List every temperature.", "It was -5 degrees.", "It was 5 degrees."),
        ("List every lamp.", "灯塔由张伟建造。", "灯塔由张伟拆除。"),
    ],
)
def test_different_items_stay_apart(question, first, second):
    findings = [Finding(source("a.txt"), f"{first}\n{second}", (passage(first, 0, 1), passage(second, 90, 5)))]
    assert [row.text for row in rows_of(findings, question)] == [first, second]


@pytest.mark.parametrize(
    ("question", "first", "second"),
    [
        ("List every payment.", "Paid 1,000 euros.", "paid 1000 euros"),
        ("List every lamp.", "The lamp wasn't lit.", "The lamps were not lit."),
        ("List all ships.", "The ship Petrel sank in May.", "Petrel sank in May"),
    ],
)
def test_an_item_in_other_words_is_the_same(question, first, second):
    findings = [Finding(source("a.txt"), f"{first}\n{second}", (passage(first, 0, 1), passage(second, 90, 5)))]
    assert [row.text for row in rows_of(findings, question)] == [first]


def test_parts_of_a_document_that_mentions_something_are_one():
    findings = [
        Finding(source("a.txt, part 1 of 2"), "Petrel", (PETREL,)),
        Finding(source("a.txt, part 2 of 2"), "Petrel", (AGAIN,)),
        Finding(source("b.txt"), "Petrel", (AGAIN,)),
    ]
    rows = rows_of(findings, "Which documents mention the Petrel?")
    assert [row.text for row in rows] == ["a.txt", "b.txt"]
    assert written(rows, 5)[0].startswith("2 of 5 documents found:\n\n1. a.txt: “")


def test_files_of_one_name_are_several():
    files = [SourceText(path, "report.pdf", Path(path)) for path in ("2023/report.pdf", "2024/report.pdf")]
    findings = [Finding(file, "Petrel", (PETREL,)) for file in files]
    assert len(rows_of(findings, "Which reports mention the Petrel?")) == 2


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
