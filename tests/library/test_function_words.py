"""Which words of a question say something about its subject."""

import pytest

from octavo.library.function_words import says_something, subject_words, with_subject


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
