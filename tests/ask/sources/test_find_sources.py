"""What is made of a document's attended tokens: sentences, quotes, places."""

from itertools import pairwise

import numpy as np
import pytest

from octavo.ask.sources.find_sources import TokenText, passages
from octavo.documents.document import Place, hash_text, sentences

TEXT = (
    "# Ships\n\nMr. Hale owned a ship. It carried\ncoal. Did it sink? No!\n\n"
    "## Lights\n\n- One at Leith.\n- One at Dover (3.5 miles off).\n\n| a | b |\n| 1 | 2 |\n"
)

LONG = TEXT + "\nNothing here.\n" * 60


def of_text(text, places=()):
    return TokenText.of([character.encode() for character in text], places=places)


def attention(text, *parts):
    """Tokens are characters; what is given is paid to the characters of a part of the text, in equal shares."""
    made = np.zeros((len(parts), len(text)), np.float32)
    for row, paid in zip(made, parts, strict=True):
        for part, share in paid.items():
            start = text.index(part)
            row[start : start + len(part)] = share / len(part)
    return made


def test_sentences():
    parts = [TEXT[start:stop].strip() for start, stop in pairwise(sentences(TEXT))]
    assert parts == [
        *("# Ships", "Mr. Hale owned a ship.", "It carried\ncoal.", "Did it sink?", "No!"),
        *("## Lights", "- One at Leith.", "- One at Dover (3.5 miles off).", "| a | b |", "| 1 | 2 |"),
    ]


@pytest.mark.parametrize("text", ["word " * 500, "x" * 2000, "line without an end\n" * 100, "。" * 10, "a"])
def test_long_sentences_are_cut(text):
    borders = sentences(text)
    assert borders[0] == 0
    assert borders[-1] == len(text)
    assert all(0 < stop - start <= 400 for start, stop in pairwise(borders))
    if " " in text:
        assert all(text[border - 1].isspace() for border in borders[1:])


def test_the_passage_that_was_attended_most_comes_first():
    places = (Place(0, "i", "Ships"), Place(LONG.index("## Lights"), "ii", "Ships > Lights"))
    found = passages(of_text(LONG, places), attention(LONG, {"carried\ncoal": 0.1, "Leith": 0.3, "No!": 0.03}), 3)
    assert [(each.quote, round(each.share, 3)) for each in found] == [
        ("- One at Leith.", 0.3),
        ("It carried coal.", 0.1),
    ]
    assert [(each.line, each.page, each.heading) for each in found] == [(8, "ii", "Ships > Lights"), (3, "i", "Ships")]
    assert LONG[found[1].start : found[1].stop].strip() == "It carried\ncoal."
    assert len(passages(of_text(LONG, places), attention(LONG, {"coal": 0.1, "Leith": 0.3}), 1)) == 1


def test_lines_are_those_of_the_file_that_a_text_is_a_part_of():
    text = TokenText.of([character.encode() for character in LONG], first_line=100)
    assert [each.line for each in passages(text, attention(LONG, {"Leith": 0.3}), 1)] == [107]


def test_neighbours_are_one_passage_and_two_sentences_are_quoted():
    paid = {"Mr. Hale": 0.1, "carried": 0.05, "Did it sink": 0.2}
    (found,) = passages(of_text(LONG), attention(LONG, paid), 3)
    assert found.share == pytest.approx(0.35)
    assert found.quote == "It carried coal. Did it sink?"
    assert (found.page, found.heading) == (None, None)


def test_each_part_of_an_answer_may_have_a_source():
    """What one part of three draws on is not lost in the mean."""
    paid = attention(LONG, {}, {"Dover": 0.09}, {})
    assert [round(each.share, 3) for each in passages(of_text(LONG), paid, 3)] == [0.09]


def test_nothing_in_particular():
    assert passages(of_text(LONG), attention(LONG, {"Dover": 0.03, "Leith": -0.5}), 3) == []
    assert passages(of_text(TEXT), attention(TEXT, {"Leith": 0.15}), 3) == []  # of ten sentences
    assert passages(of_text(""), np.zeros((1, 0), np.float32), 3) == []


def test_tokens_within_characters_and_a_blank_before_the_text():
    text = "né 😀."
    content = text.encode()
    tokens = TokenText.of([content[:2], content[2:5], content[5:6], content[6:]])
    assert tokens.text == text
    assert tokens.starts.tolist() == [0, 1, 3, 3]
    assert TokenText.of([b" Leith", b"."], hash_text("Leith.")).starts.tolist() == [0, 5]
    assert TokenText.of([b" Leith", b"."], hash_text(" Leith.")).text == " Leith."
