"""The sentence that an answer was taken from, as its words say."""

from itertools import pairwise

import pytest

from octavo.ask.sources.answer_words import ReadSentences, has_answer
from octavo.documents.document import sentences

TEXT = """# The beacon of Grey Skerry

The beacon was built by Zeller & Sons in 1968, after two trawlers had run aground. Its keeper, Oskar Nyberg, lives in
the white house. The lamp came from a yard in Trondheim and cost 1,340 pounds. It flashes every eleven seconds.

Dr. Hallam mended the horn with a grass seed. The town gave fourteen lamps to the harbour of Leith. Visitors may climb
the stairs on Saturdays. The beacon weighs 64.5 tonnes. It is painted blue.

Der Turm wurde von Jürgen Großmann im Jahr 1911 gezeichnet. Смотрителя маяка зовут Иван Петров.
灯塔由张伟建造。
"""


def found(question: str, answer: str) -> str:
    parts = [TEXT[start:stop] for start, stop in pairwise(sentences(TEXT))]
    number = ReadSentences(parts).best(answer, question)
    return "" if number is None else " ".join(parts[number].split())


@pytest.mark.parametrize(
    ("question", "answer", "part"),
    [
        ("How much did the lamp cost?", "The lamp cost 1,340 pounds.", "1,340 pounds"),
        ("How much did the lamp cost?", "1340", "1,340 pounds"),
        ("Who built the beacon?", "It was built by Zeller & Sons in 1968.", "Zeller & Sons in 1968"),
        ("Who is the keeper of the beacon?", "OSKAR NYBERG", "Oskar Nyberg"),
        ("How often does it flash?", "Every 11 seconds.", "eleven seconds"),
        ("How many lamps did the town give to the harbour?", "It gave 14.", "fourteen lamps"),
        ("What did he mend the horn with?", "He used a grass seed for that.", "grass seed"),
        ("Which colour is it painted?", "Blue.", "painted blue"),
        ("How much does the beacon weigh?", "64.50 tonnes", "64.5 tonnes"),
        ("When may visitors climb the stairs?", "On Saturdays.", "on Saturdays"),
        ("Wer hat den Turm gezeichnet?", "Jürgen Großmann hat ihn gezeichnet.", "Jürgen Großmann"),
        ("Как зовут смотрителя маяка?", "Его зовут Иван Петров.", "Иван Петров"),  # noqa: RUF001
        ("谁建造了灯塔?", "张伟", "张伟"),
        ("Wie heißt der Wärter?", "Oskar Nyberg", "Oskar Nyberg"),  # nothing of the question stands in the text
    ],
)
def test_names_numbers_and_phrases_have_their_sentence(question, answer, part):
    assert part in found(question, answer)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How much did the lamp cost?", "It cost 1,430 pounds sterling."),  # another number
        ("How much did the lamp cost?", "I do not know how much the lamp cost."),
        ("Who built the beacon?", "The beacon was built by a group of sailors."),
        ("Who gave fourteen lamps to the harbour?", "Oskar Nyberg gave them."),  # a name from elsewhere in the text
        ("How many lamps did the town give to the harbour?", "There are 64.5 of them."),
        ("Which year is it?", ""),
        ("", ""),
    ],
)
def test_other_words_have_none(question, answer):
    assert found(question, answer) == ""


def test_the_sentence_before_tells_what_a_sentence_is_about():
    text = "The dog is called Biscuit. He weighs 14 kilograms.\n\nThe cat is called Kepler.\n\nIt has 14 toys."
    parts = [text[start:stop] for start, stop in pairwise(sentences(text))]
    assert ReadSentences(parts).best("14", "What does the dog called Biscuit have?") == 1


def test_a_quote_has_the_answer_if_it_has_a_word_that_the_question_lacks():
    quote = "The lamp cost 1,340 pounds."
    assert has_answer(quote, "It was 1340.", "How much did the lamp cost?")
    assert not has_answer(quote, "The lamps cost 90.", "How much did the lamp cost?")


def test_numbers_are_compared_whole():
    question = "Is invoice 1000123 paid?"
    assert has_answer("Invoice 1000124 is paid.", "No, but 1000124 is.", question)
    assert not has_answer("Invoice 1000199 is paid.", "No, but 1000124 is.", question)


@pytest.mark.parametrize(
    ("quote", "answer"),
    [
        ("It is due on 2026-06-09.", "On June 9, 2026."),
        ("It weighs 1 234 567 kg.", "1,234,567"),
        ("Es beginnt um 14.05 Uhr.", "At 2:05 pm."),
    ],
)
def test_a_number_in_another_form_is_the_answer(quote, answer):
    assert has_answer(quote, answer, "When, or how much?")


@pytest.mark.parametrize(
    ("question", "part"),
    [
        ("Who is the keeper of the beacon?", "Oskar Nyberg"),
        ("Which yard did the lamp come from?", "a yard in Trondheim"),
        ("When may visitors climb the stairs?", "on Saturdays"),
        ("Wer hat den Turm gezeichnet?", "Jürgen Großmann"),
        ("Как зовут смотрителя маяка?", "Иван Петров"),
    ],
)
def test_the_likeliest_sentences_share_rare_words_with_the_question(question, part):
    parts = [TEXT[start:stop] for start, stop in pairwise(sentences(TEXT))]
    assert part in parts[ReadSentences(parts).likeliest(question, 3)[0]]


def test_a_question_without_a_word_of_the_text_has_no_sentences():
    assert ReadSentences(["The beacon is blue.", "It is tall."]).likeliest("Warum?", 3) == []
