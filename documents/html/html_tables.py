"""Make the tables of parsed HTML such as Markdown has: a grid of cells, each with one line of text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..markdown_table import repeat_merged

#: Most characters of a table in a cell of another: larger ones are the content of a page that tables lay out.
_MOST_NESTED_TEXT = 300

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


def _is_data(rows: list[Row], inner: list[Any]) -> bool:
    """Return whether a table with tables in it has data, and is not the layout of a page."""
    small = all(len(" ".join("".join(table.itertext()).split())) <= _MOST_NESTED_TEXT for table in inner)
    return small and len(rows) > 1 and len(_widths(rows)) == 1


def _widths(rows: list[Row]) -> set[int]:
    """Return how many columns the rows have, with the cells that span more than one column or row."""
    widths: set[int] = set()
    below: list[tuple[int, int]] = []  # for each cell of the rows above that spans rows: columns, and rows left
    for _, cells in rows:
        own = [(_span(cell, "colspan"), _span(cell, "rowspan") or len(rows)) for cell in cells]
        widths.add(sum(n_columns for n_columns, _ in own + below))
        below = [(n_columns, left - 1) for n_columns, left in own + below if left > 1]
    return widths


def _span(cell: Any, name: str) -> int:
    """Return how many rows or columns a cell spans, 0 for all."""
    span = (cell.get(name) or "1").strip()
    number = int(span) if span.isascii() and span.isdigit() and len(span) < 6 else 1
    return number or int(name == "colspan")
