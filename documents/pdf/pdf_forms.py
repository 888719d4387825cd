"""Extract the entries on a PDF's page: values of fields, ticked boxes, and typed remarks."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from .pdf_blocks import Piece

#: Largest size of a value's letters, in points; and their share of the height of a field with one line.
_SIZE, _SHARE = 12.0, 0.6

#: Height of capitals, in font sizes.
_CAPITALS = 0.7

#: Bytes of an appearance that says nothing, in UTF-16.
_EMPTY = 2

#: Flags: of fields that are not seen, of fields with several lines, and of fields for a password.
_HIDDEN, _MULTILINE, _PASSWORD = 2, 1 << 12, 1 << 13


class Entry(NamedTuple):
    """A line that a form's field has, as the page is seen, at the angle of its rotation.

    Parameters
    ----------
    place : tuple of float
        The middle of the field on the page.
    bottom, top : float
        The borders of the field.
    """

    place: tuple[float, float]
    piece: Piece
    bottom: float
    top: float


def form_entries(page: Any) -> list[Entry]:
    """Return the values of fields, "[x]" and "[ ]" for boxes, and text typed on a page."""
    import pypdfium2.raw as pdfium

    boxes = {pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON}
    values = {pdfium.FPDF_FORMFIELD_TEXTFIELD, pdfium.FPDF_FORMFIELD_COMBOBOX, pdfium.FPDF_FORMFIELD_LISTBOX}
    entries: list[Entry] = []
    for note in laid_over(page):
        kind, text, is_centred = pdfium.FPDFAnnot_GetSubtype(note), "", False
        if kind == pdfium.FPDF_ANNOT_FREETEXT:
            text = contents(note)
        elif kind == pdfium.FPDF_ANNOT_WIDGET and page.formenv:
            form = page.formenv.raw
            field, flags = (
                get(form, note) for get in (pdfium.FPDFAnnot_GetFormFieldType, pdfium.FPDFAnnot_GetFormFieldFlags)
            )
            is_centred = not flags & _MULTILINE
            if field in boxes:
                text = "[x]" if pdfium.FPDFAnnot_IsChecked(form, note) else "[ ]"
            elif field in values and not flags & _PASSWORD:
                text = _string(pdfium.FPDFAnnot_GetFormFieldValue, form, note)
        entries += _placed(note, text, page.get_rotation(), is_centred=is_centred)
    return entries


def remarks(page: Any) -> list[str]:
    """Return the remarks on a page that readers open: of notes, and of marked text."""
    import pypdfium2.raw as pdfium

    names = "TEXT", "HIGHLIGHT", "UNDERLINE", "SQUIGGLY", "STRIKEOUT", "CARET", "SQUARE", "CIRCLE", "INK"
    kinds = {getattr(pdfium, f"FPDF_ANNOT_{name}") for name in names}
    texts = (contents(note) for note in laid_over(page) if pdfium.FPDFAnnot_GetSubtype(note) in kinds)
    return [" ".join(text.split()) for text in texts if text.strip()]


def laid_over(page: Any, *, hidden: bool = False) -> Iterator[Any]:
    """Yield the annotations that are laid over a page and seen, and with `hidden` the others, too."""
    import pypdfium2.raw as pdfium

    for number in range(pdfium.FPDFPage_GetAnnotCount(page.raw)):
        note = pdfium.FPDFPage_GetAnnot(page.raw, number)
        if note:
            if hidden or not pdfium.FPDFAnnot_GetFlags(note) & _HIDDEN:
                yield note
            pdfium.FPDFPage_CloseAnnot(note)


def contents(note: Any) -> str:
    """Return the text that belongs to something that is laid over a page."""
    import pypdfium2.raw as pdfium

    return _string(pdfium.FPDFAnnot_GetStringValue, note, b"Contents")


def is_drawn(note: Any) -> bool:
    """Return whether something that is laid over a page has an appearance of its own."""
    import pypdfium2.raw as pdfium

    return int(pdfium.FPDFAnnot_GetAP(note, pdfium.FPDF_ANNOT_APPEARANCEMODE_NORMAL, None, 0)) > _EMPTY


def _string(function: Any, *arguments: Any) -> str:
    import pypdfium2.raw as pdfium

    n_bytes = function(*arguments, None, 0)
    buffer = ctypes.create_string_buffer(n_bytes)
    function(*arguments, ctypes.cast(buffer, ctypes.POINTER(pdfium.FPDF_WCHAR)), n_bytes)
    return buffer.raw[:n_bytes].decode("utf-16-le", "replace").rstrip("\0")


def _placed(note: Any, text: str, angle: int, *, is_centred: bool) -> Iterator[Entry]:
    """Yield the lines of a text in the box of a field, as it is seen on a page that is rotated by an angle."""
    import pypdfium2.raw as pdfium

    box = pdfium.FS_RECTF()
    lines = [" ".join(line.split()) for line in text.splitlines()]
    if not any(lines) or not pdfium.FPDFAnnot_GetRect(note, box):
        return
    middle = (box.left + box.right) / 2, (box.bottom + box.top) / 2
    cos, sin = round(math.cos(math.radians(angle))), round(math.sin(math.radians(angle)))
    corners = (box.left, box.bottom), (box.right, box.top)
    left, right = sorted(x * cos + y * sin for x, y in corners)
    bottom, top = sorted(y * cos - x * sin for x, y in corners)
    height = top - bottom
    size = max(1.0, min(_SIZE, _SHARE * height))
    step = min(1.2 * size, height / len(lines))
    base = bottom + ((height - _CAPITALS * size) / 2 if is_centred else height - size)
    for number, line in enumerate(lines):
        if line:
            piece = Piece(line, left, right, base - number * step, size, bold=False, fixed=False)
            yield Entry(middle, piece, bottom, top)
