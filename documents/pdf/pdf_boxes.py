"""Read a box as one: a note in a frame beside a text, and fields of forms with their labels in them.

All coordinates follow the lines of text: x along them, y above them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from .pdf_blocks import Line, Piece
from .pdf_characters import Part
from .pdf_columns import are_rows, column_lines, lines_in_order
from .pdf_forms import Entry
from .pdf_rules import Grid
from .pdf_tables import runs_on

#: The largest size of a label in a field of a form, in sizes of its value; and the largest share of a page's text
#: in a box in it; and most distance of lines of a paragraph, in font sizes.
_LABEL, _MOST, _NEAR = 0.85, 0.5, 1.6

#: Most from a field to the label above it, and to the one before it; and the height of capitals; in font sizes.
_ABOVE, _AFTER, _CAPITALS = 1.2, 3.0, 0.72


@dataclass(frozen=True)
class Box:
    """A frame, an area or a form's field with its label.

    Parameters
    ----------
    left, right, bottom, top : float
        Its borders.
    number : int
        Its own number among boxes.
    row : int
        Its row of boxes, 0 without others.
    is_field : bool
        Whether it is known to have a label and its value.
    """

    left: float
    right: float
    bottom: float
    top: float
    number: int
    row: int
    is_field: bool = False

    def holds(self, piece: Piece) -> bool:
        """Return whether a piece is in it."""
        return self.left < (piece.left + piece.right) / 2 < self.right and self.bottom < piece.y < self.top

    def is_below(self, line: Line) -> bool:
        """Return whether a line is above or below a part of it."""
        return line.left < self.right and line.right > self.left

    def moved(self, lower: float, *, is_mirrored: bool) -> Box:
        """Return it lower, and with its left and right changed if the page's are."""
        left, right = (-self.right, -self.left) if is_mirrored else (self.left, self.right)
        return replace(self, left=left, right=right, bottom=self.bottom - lower, top=self.top - lower)


def boxes_of(grids: Iterable[Grid]) -> list[Box]:
    """Return the boxes of grids with one row, and those around grids with one column."""
    rows = [(grid, number, list(pairwise(grid.xs))) for number, grid in enumerate(grids, start=1)]
    found = [(ends, grid, row if len(columns) > 1 else 0) for grid, row, columns in rows for ends in columns]
    return [Box(*ends, grid.ys[-1], grid.ys[0], number, row) for number, (ends, grid, row) in enumerate(found, start=1)]


def boxes_of_fields(entries: Sequence[Entry], pieces: Sequence[Piece]) -> list[Box]:
    """Return the fields side by side that have their labels above them, each with its label."""
    found = [(entry, label) for entry in entries if (label := _label(entry, pieces))]
    return [
        Box(piece.left, piece.right, bottom, label.y + _CAPITALS * label.size, -number, row=-1, is_field=True)
        for number, ((_, piece, bottom, top), label) in enumerate(found, start=1)
        if any(piece is not other.piece and label.y == beside.y and top == other.top for other, beside in found)
    ]


def _label(entry: Entry, pieces: Sequence[Piece]) -> Piece | None:
    """Return the words closely above a field, if there are none beside it."""
    _, field, bottom, top = entry
    before = [
        piece for piece in pieces if bottom < piece.y < top and 0 < field.left - piece.right < _AFTER * piece.size
    ]
    above = [
        piece
        for piece in pieces
        if field.left - piece.size < piece.left < field.right and 0 < piece.y - top < _ABOVE * piece.size
    ]
    return above[0] if len(above) == 1 and not before else None


def lines_by_box(pieces: Sequence[Piece], boxes: Sequence[Box]) -> list[Line]:
    """Return a page's lines in the order of reading: what is in a box below what is above it, or before its line."""
    held = _held(pieces, boxes)
    usual = statistics.median(piece.size for piece in pieces) if pieces else 0.0
    inside = {id(piece) for _, those in held for piece in those}
    rest = lines_in_order([piece for piece in pieces if id(piece) not in inside])
    of_boxes: list[list[Line]] = [[] for _ in range(len(rest) + 1)]
    for box, those in held:
        above = [n for n, line in enumerate(rest, start=1) if line.y > box.top and box.is_below(line)]
        position = above[-1] if above else next((n for n, line in enumerate(rest) if line.y < box.top), len(rest))
        rest = _beside(rest, box)
        while 0 < position < len(rest) and _continues(rest[position - 1], rest[position]):
            position -= 1
        of_boxes[position] += [_field(those, box, usual)] if box.row else lines_in_order(those)
    return [
        line for before, own in zip(of_boxes, [*([line] for line in rest), []], strict=True) for line in before + own
    ]


def _beside(lines: Sequence[Line], box: Box) -> list[Line]:
    """Return lines with columns that end where a box begins beside them, as far as their paragraphs go."""
    narrow: list[Line] = []
    for line in lines:
        left, right = line.column
        is_free = line.right < box.left or line.left > box.right
        follows = bool(narrow) and narrow[-1].column != line.column and 0 < narrow[-1].y - line.y < _NEAR * line.size
        if is_free and (box.bottom < line.y < box.top or (follows and line.y < box.top)):
            line = replace(line, column=(left, min(right, box.left)) if line.right < box.left else (box.right, right))
        narrow.append(line)
    return narrow


def _continues(above: Line, line: Line) -> bool:
    return runs_on(above, line, line.column[1], any_case=True)


def _held(pieces: Sequence[Piece], boxes: Sequence[Box]) -> list[tuple[Box, list[Piece]]]:
    """Return the boxes beside other text, and fields, from top to bottom, with the pieces in each."""
    found = [(box, [piece for piece in pieces if box.holds(piece)]) for box in boxes]
    found = [(box, those) for box, those in found if those and not any(each.table for each in those)]
    of_fields = {box.row for box, those in found if box.is_field or (box.row and _is_field(those))}
    held = [
        (box, those)
        for box, those in found
        if (box.row in of_fields if box.row else _is_apart(box, those, pieces, [other for other, _ in found]))
    ]
    return sorted(held, key=lambda each: (-each[0].top, each[0].left))


def _is_field(pieces: Sequence[Piece]) -> bool:
    """Return whether a box has a small label above what it names."""
    lines = column_lines(pieces, (0.0, 0.0))
    return len(lines) > 1 and lines[0].size < _LABEL * min(line.size for line in lines[1:])


def _field(pieces: Sequence[Piece], box: Box, size: float) -> Line:
    """Return a field's label and value as one line, of a size."""
    lines, part = column_lines(pieces, (box.left, box.right)), Part(-box.number)
    parts = (replace(piece, size=size, bold=False, fixed=False, part=part) for line in lines for piece in line.pieces)
    return Line(tuple(parts), (box.left, box.right))


def _is_apart(box: Box, inside: Sequence[Piece], pieces: Sequence[Piece], boxes: Sequence[Box]) -> bool:
    """Return whether a box has several lines, and others beside it that make no rows with them."""
    lines = column_lines(inside, (0.0, 0.0))
    level = [piece for piece in pieces if box.bottom < piece.y < box.top and not box.holds(piece)]
    if len(lines) < 2 or not level or any(piece.left < box.right and piece.right > box.left for piece in level):
        return False
    if sum(len(piece.text) for piece in inside) > _MOST * sum(len(piece.text) for piece in pieces):
        return False
    free = [piece for piece in level if not any(other.holds(piece) for other in boxes if other is not box)]
    sides = [piece for piece in free if piece.right < box.left], [piece for piece in free if piece.left > box.right]
    before, after = (column_lines(side, (0.0, 0.0)) for side in sides)
    return not (before and are_rows(before, lines)) and not (after and are_rows(lines, after))
