"""Which words of a question say something about its subject, and questions about a whole text."""

import pytest

from octavo.library.question_words import asks_about_whole, needs_whole, says_something, subject_words, with_subject


@pytest.mark.parametrize(
    ("question", "subject"),
    [
        ("What does a blinking orange lamp mean?", "blinking orange lamp mean"),
        ("Wie hoch ist die Miete?", "hoch Miete"),
        ("Où est le phare de Skerry ?", "phare Skerry"),
        ("¿Quién pintó el faro?", "pintó faro"),
        ("Who is it?", "Who is it"),  # all, where nothing else is left
        ("2024?", "2024"),
        ("灯台は誰が塗りましたか", "灯台は誰が塗りましたか"),
        ("", ""),
    ],
)
def test_words_of_the_subject_are_kept(question, subject):
    assert subject_words(question) == subject


@pytest.mark.parametrize("piece", ["?", " ", "", " What", "the", " ,", "!?"])
def test_punctuation_and_words_of_grammar_say_nothing(piece):
    assert not says_something(piece)


@pytest.mark.parametrize("piece", [" lamp", "17", "Überblick", "灯"])
def test_other_words_say_something(piece):
    assert says_something(piece)


def test_a_question_without_a_subject_has_that_of_the_one_before():
    assert with_subject("Why?", "Who sank the Petrel?") == ("Who sank the Petrel?\nWhy?", "")
    assert with_subject("Why at night?", "Who sank the Petrel?") == ("Why at night?", "Who sank the Petrel?")
    assert with_subject("Why?", "") == ("Why?", "")


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
