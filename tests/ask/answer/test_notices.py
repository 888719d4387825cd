"""Names and numbers of an answer that are not in the text that was read."""

import pytest

from octavo.ask.answer.notices import notices_of_unfounded, unfounded

TEXT = """James Hutton is viewed as the first modern geologist. In 1785 he presented a paper to the Royal Society.
It cost 1,260 pounds, or 64.5 a page, and took ten weeks; the bus 07:12 was late. The Huguenots left."""


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("James Hutton, in 1785.", []),
        ("It was James Hutton's paper of 1785 for the Royal Society.", []),
        ("It was 1260 pounds, 64.50 a page, after 10 weeks, at 7:12.", []),
        ("It was the Huguenot who left.", []),
        ("1. The first was Hutton.\n12. The second was nobody.", []),
        ("Geologists say so. However, nobody asked.", []),  # words at the beginning of sentences
        ("It was Abraham de Buxton, born in 1779.", ["Abraham", "Buxton", "1779"]),
        ("It cost 12.59 euros.", ["12.59"]),
        ("They came from Leeds, from Leeds.", ["Leeds"]),
        ("There were 3 of them.", []),  # which counts something
        ("", []),
    ],
)
def test_names_and_numbers_are_looked_for(answer, found):
    assert unfounded(answer, [TEXT]) == found


def test_what_the_question_names_is_known():
    assert unfounded("The train to Innsbruck leaves.", [TEXT]) == ["Innsbruck"]
    assert unfounded("The train to Innsbruck leaves.", [TEXT, "When does the train to Innsbruck leave?"]) == []


def test_nouns_of_german_are_no_names():
    text = "Der alte Mann saß mit seinem Hund auf der Bank vor dem Haus und las die Zeitung von gestern. " * 3
    assert unfounded("Er saß mit der Katze auf dem Dach.", [text]) == []
    assert unfounded("Er war 87 Jahre alt.", [text]) == ["87"]


def test_the_sentence_lists_a_few():
    assert notices_of_unfounded([]) == {}
    for found, listed in [
        (["Leeds"], "Leeds is"),
        (["Leeds", "1779"], "Leeds and 1779 are"),
        (list("abcde"), "a, b, c and 2 more are"),
    ]:
        assert notices_of_unfounded(found) == {"unfounded": f"{listed} not in the text that was read."}
