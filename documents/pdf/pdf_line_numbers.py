"""Leave out the numbers of a PDF's lines, as manuscripts, court papers and editions have them beside their text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from .pdf_blocks import Piece

_NUMBER = re.compile(r"\d{1,3}")

#: Fewest numbers if each line has one, and if each fifth or tenth has.
_FEWEST, _FEWEST_SPARSE = 5, 2

#: Most that places of numbers below one another differ, and heights of a number and its line, in font sizes.
_ALIGNED, _LEVEL = 0.3, 0.5

#: Least share of numbers that are beside a line; of lines that begin within a sentence; and of lines that are long, and
#: the share of the longest one's width that these have.
_BESIDE, _WITHIN, _LONG, _LONG_WIDTH = 0.6, 0.35, 0.5, 0.6

#: Least width of the longest line, in font sizes.
_WIDE = 10.0


def without_line_numbers(pieces: list[Piece]) -> tuple[list[Piece], list[str]]:
    """Leave out numbers below one another that count the lines beside them, each or each fifth; return them."""
    numbers = [piece for piece in pieces if _NUMBER.fullmatch(piece.text)]
    if len(numbers) < _FEWEST_SPARSE:
        return pieces, []
    texts = [piece for piece in pieces if not _NUMBER.fullmatch(piece.text) and not piece.table]
    left_out: dict[int, str] = {}
    for column in (*_columns(numbers, "left"), *_columns(numbers, "right")):
        if _count_lines(column, texts):
            left_out |= {id(number): number.text for number in column}
    return [piece for piece in pieces if id(piece) not in left_out], list(left_out.values())


def _columns(numbers: Sequence[Piece], side: str) -> list[list[Piece]]:
    """Return numbers that begin, or end, at one place, from top to bottom."""
    columns: list[list[Piece]] = []
    for number in sorted(numbers, key=lambda piece: (getattr(piece, side), -piece.y)):
        if columns and getattr(number, side) - getattr(columns[-1][-1], side) < _ALIGNED * number.size:
            columns[-1].append(number)
        else:
            columns.append([number])
    return [sorted(column, key=lambda piece: -piece.y) for column in columns]


def _count_lines(numbers: Sequence[Piece], texts: Sequence[Piece]) -> bool:
    """Return whether numbers rise by one from line to line of a text beside them, or by five or ten as its lines do."""
    values = [int(number.text) for number in numbers]
    step = values[1] - values[0] if len(values) > 1 else 0
    if any(after - before != step for before, after in pairwise(values)) or step not in (1, 5, 10) or values[0] % step:
        return False
    beside = [near for number in numbers if (near := _nearest(number, texts))]
    if len(numbers) < (_FEWEST if step == 1 else _FEWEST_SPARSE) or len(beside) < _BESIDE * len(numbers):
        return False
    if step == 1:
        return _are_prose(beside)
    lines = sorted({round(text.y) for text in texts if _overlap(text, beside[0])})
    counted = [sum(below.y + 1 < y <= above.y + 1 for y in lines) for above, below in pairwise(numbers)]
    return all(n == step for n in counted)


def _nearest(number: Piece, texts: Sequence[Piece]) -> Piece | None:
    """Return the text nearest to a number on its line."""
    level = [text for text in texts if abs(text.y - number.y) < _LEVEL * max(text.size, number.size)]
    return min(level, key=lambda text: max(text.left - number.right, number.left - text.right), default=None)


def _overlap(piece: Piece, other: Piece) -> bool:
    return piece.left < other.right and piece.right > other.left


def _are_prose(lines: Sequence[Piece]) -> bool:
    """Return whether lines belong to sentences: many begin within one, and most are long."""
    longest = max(line.right - line.left for line in lines)
    n_long = sum(line.right - line.left > _LONG_WIDTH * longest for line in lines)
    n_within = sum(line.text[0].isalpha() and not line.text[0].isupper() for line in lines)
    return n_within >= _WITHIN * len(lines) and n_long >= _LONG * len(lines) and longest > _WIDE * lines[0].size
