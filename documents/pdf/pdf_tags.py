"""Find the tables that a PDF's page names in its structure tree, as browsers and office programs write it."""

from __future__ import annotations

import ctypes
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from .pdf_characters import Character
from .pdf_rules import Field, Grid

#: Most elements of a tree that are read of a page, and how deep they are.
_MOST_ELEMENTS, _DEEPEST = 20_000, 40

#: Height of letters above and below their line, in font sizes; and room around a table, in points.
_ABOVE, _BELOW, _AROUND = 0.7, 0.2, 1.0


class _Box(NamedTuple):
    """The place of letters: a range along the lines, and one across them."""

    left: float
    right: float
    bottom: float
    top: float


class _Row(NamedTuple):
    """A row of a table: the marks of the letters in each cell, by its number, and how many cells there are."""

    cells: dict[int, set[int]]
    n_cells: int


def tagged_grids(page: Any, lines: Sequence[Sequence[Character]], angle: int) -> list[Grid]:
    """Return the grids of the tables that a page names, if rows and columns are apart there, too.

    Parameters
    ----------
    angle : int
        Of the rows.
    """
    import pypdfium2.raw as pdfium

    marked = {sign.style.mark for line in lines for sign in line} - {-1}
    tree = pdfium.FPDF_StructTree_GetForPage(page.raw) if len(marked) > 1 else None
    if not tree:
        return []
    try:
        tops = (
            pdfium.FPDF_StructTree_GetChildAtIndex(tree, n) for n in range(pdfium.FPDF_StructTree_CountChildren(tree))
        )
        named = [rows for top in tops for rows in _tables(top, [_MOST_ELEMENTS])]
    finally:
        pdfium.FPDF_StructTree_Close(tree)
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    places: dict[int, _Box] = {}
    for sign in (sign for line in lines for sign in line if named and sign.text != " "):
        mark, box = sign.style.mark, _box(sign, cos, sin)
        places[mark] = _around([box, places[mark]]) if mark in places else box
    return [grid for rows in named if (grid := _grid(rows, places, cos, sin))]


def _box(sign: Character, cos: float, sin: float) -> _Box:
    """Return the place of a letter, seen with the lines of an angle upright."""
    style = sign.style
    corners = (sign.left, sign.y - _BELOW * style.size), (sign.right, sign.y + _ABOVE * style.size)
    places = [(x * style.cos - y * style.sin, x * style.sin + y * style.cos) for x, y in corners]
    (left, right), (bottom, top) = (
        sorted(each) for each in zip(*((x * cos + y * sin, y * cos - x * sin) for x, y in places), strict=True)
    )
    return _Box(left, right, bottom, top)


def _children(element: Any) -> Iterator[Any]:
    """Yield the parts of an element that are on the page, and None for others."""
    import pypdfium2.raw as pdfium

    for number in range(pdfium.FPDF_StructElement_CountChildren(element)):
        yield pdfium.FPDF_StructElement_GetChildAtIndex(element, number) or None


def _kind(element: Any) -> str:
    import pypdfium2.raw as pdfium

    name = ctypes.create_string_buffer(32)
    pdfium.FPDF_StructElement_GetType(element, name, len(name))
    return name.raw.decode("utf-16-le", "replace").partition("\0")[0]


def _tables(element: Any, n_left: list[int], depth: int = 0) -> list[list[_Row]]:
    """Return the rows of each table in an element, but for tables that only arrange others in their cells."""
    n_left[0] -= 1
    if n_left[0] < 0 or depth > _DEEPEST:
        return []
    inner = [rows for child in _children(element) if child for rows in _tables(child, n_left, depth + 1)]
    if inner or _kind(element) != "Table":
        return inner
    rows = [_row(each) for each in _descendants(element, lambda kind: kind == "TR")]
    return [[row for row in rows if row.cells]]


def _descendants(element: Any, is_one: Callable[[str], bool]) -> Iterator[Any]:
    for child in filter(None, _children(element)):
        if is_one(_kind(child)):
            yield child
        else:
            yield from _descendants(child, is_one)


def _row(element: Any) -> _Row:
    found = [_marks(child) if child else set() for child in _children(element)]
    return _Row({number: marks for number, marks in enumerate(found) if marks}, len(found))


def _marks(element: Any) -> set[int]:
    """Return the marks of all that is in an element."""
    import pypdfium2.raw as pdfium

    n_own = max(pdfium.FPDF_StructElement_GetMarkedContentIdCount(element), 0)
    own = {pdfium.FPDF_StructElement_GetMarkedContentIdAtIndex(element, number) for number in range(n_own)}
    return own.union(*(_marks(child) for child in _children(element) if child)) - {-1}


def _around(boxes: Sequence[_Box]) -> _Box:
    lefts, rights, bottoms, tops = zip(*boxes, strict=True)
    return _Box(min(lefts), max(rights), min(bottoms), max(tops))


def _grid(rows: Sequence[_Row], places: dict[int, _Box], cos: float, sin: float) -> Grid | None:
    """Return the grid of a table, whose cells are where their letters are; None if these are not apart."""
    placed = [
        (
            {
                n: _around(found)
                for n, marks in row.cells.items()
                if (found := [places[m] for m in marks if m in places])
            },
            row,
        )
        for row in rows
    ]
    placed = [(boxes, row) for boxes, row in placed if boxes]
    most = max((row.n_cells for _, row in placed), default=0)
    full = [boxes for boxes, row in placed if row.n_cells == most]
    columns = [[boxes[n] for boxes in full if n in boxes] for n in range(most)]
    ranges = sorted((box.left, box.right) for box in map(_around, filter(None, columns)))
    heights = [_around(list(boxes.values())) for boxes, _ in placed]
    are_apart = all(a[1] < b[0] for a, b in pairwise(ranges)) and all(a.bottom > b.top for a, b in pairwise(heights))
    if len(ranges) < 2 or len(heights) < 2 or not are_apart:
        return None
    whole = _around(heights)
    xs = [whole.left - _AROUND, *((a[1] + b[0]) / 2 for a, b in pairwise(ranges)), whole.right + _AROUND]
    ys = [whole.top + _AROUND, *((a.bottom + b.top) / 2 for a, b in pairwise(heights)), whole.bottom - _AROUND]
    cells: dict[Field, Field] = {
        (row, column): (row, column) for row in range(len(heights)) for column in range(len(ranges))
    }
    for row, (boxes, _) in enumerate(placed):
        for box in boxes.values():
            first, last = bisect_right(xs, box.left) - 1, bisect_right(xs, box.right) - 1
            cells |= {(row, column): (row, first) for column in range(first, last + 1)}
    return Grid(xs, ys, cells, cos, sin)
