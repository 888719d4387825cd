"""Make tables of the text between the rules of a PDF's page."""

from __future__ import annotations

import math
import operator
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

from .pdf_blocks import Line, Piece, Rows, Table
from .pdf_characters import Character, place
from .pdf_columns import column_lines
from .pdf_rules import Field, Grid
from .pdf_tables import grouped_lines, is_number

#: Of the cells with text, most that a text runs through, as it does over patterns; most letters in a cell, as a layout
#: has more between its rules; the least share of rows with several cells, of cells with text, and of letters in cells.
_RUN_THROUGH, _LONGEST, _ROWS, _FILLED, _INSIDE = 0.3, 1500, 0.34, 0.25, 0.75

#: Most between letters of a word, and between words of a text, in font sizes; least width of an empty cell, in points.
_TOUCHING, _BLANK, _NARROW = 0.1, 0.35, 8.0

#: Baselines that are closer are one, in points; the fewest columns, and lines in each, if each line is a row, as words
#: may continue in the next line; and the fewest columns of numbers.
_LEVEL, _LEAST_COLUMNS, _LEAST_LEVELS, _LEAST_NUMBERS = 2.0, 3, 3, 2

#: A cell of one of a page's grids: the grid's number, and the cell's first field.
Cell = tuple[int, Field]


def tables(named: Sequence[Grid], ruled: Sequence[Grid], lines: Sequence[Sequence[Character]]) -> list[Grid]:
    """Return the tables that a page names, and the grids of its rules that are others, but for those in their cells."""
    kept = list(named)
    for grid in ruled:
        if not any(other.has(grid) for other in kept) and _is_table(grid, lines):
            kept.append(grid)
    return kept


def _is_table(grid: Grid, lines: Sequence[Sequence[Character]]) -> bool:
    """Return whether the cells of a grid have text as those of a table."""
    n_letters: Counter[Field] = Counter()
    n_outside = n_run_through = 0
    for line in lines:
        fields = [(sign, grid.cell(*place(sign))) for sign in line if sign.text != " "]
        n_letters.update(field for _, field in fields if field)
        n_outside += sum(field is None and grid.covers(*place(sign)) for sign, field in fields)
        n_run_through += sum(
            before != after and _gap(a, b) < _BLANK * b.style.size for (a, before), (b, after) in pairwise(fields)
        )
    if not n_letters or n_run_through > _RUN_THROUGH * len(n_letters) or max(n_letters.values()) > _LONGEST:
        return False
    cells = set(grid.cells.values())
    n_cells, n_texts = Counter(row for row, _ in cells), Counter(row for row, _ in n_letters)
    n_rows = sum(n_cells[row] > 1 for row in n_texts)
    are_rows = len(n_texts) > 1 and max(n_texts.values()) > 1 and n_rows >= _ROWS * len(n_texts)
    is_filled = len(n_letters) >= _FILLED * len(cells)
    return are_rows and is_filled and n_letters.total() >= _INSIDE * (n_letters.total() + n_outside)


def _gap(a: Character, b: Character) -> float:
    """Return the distance of two characters on a baseline, in whichever direction it is read."""
    is_level = abs(a.y - b.y) < 0.5 * b.style.size and a.style.angle == b.style.angle
    return max(b.left - a.right, a.left - b.right) if is_level else math.inf


def parts_by_cell(
    line: Sequence[Character], grids: Sequence[Grid]
) -> Iterator[tuple[Cell | None, Sequence[Character]]]:
    """Yield the parts of a line in cells, with their cells, and those outside with None. A word is in one cell."""
    if not grids:
        yield None, line
        return
    cells = [cell_at(*place(character), grids) for character in line]
    for number, (before, after) in enumerate(pairwise(line), start=1):
        if " " not in (before.text, after.text) and _gap(before, after) < _TOUCHING * after.style.size:
            cells[number] = cells[number - 1]
    for cell, part in groupby(zip(cells, line, strict=True), key=operator.itemgetter(0)):
        yield cell, [character for _, character in part]


def cell_at(x: float, y: float, grids: Sequence[Grid]) -> Cell | None:
    """Return the cell of a place on the page; None if it is in none."""
    return next(((number, cell) for number, grid in enumerate(grids) if (cell := grid.cell(x, y))), None)


def mirrored(pieces: Iterable[Piece]) -> list[Piece]:
    """Return pieces with what is read first, from the right, on the left."""
    return [replace(piece, left=-piece.right, right=-piece.left) for piece in pieces]


def table_pieces(
    grids: Sequence[Grid], pieces: Mapping[Cell, Mapping[int, Sequence[Piece]]], main: int, from_right: bool
) -> list[Piece]:
    """Return a piece for each table.

    Parameters
    ----------
    pieces : mapping of Cell to mapping of int to sequence of Piece
        Of each cell, by their angle.
    main : int
        Angle of the table's rows.
    from_right : bool
        Whether rows are read from right to left.
    """
    made = []
    for number, grid in enumerate(grids):
        lines: dict[Field, list[Line]] = {}
        for (owner, cell), by_angle in pieces.items():
            for angle in sorted(by_angle, key=lambda angle: angle != main) if owner == number else ():
                level = mirrored(by_angle[angle]) if from_right else by_angle[angle]
                for line in column_lines(level, (0.0, 0.0)):
                    for column, part in _parted(line, grid, cell[1]) if angle == main else [(cell[1], line)]:
                        lines.setdefault((cell[0], column), []).append(part)
        rows = _rows(grid, lines, from_right)
        text = " ".join(line for row in rows for cell in row for line in cell)
        all_lines = [line for cell in lines.values() for line in cell]
        top = max(line.y for line in all_lines)
        size = statistics.median(line.size for line in all_lines)
        table = Table(rows, top - grid.ys[-1])
        made.append(Piece(text, grid.xs[0], grid.xs[-1], top, size, bold=False, fixed=False, table=table))
    return made


def _parted(line: Line, grid: Grid, column: int) -> list[tuple[int, Line]]:
    """Return the parts of a line that stand in columns of their own, though no rules part them, with their columns."""
    columns = [bisect_right(grid.xs, abs(piece.left + piece.right) / 2) - 1 for piece in line.pieces]
    ends = [{bisect_right(grid.xs, abs(x)) - 1 for x in (piece.left, piece.right)} for piece in line.pieces]
    if len(columns) == 1 or len(set(columns)) < len(columns) or any(len(end) > 1 for end in ends):
        return [(column, line)]
    return [(n, replace(line, pieces=(piece,))) for n, piece in zip(columns, line.pieces, strict=True)]


def _rows(grid: Grid, lines: Mapping[Field, Sequence[Line]], from_right: bool) -> Rows:
    columns = _columns(grid, lines)
    rows = []
    for row in sorted({row for row, _ in lines}):
        here: dict[int, list[Line]] = {}
        for field in sorted(lines):
            if field[0] == row:
                here.setdefault(columns[field[1]], []).extend(lines[field])
        for cells_of in _parted_rows(here):
            cells = [tuple(line.text for line in cells_of.get(column, ())) for column in sorted(set(columns))]
            rows.append(tuple(reversed(cells) if from_right else cells))
    used = [any(cells) for cells in zip(*rows, strict=True)]
    return tuple(tuple(cell for cell, is_used in zip(row, used, strict=True) if is_used) for row in rows)


def _columns(grid: Grid, lines: Mapping[Field, Sequence[Line]]) -> list[int]:
    """Return the table's column for each of the grid's: neighbours are one where each row begins a cell in one only."""
    begun: dict[int, set[int]] = {}
    for row, column in set(grid.cells.values()):
        end = column + 1
        while grid.cells.get((row, end)) == (row, column):
            end += 1
        if (row, column) in lines or grid.xs[end] - grid.xs[column] > _NARROW:
            begun.setdefault(column, set()).add(row)
    columns, rows = [0], begun.get(0, set())
    for column in range(1, len(grid.xs) - 1):
        new = begun.get(column, set())
        is_same = rows.isdisjoint(new)
        columns.append(columns[-1] + (not is_same))
        rows = rows | new if is_same else new
    return columns


def _parted_rows(cells: Mapping[int, Sequence[Line]]) -> Sequence[Mapping[int, Sequence[Line]]]:
    """Return the rows between two rules: one, unless several columns have numbers below one another, or all have lines.

    They are one, too, where a cell stands between the lines of the others: it belongs to all of them.

    Parameters
    ----------
    cells : mapping of int to sequence of Line
        The lines of each column.
    """
    n_lines = max(map(len, cells.values()))
    n_numbers = sum(len(cell) > 1 and all(is_number(line.text) for line in cell) for cell in cells.values())
    are_alike = len(cells) >= _LEAST_COLUMNS and n_lines >= _LEAST_LEVELS
    are_alike = are_alike and all(len(cell) == n_lines for cell in cells.values())
    if not are_alike and (n_numbers < _LEAST_NUMBERS or 2 * n_numbers < len(cells)):
        return [cells]
    heights = [line.y for cell in cells.values() if len(cell) == n_lines for line in cell]
    if any(all(abs(cell[0].y - y) > _LEVEL for y in heights) for cell in cells.values() if len(cell) == 1):
        return [cells]
    levels: list[dict[int, Line]] = []
    for line, column in sorted(((line, c) for c, cell in cells.items() for line in cell), key=lambda at: -at[0].y):
        if levels and column not in levels[-1] and next(iter(levels[-1].values())).y - line.y < _LEVEL:
            levels[-1][column] = line
        else:
            levels.append({column: line})
    extents = [(0.0, 0.0)] * (max(cells) + 1)
    for column, cell in cells.items():
        extents[column] = min(line.left for line in cell), max(line.right for line in cell)
    grouped = grouped_lines([{c: list(line.pieces) for c, line in level.items()} for level in levels], extents)
    rows, position = [], 0
    for group in grouped:
        here = levels[position : position + len(group)]
        position += len(group)
        rows.append({column: [level[column] for level in here if column in level] for column in cells})
    return rows
