"""Questions about a whole text, and about a place in it."""

import pytest

from octavo.ask.search.question_kinds import asks_about_whole, needs_whole


@pytest.mark.parametrize(
    "question",
    [
        "Summarise the report.",
        "Give me a summary",
        "What are the main points?",
        "List all ships.",
        "What is this about?",
        "How many ships does the text mention?",
        "How often is the captain named?",
        "Fasse den Text zusammen.",
        "De quoi parle ce livre ?",
    ],
)
def test_what_is_about_a_whole_needs_it(question):
    assert needs_whole(question)
    assert asks_about_whole(question)


@pytest.mark.parametrize("question", ["How many sacks did he have?", "What is the number of the flat?", "Wie viele?"])
def test_a_number_may_stand_in_one_place(question):
    assert not needs_whole(question)
    assert asks_about_whole(question)


@pytest.mark.parametrize("question", ["Who painted the lighthouse?", "What must a member do?", "Why?"])
def test_what_is_about_a_place_does_not(question):
    assert not asks_about_whole(question)


def test_long_questions_are_looked_through_once():
    """Each word of the first kind would be followed to the end of the line: a minute and more."""
    assert not needs_whole("how many " * 100_000)
    assert not needs_whole("fasse " * 100_000)
    assert needs_whole("how many " * 100_000 + "does it mention?")
    assert not needs_whole("How many?\nIs it mentioned?")
