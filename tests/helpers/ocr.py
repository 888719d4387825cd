"""Make scanned pages, for tests of text recognition."""

import io
import os
import shutil

import pypdfium2
import pytest
from helpers.pdf_files import PdfWriter

needs_tesseract = pytest.mark.skipif(
    shutil.which("tesseract") is None and not os.environ.get("OCTAVO_REQUIRE_OCR"), reason="tesseract is not installed"
)


def scan(*pages):
    """A PDF with the pictures of pages with texts."""
    pictures = [page.render(scale=200 / 72).to_pil().convert("L") for page in pypdfium2.PdfDocument(written(pages))]
    content = io.BytesIO()
    pictures[0].save(content, "PDF", save_all=True, append_images=pictures[1:], resolution=200)
    return content.getvalue()


def written(pages):
    """The bytes of a PDF with pages of these texts."""
    writer = PdfWriter()
    for page in pages:
        writer.page(*page)
    return writer.content()
