"""Test that PDFs of every kind, from reportlab and Chromium, are read with all words, in order and in their cells."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from helpers.browser import chromium
from helpers.pdf_files import PdfWriter, lines, lost, untold
from helpers.pdf_layouts import LAYOUTS, Layout

from octavo.documents.pdf.pdf import extract_pdf


@pytest.fixture(scope="module")
def print_html() -> Iterator[Callable[[str, dict[str, Any]], bytes]]:
    """Print a page of HTML, in one browser for all tests, which starts for the first page."""
    browser = chromium()
    driver: Any = None

    def printed(source: str, options: dict[str, Any]) -> bytes:
        nonlocal driver
        driver = driver or browser.__enter__()
        frame = driver.execute_cdp_cmd("Page.getFrameTree", {})["frameTree"]["frame"]["id"]
        driver.execute_cdp_cmd("Page.setDocumentContent", {"frameId": frame, "html": f"<!doctype html>{source}"})
        made = driver.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True, **options})
        return base64.b64decode(made["data"])

    yield printed
    if driver:
        browser.__exit__(None, None, None)


def _marked(layout: Layout) -> Any:
    marks = [pytest.mark.xfail(reason=layout.fails, strict=True, raises=AssertionError)] if layout.fails else []
    return pytest.param(layout, id=layout.name.replace(" ", "-"), marks=marks)


@pytest.mark.parametrize("layout", [_marked(layout) for layout in LAYOUTS])
def test_a_layout_is_read_right(layout, print_html):
    content = layout.content(print_html)
    document = extract_pdf(content, "printed.pdf")
    assert list(layout.problems(document.text)) == []
    assert untold(content, document) == lost(content, document) == {}


def test_a_word_that_is_lost_without_a_notice_is_found():
    content = PdfWriter().page(*lines(["Sent on 9 June", "Total 20.50"])).page(*lines(["Total 20.50", "2"])).content()
    document = extract_pdf(content, "bill.pdf")
    for part, lost_words in (("9 June", {1: ["9", "June"]}), ("20.50", {1: ["20", "50"]})):
        short = replace(document, text=document.text.replace(part, ""))
        assert untold(content, short) == lost_words
        assert untold(content, replace(short, notices=("bill.pdf has a stamp on 1 of 2 pages (1).",))) == {}
        told = replace(short, left_out=(f"page 1, repeated: Sent on {part} as Total {part}",))
        assert (lost(content, short), lost(content, told)) == (lost_words, {})
