"""Find cells that are hardly a blank apart: where a file draws parts of lines for themselves, below one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from .pdf_characters import Character

#: Fewest lines below one another, and fewest cells after the first one in each; and most that their starts or their
#: ends differ, in points.
_FEWEST, _FEWEST_CELLS, _ALIGNED = 4, 2, 0.2

#: The least gap between cells, or overlap of heads, in font sizes: letters of a word may be moved, too.
_APART = 0.12


class _Part(NamedTuple):
    """What a file draws for itself within a line: its first character, its start and its end."""

    line: int
    number: int
    left: float
    right: float


def with_cells(lines: Sequence[list[Character]], angle: int) -> list[list[Character]]:
    """Return lines, with the characters marked that begin a cell.

    Parameters
    ----------
    angle : int
        Of the page's text.
    """
    parts: dict[float, list[_Part]] = {}
    for number, line in enumerate(lines):
        if line and line[0].style.angle == angle and not line[0].style.fixed:
            parts.setdefault(line[0].y, []).extend(_parts(number, line))
    rows = [parts[y] for y in sorted(parts, reverse=True)]
    above, below = _chains(rows), _chains(rows[::-1])[::-1]
    marked = list(lines)
    for row, from_top, from_foot in zip(rows, above, below, strict=True):
        are_cells = len(row) >= _FEWEST_CELLS and all(a + b > _FEWEST for a, b in zip(from_top, from_foot, strict=True))
        for at, first, *_ in row if are_cells else ():
            marked[at] = [*marked[at]]
            marked[at][first] = marked[at][first]._replace(begins_cell=True)
    return marked


def _parts(number: int, line: Sequence[Character]) -> Iterator[_Part]:
    """Yield the parts of a line that are drawn for themselves, but for the first one."""
    starts = [
        n
        for n, (before, sign) in enumerate(pairwise(line), start=1)
        if before.style is not sign.style and abs(sign.left - before.right) > _APART * sign.style.size
    ]
    for start, stop in pairwise([*starts, len(line)]):
        before = line[start - 2] if line[start - 1].text == " " and start > 1 else line[start - 1]
        if before.text.isalnum() or before.style.font == line[start].style.font:  # no tick before its words
            yield _Part(number, start, line[start].left, line[stop - 1].right)


def _chains(rows: Sequence[Sequence[_Part]]) -> list[list[int]]:
    """Return for each part how many rows one after the other have it, counted from the first row on."""
    counts: list[list[int]] = []
    for number, row in enumerate(rows):
        known = list(zip(rows[number - 1], counts[-1], strict=True)) if number else []
        counts.append([1 + max((n for other, n in known if _are_aligned(part, other)), default=0) for part in row])
    return counts


def _are_aligned(part: _Part, other: _Part) -> bool:
    return min(abs(part.left - other.left), abs(part.right - other.right)) < _ALIGNED
