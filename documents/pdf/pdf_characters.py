"""Extract the characters of a PDF's page with PDFium, line by line."""

from __future__ import annotations

import ctypes
import math
import re
import statistics
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from .pdf_symbols import UNKNOWN, is_private, sign

#: Least weight of bold fonts.
_BOLD = 600

#: Replacements for characters: ligatures, and blanks of all widths.
_SAME = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"}
_SAME |= dict.fromkeys([0xA0, 0x2002, 0x2003, 0x2009, 0x200A, 0x202F, 0x3000, 0x9], " ")
_SAME |= dict.fromkeys([0x200B, 0x200C, 0x200D, 0xFEFF, 0xFFFE, 0xFFFF], "")

#: PDFium's mark for a hyphen at the end of a line.
_HYPHEN = 2

#: Monospaced fonts: their flag, which few set, and their names; and the names of bold fonts, few of which state their
#: weight, and of plain fonts, as some state a bold one.
_FIXED_PITCH, _FIXED_FONTS = 1, re.compile(rb"courier|mono|consol|typewriter|cmtt|sftt|fixed", re.IGNORECASE)
_BOLD_FONTS = re.compile(rb"bold|black|heavy|demi|cmbx|sfbx|nimbus.*-medi|-bd$", re.IGNORECASE)
_PLAIN_FONTS = re.compile(rb"roman|regu|light|plain|-book", re.IGNORECASE)

#: First letters of lines in which narrow and wide ones are compared; these; and most that their widths differ in
#: monospaced fonts, in font sizes.
_SOME, _NARROW_OR_WIDE, _WIDE, _SAME_WIDTH = 60, frozenset("ijltI.,mwMW"), frozenset("mwMW"), 0.02

#: Usual height of the boxes of letters, the least difference of a box's sides that shows its width, and the least and
#: largest width of a letter, in font sizes.
_HEIGHT, _LEAST_DIFFERENCE, _WIDTHS = 1.17, 0.3, (0.1, 1.5)

#: Least gap between words on a line, more than its usual gap; most gap between letters of a word that a blank seems to
#: part; and most that letters of a word differ in height; in font sizes.
_LEAST_BLANK, _NO_BLANK, _LEVEL = 0.17, 0.02, 0.1

#: Least amount of each colour in what counts as white.
_WHITE = 250

#: Fonts whose boxes are so many times higher or lower than their size are drawn at the size of the box (type 3).
_OTHER_UNIT = 5


class Part(NamedTuple):
    """The paragraph, heading or item of a list that a file names: its number, from 1 on, and a heading's level."""

    number: int = 0
    level: int = 0
    is_item: bool = False


#: Of letters that a file does not name.
NO_PART = Part()


@dataclass(frozen=True)
class Style:
    """What the characters of one of PDFium's text objects have in common.

    Parameters
    ----------
    size : float
        Of the font as it is drawn.
    angle : int
        Of the line, anticlockwise, in degrees.
    cos, sin : float
        Of this angle.
    bold, fixed : bool
        Whether the font is bold, and whether its letters all have one width.
    font : bytes
        The font's name.
    is_faint : bool
        Whether the letters are drawn in white, transparent or not at all.
    mark : int
        Their number in the structure tree of the page; -1 without any.
    part : Part
        Their paragraph or the like in this tree.
    """

    size: float
    angle: int
    cos: float
    sin: float
    bold: bool
    fixed: bool
    font: bytes
    is_faint: bool
    mark: int
    part: Part


class Character(NamedTuple):
    """A character or a ligature's letters: start and end along its line, and height above it.

    PDFium guesses characters of fonts that do not say which letters they draw. Those that begin a cell are marked where
    the file draws cells one below the other.
    """

    text: str
    left: float
    right: float
    y: float
    style: Style
    is_guess: bool = False
    begins_cell: bool = False


def lines_of_characters(page: Any, parts: Mapping[int, Part]) -> tuple[list[list[Character]], dict[int | None, Style]]:
    """Return the characters of each line as PDFium finds lines, and the styles of its text objects.

    Characters may follow in another line's place. Blanks have the place of the character before them.

    Parameters
    ----------
    parts : mapping of int to Part
        Of the numbers in the structure tree of the page.
    """
    import pypdfium2.raw as pdfium

    text_page = page.get_textpage()
    # Names of this function: they are looked up for each letter.
    get_letter, get_object = pdfium.FPDFText_GetUnicode, pdfium.FPDFText_GetTextObject
    get_box, get_origin = pdfium.FPDFText_GetLooseCharBox, pdfium.FPDFText_GetCharOrigin
    is_guessed = pdfium.FPDFText_HasUnicodeMapError
    raw, box, x, y = text_page.raw, pdfium.FS_RECTF(), ctypes.c_double(), ctypes.c_double()
    to_box, to_x, to_y = map(ctypes.pointer, (box, x, y))
    styles: dict[int | None, Style] = {}
    lines: list[list[Character]] = [[]]
    lead = 0
    for i in range(text_page.count_chars()):
        number = get_letter(raw, i)
        if 0xD800 <= number < 0xDC00:  # the first half of a surrogate pair
            lead = number
            continue
        if 0xDC00 <= number < 0xE000 and lead:
            number = 0x10000 + ((lead - 0xD800) << 10) + number - 0xDC00
        lead = 0
        text, is_drawn = _letter(number)
        if text in ("\r", "\n"):
            lines.append([])
        elif not is_drawn:
            if text and lines[-1]:
                last = lines[-1][-1]
                lines[-1].append(Character(" ", last.right, last.right, last.y, last.style))
        else:
            get_box(raw, i, to_box)
            get_origin(raw, i, to_x, to_y)
            key = address(get_object(raw, i))
            if key is None or key not in styles:
                styles[key] = _style(raw, i, box, parts)
            style = styles[key]
            text = sign(number, style.font) if text == UNKNOWN else text
            character = _placed(text, box, x.value, y.value, style)
            if is_guessed(raw, i):
                character = character._replace(is_guess=True)
            lines[-1].append(character)
            if number == _HYPHEN:
                lines.append([])
    text_page.close()
    return [_spaced(line) for line in _with_fixed(lines, styles)], styles


@cache
def _letter(number: int) -> tuple[str, bool]:
    """Return what a code stands for, and whether that is drawn; `UNKNOWN` for a symbol that its font names."""
    if 0x1D400 <= number < 0x1D800:  # mathematical letters in all their fonts
        number = ord(unicodedata.normalize("NFKC", chr(number)))
    if number == _HYPHEN:
        return "-", True
    if is_private(number):
        return UNKNOWN, True
    text = _SAME.get(number, chr(number) if 0 < number < 0x110000 else "")
    return text, text not in ("", " ") and (text.isprintable() or text == "\u00ad")


def _with_fixed(lines: list[list[Character]], styles: dict[int | None, Style]) -> list[list[Character]]:
    """Return lines whose styles are fixed where a font's narrow and wide letters have one width, whatever its name."""
    widths: dict[bytes, tuple[set[float], set[float]]] = {}
    for text, left, right, _, style, *_ in (
        each for line in lines for each in line[:_SOME] if each.text in _NARROW_OR_WIDE
    ):
        if not (style.fixed or style.is_faint):
            widths.setdefault(style.font, (set(), set()))[text in _WIDE].add((right - left) / style.size)
    fixed = {
        font for font, both in widths.items() if all(both) and max(map(max, both)) - min(map(min, both)) < _SAME_WIDTH
    }
    if not fixed:
        return lines
    new = {id(style): replace(style, fixed=style.fixed or style.font in fixed) for style in styles.values()}
    styles.update({key: new[id(style)] for key, style in styles.items()})
    return [[each._replace(style=new[id(each.style)]) for each in line] for line in lines]


def address(found: Any) -> int | None:
    """Return the address of one of PDFium's objects; None without one."""
    return ctypes.addressof(found.contents) if found else None


def _spaced(line: list[Character]) -> list[Character]:
    """Return a line with blanks between words that are only moved apart, and without those that take no room."""
    gaps = [
        (after.left - before.right) / after.style.size
        for before, after in pairwise(line)
        if before.text != " " != after.text
    ]
    least = _LEAST_BLANK + max(statistics.median(gaps), 0.0) if gaps else 0.0
    spaced: list[Character] = []
    last, blank = None, None
    for character in line:
        if character.text == " ":
            blank = character
            continue
        if last is not None:
            gap = (character.left - last.right) / character.style.size
            is_level = abs(character.y - last.y) < _LEVEL * character.style.size
            if last.style.angle != character.style.angle or not is_level or character.style.is_faint:
                spaced += [blank] if blank else []
            elif gap > least if blank is None else not -_LEVEL < gap < _NO_BLANK:
                spaced.append(blank or last._replace(text=" ", left=last.right))
        spaced.append(character)
        last, blank = character, None
    return spaced if blank is None else [*spaced, blank]


def _style(raw: Any, i: int, box: Any, parts: Mapping[int, Part]) -> Style:
    """Return the style of a character's text object."""
    import pypdfium2.raw as pdfium

    matrix, font, flags = pdfium.FS_MATRIX(), ctypes.create_string_buffer(64), ctypes.c_int()
    pdfium.FPDFText_GetMatrix(raw, i, matrix)
    pdfium.FPDFText_GetFontInfo(raw, i, font, len(font), flags)
    operand = pdfium.FPDFText_GetFontSize(raw, i)
    turn = math.copysign(1.0, operand)  # a negative size turns letters around
    angle = round(math.degrees(math.atan2(turn * matrix.b, turn * matrix.a))) % 360
    size = abs(operand) * math.sqrt(abs(matrix.a * matrix.d - matrix.b * matrix.c))
    text_object = pdfium.FPDFText_GetTextObject(raw, i)
    mode, mark = pdfium.FPDFTextObj_GetTextRenderMode(text_object), pdfium.FPDFPageObj_GetMarkedContentID(text_object)
    is_invisible = mode == pdfium.FPDF_TEXTRENDERMODE_INVISIBLE
    if is_invisible:  # recognised text, in a makeshift font that is drawn out to the width of each word
        size = abs(operand) * math.hypot(matrix.c, matrix.d)
    height = abs(box.top - box.bottom) if angle % 180 == 0 else abs(box.right - box.left)
    if height and not size / _OTHER_UNIT < height < size * _OTHER_UNIT:
        size = height
    radians = math.radians(angle)
    colour = [ctypes.c_uint() for _ in range(4)]
    pdfium.FPDFText_GetFillColor(raw, i, *colour)
    is_white = min(each.value for each in colour[:3]) >= _WHITE or colour[3].value == 0
    return Style(
        size=max(size, 0.1),
        angle=angle,
        cos=math.cos(radians),
        sin=math.sin(radians),
        bold=_is_bold(font.value, pdfium.FPDFText_GetFontWeight(raw, i)),
        fixed=not is_invisible and bool(flags.value & _FIXED_PITCH or _FIXED_FONTS.search(font.value)),
        font=font.value,
        is_faint=is_invisible or (mode == pdfium.FPDF_TEXTRENDERMODE_FILL and is_white),
        mark=mark,
        part=parts.get(mark, NO_PART),
    )


def _is_bold(font: bytes, weight: int) -> bool:
    return bool(_BOLD_FONTS.search(font)) or (weight >= _BOLD and not _PLAIN_FONTS.search(font))


def place(character: Character) -> tuple[float, float]:
    """Return the middle of a character on the page, a little above its line."""
    style = character.style
    along, above = (character.left + character.right) / 2, character.y + 0.2 * style.size
    return along * style.cos - above * style.sin, along * style.sin + above * style.cos


def _placed(text: str, box: Any, x: float, y: float, style: Style) -> Character:
    if not style.angle:
        return Character(text, box.left, box.right, y, style)
    cos, sin = style.cos, style.sin
    if style.angle % 90:  # a box is upright, and larger than a letter that leans
        left = x * cos + y * sin
        return Character(text, left, left + _width(box, style), y * cos - x * sin, style)
    corners = box.left * cos + box.bottom * sin, box.right * cos + box.top * sin
    return Character(text, min(corners), max(corners), y * cos - x * sin, style)


def _width(box: Any, style: Style) -> float:
    """Return the width of a letter that leans, whose box is upright."""
    across, high, cos, sin = abs(box.right - box.left), abs(box.top - box.bottom), abs(style.cos), abs(style.sin)
    difference = cos * cos - sin * sin
    if abs(difference) > _LEAST_DIFFERENCE:
        width = (across * cos - high * sin) / difference
    else:
        width = (across + high) / (cos + sin) - _HEIGHT * style.size
    return float(min(max(width, _WIDTHS[0] * style.size), _WIDTHS[1] * style.size))
