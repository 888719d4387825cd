"""Put the characters of a PDF's page together to pieces of lines, in the order of reading."""

from __future__ import annotations

import math
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from .pdf_blocks import Piece
from .pdf_characters import Character, lines_of_characters
from .right_to_left import is_right_to_left, logical_text

#: Gap between words that splits a piece; and least gap between words of scripts from right to left; in font sizes.
_GAP, _BLANK = 0.9, 0.12

#: Fewest pieces at a right angle to the page's text that are more than a stamp in the margin; the largest angle of
#: lines that only lean, in degrees; and the largest size of text across the page that is no watermark, in sizes of the
#: page's text.
_LEAST_TURNED, _LEANS, _LARGEST_ACROSS = 3, 10, 1.5

#: A digit is an exponent or a note's number if it is this much smaller and higher than the text before it.
_SMALL, _RAISED = 0.85, 0.2


def page_pieces(page: Any) -> tuple[float, list[list[Piece]]]:
    """Return a page's height, and the pieces of its lines, seen with most of its text upright.

    Text at other angles follows in separate lists. Fewer than three pieces of it at a right angle, such as a stamp in a
    margin, are left out, as is large text across the page, such as a watermark. Pages in scripts from right to left are
    mirrored, so that what is read first is on the left.
    """
    turned: dict[int, list[Piece]] = {}
    lines = list(lines_of_characters(page))
    n_from_right = sum(is_right_to_left(character.text) for line in lines for character in line)
    n_letters = sum(character.text.isalpha() for line in lines for character in line)
    from_right = 2 * n_from_right > n_letters
    for line in lines:
        is_mixed = n_from_right and any(is_right_to_left(character.text) for character in line)
        for angle, piece in _mixed_pieces(line, from_right) if is_mixed else _pieces(line):
            if from_right:
                piece = replace(piece, left=-piece.right, right=-piece.left)
            turned.setdefault(angle, []).append(piece)
    main = max(turned, key=lambda angle: (sum(len(piece.text) for piece in turned[angle]), -angle), default=0)
    upright, others = _by_angle(turned, main)
    left, bottom, right, top = page.get_bbox()
    heights = [y * _cos(main) - x * _sin(main) for x in (left, right) for y in (bottom, top)]
    upright = [replace(piece, y=piece.y - min(heights)) for piece in upright]
    return max(heights) - min(heights), [upright, *others]


def _by_angle(turned: dict[int, list[Piece]], main: int) -> tuple[list[Piece], list[list[Piece]]]:
    """Return the pieces at the main angle, and lists of those at others. Lines that lean count as the angle near it."""
    upright = turned.pop(main, [])
    straight: dict[int, list[Piece]] = {}
    across: list[list[Piece]] = []
    largest = _LARGEST_ACROSS * statistics.median(piece.size for piece in upright) if upright else 0.0
    for angle in sorted(turned):
        quarter = main + 90 * round((angle - main) / 90)
        if abs(angle - quarter) <= _LEANS:
            pieces = [_leant(piece, angle - quarter) for piece in turned[angle]]
            straight.setdefault(quarter % 360, []).extend(pieces)
        else:
            texts = Counter(piece.text for piece in turned[angle])
            across.append([piece for piece in turned[angle] if piece.size <= largest and texts[piece.text] == 1])
    upright = upright + straight.pop(main, [])
    others = [straight[angle] for angle in sorted(straight) if len(straight[angle]) >= _LEAST_TURNED]
    return upright, others + across


def _leant(piece: Piece, degrees: int) -> Piece:
    """Return a piece of a line that rises by an angle, as if it did not."""
    left, y = piece.left * _cos(degrees) - piece.y * _sin(degrees), piece.left * _sin(degrees) + piece.y * _cos(degrees)
    return replace(piece, left=left, right=left + piece.right - piece.left, y=y)


def _cos(degrees: int) -> float:
    return math.cos(math.radians(degrees))


def _sin(degrees: int) -> float:
    return math.sin(math.radians(degrees))


def _pieces(line: Sequence[Character]) -> Iterator[tuple[int, Piece]]:
    """Yield the angles and the pieces of a line."""
    words: list[Character] = []
    for character in line:
        if words and character.text != " " and not _continues(words, character):
            yield from _piece(words, _with_exponents(words))
            words = []
        if words or character.text != " ":
            words.append(character)
    yield from _piece(words, _with_exponents(words))


def _continues(words: Sequence[Character], character: Character) -> bool:
    """Return whether a character follows on a line without a wide gap."""
    size, last = character.style.size, words[-1]
    if character.style.angle != last.style.angle:
        return False
    is_level = abs(character.y - words[0].y) <= 0.5 * max(size, last.style.size)
    return is_level and -1 < (character.left - last.right) / size < _GAP


def _with_exponents(words: Sequence[Character]) -> str:
    """Return the text of characters in order, with "^" before digits that are exponents or numbers of notes."""
    text, is_raised, last = "", False, None
    for character in words:
        if last and character.text.isdigit() and not is_raised and character.style.size < _SMALL * last.style.size:
            is_raised = character.y - words[0].y > _RAISED * last.style.size
            text += "^" if is_raised else ""
        if character.text != " ":
            is_raised, last = is_raised and character.text.isdigit(), character
        text += character.text
    return text


def _piece(words: Sequence[Character], text: str) -> Iterator[tuple[int, Piece]]:
    """Yield the angle and the piece of characters, if there are any."""
    text = re.sub(r"\s+", " ", text).strip()
    styles = [character.style for character in words if character.text != " "]
    if text:
        size, bold = statistics.median(style.size for style in styles), 2 * sum(style.bold for style in styles)
        left, right = words[0].left, max(words[-1].right, words[0].right)
        fixed = all(style.fixed for style in styles)
        yield styles[0].angle, Piece(text, left, right, words[0].y, size, bold > len(styles), fixed)


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
