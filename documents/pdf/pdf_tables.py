"""Find the tables of a PDF's page by the gaps between their columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .pdf_blocks import Block, Line, Piece, Span

#: Least gap between two cells, and most between two rows, in font sizes; tolerance for the start of a column's cells;
#: most rows of a table on a page; and the least share of its rows with a cell in each column, or of cells that are not
#: empty where those of each column begin or end at one place.
_CELL_GAP, ROW_GAP, _ALIGNED, _MOST_ROWS, _FULL_ROWS, _FILLED = 0.95, 3.0, 1.0, 200, 0.6, 0.4

#: Lines within a row are closer than rows, by this factor at least.
_CLOSER = 0.8

#: Fewest rows of a table.
_FEWEST = 3


def find_table(lines: Sequence[Line], n_cells: Sequence[int]) -> tuple[int, tuple[Span, ...]]:
    """Count the next lines that could be rows of a table, and return the extents of its columns, or () if it is none.

    Parameters
    ----------
    n_cells : sequence of int
        Number of cells of each line; 0 for a line outside tables.
    """
    if n_cells[0] < 2:
        return 0, ()
    columns: list[_Column] = []
    rows: list[list[Span]] = []
    n_rows = 0
    for number, (line, n) in enumerate(zip(lines[:_MOST_ROWS], n_cells, strict=False)):
        if number and not _is_close(lines[number - 1], line):
            break
        row = [(cell[0].left, cell[-1].right) for cell in cells(line)]
        is_in_cell = n == 1 and line.left > columns[0].right
        is_between = (
            n == 1 and max(n_cells[number + 1 : number + 2], default=0) > 1 and _is_close(line, lines[number + 1])
        )
        widened = _with_row(columns, row, number) if n > 1 or is_in_cell or is_between else None
        is_new = widened is not None and len(widened) > len(columns) and _are_full(columns, rows)
        if widened is None or len(widened) < 2 or is_new:
            break
        columns, n_rows = widened, number + 1
        rows.append(row)
    spans = tuple((column.left, column.right) for column in columns)
    return n_rows, spans if n_rows >= _FEWEST and _are_clear(columns, rows, lines[0].size) else ()


@dataclass
class _Column:
    """A column of a table: its extent, and the numbers of the rows with a cell in it."""

    left: float
    right: float
    rows: set[int]


def _is_close(line: Line, after: Line) -> bool:
    """Return whether a line follows as closely as the next row of a table."""
    return after.column == line.column and 0 < line.y - after.y < ROW_GAP * after.size


def _with_row(columns: Sequence[_Column], row: Sequence[Span], number: int) -> list[_Column] | None:
    """Widen columns by the cells of a row; None if two cells of a row would be in one column."""
    widened: list[_Column] = []
    for each in sorted([*columns, *(_Column(*span, {number}) for span in row)], key=lambda column: column.left):
        last = widened[-1] if widened else None
        if last is None or each.left >= last.right:
            widened.append(each)
        elif last.rows.isdisjoint(each.rows):
            widened[-1] = _Column(last.left, max(each.right, last.right), last.rows | each.rows)
        else:
            return None
    return widened


def _are_clear(columns: Sequence[_Column], rows: Sequence[Sequence[Span]], size: float) -> bool:
    """Return whether columns are a table's: most rows are full, or the cells of each column begin or end at one place.

    Two columns might be columns of text: their rows must be full, and the second column's cells be aligned. The head of
    a column may stand elsewhere.
    """
    extents = tuple((column.left, column.right) for column in columns)
    cells_of: list[list[Span]] = [[] for _ in columns]
    for span in (span for row in rows for span in row):
        cells_of[column_of(span, extents)].append(span)
    n_heads = len(rows) > _FEWEST and all(map(len, cells_of))
    aligned = [
        any(max(place) - min(place) < _ALIGNED * size for place in zip(*spans[n_heads:] or spans, strict=True))
        for spans in cells_of
    ]
    if len(columns) == 2:
        return aligned[1] and _are_full(columns, rows)
    are_filled = sum(map(len, rows)) >= _FILLED * len(rows) * len(columns) and min(map(len, cells_of)) > 1
    return _are_full(columns, rows) or (all(aligned) and are_filled)


def _are_full(columns: Sequence[_Column], rows: Sequence[Sequence[Span]]) -> bool:
    """Return whether most rows have a cell in each column. Single cells may continue the row above."""
    lengths = [len(row) for row in rows if len(row) > 1]
    return len(lengths) >= _FEWEST and sum(length == len(columns) for length in lengths) >= _FULL_ROWS * len(lengths)


def column_of(span: Span, columns: Sequence[Span]) -> int:
    """Return the number of a cell's column."""
    return next(number for number, column in enumerate(columns) if span[0] < column[1] or number == len(columns) - 1)


def table_rows(block: Block) -> list[list[str]]:
    """Return the rows of a table: the text of each cell, or "". Lines closer than rows continue their cells."""
    steps = [before.y - line.y for before, line in pairwise(block.lines)]
    rows: list[list[str]] = []
    for step, line in zip([max(steps), *steps], block.lines, strict=True):
        row = [""] * len(block.columns)
        for cell in cells(line):
            row[column_of((cell[0].left, cell[-1].right), block.columns)] = " ".join(piece.text for piece in cell)
        is_closer = step < _CLOSER * max(steps) or len(block.columns) == 2
        if rows and is_closer and not row[0] and all(up for up, text in zip(rows[-1], row, strict=True) if text):
            rows[-1] = [f"{upper} {text}".strip() for upper, text in zip(rows[-1], row, strict=True)]
        else:
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
