"""Marks in an answer: where they come in its stream, and which sources they name."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import talking_model
from helpers.talking_model import ANSWER
from hypothesis import given
from hypothesis import strategies as st

import octavo
from octavo.ask.answer.answer_stream import AnswerStream
from octavo.ask.sources.answer_marks import AnswerMarks
from octavo.ask.sources.find_sources import Passage
from octavo.library.source_text import SourceText
from octavo.prompts.thought_form import Stage, ThoughtForm, Thoughts

LOG = SourceText("log", "log.md", Path("log.md"))


def source(start, share=0.3, stop=None):
    return LOG, Passage("...", share, start, stop or start + 40, 1, None, None)


class Answer:
    """An answer that comes in pieces, and the sources of sentences that have some words."""

    def __init__(self, pieces, found, **options):
        self.stream, self.found, self.asked = AnswerStream(1000, **options), found, []
        self.marks = AnswerMarks(self.stream, self.find)
        self.parts = []
        for number, piece in enumerate(pieces):
            self.parts += self.marks.add(self.stream.feed(number, piece.encode()))

    def find(self, start, stop, sentence):
        self.asked.append((start, stop, sentence))
        return next((sources for words, sources in self.found.items() if words in sentence), [])

    def end(self):
        self.parts += self.marks.add(self.stream.feed(0, b"", is_end=True))
        return self

    @property
    def drawn(self):
        parts = [part for part in self.parts if not part.is_thought]
        return "".join([part.text + "".join(f" [{mark}]" for mark in part.marks or ()) for part in parts])


FOUND = {"Hale": [source(100)], "coal": [source(300), source(500, 0.2), source(700, 0.1)], "90": [source(110)]}


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("Mr. Hale came. He left.", "Mr. Hale came. [1] He left."),
        ("He left. It had coal! Hale came", "He left. It had coal! [1] [2] Hale came [3]"),
        ("Hale came.\n\nIt took 90 days.\n", "Hale came. [1]\n\nIt took 90 days. [1]\n"),
        ("1. Hale\n2. The coal\n", "1. Hale [1]\n2. The coal [2] [3]\n"),
        ("- Hale\n- 90 days", "- Hale [1]\n- 90 days [1]"),
        ("| a | b |\n|---|---|\n| 1 | Hale |", "| a | b |\n|---|---|\n| 1 | Hale [1] |"),
        ("海尔 Hale来了。他走了。", "海尔 Hale来了。 [1]他走了。"),
        ("It weighs 3.5 tonnes of coal", "It weighs 3.5 tonnes of coal [1] [2]"),
        ("90.", "90. [1]"),
        ("Nothing. ", "Nothing. "),
        ("", ""),
        (" \n", " \n"),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_marks_follow_the_sentences_that_they_prove(text, drawn, size):
    answer = Answer([text[at : at + size] for at in range(0, len(text), size)], FOUND).end()
    assert answer.drawn == drawn
    assert "".join(part.text for part in answer.parts) == answer.stream.text == text


@given(text=st.text("ab .!?\n|-*#1", max_size=60), sizes=st.lists(st.integers(1, 9), min_size=1))
def test_marks_do_not_depend_on_how_tokens_cut_the_text(text, sizes):
    pieces, at = [], 0
    while at < len(text):
        pieces.append(text[at : at + sizes[len(pieces) % len(sizes)]])
        at += len(pieces[-1])
    found = {"a": [source(0)], "b": [source(100)]}
    in_pieces, at_once = Answer(pieces, found).end(), Answer([text], found).end()
    assert in_pieces.drawn == at_once.drawn
    assert in_pieces.stream.text == text
    assert in_pieces.marks.sources(3) == at_once.marks.sources(3)


def test_a_sentence_has_its_own_steps():
    """A token that begins with the blank before a sentence belongs to that sentence, and the last step to the last."""
    answer = Answer(["Hale", " came", ".", " It", " had", " coal", "."], FOUND).end()
    assert answer.asked == [(0, 3, "Hale came."), (3, None, "It had coal.")]


def test_steps_count_from_the_end_of_the_last_thought():
    """As a recorder keeps them: the first one predicts the answer's first token."""
    form = ThoughtForm("<think>", "</think>")
    tags = Thoughts(form, {}, {}, (), form, None)
    pieces = ["<think>", "Hm", ".", "</think>", "Hale", " came", ".", " It", " had", " coal"]
    answer = Answer(pieces, FOUND, thoughts=tags, think_budget=9, stage=Stage.BEFORE).end()
    assert (answer.stream.reasoning, answer.drawn) == ("Hm.", "Hale came. [1] It had coal [2] [3]")
    assert answer.asked == [(0, 3, "Hale came."), (3, None, "It had coal")]


def test_blanks_before_an_answer_do_not_move_marks():
    answer = Answer(["\n", "Hale", " came. It", " left"], FOUND, strips=True).end()
    assert answer.stream.starts == [0, 0, 4, 13]
    assert [passage.marks for _, passage in answer.marks.sources(3)] == [((0, 10),)]


def test_sources_are_numbered_as_the_marks_come_and_others_follow():
    answer = Answer(["It had coal. Hale came. It took 90 days."], FOUND).end()
    sources = [passage for _, passage in answer.marks.sources(4)]
    assert [passage.start for passage in sources] == [300, 500, 100, 700]
    assert [passage.marks for passage in sources] == [((0, 12),), ((0, 12),), ((13, 23), (24, 40)), ()]
    assert answer.marks.named((3,))[0][1].start == 100
    assert [passage.start for _, passage in answer.marks.sources(1)] == [300, 500, 100], "marks name three"


def test_shares_add_up_to_one_at_most():
    answer = Answer(["Hale. Coal."], {"Hale": [source(0, 0.9)], "Coal": [source(100, 0.6)]}).end()
    assert [round(passage.share, 2) for _, passage in answer.marks.sources(3)] == [0.6, 0.4]


def test_an_answer_that_was_stopped_has_sources_too():
    answer = Answer(["Hale", " came. It", " had"], FOUND)
    assert answer.drawn == "Hale came. [1] It had"
    assert [passage.marks for _, passage in answer.marks.sources(3)] == [((0, 10),)]
    assert len(answer.asked) == 1, "the last words say nothing yet"
    assert Answer(["Hale", " came. It had coal"], FOUND).marks.sources(3)[1][1].marks == ((11, 22),)


def test_marks_change_nothing_of_a_conversation(tmp_path):
    """The second turn reads the same tokens with marks as without, and each recorded step has its token."""
    book = tmp_path / "book.md"
    book.write_text("Nobody came that day. The vessel sailed for 90 days. " * 8)
    talking_model.write_model(model := tmp_path / "talking.gguf")
    settings = octavo.ModelSettings(model, n_threads=2, index_dir=tmp_path / "indexes")
    sampling = octavo.Sampling(max_tokens=24, temperature=0)
    seen = []
    with octavo.open_document(book, settings, sampling=sampling, sources=True) as session:
        for marks in (False, True):
            session.clear()
            for question in ("For how many days did it sail?", "Did the vessel sail for days?"):
                text = "".join(part.text for part in session.stream_parts(question, marks=marks))
                assert text == session.answer.text
                assert len(session._recorder.steps) >= len(session._marks._stream.starts) > 0
                assert (text, session.sources()[0].marks) == (ANSWER, ((0, len(ANSWER)),))
                sources = [passage.quote for passage in session.sources()]
                seen.append((text, session.n_tokens, session.answer.timing.prompt_tokens, sources))
    assert seen[:2] == seen[2:]
