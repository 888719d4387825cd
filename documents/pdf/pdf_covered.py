"""Leave out letters of a PDF's page that no one can see: under a box that is drawn later, or on a layer that is off.

A picture of the page decides; it is made only where there may be such letters.
"""

from __future__ import annotations

import ctypes
import re
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .pdf_characters import Character, Style, address, place
from .pdf_forms import laid_over

#: The shorter side of the smallest box that hides a letter, in points; the pixels of a point in the picture; most
#: pixels of the picture, for posters; and most that the grey of an area without letters differs, of 255.
_SMALLEST, _SCALE, _MOST_PIXELS, _SAME = 3.0, 2.0, 20_000_000, 2

#: The part of each letter with ink: from and to which share of its width, and how far above its line, in font sizes.
_ACROSS, _ABOVE = (0.1, 0.9), (0.0, 0.5)

#: A stream of objects of a file, which may have its catalog; and where the names of layers are.
_OBJECTS, _LAYERS = re.compile(rb"/ObjStm\b.{0,400}?stream\r?\n(.*?)endstream", re.DOTALL), b"/OCProperties"


class _Box(NamedTuple):
    """An area that may hide earlier drawings: its sides, and its number in the order of drawing."""

    left: float
    bottom: float
    right: float
    top: float
    number: float

    def has(self, x: float, y: float) -> bool:
        return self.left <= x <= self.right and self.bottom <= y <= self.top


def has_layers(content: bytes) -> bool:
    """Return whether a PDF has layers, which may be off."""
    if _LAYERS in content:
        return True
    for found in _OBJECTS.finditer(content):
        try:
            if _LAYERS in zlib.decompress(found[1]):
                return True
        except zlib.error:  # with another filter, or encrypted
            continue
    return False


def without_covered(
    page: Any, lines: Sequence[list[Character]], styles: dict[int | None, Style], *, may_be_off: bool
) -> list[list[Character]]:
    """Leave out letters that a picture of the page does not show.

    Parameters
    ----------
    may_be_off : bool
        Whether any letter may be on a layer that is off.
    """
    boxes, numbers = ([], {}) if may_be_off else _boxes(page, styles)
    if not boxes and not may_be_off:
        return list(lines)

    def is_suspect(character: Character) -> bool:
        if not boxes or not character.text.isalnum():
            return may_be_off and character.text.isalnum() and not character.style.is_faint
        x, y = place(character)
        number = numbers[id(character.style)]
        return not character.style.is_faint and any(number < box.number and box.has(x, y) for box in boxes)

    suspects = [[is_suspect(character) for character in line] for line in lines]
    if not any(map(any, suspects)):
        return list(lines)
    picture = _Picture(page)
    return [_shown(line, those, picture) for line, those in zip(lines, suspects, strict=True)]


def _boxes(page: Any, styles: dict[int | None, Style]) -> tuple[list[_Box], dict[int, int]]:
    """Return the areas that are drawn after text, and the number of each style's text in the order of drawing.

    Text in a drawing within the page has the number -1.
    """
    import pypdfium2.raw as pdfium

    boxes: list[_Box] = []
    numbers = {id(style): -1 for style in styles.values()}
    sides, filled, stroked = [ctypes.c_float() for _ in range(4)], ctypes.c_int(), ctypes.c_int()
    colour = [ctypes.c_uint() for _ in range(4)]
    has_text = False
    for number in range(pdfium.FPDFPage_CountObjects(page.raw)):
        each = pdfium.FPDFPage_GetObject(page.raw, number)
        kind = pdfium.FPDFPageObj_GetType(each)
        if kind == pdfium.FPDF_PAGEOBJ_TEXT:
            style = styles.get(address(each))
            has_text = True
            if style is not None:
                numbers[id(style)] = number
        elif kind == pdfium.FPDF_PAGEOBJ_FORM or (kind == pdfium.FPDF_PAGEOBJ_PATH and has_text):
            if kind == pdfium.FPDF_PAGEOBJ_PATH:
                pdfium.FPDFPath_GetDrawMode(each, filled, stroked)
                pdfium.FPDFPageObj_GetFillColor(each, *colour)
                if not filled.value or colour[3].value < 255:
                    continue
            elif not has_text:
                has_text = True
                continue
            pdfium.FPDFPageObj_GetBounds(each, *sides)
            left, bottom, right, top = (side.value for side in sides)
            if min(right - left, top - bottom) >= _SMALLEST:
                boxes.append(_Box(left, bottom, right, top, number))
    kinds = {
        getattr(pdfium, f"FPDF_ANNOT_{name}") for name in ("SQUARE", "CIRCLE", "POLYGON", "STAMP", "REDACT", "INK")
    }
    box = pdfium.FS_RECTF()
    for note in laid_over(page):
        if pdfium.FPDFAnnot_GetSubtype(note) in kinds and pdfium.FPDFAnnot_GetRect(note, box):
            boxes.append(_Box(box.left, box.bottom, box.right, box.top, float("inf")))
    return boxes, numbers


class _Picture:
    """A picture of a page in grey, with all that is laid over it."""

    def __init__(self, page: Any) -> None:
        import pypdfium2.raw as pdfium

        width, height = page.get_size()
        scale = min(_SCALE, (_MOST_PIXELS / max(width * height, 1.0)) ** 0.5)
        bitmap = page.render(scale=scale, grayscale=True)
        self._grey: NDArray[np.uint8] = bitmap.to_numpy()[..., 0] if bitmap.n_channels > 1 else bitmap.to_numpy()
        self._grey = self._grey.reshape(bitmap.height, bitmap.width)
        column, row = ctypes.c_int(), ctypes.c_int()
        corners = []
        for x, y in ((0, 0), (1000, 0), (0, 1000)):
            pdfium.FPDF_PageToDevice(page.raw, 0, 0, bitmap.width, bitmap.height, 0, x, y, column, row)
            corners.append((column.value, row.value))
        (self._x, self._y), along, above = corners
        self._along = (along[0] - self._x) / 1000, (along[1] - self._y) / 1000
        self._above = (above[0] - self._x) / 1000, (above[1] - self._y) / 1000

    def shows(self, character: Character) -> bool:
        """Return whether there is anything but one colour where a letter is drawn."""
        style, width = character.style, character.right - character.left
        xs, ys = [], []
        for share in _ACROSS:
            for above in _ABOVE:
                u, v = character.left + share * width, character.y + above * style.size
                x, y = u * style.cos - v * style.sin, u * style.sin + v * style.cos
                xs.append(self._x + x * self._along[0] + y * self._above[0])
                ys.append(self._y + x * self._along[1] + y * self._above[1])
        area = self._grey[max(int(min(ys)), 0) : int(max(ys)) + 1, max(int(min(xs)), 0) : int(max(xs)) + 1]
        return not area.size or int(area.max()) - int(area.min()) > _SAME


def _shown(line: list[Character], suspects: Sequence[bool], picture: _Picture) -> list[Character]:
    """Return the characters of a line that a picture shows; signs between letters that it does not show go, too."""
    hidden: list[bool | None] = [
        (is_suspect and not picture.shows(character)) if character.text.isalnum() else None
        for character, is_suspect in zip(line, suspects, strict=True)
    ]
    if True not in hidden:
        return line
    before: list[bool | None] = [None]
    for is_hidden in hidden:
        before.append(before[-1] if is_hidden is None else is_hidden)
    after: list[bool | None] = [None]
    for is_hidden in reversed(hidden):
        after.append(after[-1] if is_hidden is None else is_hidden)
    around = zip(line, hidden, before[1:], reversed(after[1:]), strict=True)
    return [
        each for each, is_hidden, *beside in around if is_hidden is False or (is_hidden is None and False in beside)
    ]
