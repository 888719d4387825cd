"""Make the tables of parsed HTML such as Markdown has: a grid of cells, each with one line of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

#: Most characters of a table in a cell of another: larger ones are the content of a page that tables lay out.
_MOST_NESTED_TEXT = 300

#: Most columns of a cell, as in browsers.
_MOST_COLUMNS = 1000


def simplify_tables(soup: BeautifulSoup) -> None:
    """Flatten tables that serve as layout, write small tables within cells as text, and divide merged cells."""
    for table in soup.find_all("table"):
        if table.decomposed or table.name != "table":  # it was in another
            continue
        rows = [row for row in table.find_all("tr") if row.find_parent("table") is table]
        grid = [list(row.find_all(["td", "th"], recursive=False)) for row in rows]
        inner = table.find_all("table")
        if all(len(cells) < 2 for cells in grid) or (inner and not _is_data(grid, inner)):
            _unwrap(table)
            continue
        for nested in inner:
            set_text(nested, f" {_in_a_line(nested)} ")
        _divide_merged(soup, rows, grid)


def set_text(tag: Tag, text: str) -> None:
    """Turn an element into a text. To take it out of its parent would search all siblings for it."""
    tag.clear(decompose=True)
    tag.name, tag.attrs = "span", {}
    if text:
        tag.append(text)


def _is_data(grid: list[list[Tag]], inner: list[Tag]) -> bool:
    """Return whether a table with tables in it has data, and is not the layout of a page."""
    small = all(len(table.get_text(" ", strip=True)) <= _MOST_NESTED_TEXT for table in inner)
    return small and len(grid) > 1 and len({len(cells) for cells in grid}) == 1


def _in_a_line(table: Tag) -> str:
    """Return a small table as a line of text: the cells of a row after one another, and commas between rows."""
    rows = (" ".join(cell.get_text(" ", strip=True) for cell in row.find_all(["td", "th"])) for row in table("tr"))
    return ", ".join(row for row in rows if row)


def _unwrap(table: Tag) -> None:
    """Turn a table into blocks."""
    for part in table.find_all(["thead", "tbody", "tfoot", "tr", "td", "th", "caption"]):
        if part.find_parent("table") is table:
            part.name = "div"
    table.name = "div"


def _divide_merged(soup: BeautifulSoup, rows: list[Tag], grid: list[list[Tag]]) -> None:
    """Put empty cells where a cell spans columns or rows, so that all others stay in their columns."""
    widest = max(map(len, grid))
    spans: dict[int, int] = {}  # columns that a cell of a row above spans, and for how many rows more
    for row, cells in zip(rows, grid, strict=True):
        column, below = 0, dict[int, int]()
        for cell in cells:
            while column in spans:
                cell.insert_before(soup.new_tag(cell.name))
                column += 1
            n_columns = min(_span(cell, "colspan"), max(widest, 2), _MOST_COLUMNS)
            n_rows = _span(cell, "rowspan") or len(rows)
            for number in range(n_columns):
                if number:
                    cell.insert_after(soup.new_tag(cell.name))
                if n_rows > 1:
                    below[column + number] = n_rows - 1
            column += n_columns
        for _ in range(max(spans, default=-1) + 1 - column):
            row.append(soup.new_tag("td"))
        spans = {column: left - 1 for column, left in spans.items() if left > 1} | below


def _span(cell: Tag, name: str) -> int:
    """Return how many rows or columns a cell spans, 0 for all, and forget it."""
    span = str(cell.attrs.pop(name, "1")).strip()
    return int(span) if span.isascii() and span.isdigit() and len(span) < 6 else 1
