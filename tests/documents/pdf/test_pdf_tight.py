"""Test where cells that are hardly a blank apart are found, and where words are none."""

from __future__ import annotations

import pytest
from helpers.pdf_files import PdfWriter, read

WORDS = ("sill", "mast", "keel", "helm")


def written(*places, n=5, off=0.0, font="text"):
    """The text of rows of words at these places, from the second row on moved a little more in each."""
    at = [(x + off * row * bool(i), 700 - 12 * row, row + i) for row in range(n) for i, x in enumerate(places)]
    return read(PdfWriter().page(*((x, y, WORDS[number % 4], 10, font) for x, y, number in at))).text


def test_parts_that_a_file_draws_below_one_another_are_cells():
    assert written(60, 86, 112).startswith("| sill | mast | keel |\n| --- | --- | --- |\n| mast | keel | helm |")


@pytest.mark.parametrize(("n", "off", "font"), [(5, 0.7, "text"), (3, 0.0, "text"), (5, 0.0, "code")])
def test_parts_that_move_or_are_few_or_code_are_words(n, off, font):
    assert "|" not in written(60, 86, 112, n=n, off=off, font=font)


def test_one_part_after_another_is_no_table():
    assert "|" not in written(60, 86)
