"""What an answer only repeats is held back: it never shows of a loop, and late of what goes on."""

import pytest
from helpers.repeating_texts import LEGITIMATE, LOOPS

from octavo.ask.answer.answer_stream import AnswerStream
from octavo.ask.answer.repeated_end import RepeatedEnd

TOLD = "She is a woman of considerable age. The harbour master notes each ship in a ledger. "


def streamed(text, piece, question="What is there?"):
    """The parts that an answer shows, and why it ended."""
    stream, parts = AnswerStream(100_000, question=question), []
    for at in range(0, len(text), piece):
        parts += [part.text for part in stream.feed(0, text[at : at + piece].encode())]
        if stream.ended:
            return parts, stream.reason
    return parts + [part.text for part in stream.feed(1, b"", is_end=True)], stream.reason


@pytest.mark.parametrize(("before", "unit"), LOOPS, ids=lambda value: repr(value)[:24])
@pytest.mark.parametrize("piece", [1, 5])
def test_a_loop_loses_its_repeats(before, unit, piece):
    parts, reason = streamed(before + unit * 300, piece)
    assert reason == "loop"
    shown = "".join(parts)
    assert shown == (before + unit * 300)[: len(shown)]
    assert len((before + unit).rstrip()) <= len(shown) <= len(before + unit) + 24 + piece


@pytest.mark.parametrize(
    "again",
    [
        "".join(f"{TOLD}" for _ in range(40)),
        "".join(f"{n}. {TOLD}\n\n" for n in range(1, 40)),
        "".join(f"- {TOLD}\n" for _ in range(40)),
        "".join(f"{TOLD}\n\n" for _ in range(40)),
        "".join((TOLD.split(". ")[n * n % 7 % 2] + ". ") for n in range(60)),
    ],
    ids=["one line", "numbers", "signs", "paragraphs", "another order"],
)
def test_sentences_that_come_again_are_cut_at_their_border(again):
    parts, reason = streamed("There was a town. " + again, 3)
    assert reason == "loop"
    assert "".join(parts).count("The harbour master notes each ship in a ledger") == 1
    assert "".join(parts).count("She is a woman of considerable age") == 1
    assert "".join(parts).rstrip().endswith(".")


@pytest.mark.parametrize("kind", LEGITIMATE)
def test_what_repeats_itself_for_a_reason_is_shown_whole(kind):
    parts, reason = streamed(LEGITIMATE[kind], 4)
    assert reason == "stop"
    assert "".join(parts) == LEGITIMATE[kind]


def test_an_answer_that_goes_on_shows_what_it_repeated():
    text = TOLD + TOLD + "Then he left for the sea."
    parts, _ = streamed(text, 4)
    assert "".join(parts) == text
    assert max(map(len, parts)) > len(TOLD)


def test_a_first_sentence_is_not_held():
    text = "Emma was handsome, clever and rich, with a comfortable home: she seemed to have all. It is her story."
    for piece in (1, 4):
        assert streamed(text, piece)[0] == [text[at : at + piece] for at in range(0, len(text), piece)]


@pytest.mark.parametrize("kind", ["code", "table", "JSON", "equal lines of code"])
def test_code_tables_and_json_are_not_held(kind):
    watch, text = RepeatedEnd("What is there?"), LEGITIMATE[kind]
    for at in range(len(text)):
        watch.add(text[at])
        inside = text[: at + 1].count("\n") > 2 or kind == "JSON"
        assert not inside or at == len(text) - 1 or watch.start == at + 1


def test_copies_that_the_question_asks_for_are_shown_at_once():
    line = "I will not talk in class. "
    parts, reason = streamed(line * 40, len(line), "Write 'I will not talk in class' 40 times.")
    assert (parts, reason) == ([line] * 40, "stop")
