"""Make the tables of parsed HTML such as Markdown has: a grid of cells, each with one line of text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Most characters of a table in a cell of another: larger ones are the content of a page that tables lay out.
_MOST_NESTED_TEXT = 300

#: Most columns of a cell, as in browsers.
_MOST_COLUMNS = 1000

#: Most characters of a cell that is repeated in each column and row that it spans.
_MOST_REPEATED = 100

#: A row of a table and its cells.
Row = tuple[Any, list[Any]]


def rows_of(table: Any) -> list[Row]:
    """Return the rows of a table, without those of tables in it."""
    rows: list[Row] = []
    waiting = list(table)[::-1]
    while waiting:
        node = waiting.pop()
        if node.tag == "tr":
            rows.append((node, [cell for cell in node if cell.tag in ("td", "th")]))
        elif isinstance(node.tag, str) and node.tag not in ("table", "caption"):
            waiting += list(node)[::-1]
    return rows


def grid_of(table: Any, rows: list[Row], line: Callable[[Any], str]) -> list[list[str]] | None:
    """Return the cells of a table, as many in each row; None if it lays out a page.

    Parameters
    ----------
    line : callable
        Returns the text of a cell as one line.
    """
    if all(len(cells) < 2 for _, cells in rows):
        return None
    inner = [each for each in table.iter("table") if each is not table]
    if inner and not _is_data(rows, inner):
        return None
    return repeat_merged(
        [[(line(cell), _span(cell, "colspan"), _span(cell, "rowspan")) for cell in cells] for _, cells in rows]
    )


def repeat_merged(rows: list[list[tuple[str, int, int]]]) -> list[list[str]]:
    """Repeat a cell in each column and row that it spans, so that a row can be read without others.

    A cell that is a row of its own stands once, and a row that only repeats in those below is left out.

    Parameters
    ----------
    rows : list of lists of (str, int, int)
        The text of each cell, and how many columns and rows it spans; 0 rows are all that follow.
    """
    widest = max(map(len, rows), default=0)
    grid: list[list[str]] = []
    spans: dict[int, tuple[int, str]] = {}  # columns that a cell of a row above spans: for how many rows, and its text
    for place, cells in enumerate(rows, 1):
        row: list[str] = []
        below: dict[int, tuple[int, str]] = {}
        for text, n_columns, n_rows in cells:
            while len(row) in spans:
                row.append(spans[len(row)][1])
            repeated = text if len(text) <= _MOST_REPEATED and (n_rows != 1 or len(cells) > 1 or spans) else ""
            for number in range(min(n_columns, max(widest, 2), _MOST_COLUMNS)):
                if n_rows != 1:
                    below[len(row)] = ((n_rows or len(rows)) - 1, repeated)
                row.append(repeated if number else text)
        row += [spans[number][1] if number in spans else "" for number in range(len(row), max(spans, default=-1) + 1)]
        spans = {column: (left - 1, text) for column, (left, text) in spans.items() if left > 1} | below
        is_repeated = cells and all(n_rows != 1 and len(text) <= _MOST_REPEATED for text, _, n_rows in cells)
        if not is_repeated or place == len(rows):
            grid.append(row)
    return grid


def _is_data(rows: list[Row], inner: list[Any]) -> bool:
    """Return whether a table with tables in it has data, and is not the layout of a page."""
    small = all(len(" ".join("".join(table.itertext()).split())) <= _MOST_NESTED_TEXT for table in inner)
    return small and len(rows) > 1 and len({len(cells) for _, cells in rows}) == 1


def _span(cell: Any, name: str) -> int:
    """Return how many rows or columns a cell spans, 0 for all."""
    span = (cell.get(name) or "1").strip()
    number = int(span) if span.isascii() and span.isdigit() and len(span) < 6 else 1
    return number or int(name == "colspan")
