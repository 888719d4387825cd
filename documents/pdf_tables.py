"""Find the tables of a PDF's page by the gaps between their columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from .pdf_blocks import Block, Line, Piece, Span

#: Least gap between two cells, and most between two rows, in font sizes; tolerance for the start of a column's cells;
#: most rows of a table on a page; and the least share of its rows with a cell in each column.
_CELL_GAP, ROW_GAP, _ALIGNED, _MOST_ROWS, _FULL_ROWS = 0.95, 3.0, 1.0, 200, 0.6


def find_table(lines: Sequence[Line], n_cells: Sequence[int]) -> tuple[int, tuple[Span, ...]]:
    """Count the next lines that are rows of a table, 0 or at least three, and return the extents of its columns.

    Parameters
    ----------
    n_cells : sequence of int
        Number of cells of each line; 0 for a line outside tables.
    """
    if n_cells[0] < 2:
        return 0, ()
    first, n_rows = lines[0], 1
    for before, line, n in zip(lines, lines[1:_MOST_ROWS], n_cells[1:], strict=False):
        is_close = line.column == first.column and 0 < before.y - line.y < ROW_GAP * line.size
        is_in_cell = n == 1 and line.left > cells(first)[0][-1].right
        if not is_close or not (n > 1 or is_in_cell):
            break
        n_rows += 1
    spans = [[(cell[0].left, cell[-1].right) for cell in cells(line)] for line in lines[:n_rows]]
    while n_rows >= 3:
        columns = _merged(span for row in spans[:n_rows] for span in row)
        if _are_clear(columns, spans[:n_rows], first.size):
            return n_rows, columns
        n_rows -= 1
    return 0, ()


def _merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Merge overlapping spans."""
    merged: list[Span] = []
    for left, right in sorted(spans):
        if merged and left < merged[-1][1]:
            merged[-1] = merged[-1][0], max(right, merged[-1][1])
        else:
            merged.append((left, right))
    return tuple(merged)


def _are_clear(columns: Sequence[Span], rows: Sequence[Sequence[Span]], size: float) -> bool:
    """Return whether spans are a table's columns: each holds at most one cell of a row, and most rows are full.

    Two columns might be columns of text: their cells must begin, or end, at one place.
    """
    if len(columns) < 2:
        return False
    numbers = [[column_of(span, columns) for span in row] for row in rows]
    if any(len(set(of_row)) < len(of_row) for of_row in numbers):
        return False
    if sum(len(of_row) == len(columns) for of_row in numbers) < _FULL_ROWS * len(rows):
        return False
    if len(columns) > 2:
        return True
    sides = [[span[side] for row in rows for span in row if column_of(span, columns) == 1] for side in (0, 1)]
    return any(max(side) - min(side) < _ALIGNED * size for side in sides)


def column_of(span: Span, columns: Sequence[Span]) -> int:
    """Return the number of a cell's column."""
    return next(number for number, column in enumerate(columns) if span[0] < column[1] or number == len(columns) - 1)


def table_rows(block: Block) -> list[list[str]]:
    """Return the rows of a table: the text of each cell, or ""."""
    rows = []
    for line in block.lines:
        row = [""] * len(block.columns)
        for cell in cells(line):
            row[column_of((cell[0].left, cell[-1].right), block.columns)] = " ".join(piece.text for piece in cell)
        rows.append(row)
    return rows


def cells(line: Line) -> list[list[Piece]]:
    """Split the pieces of a line into cells at wide gaps."""
    grouped: list[list[Piece]] = [[line.pieces[0]]]
    for before, piece in pairwise(line.pieces):
        if piece.left - before.right > _CELL_GAP * piece.size:
            grouped.append([])
        grouped[-1].append(piece)
    return grouped
