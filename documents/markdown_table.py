"""Write tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable

#: Most columns of a cell, as in browsers.
_MOST_COLUMNS = 1000

#: Most characters of a cell that is repeated in each column and row that it spans.
MOST_REPEATED = 100

#: Most characters that repeated and empty cells add to a table, beside as many as it has.
_MOST_ADDED = 1_000_000


def markdown_table(rows: Iterable[Iterable[str]]) -> str:
    """Return rows of cells as a table in Markdown, without empty rows and empty columns at its end.

    Parameters
    ----------
    rows : iterable of iterables of str
        Cells, as many in a row as there are.
    """
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    cells = [row for row in cells if any(row)]
    width = max((1 + max(number for number, cell in enumerate(row) if cell) for row in cells), default=0)
    n_cells = sum(map(len, cells))
    added = [""] * (width if width * len(cells) - n_cells <= max(n_cells, _MOST_ADDED // 3) else 0)
    lines = [f"| {' | '.join((row + added)[:width])} |" for row in cells]
    return "\n".join([*lines[:1], f"|{' --- |' * width}", *lines[1:]]) + "\n" if lines else ""


def repeat_merged(rows: list[list[tuple[str, int, int]]]) -> list[list[str]]:
    """Repeat a cell in each column and row that it spans, so that a row can be read without others.

    A cell that is a row of its own stands once, and a row that only repeats in those below is left out.

    Parameters
    ----------
    rows : list of lists of (str, int, int)
        The text of each cell, and how many columns and rows it spans; 0 rows are all that follow.
    """
    widest = max(2, *map(len, rows))
    n_all = max(sum(min(n_columns, widest) for _, n_columns, _ in cells) for cells in rows)
    n_all = min(n_all, max(widest, _MOST_COLUMNS))
    room = _MOST_ADDED + sum(len(text) for cells in rows for text, _, _ in cells)
    grid: list[list[str]] = []
    spans: dict[int, tuple[int, str]] = {}  # columns that a cell of a row above spans: for how many rows, and its text
    for place, cells in enumerate(rows, 1):
        row: list[str] = []
        below: dict[int, tuple[int, str]] = {}
        for text, n_columns, n_rows in cells:
            while len(row) in spans:
                row.append(spans[len(row)][1])
            repeated = text if len(text) <= MOST_REPEATED and (n_rows != 1 or len(cells) > 1 or spans) else ""
            for number in range(max(min(n_columns, n_all - len(row)), 1)):
                if n_rows != 1:
                    below[len(row)] = ((n_rows or len(rows)) - 1, repeated)
                row.append(repeated if number else text)
        row += [spans[number][1] if number in spans else "" for number in range(len(row), max(spans, default=-1) + 1)]
        room -= sum(map(len, row)) + 3 * (len(row) - len(cells))
        if room < 0:  # the table is larger by its spans than any that people read
            row, spans, below, n_all = [text for text, _, _ in cells], {}, {}, 0
        spans = {column: (left - 1, text) for column, (left, text) in spans.items() if left > 1} | below
        is_repeated = cells and all(n_rows != 1 and len(text) <= MOST_REPEATED for text, _, n_rows in cells)
        if not is_repeated or place == len(rows) or room < 0:
            grid.append(row)
    return grid
