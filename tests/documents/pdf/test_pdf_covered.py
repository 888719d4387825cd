"""Test that letters of PDFs that nobody can see are left out, with a notice, and that all others stay."""

import pytest
from helpers.pdf_files import WIDE, PdfWriter, lines, read

from octavo.documents.pdf.pdf_covered import has_layers

NOTICE = ("report.pdf has invisible text on its page: octavo leaves it out.",)


def drawn(*parts):
    """A page with a sentence and what is drawn after it."""
    return PdfWriter().page((60, 700, "The witness is Kari Lund of Grimstad."), drawn=" ".join(parts))


@pytest.mark.parametrize("colour", ["0 g", "1 g", "0.8 0.1 0.1 rg"])
def test_words_under_a_box_are_left_out(colour):
    document = read(drawn(colour, "124.5 695 44.5 16 re f"))
    assert document.text == "The witness is of Grimstad.\n"
    assert document.notices == NOTICE
    assert document.left_out == ("page 1, invisible: Kari Lund",)


@pytest.mark.parametrize(
    "above",
    [
        "/Half gs 0 g 124.5 695 44.5 16 re f",  # glass
        "0 g 124.5 695 44.5 2 re f",  # a line under words
        "0 G 124.5 695 44.5 16 re S",  # a frame
        "q 0 0 1 1 re W n 0 g 124.5 695 44.5 16 re f Q",  # cut to nothing
    ],
)
def test_words_that_can_be_seen_stay(above):
    writer = drawn(above)
    writer.resources = "/ExtGState << /Half << /ca 0.4 >> >>"
    document = read(writer)
    assert "Kari Lund" in document.text
    assert document.notices == ()


def test_words_under_a_note_are_left_out():
    look = "/Type /XObject /Subtype /Form /BBox [0 0 44.5 16]", b"0 g 0 0 44.5 16 re f"
    note = "<< /Type /Annot /Subtype /Square /Rect [124.5 695 169 711] /F 4 /AP << /N 500 0 R >> >>"
    writer = PdfWriter().page((60, 700, "The witness is Kari Lund of Grimstad."), notes=note)
    writer.others[500] = look
    assert read(writer).text == "The witness is of Grimstad.\n"


@pytest.mark.parametrize("off", [True, False])
def test_layers_that_are_off_are_left_out(off):
    draft = "/OC /Draft BDC BT /text 10 Tf 60 600 Td (The rent is 999 kroner, says a draft.) Tj ET EMC"
    writer = PdfWriter().page(*lines(WIDE), drawn=draft)
    writer.resources = "/Properties << /Draft 500 0 R >>"
    writer.others[500] = "<< /Type /OCG /Name (Draft) >>"
    state = "/OFF [500 0 R]" if off else "/ON [500 0 R]"
    writer.catalog = f"/OCProperties << /OCGs [500 0 R] /D << {state} >> >>"
    document = read(writer)
    assert ("999 kroner" in document.text) == (not off)
    assert document.text.startswith(" ".join(WIDE))
    assert document.notices == NOTICE * off


def test_layers_are_found_in_compressed_objects():
    assert not has_layers(PdfWriter().page(*lines(WIDE)).content())
    writer = PdfWriter().page(*lines(WIDE))
    writer.others[500] = "/Type /ObjStm /N 1 /First 4", b"1 0 << /Type /Catalog /OCProperties << >> >>"
    assert has_layers(writer.content())
