"""Read the structure tree of a PDF's page, where browsers and office programs name tables, paragraphs and headings."""

from __future__ import annotations

import ctypes
import math
import operator
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

from .pdf_characters import NO_PART, Character, Part
from .pdf_rules import Field, Grid

#: Most elements of a tree that are read of a page, and how deep they are.
_MOST_ELEMENTS, _DEEPEST = 20_000, 40

#: Height of letters above and below their line, in font sizes; and room around a table, in points.
_ABOVE, _BELOW, _AROUND = 0.7, 0.2, 1.0

#: Elements without a meaning of their own; and points within which the cells of their columns begin or end, and most
#: letters of these, as tables without a name may only arrange a page.
_PLAIN, _ALIGNED, _LONGEST = ("NonStruct", "Div"), 1.0, 400

#: What is a part of its own, wherever it is, such as the note to a heading; and names of headings.
_APART = ("LI", "Note", "FENote")
_HEADING = re.compile(r"H([1-6]?)|Title")


class _Box(NamedTuple):
    """The place of letters, a range along the lines and one across them; and their number."""

    left: float
    right: float
    bottom: float
    top: float
    n_letters: int


class _Element(NamedTuple):
    """An element of a tree: its name, its own marks, the columns that it covers, and its parts in their places."""

    kind: str
    own_marks: set[int]
    span: int
    children: list[_Element | None]

    @property
    def elements(self) -> Iterator[_Element]:
        """Return its parts that are on the page."""
        return filter(None, self.children)

    def marks(self) -> set[int]:
        """Return the marks of all that is in it."""
        return self.own_marks.union(*(child.marks() for child in self.elements))


class _Row(NamedTuple):
    """A row of a table: the marks of the letters in each cell, by its number; columns of wide cells; and all cells."""

    cells: dict[int, set[int]]
    spans: dict[int, int]
    n_cells: int


class _Table(NamedTuple):
    """The rows of a table, and whether it is named so: browsers do not name tables without heads."""

    rows: list[_Row]
    is_named: bool


class Tags:
    """The structure tree of a page.

    Parameters
    ----------
    page : pypdfium2.PdfPage
        A page of a file that may have none.
    """

    def __init__(self, page: Any) -> None:
        import pypdfium2.raw as pdfium

        self._tables: list[_Table] = []
        self.parts: dict[int, Part] = {}
        tree = pdfium.FPDF_StructTree_GetForPage(page.raw)
        if tree:
            n_left = [_MOST_ELEMENTS]
            for number in range(pdfium.FPDF_StructTree_CountChildren(tree)):
                top = _element(pdfium.FPDF_StructTree_GetChildAtIndex(tree, number), n_left)
                if top:
                    self._tables += _tables(top)
                    self._add_parts(top, NO_PART)
            pdfium.FPDF_StructTree_Close(tree)

    def _add_parts(self, element: _Element, within: Part) -> None:
        heading = _HEADING.fullmatch(element.kind)
        is_own = heading or element.kind in _APART or (element.kind == "P" and not within.is_item)
        if is_own:
            level = int(heading[1] or 1) if heading else 0
            within = Part(len(self.parts) + 1, level, is_item=element.kind == "LI")
        self.parts |= dict.fromkeys(element.own_marks, within)
        for child in element.elements:
            self._add_parts(child, within)

    def grids(self, lines: Sequence[Sequence[Character]], angle: int) -> list[Grid]:
        """Return the grids of the tables that the page names, if rows and columns are apart there, too.

        Parameters
        ----------
        angle : int
            Of the rows.
        """
        cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        places: dict[int, _Box] = {}
        for sign in (sign for line in lines for sign in line if self._tables and sign.text != " "):
            mark, box = sign.style.mark, _box(sign, cos, sin)
            places[mark] = _around([box, places[mark]]) if mark in places else box
        return [grid for table in self._tables if (grid := _grid(table, places, cos, sin))]


def _box(sign: Character, cos: float, sin: float) -> _Box:
    """Return the place of a letter, seen with the lines of an angle upright."""
    style = sign.style
    corners = (sign.left, sign.y - _BELOW * style.size), (sign.right, sign.y + _ABOVE * style.size)
    places = [(x * style.cos - y * style.sin, x * style.sin + y * style.cos) for x, y in corners]
    (left, right), (bottom, top) = (
        sorted(each) for each in zip(*((x * cos + y * sin, y * cos - x * sin) for x, y in places), strict=True)
    )
    return _Box(left, right, bottom, top, 1)


def _element(raw: Any, n_left: list[int], depth: int = 0) -> _Element | None:
    """Read an element and its parts; None for one on another page, too deep, or beyond the most."""
    import pypdfium2.raw as pdfium

    n_left[0] -= 1
    if not raw or n_left[0] < 0 or depth > _DEEPEST:
        return None
    name = ctypes.create_string_buffer(32)
    pdfium.FPDF_StructElement_GetType(raw, name, len(name))
    n_own = max(pdfium.FPDF_StructElement_GetMarkedContentIdCount(raw), 0)
    parts = range(pdfium.FPDF_StructElement_CountChildren(raw))
    return _Element(
        name.raw.decode("utf-16-le", "replace").partition("\0")[0],
        {pdfium.FPDF_StructElement_GetMarkedContentIdAtIndex(raw, number) for number in range(n_own)} - {-1},
        _span(raw),
        [_element(pdfium.FPDF_StructElement_GetChildAtIndex(raw, number), n_left, depth + 1) for number in parts],
    )


def _span(raw: Any) -> int:
    """Return the number of columns that a cell covers."""
    import pypdfium2.raw as pdfium

    number = ctypes.c_float(1.0)
    for index in range(pdfium.FPDF_StructElement_GetAttributeCount(raw)):
        value = pdfium.FPDF_StructElement_Attr_GetValue(
            pdfium.FPDF_StructElement_GetAttributeAtIndex(raw, index), b"ColSpan"
        )
        if value and pdfium.FPDF_StructElement_Attr_GetNumberValue(value, number):
            break
    return int(number.value)


def _tables(element: _Element) -> list[_Table]:
    """Return the rows of each table in an element, but for tables that only arrange others in their cells."""
    inner = [table for child in element.elements for table in _tables(child)]
    if inner or element.kind not in ("Table", *_PLAIN):
        return inner
    is_named = element.kind == "Table"
    found = _rows(element) if is_named else (child for child in element.elements if child.kind in _PLAIN)
    rows = [row for row in map(_row, found) if row.cells]
    return [_Table(rows, is_named)] if sum(row.n_cells > 1 for row in rows) > 1 else []


def _rows(element: _Element) -> Iterator[_Element]:
    """Yield the rows of a table, which may be in groups."""
    for child in element.elements:
        if child.kind == "TR":
            yield child
        else:
            yield from _rows(child)


def _row(element: _Element) -> _Row:
    marked = {number: marks for number, child in enumerate(element.children) if child and (marks := child.marks())}
    spans = {number: child.span for number in marked if (child := element.children[number]) and child.span > 1}
    return _Row(marked, spans, len(element.children))


def _around(boxes: Sequence[_Box]) -> _Box:
    lefts, rights, bottoms, tops, numbers = zip(*boxes, strict=True)
    return _Box(min(lefts), max(rights), min(bottoms), max(tops), sum(numbers))


def _grid(table: _Table, places: dict[int, _Box], cos: float, sin: float) -> Grid | None:
    """Return the grid of a table, whose cells are where their letters are; None if these are not apart."""
    rows = []
    for row in table.rows:
        found = {n: [places[mark] for mark in marks if mark in places] for n, marks in row.cells.items()}
        boxes = {n: _around(those) for n, those in found.items() if those}
        rows += [(boxes, row)] if boxes else []
    columns = _columns(rows)
    ranges = [(box.left, box.right) for box in map(_around, columns)]
    heights = _heights([list(boxes.values()) for boxes, _ in rows])
    are_apart = all(a[1] < b[0] for a, b in pairwise(ranges)) and all(a[0] > b[1] for a, b in pairwise(heights))
    if len(ranges) < 2 or len(heights) < 2 or not are_apart or not (table.is_named or _are_cells(columns)):
        return None
    whole = _around([box for boxes, _ in rows for box in boxes.values()])
    xs = [whole.left - _AROUND, *((a[1] + b[0]) / 2 for a, b in pairwise(ranges)), whole.right + _AROUND]
    ys = [whole.top + _AROUND, *((a[0] + b[1]) / 2 for a, b in pairwise(heights)), whole.bottom - _AROUND]
    cells: dict[Field, Field] = {field: field for field in product(range(len(heights)), range(len(ranges)))}
    for number, (boxes, row) in enumerate(rows):
        covered = range(0)
        for n, box in sorted(boxes.items(), key=lambda placed: placed[1].left):
            covered = _covered(box, xs, row.spans.get(n, 1), covered.stop)
            end = bisect_right(ys, -box.bottom, key=operator.neg) - 1
            cells |= dict.fromkeys(product(range(number, end + 1), covered), (number, covered[0]))
    return Grid(xs, ys, cells, cos, sin)


def _covered(box: _Box, xs: Sequence[float], span: int, least: int) -> range:
    """Return the columns that a cell covers: the named number, and they begin, end or are centred with it."""
    if not 1 < span < len(xs) - least:
        return range(bisect_right(xs, box.left) - 1, bisect_right(xs, box.right))

    def distance(first: int) -> float:
        left, right = box.left - xs[first], xs[first + span] - box.right
        return min(abs(left), abs(right), abs(left - right) / 2)

    first = min(range(least, len(xs) - span), key=distance)
    return range(first, first + span)


def _columns(rows: Sequence[tuple[dict[int, _Box], _Row]]) -> list[list[_Box]]:
    """Return the boxes of each column, from left to right: of full rows, and of others if they are in one."""
    most = max((row.n_cells for _, row in rows), default=0)
    full = [boxes for boxes, row in rows if row.n_cells == most]
    columns = [those for n in range(most) if (those := [boxes[n] for boxes in full if n in boxes])]
    columns.sort(key=lambda those: min(box.left for box in those))
    ranges = [(box.left, box.right) for box in map(_around, columns)]
    others = ((box, n in row.spans) for boxes, row in rows if row.n_cells < most for n, box in boxes.items())
    for box in (box for box, is_wide in others if not is_wide):
        within = [n for n, (left, right) in enumerate(ranges) if box.left < right and box.right > left]
        if len(within) == 1:
            columns[within[0]].append(box)
    return columns


def _heights(rows: Sequence[Sequence[_Box]]) -> list[tuple[float, float]]:
    """Return the lowest and the highest place of each row. Cells of several rows are a part of the last one's."""
    tops = [max(box.top for box in row) for row in rows]
    heights = []
    for number, top in enumerate(tops):
        after = tops[number + 1] if number + 1 < len(rows) else -math.inf
        ending = [box.bottom for row in rows[: number + 1] for box in row if after < box.bottom < top]
        heights.append((min(ending, default=-math.inf), top))
    return heights


def _are_cells(columns: Sequence[Sequence[_Box]]) -> bool:
    """Return whether short texts in columns begin, end or have their middle at one place."""
    for boxes in columns:
        places = zip(*((box.left, box.right, (box.left + box.right) / 2) for box in boxes), strict=True)
        if all(max(place) - min(place) > _ALIGNED for place in places):
            return False
    return all(len(boxes) > 1 and max(box.n_letters for box in boxes) <= _LONGEST for boxes in columns)
