"""Test PDF files as wholes: labels, passwords, pictures, damage."""

import logging
import random
import re

import pytest
from helpers.pdf_files import HELPS, WIDE, PdfWriter, lines, read

from octavo.documents.document import Document
from octavo.documents.pdf.pdf import extract_pdf
from octavo.documents.pdf.pdf_picture import draw_page
from octavo.errors import OctavoError


def test_pages_have_their_labels():
    writer = PdfWriter()
    for i in range(3):
        writer.page(*lines([f"This is what page {i} says."]))
    writer.labels = "0 << /S /r >> 1 << /S /D /St 10 >>"
    document = read(writer)
    pages = [document.place(document.text.index(f"page {i}")).page for i in range(3)]
    assert pages == ["i", "10", "11"]


def test_pages_whose_labels_repeat_have_their_numbers_in_the_file():
    writer = PdfWriter()
    for i in range(5):
        writer.page(*lines([f"This is what page {i} says."]))
    writer.labels = "0 << /P (Cover) >> 1 << /S /D >> 3 << /S /D >>"
    document = read(writer)
    pages = [document.place(document.text.index(f"page {i}")).page for i in range(5)]
    assert pages == ["1", "2", "3", "4", "5"]
    assert draw_page(writer.content(), "4", "what page 3 says").top is not None


def test_files_in_a_file_are_named():
    writer = PdfWriter().page(*lines(["The terms are in another file."]))
    files = "".join(f"({name}) << /Type /Filespec /F ({name}) /EF << /F 500 0 R >> >> " for name in ("a.txt", "b.pdf"))
    writer.catalog = f"/Names << /EmbeddedFiles << /Names [{files}] >> >>"
    writer.others[500] = "/Type /EmbeddedFile", b"Terms"
    assert read(writer).text == "The terms are in another file.\n\nAttachments: a.txt, b.pdf\n"


def test_an_encrypted_file_needs_its_password():
    writer = PdfWriter(password="secret").page(*lines(WIDE))
    document = read(writer, "secret")
    assert (document.text, document.notices, document.needed_password) == (" ".join(WIDE) + "\n", (), True)
    assert not read(PdfWriter().page(*lines(WIDE)), "secret").needed_password
    with pytest.raises(OctavoError, match=r"^report\.pdf is encrypted: give its `password`\.$"):
        read(writer)
    with pytest.raises(OctavoError, match="password is wrong"):
        read(writer, "guess")
    with pytest.raises(OctavoError, match="is damaged"):
        extract_pdf(PdfWriter().page().content().replace(b"/Root 1 0 R", b"/Root 9 0 R"), "other.pdf")


def test_pictures_of_text_name_what_helps():
    with pytest.raises(OctavoError, match=rf"^report\.pdf has only pictures or drawings on its 2 pages: {HELPS}$"):
        read(PdfWriter().page(image=True).page(image=True))
    document = read(PdfWriter().page(*lines(WIDE)).page(image=True).page())
    [told] = document.notices
    assert re.fullmatch(rf"report\.pdf has only pictures or drawings on 1 of 3 pages \(2\): {HELPS}", told)


def test_blank_pages_and_drawings_are_called_so():
    with pytest.raises(OctavoError, match=r"^report\.pdf is blank: there is nothing to read in it\.$"):
        read(PdfWriter().page())
    with pytest.raises(OctavoError, match=rf"^report\.pdf has only pictures or drawings on its page: {HELPS}$"):
        read(PdfWriter().page(drawn="100 100 50 50 re f"))


def example():
    writer = PdfWriter()
    for _ in range(3):
        writer.page((60, 780, "Of Ships", 20, "bold"), *lines(WIDE, y=750), image=True)
    writer.outline = [("Of Ships", 0)]
    return writer.content()


def is_read_or_refused(content):
    """Whether a damaged file becomes a document, or an error that names it."""
    try:
        return isinstance(extract_pdf(content, "report.pdf"), Document)
    except OctavoError as problem:
        return str(problem).startswith("report.pdf ")


def test_a_file_that_is_cut_off_is_read_or_refused():
    content = example()
    for tenth in range(10):
        assert is_read_or_refused(content[: len(content) * tenth // 10])


def test_damaged_files_are_read_or_refused():
    content, rng = example(), random.Random(5)
    for _ in range(80):
        damaged = bytearray(content)
        for _ in range(rng.choice([1, 3, 20])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        assert is_read_or_refused(bytes(damaged))


def test_the_same_file_gives_the_same_text():
    assert extract_pdf(example(), "a.pdf") == extract_pdf(example(), "b.pdf")


def test_warnings_of_pypdfium2_are_left_out_and_its_logger_stays_as_it_was(caplog):
    logger = logging.getLogger("pypdfium2._helpers.document")
    before = logger.level, logger.parent.level, list(logger.filters)
    note = "<< /Type /Annot /Subtype /Widget /Rect [60 500 90 520] /F 4 /FT /Tx /T (a) /V (b) >>"
    content = PdfWriter().page(*lines(WIDE), notes=note).content()
    extract_pdf(content.replace(b"/Fields []", b"/XFA [] /Fields []"), "form.pdf")
    assert caplog.records == []
    assert (logger.level, logger.parent.level, list(logger.filters)) == before
