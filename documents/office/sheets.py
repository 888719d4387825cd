"""Extract sheets of Excel (XLSX): a table for each sheet, under its name."""

from __future__ import annotations

import io
import re
from bisect import bisect_left, bisect_right
from datetime import date, datetime, time
from typing import Any

from ..archive import Archive
from ..document import Document
from ..markdown import document_of
from ..markdown_table import MOST_REPEATED, markdown_table
from .sheet_notes import sheet_notes

#: The first and last cell of a merged one.
_MERGED = re.compile(rb'<(?:\w+:)?mergeCell [^>]*?ref="([A-Z]{1,3})(\d{1,7}):([A-Z]{1,3})(\d{1,7})"')


def extract_sheets(archive: Archive) -> Document:
    """Extract the values of sheets; a formula whose value the file lacks stays a formula.

    Raises
    ------
    OctavoError
        The file is damaged.
    """
    import warnings

    from openpyxl import load_workbook

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles and extensions
            books = [
                load_workbook(io.BytesIO(archive.content), read_only=True, data_only=only) for only in (True, False)
            ]
            sheets = [_sheet(archive, *pair) for pair in zip(*(book.worksheets for book in books), strict=True)]
    except MemoryError:
        raise
    except Exception as problem:  # openpyxl trusts its input: it may raise anything
        raise archive.damaged() from problem
    return document_of("\n".join(filter(None, sheets)))


def _sheet(archive: Archive, values: Any, formulas: Any) -> str:
    for sheet in (values, formulas):
        sheet.reset_dimensions()  # they may be wrong
    pairs = enumerate(zip(values.iter_rows(), formulas.iter_rows(), strict=True))
    rows = {number: [_cell(*cells) for cells in zip(*pair, strict=True)] for number, pair in pairs if pair[1]}
    found = _MERGED.findall(archive.read(values._worksheet_path))  # openpyxl skips them as it reads row by row
    merged = [(int(top) - 1, int(bottom) - 1, _column(left), _column(right)) for left, top, right, bottom in found]
    return text_of_sheet(values.title, rows, merged, sheet_notes(archive, values._worksheet_path))


def text_of_sheet(
    title: str, rows: dict[int, list[str]], merged: list[tuple[int, int, int, int]], notes: str = ""
) -> str:
    """Return a sheet as a table under its name, without empty columns before it; nothing if it is empty.

    A merged cell is repeated in each row and column, unless it is alone in its row.

    Parameters
    ----------
    rows : dict of int to list of str
        The cells of each row that has any, by its number.
    merged : list of (int, int, int, int)
        First and last row, first and last column of each merged cell.
    notes : str
        Paragraphs that follow the table.
    """
    rows = {number: row for number, row in rows.items() if any(row)}
    alone = {number for number, row in rows.items() if sum(map(bool, row)) == 1}
    numbers = list(rows)
    for top, bottom, left, right in merged:
        text = rows[top][left] if top in rows and left < len(rows[top]) else ""
        if len(text) <= MOST_REPEATED and not (top == bottom and top in alone):
            for number in numbers[bisect_left(numbers, top) : bisect_right(numbers, bottom)]:
                row = rows[number]
                row[left : right + 1] = [text] * len(row[left : right + 1])
    first = min((number for row in rows.values() for number, cell in enumerate(row) if cell), default=0)
    table = markdown_table(row[first:] for row in rows.values())
    return f"## {title}\n\n{table}{notes}" if table else f"## {title}\n{notes}" if notes else ""


def _column(letters: bytes) -> int:
    """Return the number of a column, from 0, by its letters."""
    number = 0
    for letter in letters:
        number = number * 26 + letter - 64
    return number - 1


def _cell(cell: Any, formula: Any) -> str:
    return shown(formula.value, "") if cell.value is None else shown(cell.value, cell.number_format)


def shown(value: Any, number_format: str = "") -> str:
    """Return what a cell shows that has a value and a format of numbers."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) or (isinstance(value, int) and "%" in number_format):
        return f"{value * 100:.15g}%" if "%" in number_format else f"{value:.15g}"
    if isinstance(value, datetime):
        return str(value.date() if value.time() == time() else value)
    if isinstance(value, date | time):
        return str(value)
    return "" if value is None else str(getattr(value, "text", value))
