"""Chapters are found by the headings that say so, or else by the first ones that are several."""

import re
from pathlib import Path

import pytest

from octavo.ask.context.answer_context import at_once
from octavo.ask.context.whole.chapters import chapters_of, written_chapters
from octavo.ask.context.whole.finding import Finding
from octavo.ask.sources.find_sources import TokenText
from octavo.documents.markdown import document_of
from octavo.library.question_words import asks_for_chapters, needs_whole, of_one_chapter
from octavo.library.source_text import SourceText

WORDS = "word " * 40


class Indexes:
    """Documents whose tokens are their characters."""

    def __init__(self, **texts):
        names = [re.sub("_(.)", r", part \1 of 2", name) for name in texts]
        self.documents = [SourceText(name, name, Path(name)) for name in names]
        self._texts = {
            document: TokenText.of([bytes([c]) for c in text.encode()], "", document_of(text).places)
            for document, text in zip(self.documents, texts.values(), strict=True)
        }

    def whole(self, document):
        return self

    def text_of(self, document):
        return self._texts[document]


def headings(**texts):
    return [chapter.heading for chapter in at_once(chapters_of(Indexes(**texts)))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"# A\n\n{WORDS}\n\n# B\n\n{WORDS}", ["A", "B"]),
        (f"# Title\n\n{WORDS}\n\n## A\n\n{WORDS}\n\n### Deep\n\n{WORDS}\n\n## B\n\n{WORDS}", ["A", "B"]),
        (
            f"# I\n\n## Chapter 1\n\n{WORDS}\n\n## Chapter 2\n\n{WORDS}\n\n# II\n\n## Chapter 3\n\n{WORDS}",
            ["Chapter 1", "Chapter 2", "Chapter 3"],
        ),
        (WORDS, [""]),
        (f"# Only\n\n{WORDS}", [""]),
        (f"# A\n\n# B\n\n{WORDS}", ["B"]),
    ],
)
def test_chapters_of_a_text(text, expected):
    assert headings(text=text) == expected


def test_a_chapter_has_its_text():
    indexes = Indexes(text=f"Before.\n\n# A\n\n{WORDS}a.\n\n# B\n\n{WORDS}b.")
    text = indexes.text_of(indexes.documents[0]).text
    pieces = [text[chapter.span.start : chapter.span.stop] for chapter in at_once(chapters_of(indexes))]
    assert pieces == [f"# A\n\n{WORDS}a.\n\n", f"# B\n\n{WORDS}b."]


def test_the_next_file_of_one_name_does_not_begin_in_the_last_chapter():
    indexes = Indexes(a=f"# A\n\n{WORDS}\n\n# B\n\n{WORDS}", b=f"{WORDS}\n\n# C\n\n{WORDS}\n\n# D\n\n{WORDS}")
    for document, folder in zip(indexes.documents, ("2023", "2024"), strict=True):
        object.__setattr__(document, "name", "report.txt")
        object.__setattr__(document, "path", Path(folder, "report.txt"))
    assert [chapter.heading for chapter in at_once(chapters_of(indexes))] == ["A", "B", "C", "D"]


def test_lines_of_a_text_without_headings_are_chapters_also_of_the_next_part():
    named = headings(
        novel_1=f"EMMA\n\n  CHAPTER I\n\n{WORDS}\n\nchapter 2: At sea\n\n{WORDS}",
        novel_2=f"{WORDS}\n\nCHAPTER III\n\n{WORDS}\n\nChapter by chapter they read.\n\n",
    )
    assert named == ["CHAPTER I", "chapter 2: At sea", "chapter 2: At sea", "CHAPTER III"]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Summarise each chapter.", True),
        ("What happens in every chapter?", True),
        ("Fasse jedes Kapitel zusammen.", True),
        ("What happens in chapter 3?", False),
        ("List every chapter.", False),
    ],
)
def test_questions_about_each_chapter(question, expected):
    assert asks_for_chapters(question) == expected
    assert needs_whole(question) or not expected


def test_a_chapter_is_asked_about_itself():
    assert of_one_chapter("Summarise each chapter.") == "Summarise this chapter."
    assert of_one_chapter("Who appears in all chapters?") == "Who appears in this chapter?"


def test_pieces_of_a_chapter_are_written_as_one():
    first, second = (SourceText(name, name, Path(name)) for name in ("a.txt, part 1 of 2", "a.txt, part 2 of 2"))
    findings = [
        Finding(first, "They sail.", heading="Chapter 1"),
        Finding(first, "They land.", heading="Chapter 2"),
        Finding(second, "They rest.", heading="Chapter 2"),
    ]
    text, places = written_chapters(findings)
    assert text == "## Chapter 1\n\nThey sail.\n\n## Chapter 2\n\nThey land.\n\nThey rest."
    assert [text[slice(*place)] for place in places] == ["They sail.", "They land.", "They rest."]
    other = SourceText("b.txt", "b.txt", Path("b.txt"))
    assert written_chapters([*findings[:1], Finding(other, "No.")])[0] == (
        "## a.txt, Chapter 1\n\nThey sail.\n\n## b.txt\n\nNo."
    )
