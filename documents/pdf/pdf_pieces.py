"""Put the characters of a PDF's page together to pieces of lines, in the order of reading."""

from __future__ import annotations

import math
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from .pdf_blocks import Line, Piece
from .pdf_boxes import boxes_of, boxes_of_fields, lines_by_box
from .pdf_cells import Cell, cell_at, mirrored, parts_by_cell, table_pieces, tables
from .pdf_characters import NO_PART, Character, lines_of_characters
from .pdf_columns import lines_in_order
from .pdf_covered import without_covered
from .pdf_forms import form_entries, remarks
from .pdf_fractions import with_fractions
from .pdf_legible import fonts_of_objects, unclear_fonts, without_hidden
from .pdf_line_numbers import without_line_numbers
from .pdf_losses import letters_of
from .pdf_rules import grids as grids_of_rules
from .pdf_rules import rules
from .pdf_strips import strip_grids
from .pdf_symbols import UNKNOWN
from .pdf_tables import NUMBER_GAP
from .pdf_tags import Tags
from .pdf_tight import with_cells
from .pdf_turned import with_labels
from .right_to_left import is_right_to_left, logical_text

#: Gap between words that splits a piece; least gap between words of scripts from right to left; and most gap between
#: letters of a word; in font sizes.
_GAP, _BLANK, _TOUCHING = 0.9, 0.12, 0.1

#: Most that characters of a line differ in height, in font sizes.
_LEVEL = 0.5

#: Fewest pieces at a right angle to the page's text that are more than a stamp in the margin; width of this margin, as
#: a share of the page's; and the largest angle of lines that only lean, in degrees.
_LEAST_TURNED, _MARGIN, _LEANS = 3, 0.12, 10

#: Least share of a page that the picture of a scanned page covers.
_LARGE = 2 / 3

#: Capitals beside which a paragraph begins: their least size, in sizes of the page's text, and their form; those that
#: may be words; and the height of capitals, in font sizes.
_DROPPED, _CAPITAL, _ONE_LETTER_WORDS, _CAP_HEIGHT = 1.8, re.compile(r"[\"'\u2018\u201c\u00ab]?[^\W\d_]"), "AIO", 0.72

#: Where a paragraph begins beside such a capital, in sizes of its text: from where to where at the capital's right, how
#: much above its foot at least, and how far from the height of its top at most, of a word of its own and of the rest of
#: a word.
_BESIDE, _ABOVE_FOOT, _OFF_TOP, _OFF_TOP_OF_REST = (-0.5, 1.5), 0.25, 0.6, 1.0

#: Fewest words of a line that is justified by wide blanks; the widest of these; and most that they differ, in font
#: sizes.
_FEWEST_WORDS, _WIDEST_BLANK, _EVEN = 4, 2.0, 0.02

#: Most from a line to the next one, in font sizes.
_NEXT_LINE = 1.8

#: Least share of letters in the font of a piece; the others may be signs that it lacks.
_IN_ONE_FONT = 0.8

#: What numbers begin and end with, besides digits.
_SIGNS, _AFTER_NUMBERS = tuple("-+(.\u2212\u2013$€£¥"), tuple("%)-\u2013€£¥")

#: A digit is an exponent or a note's number if it is this much smaller and higher than the text before it.
_SMALL, _RAISED = 0.85, 0.2


@dataclass(frozen=True)
class PageText:
    """The text of a page.

    Parameters
    ----------
    height : float
        Of the page.
    lines : list of Line
        In the order of reading; those at other angles follow.
    over : list of Line
        What is drawn across the page or in its margins, such as watermarks and stamps.
    has_unknown, is_picture : bool
        Whether letters were marked as unknown; and whether the page has nothing but pictures and drawings, apart from
        text in the margins, such as a stamp.
    unclear, hidden, repeated : list of str
        What was left out as the meaning of its letters is unknown, as it is invisible, and of `over` as it is there
        already.
    line_numbers : list of str
        Numbers of lines, which were left out.
    letters : Counter of str
        Letters and digits that the page draws, but for those left out as invisible or without a meaning.
    remarks : list of str
        Remarks that readers open.
    fonts, missing_fonts : set of str
        Fonts of the letters that were read, and those that the file uses but does not hold.
    """

    height: float
    lines: list[Line]
    over: list[Line]
    has_unknown: bool
    is_picture: bool
    unclear: list[str]
    hidden: list[str]
    repeated: list[str]
    line_numbers: list[str]
    letters: Counter[str]
    remarks: list[str]
    fonts: set[str]
    missing_fonts: set[str]


def page_text(page: Any, stamps: Any = None, *, may_be_off: bool = False) -> PageText:
    """Return the lines of a page, seen with most of its text upright.

    Text at other angles follows. Pages in scripts from right to left are mirrored, so that what is
    read first is on the left.

    Parameters
    ----------
    stamps : pypdfium2.PdfPage, optional
        A page with only the stamps and the like that are laid over it (`Appearances`).
    may_be_off : bool
        Whether its text may be on layers that are off.
    """
    tags = Tags(page)
    found, styles = lines_of_characters(page, tags.parts)
    unclear = unclear_fonts(found)
    seen = without_covered(page, without_hidden(page, found), styles, may_be_off=may_be_off)
    clear = [[sign for sign in line if not (sign.is_guess and sign.style.font in unclear)] for line in seen]
    lines = _whole_lines(clear)
    signs = Counter(character.text for line in lines for character in line)
    n_from_right = sum(n for sign, n in signs.items() if is_right_to_left(sign))
    n_letters = sum(n for sign, n in signs.items() if sign.isalpha())
    from_right = 2 * n_from_right > n_letters
    angles = Counter(character.style.angle for line in lines for character in line) or {page.get_rotation(): 1}
    main = max(angles, key=lambda angle: (abs(angle - 90 * round(angle / 90)) <= _LEANS, angles[angle], -angle))
    level, upright, bars = rules(page, _cos(main), _sin(main)) if main % 90 == 0 else ([], [], [])
    ruled, boxed = grids_of_rules(level, upright, _cos(main), _sin(main))
    grids = tables(tags.grids(lines, main), [*ruled, *strip_grids(bars, lines, main)], lines)
    lines = with_cells(with_fractions(lines, bars, main), main)
    turned: dict[int, list[Piece]] = {}
    in_cells: dict[Cell, dict[int, list[Piece]]] = {}
    for cell, part in (each for line in lines for each in parts_by_cell(line, grids)):
        is_mixed = n_from_right and any(is_right_to_left(character.text) for character in part)
        pieces = _mixed_pieces(part, from_right) if is_mixed else _with_justified(list(_pieces(part)))
        for angle, piece in pieces:
            (in_cells.setdefault(cell, {}) if cell else turned).setdefault(angle, []).append(piece)
    usual = _usual_size([piece for at in (turned, *in_cells.values()) for pieces in at.values() for piece in pieces])
    entries = form_entries(page)
    for entry in entries:  # whose fields may be higher than letters
        piece = replace(entry.piece, size=min(entry.piece.size, usual or entry.piece.size))
        cell = cell_at(*entry.place, grids)
        (in_cells.setdefault(cell, {}) if cell else turned).setdefault(page.get_rotation(), []).append(piece)
    parts, over = _by_angle(with_labels(turned, main), main, page.get_bbox())
    lines_of_stamps = lines_of_characters(stamps, {})[0] if stamps else []
    over += [[piece for _, piece in _pieces(line)] for line in lines_of_stamps]
    over, repeated = _once(over)
    lowest, highest = _heights(page.get_bbox(), main)
    found_boxes = [*boxes_of(boxed), *boxes_of_fields(entries, parts[0])]
    parts[0] = _without_drop_capitals(parts[0]) + table_pieces(grids, in_cells, main, from_right)
    parts[0] = [replace(piece, y=piece.y - lowest) for piece in parts[0]]
    parts[0], line_numbers = without_line_numbers(parts[0])
    fonts, missing_fonts = fonts_of_objects(page, styles)
    boxes = [box.moved(lowest, is_mirrored=from_right) for box in found_boxes]
    if from_right:
        parts = [mirrored(part) for part in parts]
    return PageText(
        height=highest - lowest,
        lines=lines_by_box(parts[0], boxes) + [line for part in parts[1:] for line in lines_in_order(part)],
        over=[line for part in over for line in lines_in_order(part)],
        has_unknown=any(UNKNOWN in piece.text for part in [*parts, *over] for piece in part),
        unclear=_without(seen, clear),
        hidden=_without(found, seen),
        repeated=repeated,
        line_numbers=line_numbers,
        letters=letters_of(character.text for line in [*lines, *lines_of_stamps] for character in line),
        is_picture=_is_picture(page, parts, highest - lowest),
        remarks=remarks(page),
        fonts=fonts,
        missing_fonts=missing_fonts,
    )


def _usual_size(pieces: Sequence[Piece]) -> float:
    """Return the size of most pieces of a page; 0 without any."""
    return statistics.median(piece.size for piece in pieces) if pieces else 0.0


def _is_picture(page: Any, parts: Sequence[Sequence[Piece]], height: float) -> bool:
    """Return whether a page has nothing but pictures, or at most text at the top and foot of a large one."""
    import pypdfium2.raw as pdfium

    margins = _MARGIN * height, (1 - _MARGIN) * height
    if any(margins[0] < piece.y < margins[1] for part in parts for piece in part):
        return False
    if not any(parts):
        return any(True for _ in page.get_objects(max_depth=1))
    left, bottom, right, top = page.get_bbox()
    pictures = [each.get_bounds() for each in page.get_objects(filter=(pdfium.FPDF_PAGEOBJ_IMAGE,))]
    return any((x1 - x0) * (y1 - y0) >= _LARGE * (right - left) * (top - bottom) for x0, y0, x1, y1 in pictures)


def _heights(box: Sequence[float], angle: int) -> tuple[float, float]:
    """Return the least and largest height in a box, seen with text at an angle upright."""
    left, bottom, right, top = box
    heights = [y * _cos(angle) - x * _sin(angle) for x in (left, right) for y in (bottom, top)]
    return min(heights), max(heights)


def _by_angle(
    turned: dict[int, list[Piece]], main: int, box: Sequence[float]
) -> tuple[list[list[Piece]], list[list[Piece]]]:
    """Return the pieces at the main angle, then those at right angles; and those across the page or in its margins.

    Lines that lean count as the right angle near them.
    """
    straight: dict[int, list[Piece]] = {main: turned.pop(main, [])}
    over: list[list[Piece]] = []
    for angle in sorted(turned):
        quarter = main + 90 * round((angle - main) / 90)
        if abs(angle - quarter) <= _LEANS:
            pieces = [_leant(piece, angle - quarter) for piece in turned[angle]]
            straight.setdefault(quarter % 360, []).extend(pieces)
        else:
            over.append(turned[angle])
    upright = straight.pop(main)
    stamps = [straight.pop(angle) for angle in sorted(straight) if _is_stamp(straight[angle], _heights(box, angle))]
    return [upright, *(straight[angle] for angle in sorted(straight))], stamps + over


def _once(over: Sequence[Sequence[Piece]]) -> tuple[list[list[Piece]], list[str]]:
    """Return pieces without those whose text a page has before, as watermarks have, and the texts of these."""
    texts: set[str] = set()
    once: list[list[Piece]] = []
    repeated: list[str] = []
    for part in over:
        once.append([])
        for piece in part:
            if piece.text in texts:
                repeated.append(piece.text)
            else:
                once[-1].append(piece)
                texts.add(piece.text)
    return once, repeated


def _without(lines: Sequence[Sequence[Character]], left: Sequence[Sequence[Character]]) -> list[str]:
    """Return the texts of the characters that are not among those that are left, by line."""
    if sum(map(len, left)) == sum(map(len, lines)):
        return []
    kept = {id(character) for line in left for character in line}
    texts = ("".join(character.text for character in line if id(character) not in kept).strip() for line in lines)
    return [text for text in texts if text]


def _is_stamp(pieces: Sequence[Piece], heights: tuple[float, float]) -> bool:
    """Return whether pieces at a right angle to a page's text are few, and in a margin."""
    margin = _MARGIN * (heights[1] - heights[0])
    in_margin = all(not heights[0] + margin < piece.y < heights[1] - margin for piece in pieces)
    return len(pieces) < _LEAST_TURNED and in_margin


def _without_drop_capitals(pieces: list[Piece]) -> list[Piece]:
    """Put large capitals, beside which a paragraph begins, before its first word."""
    usual = _usual_size(pieces)
    words = Counter(word for piece in pieces for word in piece.text.split())
    for capital in [piece for piece in pieces if piece.size > _DROPPED * usual and _CAPITAL.fullmatch(piece.text)]:
        beside = [piece for piece in pieces if _is_beside(piece, capital)]
        first = max(beside, key=lambda piece: piece.y, default=None)
        above = [piece for piece in pieces if first and _begins_above(piece, capital, first)]
        if first and (above or _is_at_top(first, capital)):
            first = above[0] if above else first
            word = first.text.split()[0]
            is_word = capital.text in _ONE_LETTER_WORDS and words[word] > 1
            is_apart = is_word or (word[:1].isupper() and not word.isupper())
            joined = replace(first, text=f"{capital.text} {first.text}" if is_apart else capital.text + first.text)
            pieces = [joined if piece is first else piece for piece in pieces if piece is not capital]
    return pieces


def _begins_above(piece: Piece, capital: Piece, beside: Piece) -> bool:
    """Return whether a piece has the rest of a large capital's word, above the lines beside it."""
    is_near = abs(piece.left - capital.left) < 0.5 * piece.size and 0 < piece.y - beside.y < _NEXT_LINE * piece.size
    return is_near and abs(piece.size - beside.size) < 0.1 and piece.text[:1].islower()


def _is_beside(piece: Piece, capital: Piece) -> bool:
    """Return whether a piece begins at the right of a large capital, above its foot."""
    nearest, farthest = _BESIDE
    is_beside = nearest < (piece.left - capital.right) / piece.size < farthest
    return is_beside and _ABOVE_FOOT * piece.size < piece.y - capital.y < _CAP_HEIGHT * capital.size


def _is_at_top(piece: Piece, capital: Piece) -> bool:
    """Return whether the tops of a piece and of a large capital are at one height."""
    below_top = capital.y - piece.y + _CAP_HEIGHT * (capital.size - piece.size)
    return abs(below_top) < (_OFF_TOP_OF_REST if piece.text[:1].islower() else _OFF_TOP) * piece.size


def _leant(piece: Piece, degrees: int) -> Piece:
    """Return a piece of a line that rises by an angle, as if it did not."""
    left, y = piece.left * _cos(degrees) - piece.y * _sin(degrees), piece.left * _sin(degrees) + piece.y * _cos(degrees)
    return replace(piece, left=left, right=left + piece.right - piece.left, y=y)


def _cos(degrees: int) -> float:
    return math.cos(math.radians(degrees))


def _sin(degrees: int) -> float:
    return math.sin(math.radians(degrees))


def _whole_lines(lines: Iterable[list[Character]]) -> list[list[Character]]:
    """Join lines where PDFium breaks a line at small letters above or below it."""
    whole: list[list[Character]] = []
    for line in filter(None, lines):
        if whole and any(_continues(words, line[0], _TOUCHING) for words in (whole[-1], whole[-1][-1:])):
            whole[-1] += line
        else:
            whole.append(line)
    return whole


def _is_gap(words: Sequence[Character], character: Character, after: Character | None) -> bool:
    """Return whether a character begins a word of its own.

    It follows a number that is further away than a word, or a large capital that hangs below the line or is not part of
    the word.
    """
    size, gap = character.style.size, character.left - words[-1].right
    if len(words) == 1 and words[0].style.size > _DROPPED * size:
        is_name = character.text.isupper() and after is not None and after.text.islower()
        return is_name or character.y - words[0].y > _RAISED * size
    if gap < NUMBER_GAP * size or not (character.text.isdigit() or character.text in _SIGNS):
        return False
    before = next((each.text for each in reversed(words) if each.text != " "), "")
    return before.isdigit() or before in _AFTER_NUMBERS


def _pieces(line: Sequence[Character]) -> Iterator[tuple[int, Piece]]:
    words: list[Character] = []
    for character, after in zip_longest(line, line[1:]):
        style = character.style
        if (
            words
            and style is words[-1].style is words[0].style
            and character.y == words[0].y
            and -style.size < character.left - words[-1].right < NUMBER_GAP * style.size
            and not character.begins_cell
        ):  # as most letters do
            words.append(character)
            continue
        is_apart = words and (not _continues(words, character) or _is_gap(words, character, after))
        if words and character.text != " " and (is_apart or character.begins_cell):
            yield from _piece(words, _with_exponents(words))
            words = []
        if words or character.text != " ":
            words.append(character)
    yield from _piece(words, _with_exponents(words))


def _with_justified(pieces: list[tuple[int, Piece]]) -> list[tuple[int, Piece]]:
    """Join the words of a line that is justified by wide blanks: they are equal, though the words are not."""
    joined: list[tuple[int, Piece]] = []
    start = 0
    while start < len(pieces):
        stop = start + 1
        while stop < len(pieces) and _is_justified(pieces[start:stop], pieces[stop]):
            stop += 1
        words = [piece for _, piece in pieces[start:stop]]
        widths = [piece.right - piece.left for piece in words]
        if stop - start >= _FEWEST_WORDS and max(widths) - min(widths) > words[0].size:
            whole = replace(words[0], text=" ".join(piece.text for piece in words), right=words[-1].right)
            joined.append((pieces[start][0], whole))
        else:
            stop = start + 1
            joined.append(pieces[start])
        start = stop
    return joined


def _is_justified(before: Sequence[tuple[int, Piece]], after: tuple[int, Piece]) -> bool:
    """Return whether the next word follows by the same blank as those before it."""
    (_, first), (angle, last), (next_angle, word) = before[0], before[-1], after
    gap = word.left - last.right
    is_even = len(before) < 2 or abs(gap - (before[1][1].left - first.right)) < _EVEN * word.size
    is_alike = angle == next_angle and abs(word.size - last.size) < _EVEN and word.y == last.y
    return is_even and is_alike and gap < _WIDEST_BLANK * word.size and not {" "} & {*last.text, *word.text}


def _continues(words: Sequence[Character], character: Character, gap: float = _GAP) -> bool:
    """Return whether a character follows on a line without a wider gap, in font sizes."""
    size, last = character.style.size, words[-1]
    if character.style.angle != last.style.angle:
        return False
    is_level = abs(character.y - words[0].y) <= _LEVEL * max(size, last.style.size, words[0].style.size)
    return is_level and -1 < (character.left - last.right) / size < gap


def _with_exponents(words: Sequence[Character]) -> str:
    """Return the text of characters in order, with "^" before digits and single letters that are exponents or marks.

    Small digits on both sides of a stroke are a fraction.
    """
    if len({id(character.style) for character in words}) == 1:
        return "".join(character.text for character in words)
    text, is_raised, size, mark = "", False, 0.0, 0
    last: Character | None = None
    for character, after in zip_longest(words, words[1:]):
        is_small = last is not None and character.style.size < _SMALL * size
        is_mark = is_small and (
            character.text.isdigit() or _is_mark(character.text, text[-1:], after.text if after else "")
        )
        if is_mark and not is_raised:
            is_raised = character.y - words[0].y > _RAISED * size
            if is_raised:
                mark, text = len(text), text + "^"
            elif re.fullmatch(r"\^\d+ ?[/\u2044] ?", text[mark:]):
                text = text[:mark] + " " * text[:mark][-1:].isdigit() + text[mark + 1 :].replace(" ", "")
        if character.text != " ":
            is_raised, last = is_raised and character.text.isdigit(), character
            size = size if is_raised or character.text in "/\u2044" else character.style.size
        text += character.text
    return text


def _is_mark(letter: str, before: str, after: str) -> bool:
    """Return whether a raised letter marks a note, or is an exponent, and ends no ordinal."""
    is_ordinal = (before.isdigit() or before in tuple("IVXLC")) and letter in tuple("eod")
    return letter.isalpha() and letter.isascii() and not is_ordinal and not after.isalnum()


def _piece(words: Sequence[Character], text: str) -> Iterator[tuple[int, Piece]]:
    text = re.sub(r"(?<=[a-z])\u00ad(?=[a-z])", "", re.sub(r"\s+", " ", text).strip()).replace("\u00ad", "-")
    styles = [character.style for character in words if character.text != " "]
    if text and len(set(map(id, styles))) == 1:
        styles = styles[:1]
    if text:
        size, bold = statistics.median(style.size for style in styles), 2 * sum(style.bold for style in styles)
        left, right = words[0].left, max(words[-1].right, words[0].right)
        fixed = all(style.fixed for style in styles)
        font, n_letters = Counter(style.font.rpartition(b"+")[2] for style in styles).most_common(1)[0]
        font = font if n_letters >= _IN_ONE_FONT * len(styles) else b""
        part = styles[0].part if len({style.part for style in styles}) == 1 else NO_PART
        whole = Piece(
            text, left, right, words[0].y, size, bold > len(styles), fixed, font, None, part, words[0].begins_cell
        )
        yield styles[0].angle, whole


def _mixed_pieces(line: Sequence[Character], from_right: bool) -> Iterator[tuple[int, Piece]]:
    """Yield the angles and the pieces of a line with letters that are read from right to left."""
    signs = sorted((sign for sign in line if sign.text != " "), key=lambda sign: sign.left + sign.right)
    bases = [sign for sign in signs if not unicodedata.combining(sign.text[0])] or signs
    texts = [base.text for base in bases]
    for mark in signs if len(bases) < len(signs) else []:
        if unicodedata.combining(mark.text[0]):
            middle = (mark.left + mark.right) / 2
            distances = [max(base.left - middle, middle - base.right) for base in bases]
            texts[distances.index(min(distances))] += mark.text
    n_from_right = sum(is_right_to_left(character.text) for character in signs)
    from_right = from_right or 2 * n_from_right > sum(character.text.isalpha() for character in signs)
    words, seen = [bases[0]], [texts[0]]
    for character, text in zip(bases[1:], texts[1:], strict=True):
        gap = (character.left - max(each.right for each in words[-2:])) / character.style.size
        if gap >= _GAP:
            yield from _piece(words, logical_text(seen, from_right))
            words, seen = [], []
        elif gap > _BLANK:
            seen.append(" ")
        words.append(character)
        seen.append(text)
    yield from _piece(words, logical_text(seen, from_right))
