"""Find tables that have rules between all their rows, and only gaps between their columns.

All coordinates follow the lines of text: x along them, y above them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from .pdf_blocks import Span
from .pdf_characters import Character
from .pdf_rules import Field, Grid, Rule

#: Points within which rules begin and end at one place; the fewest rows of a table; and the least width of it.
_CLOSE, _FEWEST, _NARROWEST = 3.0, 3, 72.0

#: Least gap between the cells of a row, in font sizes; and the least share of the most cells that a row has which shows
#: the columns.
_GAP, _TELLING = 0.9, 0.6

#: Baselines that are closer are one, in font sizes; and most lines of a cell.
_LEVEL, _MOST_LINES = 0.45, 6

#: The cells of a row: of each, where it is, and its baselines.
_Cells = list[tuple[Span, list[float]]]


def strip_grids(level: Iterable[Rule], lines: Sequence[Sequence[Character]], angle: int) -> list[Grid]:
    """Return the grids of a page's tables whose rows are between rules of one length.

    Parameters
    ----------
    level : iterable of Rule
        Those along the lines.
    angle : int
        Of the lines.
    """
    groups = _alike(level)
    signs = [sign for line in lines if groups for sign in line if sign.text != " " and sign.style.angle == angle]
    return [grid for rules in groups if (grid := _grid(rules, signs, angle))]


def _alike(level: Iterable[Rule]) -> list[list[Rule]]:
    """Return the rules that begin and end at one place, down the page."""
    groups: list[list[Rule]] = []
    for rule in sorted(level, reverse=True):
        for group in groups:
            if max(abs(rule.start - group[0].start), abs(rule.end - group[0].end)) < _CLOSE:
                group.append(rule)
                break
        else:
            groups.append([rule])
    return [group for group in groups if len(group) > _FEWEST and group[0].end - group[0].start > _NARROWEST]


def _grid(rules: Sequence[Rule], signs: Sequence[Character], angle: int) -> Grid | None:
    """Return the grid of a table; None if there are not several columns, or if several rows are between two rules."""
    start, end = rules[0].start, rules[0].end
    within = [sign for sign in signs if start - _CLOSE < sign.left and sign.right < end + _CLOSE]
    ys = [rule.place for rule in rules]
    rows = [_cells(within, *ends) for ends in pairwise(ys)]
    columns = _columns(rows)
    if len(columns) < 2 or sum(len(row) > 1 for row in rows) < _FEWEST or not all(map(_is_row, rows)):
        return None
    height = max(above - below for above, below in pairwise(ys))
    for at, ends in ((0, (ys[0] + height, ys[0])), (len(rows), (ys[-1], ys[-1] - height))):
        row = _cells(within, *ends)  # the first row may have no rule above, and the last one none below
        if len(row) > 1 and _is_row(row) and all(sum(map(_meet(span), columns)) == 1 for span, _ in row):
            rows.insert(at, row)
            ys.insert(at and len(ys), ends[bool(at)])
    xs = [start, *((a[1] + b[0]) / 2 for a, b in pairwise(columns)), end]
    cells: dict[Field, Field] = {}
    for number, row in enumerate(rows):
        cells |= {(number, column): (number, column) for column in range(len(columns))}
        for span, _ in row:
            covered = [n for n, column in enumerate(pairwise(xs)) if _meet(span)(column)]
            cells |= {(number, column): (number, covered[0]) for column in covered}
    return Grid(xs, ys, cells, math.cos(math.radians(angle)), math.sin(math.radians(angle)))


def _meet(span: Span) -> Callable[[Span], bool]:
    return lambda other: span[0] < other[1] and span[1] > other[0]


def _cells(signs: Sequence[Character], top: float, bottom: float) -> _Cells:
    """Return the cells of a row, between gaps down all of it."""
    cells: _Cells = []
    inside = [sign for sign in signs if bottom < sign.y + _LEVEL * sign.style.size / 2 < top]
    for sign in sorted(inside, key=lambda sign: sign.left):
        room = _LEVEL * sign.style.size
        if cells and sign.left - cells[-1][0][1] < _GAP * sign.style.size:
            (left, right), heights = cells[-1]
            cells[-1] = (left, max(right, sign.right)), heights
        else:
            cells.append(((sign.left, sign.right), []))
        heights = cells[-1][1]
        if all(abs(sign.y - y) > room for y in heights):
            heights.append(sign.y)
    return cells


def _columns(rows: Sequence[_Cells]) -> list[Span]:
    """Return the extents of the columns, of the rows with the most cells."""
    most = max(map(len, rows), default=0)
    columns: list[Span] = []
    for left, right in sorted(span for row in rows if len(row) >= _TELLING * most for span, _ in row):
        if columns and left < columns[-1][1]:
            columns[-1] = columns[-1][0], max(right, columns[-1][1])
        else:
            columns.append((left, right))
    return columns


def _is_row(row: _Cells) -> bool:
    """Return whether two rules hold one row between them: one cell at least has one line only."""
    return not row or (min(len(heights) for _, heights in row) == 1 and max(len(h) for _, h in row) <= _MOST_LINES)
