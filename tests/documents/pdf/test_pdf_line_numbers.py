"""Test which numbers beside a PDF's lines are left out."""

import pytest
from helpers.pdf_files import NARROW, PdfWriter, lines, read

TEXT = [*NARROW, *NARROW]


@pytest.mark.parametrize(("x", "step"), [(40, 13), (330, 13), (40, 24), (40, 30)])
@pytest.mark.parametrize("first", [1, 25])
def test_numbers_of_lines_are_left_out(x, step, first):
    numbers = [(x, 700 - step * i, str(first + i), 8) for i in range(len(TEXT))]
    document = read(PdfWriter().page(*numbers, *lines(TEXT, step=step)))
    assert " ".join(document.text.split()) == " ".join(TEXT)
    assert "numbers its lines on its page" in document.notices[0]


def test_numbers_of_lines_in_two_columns_are_left_out():
    numbers = [(x, 700 - 13 * i, str(i + 1), 8) for x in (40, 310) for i in range(len(TEXT))]
    right = [*TEXT[3:], *TEXT[:3]]
    text = read(PdfWriter().page(*numbers, *lines(TEXT), *lines(right, x=330))).text
    assert " ".join(text.split()) == " ".join([*TEXT, *right])


@pytest.mark.parametrize("x", [40, 330])
def test_each_fifth_number_is_left_out(x):
    numbers = [(x, 700 - 13 * i, str(i + 1), 8) for i in (4, 9)]
    assert " ".join(read(PdfWriter().page(*numbers, *lines(TEXT))).text.split()) == " ".join(TEXT)


def test_numbers_of_rows_and_of_clauses_stay():
    names = ["Leith harbour", "Grimstad", "Arendal harbour", "Sète", "Cork", "Rostock"]
    rows = [(x, 700 - 15 * i, text) for i, name in enumerate(names) for x, text in ((60, str(i + 1)), (100, name))]
    clauses = [(60, 500 - 40 * i, str(i + 1)) for i in range(6)]
    texts = [text for i in range(6) for text in lines(NARROW[:2], x=100, y=500 - 40 * i)]
    document = read(PdfWriter().page(*rows, *clauses, *texts))
    assert [document.text.count(str(number)) for number in range(1, 7)] == [2] * 6
    assert not document.notices
