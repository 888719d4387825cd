"""Test what is filled in on PDFs."""

import pytest
from helpers.pdf_files import WIDE, PdfWriter, lines, read


def field(kind, x, y, width, entries):
    flags = "" if "/F " in entries else "/F 4"
    return f"<< /Type /Annot /Subtype /{kind} /Rect [{x} {y} {x + width} {y + 20}] {flags} {entries} >>"


def test_values_of_fields_and_ticked_boxes_are_read_beside_their_labels():
    labels = [(60, 700, "Name of the ship:"), (60, 660, "Cargo insured:"), (60, 620, "Cargo sold:")]
    states = "/AP << /N << /Yes 6 0 R /Off 6 0 R >> >>"
    notes = [
        field("Widget", 200, 695, 150, "/FT /Tx /T (a) /V (Halcyon Dawn)"),
        field("Widget", 200, 655, 20, f"/FT /Btn /T (b) /V /Yes /AS /Yes {states}"),
        field("Widget", 200, 615, 20, f"/FT /Btn /T (c) /V /Off /AS /Off {states}"),
        field("Widget", 200, 555, 20, "/FT /Tx /T (d) /Ff 8192 /V (secret)"),
    ]
    text = read(PdfWriter().page(*labels, notes=" ".join(notes))).text
    assert text == "Name of the ship: Halcyon Dawn\n\nCargo insured: [x]\n\nCargo sold: [ ]\n"


def test_typed_text_and_remarks_are_read():
    notes = field("FreeText", 60, 500, 200, "/Contents (Typed on the page)")
    notes += field("Text", 60, 400, 20, "/Contents (Is this\nso?)") + field(
        "Text", 60, 300, 20, "/F 2 /Contents (unseen)"
    )
    writer = PdfWriter().page(*lines(WIDE), notes=notes).page(*lines(["And it was."]))
    document = read(writer)
    assert document.text.endswith("Typed on the page\n\n[Remark: Is this so?]\n\nAnd it was.\n")
    assert document.place(document.text.index("And it was.")).page == "2"


def appearance(text):
    """A drawing of a text, with the font that it needs."""
    font = "/Font << /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >>"
    entries = f"/Type /XObject /Subtype /Form /BBox [0 0 200 20] /Resources << {font} >>"
    return entries, f"BT /F 12 Tf 2 5 Td ({text}) Tj ET".encode()


@pytest.mark.parametrize("kind", ["Stamp", "Redact", "Widget"])
def test_stamps_and_signatures_follow_the_text_and_name_no_pages(kind):
    entries = "/AP << /N 500 0 R >>" + " /FT /Sig /T (s)" * (kind == "Widget")
    writer = PdfWriter().page(*lines(WIDE), notes=field(kind, 60, 500, 200, entries)).page(*lines(["It was so."]))
    writer.others[500] = appearance("APPROVED on 14 May")
    document = read(writer)
    assert document.text == f"{' '.join(WIDE)}\n\nAPPROVED on 14 May\n\nIt was so.\n"
    assert [place.heading for place in document.places] == [None, None]


def test_typed_text_without_contents_is_read_as_it_is_drawn():
    writer = PdfWriter().page(*lines(WIDE), notes=field("FreeText", 60, 500, 200, "/AP << /N 500 0 R >>"))
    writer.others[500] = appearance("Typed later")
    assert read(writer).text.endswith("\n\nTyped later\n")


def test_hidden_stamps_are_not_read():
    writer = PdfWriter().page(*lines(WIDE), notes=field("Stamp", 60, 500, 200, "/F 2 /AP << /N 500 0 R >>"))
    writer.others[500] = appearance("VOID")
    assert "VOID" not in read(writer).text


def test_values_in_high_boxes_are_no_headings():
    fields = " ".join(
        f"<< /Type /Annot /Subtype /Widget /Rect [60 {y} 260 {y + 22}] /F 4 /FT /Tx /T (f{y}) /V (Sample {y}) >>"
        for y in (700, 650, 600)
    )
    texts = [(60, y + 26, f"Name {y}") for y in (700, 650, 600)]
    assert "#" not in read(PdfWriter().page(*texts, notes=fields)).text
