"""Test the order of reading of what is seen from left to right."""

import pytest

from octavo.documents.pdf.right_to_left import is_right_to_left, logical_text


@pytest.mark.parametrize(
    ("seen", "read"),
    [
        ("גבא", "אבג"),
        ("ABC גבא", "אבג ABC"),
        ("ד Python 3 בא", "אב Python 3 ד"),
        ("ד 12.5 א", "א 12.5 ד"),
        ("2026-2024 א", "א 2026-2024"),
        ("2026 2024 א", "א 2024 2026"),
        ("ב 50% א", "א 50% ב"),
        (".(א) ב", "ב (א)."),
        (".)א( ב", "ב (א)."),
    ],
)
def test_a_line_from_right_to_left(seen, read):
    assert logical_text(seen, from_right=True) == read


@pytest.mark.parametrize(
    ("seen", "read"), [("see גבא there", "see אבג there"), ("(ב א)", "(א ב)"), ("in ב א 12 of", "in א ב 12 of")]
)
def test_a_line_from_left_to_right_with_words_of_the_other_kind(seen, read):
    assert logical_text(seen, from_right=False) == read


def test_letters_lose_their_forms_and_ligatures_keep_their_order():
    assert logical_text(["ﺔ", "ﻴ", "ﺟ", "ﻹ"], from_right=True) == "لإجية"
    assert logical_text(["د", "لا", "ب"], from_right=True) == "بلاد"


def test_scripts_are_told():
    assert is_right_to_left("a ب")
    assert not is_right_to_left("naïve 12")
