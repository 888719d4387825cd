"""Test that pages of a PDF are packed until they are written, and that so many do not fill the memory."""

from __future__ import annotations

import tracemalloc

from octavo.documents.pdf.pdf_blocks import Line, Piece
from octavo.documents.pdf.pdf_packed import Packed
from octavo.documents.pdf.pdf_repeats import without_repeats

N_LINES = 30


def _page(number):
    """Return the lines of a page with a running head, all of them different but for it."""
    texts = ["The Weir", *(f"On day {number} the keeper wrote {number * n + n} words." for n in range(N_LINES))]
    return [
        Line((Piece(text, 60.0, 300.0, 815.0 - 25 * n, 10.0, bold=False, fixed=False),), (60.0, 540.0))
        for n, text in enumerate(texts)
    ]


def _peak(function, n_pages):
    """Return the result of a function of a number of pages, and the most memory that it took, in bytes."""
    tracemalloc.start()
    try:
        made = function(n_pages)
        return made, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _read(n_pages):
    return without_repeats(Packed(map(_page, range(n_pages))), [842.0] * n_pages, list(map(str, range(n_pages))))


def test_elements_come_back_and_can_be_replaced():
    pages = Packed(map(_page, range(3)))
    pages.append(_page(7))
    pages[1] = _page(9)
    assert list(pages) == [_page(0), _page(9), _page(2), _page(7)]
    assert len(pages) == 4


def test_lines_of_pages_are_left_out_without_holding_all_of_them():
    few, many = 20, 60
    _read(few)  # compiled patterns and the like stay
    _, unpacked = _peak(lambda n: [_page(number) for number in range(n)], few)
    (_, of_few), (rest, of_many) = _peak(_read, few), _peak(_read, many)
    assert (of_many - of_few) / (many - few) < unpacked / few / 2
    assert [len(page) for page in rest.pages] == [N_LINES] * many
    assert rest.left_out[1:] == [["repeated: The Weir"]] * (many - 1)
