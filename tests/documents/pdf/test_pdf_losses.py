"""Test that text which reading loses is found, named by its page, and can be printed."""

from helpers.pdf_files import WIDE, PdfWriter, lines, read

from octavo.documents.pdf import pdf, pdf_pieces
from octavo.documents.pdf.pdf_losses import letters_of, pages_with_losses


def test_letters_of_a_page_are_in_the_text_or_known_as_left_out():
    drawn = [letters_of(["The log, 1", "one"]), letters_of(["The log, 2", "two"])]
    text = "The log one two"
    assert pages_with_losses(drawn, text, [0, 12], [["1"], ["The log, 2"]]) == []
    assert pages_with_losses(drawn, text, [0, 12], [["1"], ["The log"]]) == [1]
    assert pages_with_losses(drawn, "The log one tw", [0, 12], [["1"], ["The log, 2"]]) == [1]


def test_what_is_lost_is_told_and_kept(monkeypatch):
    read_pieces = pdf_pieces._pieces
    monkeypatch.setattr(pdf_pieces, "_pieces", lambda line: read_pieces([each for each in line if each.text != "9"]))
    document = read(PdfWriter().page(*lines(WIDE)).page(*lines(["Paid: 9.50"])))
    assert document.notices == (
        "report.pdf has text that octavo lost on 1 of 2 pages (2): `octavo read --all` prints these pages as they are "
        "drawn.",
    )
    assert document.left_out == ("page 2, all that is drawn: Paid: 9.50",)


def test_numbers_and_repeats_are_kept_with_their_pages():
    writer = PdfWriter()
    for number in range(1, 5):
        writer.page((60, 800, "The Log"), *lines([*WIDE, f"{'x' * number} ends."]), (290, 40, f"Page {number} of 4"))
    document = read(writer)
    assert document.left_out == (
        "page 1, number of the page: Page 1 of 4",
        *(
            f"page {i}, {each}"
            for i in (2, 3, 4)
            for each in ("repeated: The Log", f"number of the page: Page {i} of 4")
        ),
    )
    assert document.notices == ()
    assert pdf.extract_pdf(PdfWriter().page(*lines(WIDE)).content(), "a.pdf").left_out == ()
