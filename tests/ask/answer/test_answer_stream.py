"""Tokens become whole characters of thoughts and of an answer, which ends for one reason. No model takes part."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.ask.answer.answer_stream import AnswerStream, Meter
from octavo.ask.answer.notices import notices_of_end
from octavo.prompts.thought_form import FORMS, Stage, Thoughts
from octavo.prompts.thought_splitter import Part

#: Numbers of tokens: an ordinary one, two control tokens that are tags, and those that end a thought by force.
WORD, START, END, CLOSING = 1, 2, 3, (10, 11)

PLAIN = FORMS[-1]  # <think> and </think>
SPELLED = Thoughts(PLAIN, {}, {}, CLOSING, PLAIN, None)


@pytest.fixture
def marked():
    """A model whose tags are control tokens, which have no bytes of their own."""
    marks = {START: "\udc80", END: "\udc81"}
    form = type(PLAIN)(marks[START], marks[END])
    texts = {0xDC80: "<think>", 0xDC81: "</think>"}
    return Thoughts(form, marks, texts, CLOSING, PLAIN, None)


def stream_of(room=1000, max_tokens=None, think_budget=100, **more):
    return AnswerStream(room, max_tokens, think_budget=think_budget, **more)


def feed(stream, pieces):
    """Feed pieces until the stream ends; return its parts."""
    parts = []
    for piece in pieces:
        parts += stream.feed(WORD, piece if isinstance(piece, bytes) else piece.encode())
        if stream.ended:
            break
    return parts


def said(parts):
    """Return the thought and the answer in some parts."""
    return tuple("".join(part.text for part in parts if part.is_thought is kind) for kind in (True, False))


# Text


@pytest.mark.parametrize(
    ("pieces", "shown", "n_tokens"),
    [
        ([" Blue", ".", "\n\n", "Question", ":", " Why"], "Blue.", 2),
        (["Blue.\n", "\nQuest", "ion: no"], "Blue.", 1),
        (["One\n\n", "Two\n", "\nThree"], "One\n\nTwo\n\nThree", 3),
        (["\n\nQuestion:"], "", 0),
        (["ends with \n\nQuest"], "ends with \n\nQuest", 1),
    ],
)
def test_an_answer_ends_at_the_stop_text_and_loses_nothing_else(pieces, shown, n_tokens):
    stream = stream_of(stops=["\n\nQuestion:"], strips=True)
    parts = feed(stream, pieces)
    stopped = stream.ended
    if not stopped:
        parts += stream.feed(0, b"", is_end=True)
    assert said(parts) == ("", shown) == ("", stream.text)
    assert (stream.reason, stream.stopped_by) == ("stop", "\n\nQuestion:" if stopped else None)
    assert (stream.n_shown_tokens, stream.ended_by_model) == (n_tokens, not stopped)


def test_the_first_of_several_stop_texts_ends_the_answer():
    stream = stream_of(stops=["", "two", "one"])
    assert feed(stream, ["zero ", "one two"]) == [Part("zero ")]
    assert (stream.text, stream.stopped_by, stream.n_answer) == ("zero ", "one", 2)


@settings(deadline=None)
@given(st.text(st.sampled_from("ab\n€🙂"), max_size=30), st.data())
def test_the_text_does_not_depend_on_how_tokens_cut_it(text, data):
    content = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(content)))))
    pieces = [content[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(content)], strict=True)]
    stream = stream_of(stops=["b\nb"])
    parts = feed(stream, pieces)
    if not stream.ended:
        parts += stream.feed(0, b"", is_end=True)
    assert said(parts) == ("", text.partition("b\nb")[0]) == ("", stream.text)


def test_characters_come_whole():
    stream, euro = stream_of(), "€".encode()
    assert feed(stream, [euro[:1], euro[1:2]]) == []
    assert feed(stream, [euro[2:]]) == [Part("€")]


def test_bytes_that_are_no_characters_become_replacements():
    stream = stream_of()
    assert said(feed(stream, [b"a\xff", b"b\xe2\x82"]) + stream.feed(0, b"", is_end=True)) == ("", "a\ufffdb\ufffd")


# Thoughts


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_thought_is_found_however_tokens_cut_its_tags(size):
    text = "<think>\nI add.\n</think>\n\nIt is 4."
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    stream = stream_of(thoughts=SPELLED, stage=Stage.BEFORE)
    parts = feed(stream, pieces) + stream.feed(0, b"", is_end=True)
    assert said(parts) == (stream.reasoning, stream.text) == ("I add.", "It is 4.")
    assert (stream.n_thought + stream.n_answer, stream.n_tokens) == (len(pieces), len(pieces) + 1)


def test_tags_that_are_control_tokens_count_as_thought_and_turn_the_stream(marked):
    stream = stream_of(thoughts=marked, stage=Stage.BEFORE)
    turns = []
    for token, piece in [(START, b""), (WORD, b"I add."), (END, b""), (WORD, b"It"), (WORD, b" is 4.")]:
        stream.feed(token, piece)
        turns.append((stream.turned, stream.is_thinking, stream.in_answer))
    assert turns == [
        (False, True, False),
        (False, True, False),
        (False, False, False),
        (True, False, True),
        (False, False, True),
    ]
    assert (stream.reasoning, stream.text) == ("I add.", "It is 4.")
    assert (stream.n_thought, stream.n_answer) == (3, 2)


def test_a_tag_that_is_spelled_is_text(marked):
    stream = stream_of(thoughts=marked, stage=Stage.BEFORE)
    assert said(feed(stream, ["<think>", "I add.", "</think>"])) == ("", "<think>I add.</think>")


def test_a_tag_that_ends_answers_elsewhere_ends_a_thought(marked):
    stream = stream_of(thoughts=marked, stage=Stage.THOUGHT)
    stream.feed(WORD, b"I add.")
    assert stream.feed(END, b"", is_end=True) == []
    assert not stream.ended
    stream.feed(WORD, b"4")
    stream.feed(END, b"", is_end=True)
    assert (stream.reason, stream.reasoning, stream.text) == ("stop", "I add.", "4")


def test_blanks_before_the_answer_count_for_it():
    stream = stream_of(thoughts=SPELLED, stage=Stage.BEFORE)
    feed(stream, ["\n", "<", "b>"])
    assert (stream.text, stream.n_thought, stream.n_answer) == ("\n<b>", 0, 3)


def test_a_thought_may_still_come_until_the_answer_has_begun():
    stream = stream_of(thoughts=SPELLED, stage=Stage.BEFORE)
    assert stream.may_think(WORD, b"<thi")
    assert not stream.may_think(WORD, b"It")
    feed(stream, ["It"])
    assert not stream.may_think(WORD, b"<thi")
    assert not stream_of().may_think(WORD, b"<thi")


def test_a_stop_text_in_a_thought_does_not_end_it():
    stream = stream_of(stops=["stop"], thoughts=SPELLED, stage=Stage.THOUGHT)
    assert said(feed(stream, ["I stop.", "</think>", "Do not ", "stop"])) == ("I stop.", "Do not ")
    assert stream.stopped_by == "stop"


def test_a_thought_at_its_limit_is_ended_once_at_a_whole_character():
    stream, euro = stream_of(think_budget=2, thoughts=SPELLED, stage=Stage.THOUGHT), "€".encode()
    feed(stream, ["a", euro[:1]])
    assert (stream.forced_tokens, stream.thought_cut, stream.n_thought) == ([], False, 2)
    feed(stream, [euro[1:]])
    assert (stream.forced_tokens, stream.thought_cut) == ([*CLOSING], True)
    stream.forced_tokens.clear()
    feed(stream, ["b"])
    assert stream.forced_tokens == []
    feed(stream, ["</think>", "4"])
    assert (stream.reasoning, stream.text) == ("a€b", "4")


def test_an_answer_that_ends_asks_for_no_more_tokens():
    stream = stream_of(room=2, think_budget=2, thoughts=SPELLED, stage=Stage.THOUGHT)
    feed(stream, ["a", "b"])
    assert (stream.reason, stream.forced_tokens, stream.thought_cut) == ("context", [], False)


# Reasons


@pytest.mark.parametrize(
    ("limits", "reason", "text", "reasoning"),
    [
        ({"max_tokens": 2}, "length", "4 5", "I add."),
        ({"max_tokens": 4, "counts_thoughts": True}, "length", "4", "I add."),
        ({"room": 2}, "context", "", "I add.</th"),
        ({"room": 4, "max_tokens": 2}, "context", "4", "I add."),
        ({"room": 5, "max_tokens": 2}, "length", "4 5", "I add."),
    ],
)
def test_limits_end_an_answer_and_lose_no_text(limits, reason, text, reasoning):
    stream = stream_of(**limits, thoughts=SPELLED, stage=Stage.THOUGHT)
    assert said(feed(stream, ["I add.", "</th", "ink>", "4", " 5", " 6"])) == (reasoning, text)
    assert (stream.reason, stream.text, stream.reasoning) == (reason, text, reasoning)


def test_without_a_limit_an_answer_goes_on():
    stream = stream_of()
    assert feed(stream, ["a"] * 500) == [Part("a")] * 500
    assert (stream.reason, stream.ended) == ("interrupted", False)


def test_an_answer_that_repeats_itself_ends_if_there_was_a_question():
    sentence = "The ship sailed in spring and came back. "
    stream, other = stream_of(question="When?"), stream_of()
    feed(stream, [sentence] * 50)
    feed(other, [sentence] * 50)
    assert (stream.reason, stream.text) == ("loop", sentence)
    assert 4 <= stream.n_tokens < 50
    assert (other.reason, other.n_tokens) == ("interrupted", 50)


def test_thoughts_may_repeat_themselves():
    stream = stream_of(question="When?", think_budget=1000, thoughts=SPELLED, stage=Stage.THOUGHT)
    feed(stream, ["The ship sailed in spring and came back. "] * 50)
    assert stream.reason == "interrupted"


# What users should know


def test_notices_say_why_an_answer_ended():
    stream = stream_of(max_tokens=2)
    assert notices_of_end(stream, 4096, True) == {}
    feed(stream, ["a", "b"])
    assert notices_of_end(stream, 4096, True) == {"length": "The answer was cut after 2 tokens."}
    stream = stream_of(room=1)
    feed(stream, ["a"])
    assert notices_of_end(stream, 4096, True) == {"context": "The answer was cut: the context of 4,096 tokens is full."}
    stream = stream_of(question="When?")
    feed(stream, ["The ship sailed in spring and came back. "] * 50)
    assert notices_of_end(stream, 4096, True) == {"loop": "The answer was stopped: the model repeated itself."}


def test_notices_say_that_a_thought_was_cut_unless_thinking_is_off():
    stream = stream_of(think_budget=1, thoughts=SPELLED, stage=Stage.THOUGHT)
    feed(stream, ["a", "</think>", "b"])
    stream.feed(0, b"", is_end=True)
    assert notices_of_end(stream, 4096, True) == {"thought_cut": "The thought was ended after 2 tokens."}
    assert notices_of_end(stream, 4096, False) == {}


def test_notices_say_that_a_thought_had_no_answer():
    stream = stream_of(thoughts=SPELLED, stage=Stage.THOUGHT)
    stream.feed(WORD, b"a")
    stream.feed(0, b"", is_end=True)
    assert notices_of_end(stream, 4096, True) == {"no_answer": "The model thought, and ended without an answer."}


def test_a_meter_measures_from_the_first_token_on():
    meter = Meter()
    assert meter.grown == []
    for counters in [(10, 1), (30, 1), (35, 4)]:
        meter.count(*counters)
    assert meter.grown == [25, 3]
    assert meter.first <= meter.last
