"""Find the rules on a PDF's page, and the grids of cells that they make.

All coordinates follow the lines of text: x along them, y above them.
"""

from __future__ import annotations

import ctypes
import operator
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

#: Rules that are closer than this are one, and ends that are closer meet, in points.
_CLOSE = 3.0

#: Most segments of lines that are read of a page, and most rules of grids: maps have more.
_MOST_SEGMENTS, _MOST_RULES = 20_000, 1_000

#: Share of a row's height, or a column's width, that a rule beside it covers; and least share of a grid's fields that
#: lie in cells.
_COVERS, _CLOSED = 0.6, 0.7

#: How deep drawings within drawings are read.
_DEEPEST = 4

_Point = tuple[float, float]
_Matrix = tuple[float, float, float, float, float, float]

#: A field of a grid: its row and its column.
Field = tuple[int, int]


class Rule(NamedTuple):
    """A rule: its place across its direction, and its start and end."""

    place: float
    start: float
    end: float


@dataclass(frozen=True)
class Grid:
    """Rows and columns between rules.

    Parameters
    ----------
    xs, ys : sequence of float
        The borders of columns, rising, and of rows, falling: from left to right, and down the page.
    cells : dict of (int, int) to (int, int)
        The first field of the cell that each field, by row and column, is in. Fields outside all cells are missing.
    cos, sin : float
        Of the angle of its rows.
    """

    xs: Sequence[float]
    ys: Sequence[float]
    cells: dict[Field, Field]
    cos: float
    sin: float

    def cell(self, x: float, y: float) -> Field | None:
        """Return the cell of a place on the page, by its first field; None outside."""
        along, above = x * self.cos + y * self.sin, y * self.cos - x * self.sin
        row, column = bisect_right(self.ys, -above, key=operator.neg) - 1, bisect_right(self.xs, along) - 1
        return self.cells.get((row, column))

    def covers(self, x: float, y: float) -> bool:
        """Return whether a place on the page is within the borders, in a cell or not."""
        along, above = x * self.cos + y * self.sin, y * self.cos - x * self.sin
        return self.xs[0] < along < self.xs[-1] and self.ys[-1] < above < self.ys[0]

    def has(self, other: Grid) -> bool:
        """Return whether another grid begins within this one."""
        x, y = (other.xs[0] + other.xs[1]) / 2, (other.ys[0] + other.ys[1]) / 2
        return self.xs[0] < x < self.xs[-1] and self.ys[-1] < y < self.ys[0]


def rules(page: Any, cos: float, sin: float) -> tuple[list[Rule], list[Rule], list[Rule]]:
    """Return the rules on a page along its lines of text, those across them, and the former without sides of areas.

    All are empty if the page has very many.

    Parameters
    ----------
    cos, sin : float
        Of the angle of the page's text: one of 0, 90, 180 and 270 degrees.
    """
    level, upright, lines = list[Rule](), list[Rule](), list[Rule]()
    for (x0, y0), (x1, y1), is_side in _strokes(page):
        along = sorted((x0 * cos + y0 * sin, x1 * cos + y1 * sin))
        above = sorted((y0 * cos - x0 * sin, y1 * cos - x1 * sin))
        if above[1] - above[0] <= min(1.0, along[1] - along[0]):
            level.append(Rule(sum(above) / 2, *along))
            lines += [] if is_side else level[-1:]
        elif along[1] - along[0] <= 1.0:
            upright.append(Rule(sum(along) / 2, *above))
    level, upright, lines = map(_joined, (level, upright, lines))
    return (level, upright, lines) if len(level) + len(upright) <= _MOST_RULES else ([], [], [])


def grids(level: Sequence[Rule], upright: Sequence[Rule], cos: float, sin: float) -> tuple[list[Grid], list[Grid]]:
    """Return the grids of cells between rules, the largest first, and the boxes: one row or one column."""
    level, upright = ([rule for rule in each if rule.end - rule.start > 2 * _CLOSE] for each in (level, upright))
    if not level or not upright:
        return [], []
    found = [grid for part in _connected(level, upright) if (grid := _grid(*part, cos, sin))]
    found.sort(key=lambda grid: (grid.xs[0] - grid.xs[-1]) * (grid.ys[0] - grid.ys[-1]))
    tables = [grid for grid in found if min(len(grid.xs), len(grid.ys)) > 2]
    return tables, [grid for grid in found if min(len(grid.xs), len(grid.ys)) == 2]


def _strokes(page: Any) -> Iterator[tuple[_Point, _Point, bool]]:
    """Yield the straight parts of a page's drawings, with whether they are sides of areas.

    Of narrow areas it is their middle.
    """
    import pypdfium2.raw as pdfium

    n_left = _MOST_SEGMENTS
    for path, matrix in _paths(pdfium.FPDFPage_CountObjects, pdfium.FPDFPage_GetObject, page.raw, (1, 0, 0, 1, 0, 0)):
        filled, stroked = ctypes.c_int(), ctypes.c_int()
        pdfium.FPDFPath_GetDrawMode(path, filled, stroked)
        n_left -= pdfium.FPDFPath_CountSegments(path)
        if n_left < 0:
            return
        for points in _outlines(path, matrix) if filled.value or stroked.value else ():
            xs, ys = zip(*points, strict=True)
            box = min(xs), min(ys), max(xs), max(ys)
            if min(box[2] - box[0], box[3] - box[1]) > _CLOSE or not filled.value:
                is_area = bool(filled.value)
                yield from ((*ends, is_area) for ends in pairwise([*points, points[0]] if is_area else points))
            elif box[2] - box[0] > box[3] - box[1]:
                yield (box[0], (box[1] + box[3]) / 2), (box[2], (box[1] + box[3]) / 2), False
            else:
                yield ((box[0] + box[2]) / 2, box[1]), ((box[0] + box[2]) / 2, box[3]), False


def _paths(
    count: Callable[[Any], int], get: Callable[[Any, int], Any], holder: Any, matrix: _Matrix, depth: int = 0
) -> Iterator[tuple[Any, _Matrix]]:
    import pypdfium2.raw as pdfium

    for number in range(count(holder)):
        each = get(holder, number)
        kind = pdfium.FPDFPageObj_GetType(each)
        if kind == pdfium.FPDF_PAGEOBJ_PATH:
            yield each, _times(_matrix(each), matrix)
        elif kind == pdfium.FPDF_PAGEOBJ_FORM and depth < _DEEPEST:
            count_in, get_in = pdfium.FPDFFormObj_CountObjects, pdfium.FPDFFormObj_GetObject
            yield from _paths(count_in, get_in, each, _times(_matrix(each), matrix), depth + 1)


def _matrix(each: Any) -> _Matrix:
    import pypdfium2.raw as pdfium

    matrix = pdfium.FS_MATRIX()
    pdfium.FPDFPageObj_GetMatrix(each, matrix)
    return matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f


def _times(first: _Matrix, second: _Matrix) -> _Matrix:
    """Return the matrix of both, the first applied first."""
    a, b, c, d, e, f = second
    rows = [(x * a + y * c, x * b + y * d) for x, y in (first[:2], first[2:4], first[4:])]
    return (*rows[0], *rows[1], rows[2][0] + e, rows[2][1] + f)


def _outlines(path: Any, matrix: _Matrix) -> Iterator[list[_Point]]:
    """Yield the corners of each part of a path that has straight sides only."""
    import pypdfium2.raw as pdfium

    a, b, c, d, e, f = matrix
    x, y = ctypes.c_float(), ctypes.c_float()
    points: list[_Point] = []
    is_straight = True
    for number in range(pdfium.FPDFPath_CountSegments(path)):
        segment = pdfium.FPDFPath_GetPathSegment(path, number)
        kind = pdfium.FPDFPathSegment_GetType(segment)
        if kind == pdfium.FPDF_SEGMENT_MOVETO:
            if is_straight and len(points) > 1:
                yield points
            points, is_straight = [], True
        is_straight &= kind != pdfium.FPDF_SEGMENT_BEZIERTO
        pdfium.FPDFPathSegment_GetPoint(segment, x, y)
        points.append((x.value * a + y.value * c + e, x.value * b + y.value * d + f))
        if pdfium.FPDFPathSegment_GetClose(segment):
            points.append(points[0])
    if is_straight and len(points) > 1:
        yield points


def _joined(rules: Iterable[Rule]) -> list[Rule]:
    """Join rules that lie on one line and touch."""
    rows: list[list[Rule]] = []
    for rule in sorted(rules):
        if not rows or rule.place - rows[-1][-1].place > _CLOSE or rule.place - rows[-1][0].place > 2 * _CLOSE:
            rows.append([])
        rows[-1].append(rule)
    joined = []
    for row in rows:
        place, ends = sum(rule.place for rule in row) / len(row), list[list[float]]()
        for rule in sorted(row, key=lambda rule: rule.start):
            if ends and rule.start <= ends[-1][1] + _CLOSE:
                ends[-1][1] = max(ends[-1][1], rule.end)
            else:
                ends.append([rule.start, rule.end])
        joined += [Rule(place, start, end) for start, end in ends]
    return joined


def _connected(level: Sequence[Rule], upright: Sequence[Rule]) -> Iterator[tuple[list[Rule], list[Rule]]]:
    """Yield the rules that meet each other, directly or by others."""
    across, down = np.array(level), np.array(upright)[:, None]
    meet = (across[:, 1] - _CLOSE <= down[..., 0]) & (down[..., 0] <= across[:, 2] + _CLOSE)
    meet &= (down[..., 1] - _CLOSE <= across[:, 0]) & (across[:, 0] <= down[..., 2] + _CLOSE)
    left = set(range(len(upright)))
    while left:
        seen, new = set[int](), {left.pop()}
        touched = np.zeros(len(level), bool)
        while new:
            seen |= new
            touched |= meet[list(new)].any(0)
            new = set(np.flatnonzero(meet[:, touched].any(1)).tolist()) - seen
        left -= seen
        if touched.any():
            yield (
                [level[number] for number in np.flatnonzero(touched).tolist()],
                [upright[number] for number in sorted(seen)],
            )


def _grid(level: list[Rule], upright: list[Rule], cos: float, sin: float) -> Grid | None:
    """Return the grid of rules that meet; None if it is not closed.

    Where several rules end at one place, the grid ends, even if there is no rule across their ends.
    """
    for ends, others in ((level, upright), (upright, level)):
        first, last = min(rule.start for rule in ends), max(rule.end for rule in ends)
        for border, at in ((first, [r.start for r in ends]), (last, [r.end for r in ends])):
            reaching = [rule for rule, end in zip(ends, at, strict=True) if abs(end - border) <= _CLOSE]
            if len(reaching) > 1:
                place = next((rule.place for rule in others if abs(rule.place - border) <= _CLOSE), border)
                others.append(Rule(place, min(r.place for r in reaching), max(r.place for r in reaching)))
    xs, ys = sorted({rule.place for rule in upright}), sorted({rule.place for rule in level}, reverse=True)
    if len(xs) < 2 or len(ys) < 2:
        return None
    beside = [_sides(upright, x, [(low, high) for high, low in pairwise(ys)]) for x in xs]
    above = [_sides(level, y, list(pairwise(xs))) for y in ys]
    cells = _cells(beside, above)
    n_fields = (len(xs) - 1) * (len(ys) - 1)
    return Grid(xs, ys, cells, cos, sin) if len(cells) >= _CLOSED * n_fields else None


def _sides(rules: Iterable[Rule], place: float, spans: Sequence[tuple[float, float]]) -> list[bool]:
    """Return which spans have a rule at a place along most of them."""
    here = [rule for rule in rules if rule.place == place]
    return [
        sum(max(0.0, min(rule.end, end) - max(rule.start, start)) for rule in here) > _COVERS * (end - start)
        for start, end in spans
    ]


def _cells(beside: Sequence[Sequence[bool]], above: Sequence[Sequence[bool]]) -> dict[Field, Field]:
    """Return the first field of the cell of each field, for fields in cells that rules close.

    Parameters
    ----------
    beside, above : sequence of sequences of bool
        For each border of columns, which rows have a rule there; for each border of rows, which columns.
    """
    n_rows, n_columns = len(above) - 1, len(beside) - 1
    cells: dict[Field, Field] = {}
    seen: set[Field] = set()
    for first in product(range(n_rows), range(n_columns)):
        if first in seen:
            continue
        cell, new, is_closed = [], [first], True
        seen.add(first)
        while new:
            row, column = new.pop()
            cell.append((row, column))
            sides = [above[row][column], above[row + 1][column], beside[column][row], beside[column + 1][row]]
            for is_ruled, (down, across) in zip(sides, ((-1, 0), (1, 0), (0, -1), (0, 1)), strict=True):
                after = row + down, column + across
                if not is_ruled and not (0 <= after[0] < n_rows and 0 <= after[1] < n_columns):
                    is_closed = False
                elif not is_ruled and after not in seen:
                    seen.add(after)
                    new.append(after)
        height, width = (1 + max(place) - min(place) for place in zip(*cell, strict=True))
        if is_closed and height * width == len(cell):
            cells.update(dict.fromkeys(cell, first))
    return cells
