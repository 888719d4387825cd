"""Put turned labels into the rows of their table: heads above columns, aslant or upright, and names of groups of rows.

Heads are labels at one angle whose lower ends are level, above a row of cells. Names of groups are beside rows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from .pdf_blocks import Line, Piece
from .pdf_columns import column_lines

#: Most that the ends of heads differ in height, most from them to their row, and most from a head to its cell at either
#: side, in font sizes; the fewest labels; and the least share of the heads above cells.
_LEVEL, _ABOVE, _BESIDE, _FEWEST, _OVER_CELLS = 0.6, 3.5, 2.0, 2, 0.66

#: Most from a name to its place beside its rows, in rows; height of letters, in font sizes; and degrees by which an
#: angle may be off.
_OFF, _ASCENT, _LEANS = 1.0, 0.7, 10


@dataclass(frozen=True)
class _Label:
    """A turned piece, with its place seen with the page's text upright: its lower end, and how high it reaches."""

    piece: Piece
    x: float
    low: float
    high: float

    @property
    def middle(self) -> float:
        """Return the height of its middle."""
        return (self.low + self.high) / 2


def with_labels(turned: dict[int, list[Piece]], main: int) -> dict[int, list[Piece]]:
    """Return the pieces of a page by their angle, with labels of tables at the angle of the text.

    Parameters
    ----------
    main : int
        Angle of the text.
    """
    if not turned.keys() - {main}:
        return turned
    placed = {main: list(turned.get(main, []))}
    lines = column_lines(placed[main], (0.0, 0.0))
    for angle, pieces in turned.items():
        off = (angle - main + 180) % 360 - 180
        labels = [_label(piece, off) for piece in pieces]
        if angle == main or not _LEANS < abs(off) < 180 - _LEANS or len(labels) < _FEWEST:
            placed.setdefault(angle, []).extend(pieces if angle != main else [])
            continue
        found = _heads(labels, lines)
        if not found and abs(abs(off) - 90) <= _LEANS:
            found = _names(labels, lines)
        placed[main] += found.values()
        placed[angle] = [piece for piece in pieces if id(piece) not in found]
    return placed


def _label(piece: Piece, degrees: int) -> _Label:
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    ends = [(along * cos - piece.y * sin, along * sin + piece.y * cos) for along in (piece.left, piece.right)]
    (x, low), (_, high) = sorted(ends, key=lambda end: end[1])
    return _Label(piece, x, low, high)


def _heads(labels: Sequence[_Label], lines: Sequence[Line]) -> dict[int, Piece]:
    """Return the heads of columns as pieces of rows, by the turned pieces."""
    found: dict[int, Piece] = {}
    for first in labels:
        size = first.piece.size
        level = [each for each in labels if abs(each.low - first.low) < _LEVEL * size and id(each.piece) not in found]
        row = sorted(level, key=lambda each: each.x)
        below = _rows_below(lines, first)
        n_over = sum(
            any(piece.left - _BESIDE * size < each.x < piece.right + _BESIDE * size for piece in below) for each in row
        )
        are_apart = all(b.x - a.x > size for a, b in pairwise(row)) and len({each.piece.text for each in row}) == len(
            row
        )
        if len(row) < _FEWEST or n_over < max(_FEWEST, _OVER_CELLS * len(row)) or not are_apart:
            continue
        ends = [each.x - size for each in row[1:]] + [math.inf]
        for each, end in zip(row, ends, strict=True):
            width = each.piece.right - each.piece.left
            right = max(min(each.x + width, end), each.x + size / 2)
            found[id(each.piece)] = replace(each.piece, left=each.x, right=right, y=first.low)
    return found


def _rows_below(lines: Sequence[Line], head: _Label) -> list[Piece]:
    """Return the pieces of the rows closely below a head, as the first ones may have empty cells."""
    y, pieces = head.low, list[Piece]()
    for line in (line for line in lines if line.y < head.low):
        if y - line.y > _ABOVE * head.piece.size:
            break
        y = line.y
        pieces += line.pieces
    return pieces


def _names(labels: Sequence[_Label], lines: Sequence[Line]) -> dict[int, Piece]:
    """Return the names of groups of rows as first cells of their first rows, by the turned pieces."""
    size, x = labels[0].piece.size, min(label.x for label in labels)
    rows = [line for line in lines if len(line.pieces) > 1 and line.left > x]
    if any(abs(label.x - x) > size for label in labels) or len({label.piece.text for label in labels}) < len(labels):
        return {}
    off, groups = min(_by_middle(rows, labels), _by_top(rows, labels), key=lambda way: way[0])
    if off > _OFF:
        return {}
    return {
        id(label.piece): replace(label.piece, left=x - size, right=x, y=group[0].y)
        for label, group in zip(labels, groups, strict=True)
    }


#: The largest distance of a name from its place in its group, in rows; and the rows of each name.
_Groups = tuple[float, list[list[Line]]]


def _by_middle(rows: Sequence[Line], labels: Sequence[_Label]) -> _Groups:
    """Return the rows nearest to the middle of each name, which is the middle of its rows."""
    groups: list[list[Line]] = [[] for _ in labels]
    for row in rows:
        groups[min(range(len(labels)), key=lambda number: abs(labels[number].middle - row.y))].append(row)
    return _off([label.middle for label in labels], [[group[0].y, group[-1].y] for group in groups if group], groups)


def _by_top(rows: Sequence[Line], labels: Sequence[_Label]) -> _Groups:
    """Return the rows from the top of each name on, which is the top of its first row."""
    groups: list[list[Line]] = [[] for _ in labels]
    for row in rows:
        above = [number for number, label in enumerate(labels) if row.y < label.high]
        groups[min(above or range(len(labels)), key=lambda number: labels[number].high)].append(row)
    tops = [[group[0].y + _ASCENT * group[0].size] for group in groups if group]
    return _off([label.high for label in labels], tops, groups)


def _off(places: Sequence[float], ends: Sequence[Sequence[float]], groups: list[list[Line]]) -> _Groups:
    if min(map(len, groups)) < _FEWEST:
        return math.inf, groups
    steps = [(group[0].y - group[-1].y) / (len(group) - 1) for group in groups]
    offs = (abs(statistics.mean(end) - at) / step for at, end, step in zip(places, ends, steps, strict=True))
    return max(offs), groups
