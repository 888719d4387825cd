"""Test what is filled in on PDFs."""

from helpers.pdf_files import WIDE, PdfWriter, lines, read


def field(kind, x, y, width, entries):
    return f"<< /Type /Annot /Subtype /{kind} /Rect [{x} {y} {x + width} {y + 20}] /F 4 {entries} >>"


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


def test_values_in_high_boxes_are_no_headings():
    fields = " ".join(
        f"<< /Type /Annot /Subtype /Widget /Rect [60 {y} 260 {y + 22}] /F 4 /FT /Tx /T (f{y}) /V (Sample {y}) >>"
        for y in (700, 650, 600)
    )
    texts = [(60, y + 26, f"Name {y}") for y in (700, 650, 600)]
    assert "#" not in read(PdfWriter().page(*texts, notes=fields)).text
