"""Draw a page of a PDF with a passage marked."""

from __future__ import annotations

import ctypes
import io
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...errors import OctavoError

#: Pixels of the longer side of a picture, and the colour of the mark.
_LONGEST, _YELLOW = 1600, (255, 226, 110)

#: Fewest letters and digits by which the beginning of a passage, or its end, is found on a page.
_FEW = 24


def page_labels(pdf: Any) -> list[str]:
    """Return the printed label of each page; the numbers of pages in the file if two have the same label."""
    labels = [pdf.get_page_label(number) or str(number + 1) for number in range(len(pdf))]
    return labels if len(set(labels)) == len(labels) else [str(number + 1) for number in range(len(pdf))]


class PagePicture(NamedTuple):
    """A page as a PNG file, and where the passage on it begins, as a share of the page's height; None if nowhere."""

    png: bytes
    top: float | None


def draw_page(content: bytes, label: str, quote: str) -> PagePicture:
    """Return a page with a passage marked.

    Parameters
    ----------
    label : str
        The printed label of the page, as `Place.page` has it.
    quote : str
        The passage, as it was read. What of it is not on the page is not marked.

    Raises
    ------
    OctavoError
        It is not a PDF that opens without a password, or has no such page.
    """
    import pypdfium2
    from PIL import Image, ImageChops, ImageDraw

    try:
        with pypdfium2.PdfDocument(content) as pdf:
            labels = page_labels(pdf)
            if label not in labels:
                raise OctavoError(f"There is no page {label}.")
            page = pdf[labels.index(label)]
            picture = page.render(scale=_LONGEST / max(page.get_size())).to_pil().convert("RGB")
            marks = Image.new("RGB", picture.size, "white")
            draw = ImageDraw.Draw(marks)
            boxes = list(_boxes(page, quote, picture.size))
            for box in boxes:
                draw.rectangle(box, fill=_YELLOW)
            file = io.BytesIO()
            ImageChops.multiply(picture, marks).save(file, "PNG")
            return PagePicture(file.getvalue(), boxes[0][1] / picture.height if boxes else None)
    except pypdfium2.PdfiumError as problem:
        raise OctavoError("PDFium cannot draw this document.") from problem


def _boxes(page: Any, quote: str, size: tuple[int, int]) -> Iterator[tuple[int, int, int, int]]:
    import pypdfium2.raw as pdfium

    text_page = page.get_textpage()
    found = [(chr(pdfium.FPDFText_GetUnicode(text_page.raw, i)).lower(), i) for i in range(text_page.count_chars())]
    signs = [(sign, i) for sign, i in found if sign.isalnum()]
    start, stop = _found("".join(sign[0] for sign, _ in signs), "".join(filter(str.isalnum, quote.lower())))
    if start == stop:
        return
    first, last = signs[start][1], signs[stop - 1][1]
    left, top, right, bottom = (ctypes.c_double() for _ in range(4))
    for number in range(pdfium.FPDFText_CountRects(text_page.raw, first, last - first + 1)):
        pdfium.FPDFText_GetRect(text_page.raw, number, left, top, right, bottom)
        corners = [_pixel(page, size, x.value, y.value) for x, y in ((left, top), (right, bottom))]
        (x0, x1), (y0, y1) = (sorted(values) for values in zip(*corners, strict=True))
        yield x0 - 1, y0 - 1, x1 + 1, y1 + 1


def _found(text: str, quote: str) -> tuple[int, int]:
    """Return where a passage begins and ends in a text; its end, or its beginning, may be on another page."""
    at = text.find(quote)
    if at >= 0:
        return at, at + len(quote)
    start, end = text.find(quote[:_FEW]), text.find(quote[-_FEW:])
    if len(quote) < _FEW or start < 0 > end:
        return 0, 0
    if start < 0:
        return 0, end + _FEW
    return (start, end + _FEW) if end >= start else (start, min(len(text), start + len(quote)))


def _pixel(page: Any, size: tuple[int, int], x: float, y: float) -> tuple[int, int]:
    import pypdfium2.raw as pdfium

    column, row = ctypes.c_int(), ctypes.c_int()
    pdfium.FPDF_PageToDevice(page, 0, 0, *size, 0, x, y, column, row)
    return column.value, row.value
