"""Test that a number that a text writes in words is in the text."""

import pytest

from octavo.ask.answer.notices import unfounded
from octavo.ask.answer.number_words import numbers_in_words


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("The keeper saw ninety ships.", "90"),
        ("Ninety-two, and forty\nfive.", "92 45"),
        ("two hundred and five boats", "205"),
        ("one thousand two hundred and sixty pounds", "1260"),
        ("twelve thousand", "12000"),
        ("three million four hundred thousand and twelve", "3400012"),
        ("in nineteen eighty-five, or twenty twenty-six", "1985 2026"),
        ("nineteen hundred and six", "1906"),
        ("on the thirty-first of May, the ninetieth ship, the hundredth day", "31 90 100"),
        ("two dozen oars and a dozen ropes", "24 12"),
        ("two and a half litres, half a million, one and a half million", "2.5 500000 1500000"),
        ("zwölf Schafe, zweihundertfünf Boote, dreissig", "12 205 30"),
        ("neunzehnhundertfünfundachtzig, zweitausenddreihundert, zwei Millionen", "1985 2300 2000000"),
        ("soixante-douze, quatre-vingt-dix-sept, quarante et un", "72 97 41"),
        ("mille neuf cent quatre-vingt-quatre", "1984"),
        ("treinta y uno, veintidós, dos mil trescientos", "31 22 2300"),
        ("duecentoventidue, ventuno, millenovecento", "222 21 1900"),
        ("trinta e um, duzentos e cinco", "31 205"),
        ("tweeëntwintig, driehonderdzestig", "22 360"),
        ("ten, twenty, thirty", "10 20 30"),
        ("fifteen twelve fifteen", "15 12 1512"),
        ("the weight often stood once, a half, in per cent", ""),
    ],
)
def test_numbers_in_words(text, numbers):
    found = numbers_in_words(text)
    assert {*numbers.split()} <= found
    assert bool(found) == bool(numbers)


@pytest.mark.parametrize(
    ("text", "other"),
    [("ninety ships", "92"), ("one hundred and five", "150"), ("two dozen", "36"), ("zwölf", "20"), ("a half", "0.5")],
)
def test_other_numbers_are_unfounded(text, other):
    assert unfounded(f"There were {other}.", [text]) == [other]


def test_an_answer_in_digits_agrees_with_a_text_in_words():
    text = "The keeper counted ninety ships in a night, and one thousand two hundred and sixty in the year."
    assert unfounded("He counted 90 ships in a night and 1,260 in the year; 91 would be too many.", [text]) == ["91"]
