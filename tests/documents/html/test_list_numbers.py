"""Test the forms of the numbers of lists."""

import pytest

from octavo.documents.html.list_numbers import in_form


@pytest.mark.parametrize(
    ("number", "form", "text"),
    [(4, "decimal", "4"), (4, "decimalZero", "04"), (28, "lowerLetter", "bb"), (1998, "upperRoman", "MCMXCVIII"),
     (2, "chineseCounting", "二"), (10, "chineseCounting", "十"), (12, "japaneseCounting", "十二"),
     (20, "chineseCountingThousand", "二十"), (105, "chineseCountingThousand", "一百零五"),
     (1010, "taiwaneseCountingThousand", "一千零一十"), (2000, "chineseCounting", "二千"),
     (3, "ideographTraditional", "丙"), (12, "ideographDigital", "一二"), (2, "decimalEnclosedCircle", "②"),
     (2, "russianLower", "\u0431"), (3, "ganada", "다"), (1, "aiueoFullWidth", "ア"), (99, "ganada", "99"),
     (105, "japaneseCounting", "百五"), (21, "koreanCounting", "이십일"), (12, "japaneseLegal", "拾弐"),
     (12, "chineseLegalSimplified", "壹拾贰"), (16, "hebrew1", "טז"), (39, "hebrew1", "לט"), (14, "arabicAbjad", "يد"),
     (2, "lowerGreek", "β"), (2, "decimalEnclosedParen", "⑵"), (3, "numberInDash", "- 3 -"), (26, "hex", "1A"),
     (12, "ordinal", "12th"), (23, "ordinal", "23rd"), (42, "cardinalText", "Forty-two"),
     (30, "ordinalText", "Thirtieth"),
     (21, "ordinalText", "Twenty-first"), (12, "arabicIndic", "١٢"), (10, "aiueo", "ｺ"),
     (7, "none", ""), (7, "chicago", "7")],
)  # fmt: skip
def test_a_number_is_written_in_its_form(number, form, text):
    assert in_form(number, form) == text
