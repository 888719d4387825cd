"""Test that PDFs of every kind, from reportlab and Chromium, are read with all words, in order and in their cells."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.browser import chromium
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
    assert list(layout.problems(extract_pdf(content, "printed.pdf").text)) == []
