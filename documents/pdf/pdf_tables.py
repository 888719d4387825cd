"""Find the tables of a PDF's page by the gaps between their columns and between their rows."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from .pdf_blocks import Line, Piece, Rows, Span

#: Least gap between two cells, and between two numbers, and most between two rows, and from heads to the first one, in
#: font sizes; tolerance for the start of a column's cells.
_CELL_GAP, NUMBER_GAP, ROW_GAP, _HEAD_GAP, _ALIGNED = 0.9, 0.4, 3.0, 5.0, 1.0

#: Most rows of a table on a page; and the least share of its rows with a cell in each column, or of cells that are not
#: empty where those of each column begin or end at one place.
_MOST_ROWS, _FULL_ROWS, _FILLED = 200, 0.6, 0.4

#: Fewest rows of a table; most lines with one cell between two with more; and the least share of the most cells of a
#: line in those that show the columns.
_FEWEST, _MOST_SINGLE, _TELLING = 3, 8, 0.6

#: Least parts of a stretch of lines that are tried as the beginning of a table.
_STEPS = 4

#: Rows are further apart than the lines of a cell by this factor at least.
_FURTHER = 1.12

#: Share of a gap that a cell covers at most without being in both columns.
_INTO_GAP = 0.4

#: Widths of a blank, and of the narrowest columns whose lines may be full, of text and of a table, in font sizes; most
#: distance of lines; and the least share of a table's column that a full line fills.
_BLANK, _NARROW, _WIDE, _LEADING, _FULL = 0.25, 6.0, 12.0, 2.0, 0.7

_NUMBER = re.compile(
    r"[^\w\s]{0,2}([^\W\d_]{1,3}\.?)?[^\w\s]{0,2}\s?\d[\d\W]*([^\W\d_]{1,3})?[^\w\s]*|[\u2013\u2014-]+"
)


def is_number(text: str) -> bool:
    """Return whether a text is a number, with its unit or currency, or the stroke for none."""
    return bool(_NUMBER.fullmatch(text))


def runs_on(above: Line, line: Line, right: float, *, any_case: bool = False) -> bool:
    """Return whether a line continues the one above it: its first word had no room there, and is within a sentence.

    Parameters
    ----------
    right : float
        Where lines end.
    any_case : bool
        Whether the word may begin with a capital.
    """
    if above.table or line.table or max(len(cells(above)), len(cells(line))) > 1:
        return False
    word = line.text.split(maxsplit=1)[0]
    first = line.text.lstrip("\"'(\u201c\u201e\u00ab\u2018")[:1]
    is_within = any_case or (first.isalpha() and not (first.isupper() and not line.text.isupper()))
    width = (line.right - line.left) * len(word) / len(line.text)
    is_within = is_within and not above.text[-1].isdigit()  # as entries of an index, and rows, end
    is_full = above.right + width + _BLANK * above.size > right and right - line.left > _NARROW * line.size
    return is_within and is_full and 0 < above.y - line.y < _LEADING * max(above.size, line.size)


#: The cells of a line, by their columns.
Placed = dict[int, list[Piece]]


@dataclass(frozen=True)
class GapTable:
    """A table without rules: the numbers of its first line and of the one after it, and its rows."""

    start: int
    stop: int
    rows: Rows


def find_tables(lines: Sequence[Line], n_cells: Sequence[int]) -> list[GapTable]:
    """Return the tables among lines from top to bottom.

    Parameters
    ----------
    n_cells : sequence of int
        Number of cells of each line; 0 for a line outside tables.
    """
    found: list[GapTable] = []
    position = 0
    while position < len(lines):
        stop = _stretch_end(lines, n_cells, position) if n_cells[position] > 1 else position
        table = _table(lines, position, stop, found[-1].stop if found else 0) if stop - position >= _FEWEST else None
        if table:
            found.append(table)
        position = table.stop if table else position + max(1, (stop - position) // _STEPS)  # above may be heads
    return found


def _stretch_end(lines: Sequence[Line], n_cells: Sequence[int], start: int) -> int:
    """Return the end of the lines from a start on that could be rows: they are close, and few have one cell.

    A line with one cell that lies over two others is a paragraph.
    """
    stop = last = start
    most: list[Span] = []
    while stop < min(len(lines), start + _MOST_ROWS):
        is_close = stop == start or _is_close(lines[stop - 1], lines[stop])
        if not is_close or not n_cells[stop] or stop - last > _MOST_SINGLE:
            break
        spans = [_span(cell) for cell in cells(lines[stop])]
        if len(spans) == 1 and sum(left < spans[0][1] and right > spans[0][0] for left, right in most) > 1:
            break
        most = max(most, spans, key=len)
        last = stop if n_cells[stop] > 1 else last
        stop += 1
    return stop


def _is_close(line: Line, after: Line) -> bool:
    """Return whether a line follows as closely as the next row of a table."""
    return after.column == line.column and 0 < line.y - after.y < ROW_GAP * after.size


def _table(lines: Sequence[Line], start: int, stop: int, floor: int) -> GapTable | None:
    """Return the table that begins at a line or a little above it, as far as the columns reach; or None."""
    parts = [cells(line) for line in lines[start:stop]]
    columns = _columns(parts)
    for _ in range(2):  # the columns of all lines, then of the rows alone
        placed: list[Placed] = []
        for line_cells in parts:
            places = _placed(line_cells, columns)
            if places is None:
                break
            placed.append(places)
        if len(placed) < _FEWEST:
            return None
        parts = parts[: len(placed)]
        columns = _columns(parts)
    above: list[Placed] = []
    for number in range(start - 1, max(floor, start - _MOST_SINGLE) - 1, -1):  # cells of the first rows, one on a line
        places = _placed(cells(lines[number]), columns)
        if len(lines[number].pieces) > 1 or not places or not _is_close(lines[number], lines[number + 1]):
            break
        above.insert(0, places)
    grouped = grouped_lines([*above, *placed], columns)
    while len(grouped[0]) <= len(above) and len({column for line in grouped[0] for column in line}) == 1:
        above = above[len(grouped.pop(0)) :]
    rows = rows_of(grouped, len(columns))
    while sum(map(bool, rows[-1])) == 1 and rows[-1][0]:
        rows.pop()
    grouped = grouped[: len(rows)]
    if not above and start > floor and (head := _head(lines[start - 1], lines[start], columns)):
        above, grouped = [head], [[head], *grouped]
        rows = rows_of(grouped, len(columns))
    first = start - len(above)
    are_rows = _are_clear(rows, [each for group in grouped for each in group], lines[start].size)
    return GapTable(first, first + sum(map(len, grouped)), tuple(rows)) if are_rows else None


def _head(line: Line, first: Line, columns: Sequence[Span]) -> Placed | None:
    """Return the words over all columns that are their heads, though further from the rows than these; None without."""
    is_near = line.column == first.column and 0 < line.y - first.y < _HEAD_GAP * first.size
    parts = cells(line)
    if not is_near or len(parts) != len(columns) or any(is_number(words_of(cell)) for cell in parts):
        return None
    return _placed(parts, columns)


def _span(cell: Sequence[Piece]) -> Span:
    return cell[0].left, cell[-1].right


def _columns(lines: Sequence[Sequence[list[Piece]]]) -> list[Span]:
    """Return the extents of columns, of the lines with the most cells. Heads may stand beside their columns."""
    most = max(map(len, lines))
    telling = [(number, line) for number, line in enumerate(lines) if len(line) >= max(2, _TELLING * most)]
    columns = _merged(telling)
    below = _merged(telling[1:])
    if len(telling) > _FEWEST and len(below) > len(columns) and _placed(lines[0], [column for column, _ in below]):
        columns = below  # a head may lie over two columns
    with_rows = [column for column, last in columns if last > 0]
    has_heads = len(telling) > _FEWEST and len(with_rows) > 1 and _placed(lines[0], with_rows) is not None
    found = with_rows if has_heads else [column for column, _ in columns]
    return _with_columns_between(found, [_span(line[0]) for line in lines if len(line) == 1])


def _merged(lines: Sequence[tuple[int, Sequence[list[Piece]]]]) -> list[tuple[Span, int]]:
    """Return the extents of the columns of numbered lines, each with the number of the last line that has it."""
    columns: list[tuple[Span, int]] = []
    for (left, right), number in sorted((_span(cell), number) for number, line in lines for cell in line):
        if columns and left < columns[-1][0][1]:
            (start, end), last = columns[-1]
            columns[-1] = (start, max(right, end)), max(number, last)
        else:
            columns.append(((left, right), number))
    return columns


def _with_columns_between(columns: Sequence[Span], alone: Sequence[Span]) -> list[Span]:
    """Add columns that only lines with one cell have, as cells are centred: between others, and twice at least."""
    ends = [right for _, right in columns[:-1]]
    between: dict[int, list[Span]] = {}
    for left, right in alone:
        place = bisect_right(ends, left) - 1
        if 0 <= place < len(columns) - 1 and right < columns[place + 1][0]:
            between.setdefault(place, []).append((left, right))
    added = [(min(span)[0], max(right for _, right in span)) for span in between.values() if len(span) > 1]
    return sorted([*columns, *added])


def _placed(line: Sequence[list[Piece]], columns: Sequence[Span]) -> Placed | None:
    """Return the cells of a line by their columns; None if they do not fit.

    A cell that lies over several columns, as the head of a group does, is in the first of them; a line of its own that
    runs over the gap after the first column is none.
    """
    placed: Placed = {}
    taken = -1
    for cell, after in zip_longest(line, line[1:]):
        left, right = _span(cell)
        right = min(right, after[0].left) if after else right
        inside = [i for i, column in enumerate(columns) if left < column[1] and right > column[0]]
        inside = inside or [min(range(len(columns)), key=lambda i: max(left - columns[i][1], columns[i][0] - right))]
        first = inside[0]
        is_alone = len(line) == 1 and len(columns) > 1
        is_long = is_alone and first == 0 and right - columns[0][1] > _INTO_GAP * (columns[1][0] - columns[0][1])
        if first <= taken or is_long or (is_alone and len(inside) > 1):
            return None
        placed[first], taken = cell, inside[-1]
    return placed


def grouped_lines(placed: Sequence[Placed], columns: Sequence[Span]) -> list[list[Placed]]:
    """Return the lines of each row.

    Lines of a row are closer than rows. Where all are equally close, a line is a row unless its words continue the row
    above.

    Parameters
    ----------
    columns : sequence of Span
        The extents of columns.
    """
    heights = [next(iter(line.values()))[0].y for line in placed]
    steps = [above - below for above, below in pairwise(heights)]
    rising = sorted(set(steps))
    for limit in [(a + b) / 2 for a, b in pairwise(rising) if b > _FURTHER * a][::-1]:
        grouped = _parted(placed, [step > limit for step in steps])
        if all(_is_row(group, columns) for group in grouped):
            return grouped
    begins = [
        0 in line
        or len(line) > 1
        or _is_further(placed[:number], line, placed)
        or not _continue(placed[:number], line, columns)
        for number, line in enumerate(placed[1:], start=1)
    ]
    return _parted(placed, begins)


def _is_further(above: Sequence[Placed], line: Placed, placed: Sequence[Placed]) -> bool:
    """Return whether a line of one cell is further below the last one of its column than the nearest there are."""
    [(column, cell)] = line.items()
    heights = [line[column][0].y for line in placed if column in line]
    upper = _last(above, column)
    return upper is not None and upper[0].y - cell[0].y > _FURTHER * min(a - b for a, b in pairwise(heights))


def _parted(placed: Sequence[Placed], begins: Sequence[bool]) -> list[list[Placed]]:
    grouped = [[placed[0]]]
    for line, is_new in zip(placed[1:], begins, strict=True):
        if is_new:
            grouped.append([])
        grouped[-1].append(line)
    return grouped


def _is_row(group: Sequence[Placed], columns: Sequence[Span]) -> bool:
    """Return whether lines are one row: no column has two numbers, and one at most has two texts.

    The first column has two only where a full line of another cell continues beside the second one.
    """
    if len(group) == 1:
        return True
    started, has_numbers = set[int](), set[int]()
    for number, line in enumerate(group):
        above = group[:number]
        continues = any(upper and _fills(upper, columns[c]) for c in line if c and (upper := _last(above, c)))
        for column, cell in line.items():
            if column in has_numbers and is_number(words_of(cell)):
                return False
            if not _continue(above, {column: cell}, columns):
                started.add(column)
                if column == 0 and not continues:
                    return False
            if is_number(words_of(cell)):
                has_numbers.add(column)
    return len(started) < 2 and len({column for line in group for column in line}) > 1


def _last(above: Sequence[Placed], column: int) -> list[Piece] | None:
    return next((line[column] for line in reversed(above) if column in line), None)


def _fills(cell: Sequence[Piece], column: Span) -> bool:
    """Return whether a cell's line fills its column, which is wide."""
    width = column[1] - column[0]
    return width > _WIDE * cell[-1].size and cell[-1].right - column[0] > _FULL * width


def _continue(above: Sequence[Placed], line: Placed, columns: Sequence[Span]) -> bool:
    """Return whether all cells of a line continue the text above them in their columns, or are the first ones there."""
    return all(
        _is_within(upper, cell, columns[column]) for column, cell in line.items() if (upper := _last(above, column))
    )


def _is_within(above: Sequence[Piece], cell: Sequence[Piece], column: Span) -> bool:
    """Return whether a line of a cell continues the line above it."""
    is_full = _fills(above, column) and not cell[0].text[:1].isdigit()
    is_open = cell[0].text[:1].islower() or above[-1].text.endswith(("-", ",", "\u2010", "&"))
    return not is_number(words_of(cell)) and (is_open or is_full)


def words_of(cell: Sequence[Piece]) -> str:
    """Return the words of a cell's line."""
    return " ".join(piece.text for piece in cell)


def rows_of(grouped: Sequence[Sequence[Placed]], n_columns: int) -> list[tuple[tuple[str, ...], ...]]:
    """Return the rows of a table: of cells, each of its lines."""
    return [
        tuple(tuple(words_of(line[column]) for line in group if column in line) for column in range(n_columns))
        for group in grouped
    ]


def _are_clear(rows: Rows | Sequence[tuple[tuple[str, ...], ...]], placed: Sequence[Placed], size: float) -> bool:
    """Return whether columns are a table's: most rows are full, or the cells of each column begin or end at one place.

    Two columns might be columns of text: their rows must be full, and the second column's cells be aligned. The head of
    a column may be elsewhere, and the first column may have one name, for all rows.
    """
    n_columns = len(rows[0])
    extents = [[_span(line[column]) for line in placed if column in line] for column in range(n_columns)]
    n_heads = len(rows) > _FEWEST and all(map(len, extents))
    aligned = [
        any(max(place) - min(place) < _ALIGNED * size for place in zip(*spans[n_heads:] or spans, strict=True))
        for spans in extents
    ]
    lengths = [n for row in rows if (n := sum(map(bool, row))) > 1]
    are_full = sum(n == n_columns for n in lengths) >= _FULL_ROWS * len(lengths)
    if len(lengths) < _FEWEST:
        return False
    if n_columns == 2:
        return aligned[1] and are_full
    are_filled = sum(bool(cell) for row in rows for cell in row) >= _FILLED * len(rows) * n_columns
    return are_full or (all(aligned) and are_filled and min(map(len, extents[1:])) > 1)


def is_gap(before: Piece, piece: Piece) -> bool:
    """Return whether two pieces of a line are cells: numbers may be closer than words."""
    least = NUMBER_GAP if is_number(before.text) and is_number(piece.text) else _CELL_GAP
    return piece.begins_cell or piece.left - before.right > least * piece.size


def cells(line: Line) -> list[list[Piece]]:
    """Split the pieces of a line into cells at wide gaps."""
    grouped: list[list[Piece]] = [[line.pieces[0]]]
    for before, piece in pairwise(line.pieces):
        if is_gap(before, piece):
            grouped.append([])
        grouped[-1].append(piece)
    return grouped
