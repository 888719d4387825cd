"""Read the characters of a PDF's page with PDFium, as pieces of lines."""

from __future__ import annotations

import ctypes
import math
import re
import statistics
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .pdf_blocks import Piece

#: Least weight of bold fonts; and gap between words that splits a piece, in font sizes.
_BOLD, _GAP = 600, 0.9

#: Replacements for characters: ligatures, blanks of all widths, soft hyphens, and the bullets of symbol fonts.
_SAME = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st", 0xAD: "-"}
_SAME |= dict.fromkeys([0xA0, 0x2002, 0x2003, 0x2009, 0x200A, 0x202F, 0x3000, 0x9], " ")
_SAME |= dict.fromkeys([0x200B, 0x200C, 0x200D, 0xFEFF, 0xFFFE, 0xFFFF], "")
_SAME |= dict.fromkeys([0xF0B7, 0xF0A7, 0xF0D8, 0xF076, 0xF0A8, 0xF06E, 0xF0FC], "•")

#: First character of scripts without blanks.
_WIDE = 0x2E80

#: PDFium's mark for a hyphen at the end of a line.
_HYPHEN = 2

#: Monospaced fonts: their flag, which few set, and their names; and the names of bold fonts, few of which state their
#: weight.
_FIXED_PITCH, _FIXED_FONTS = 1, re.compile(rb"courier|mono|consol|typewriter|cmtt|fixed", re.IGNORECASE)
_BOLD_FONTS = re.compile(rb"bold|black|heavy|cmbx", re.IGNORECASE)

#: Fewest pieces at a right angle to the page's text that are more than a stamp in the margin.
_LEAST_TURNED = 3

#: A digit is an exponent or a note's number if it is this much smaller and higher than the text before it.
_SMALL, _RAISED = 0.85, 0.2


class _Words:
    """The characters of a piece in order, along a line that starts at (x, y) and rises by an angle."""

    def __init__(self) -> None:
        self.characters: list[str] = []
        self.left = self.right = self.y = 0.0
        self.sizes: list[float] = []
        self.n_bold, self.fixed, self.bold_font, self.is_raised = 0, True, False, False
        self.angle, self.cos, self.sin = 0, 1.0, 0.0

    def turn(self, radians: float) -> None:
        """Set the line's angle, to a degree, from PDFium's clockwise one."""
        self.angle = -round(math.degrees(radians)) % 360
        self.cos, self.sin = math.cos(math.radians(self.angle)), math.sin(math.radians(self.angle))

    def along(self, box: Any, x: float, y: float) -> tuple[float, float, float]:
        """Return a character's start and end along the line, and its height above it."""
        if not self.angle:
            return box.left, box.right, y
        corners = box.left * self.cos + box.bottom * self.sin, box.right * self.cos + box.top * self.sin
        return min(corners), max(corners), y * self.cos - x * self.sin

    def piece(self) -> Iterator[tuple[int, Piece]]:
        """Yield the angle and the piece, if it has words."""
        text = re.sub(r"\s+", " ", "".join(self.characters)).strip()
        if text:
            size, bold = statistics.median(self.sizes), 2 * self.n_bold > len(self.sizes)
            yield self.angle, Piece(text, self.left, self.right, self.y, size, bold, self.fixed)


def page_pieces(page: Any) -> tuple[float, list[list[Piece]]]:
    """Return a page's height, and the pieces of its lines, seen with most of its text upright.

    Text at right angles follows in separate lists. Fewer than three pieces of it, such as a stamp in a margin, are left
    out, as is text across the page, such as a watermark.
    """
    turned: dict[int, list[Piece]] = {}
    for angle, piece in _pieces(page):
        turned.setdefault(angle, []).append(piece)
    main = max(turned, key=lambda angle: (sum(len(piece.text) for piece in turned[angle]), -angle), default=0)
    width, height = page.get_size()
    if page.get_rotation() in (90, 270):  # PDFium rotates the size, but not the characters
        width, height = height, width
    cos, sin = math.cos(math.radians(main)), math.sin(math.radians(main))
    lowest = min(0.0, height * cos) - max(0.0, width * sin)
    upright = [replace(piece, y=piece.y - lowest) if main else piece for piece in turned.pop(main, [])]
    others = [
        turned[angle] for angle in sorted(turned) if (angle - main) % 90 == 0 and len(turned[angle]) >= _LEAST_TURNED
    ]
    return abs(height * cos) + abs(width * sin), [upright, *others]


def _pieces(page: Any) -> Iterator[tuple[int, Piece]]:
    """Yield the angles and pieces of a page's lines, in PDFium's order of characters."""
    import pypdfium2.raw as pdfium

    text_page = page.get_textpage()
    raw, box, x, y = text_page.raw, pdfium.FS_RECTF(), ctypes.c_double(), ctypes.c_double()
    font, flags = ctypes.create_string_buffer(64), ctypes.c_int()
    words, lead = _Words(), 0
    for i in range(text_page.count_chars()):
        number = pdfium.FPDFText_GetUnicode(raw, i)
        if 0xD800 <= number < 0xDC00:  # the first half of a surrogate pair
            lead = number
            continue
        if 0xDC00 <= number < 0xE000 and lead:
            number = 0x10000 + ((lead - 0xD800) << 10) + number - 0xDC00
        lead = 0
        if 0x1D400 <= number < 0x1D800:  # mathematical letters in all their fonts
            number = ord(unicodedata.normalize("NFKC", chr(number)))
        character = "-" if number == _HYPHEN else _SAME.get(number, chr(number) if 0 < number < 0x110000 else "")
        if character in ("\r", "\n"):
            yield from words.piece()
            words = _Words()
            continue
        if not character.isprintable() or character in ("", " "):
            words.characters += " " if character and words.characters else ""
            continue
        pdfium.FPDFText_GetLooseCharBox(raw, i, box)
        pdfium.FPDFText_GetCharOrigin(raw, i, x, y)
        height = abs(box.top - box.bottom) if words.angle % 180 == 0 else abs(box.right - box.left)
        size = max(pdfium.FPDFText_GetFontSize(raw, i), 0.5 * height, 0.1)  # a matrix may scale it
        start, end, base = words.along(box, x.value, y.value)
        last_size = words.sizes[-1] if words.sizes else size
        is_far = abs(base - words.y) > 0.5 * max(size, last_size) or not -1 < (start - words.right) / size < _GAP
        if words.characters and is_far:
            yield from words.piece()
            words = _Words()
        if not words.characters:
            words.turn(pdfium.FPDFText_GetCharAngle(raw, i))
            words.left, end, words.y = words.along(box, x.value, y.value)
        elif character.isdigit() and not words.is_raised and size < _SMALL * last_size:
            words.is_raised = base - words.y > _RAISED * last_size
            words.characters += "^" if words.is_raised else ""
        if not words.characters or words.characters[-1] == " " or number >= _WIDE:  # fonts seldom change within words
            pdfium.FPDFText_GetFontInfo(raw, i, font, len(font), flags)
            words.bold_font = bool(_BOLD_FONTS.search(font.value))
        words.is_raised = words.is_raised and character.isdigit()
        if words.fixed:  # so far
            pdfium.FPDFText_GetFontInfo(raw, i, font, len(font), flags)
            words.fixed = bool(flags.value & _FIXED_PITCH or _FIXED_FONTS.search(font.value))
        words.right = end
        words.characters.append(character)
        words.sizes.append(size)
        words.n_bold += words.bold_font or pdfium.FPDFText_GetFontWeight(raw, i) >= _BOLD
        if number == _HYPHEN:
            yield from words.piece()
            words = _Words()
    yield from words.piece()
    text_page.close()
