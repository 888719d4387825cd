"""Extract sheets of Excel (XLSX): a table for each sheet, under its name."""

from __future__ import annotations

import io
import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Any

from ...errors import OctavoError
from ..archive import Archive
from ..document import Document
from ..left_out import LeftOut
from ..markdown import document_of
from ..markdown_table import MOST_REPEATED, markdown_table
from ..scripts import with_scripts
from .number_formats import shown_value
from .sheet_notes import sheet_notes

#: The first and last cell of a merged one.
_MERGED = re.compile(rb'<(?:\w+:)?mergeCell [^>]*?ref="([A-Z]{1,3})(\d{1,7}):([A-Z]{1,3})(\d{1,7})"')

#: Most cells of a sheet, empty and merged ones included: more than models read. Beyond the second number of empty
#: cells, columns without any text are left out.
_MOST_CELLS, _MOST_EMPTY = 3_000_000, 1_000_000

#: Most columns without text between two with text: beyond them a cell is far off by accident, as a rule.
_MOST_GAP = 50

#: Where text is that is not in its line.
_SIDES = {"superscript": 1, "subscript": -1}

#: The cells of a row by column, from 0.
Row = dict[int, str]


def extract_sheets(archive: Archive) -> Document:
    """Extract the values of sheets; a formula whose value the file lacks stays a formula.

    Raises
    ------
    OctavoError
        The file is damaged, or a sheet has too many cells.
    """
    import warnings

    from openpyxl import load_workbook

    left_out = LeftOut()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles and extensions
            books = [
                load_workbook(io.BytesIO(archive.content), read_only=True, data_only=only, rich_text=True)
                for only in (True, False)
            ]
            pairs = zip(books[0].worksheets, books[1].worksheets, strict=True)
            sheets = [_sheet(archive, values, formulas, left_out) for values, formulas in pairs]
    except (MemoryError, OctavoError):
        raise
    except Exception as problem:  # openpyxl trusts its input: it may raise anything
        raise archive.damaged() from problem
    return document_of("\n".join(filter(None, sheets)), notices=left_out.notices(archive.name))


def _sheet(archive: Archive, values: Any, formulas: Any, left_out: LeftOut) -> str:
    if values.sheet_state != "visible":
        left_out["hidden sheet"] += 1
        return ""
    rows: dict[int, Row] = {}
    room = _MOST_CELLS
    with values._get_source() as source, formulas._get_source() as again:
        parser = _parser(values, source)
        pairs = zip(_rows(values, parser), _rows(formulas, _parser(formulas, again)), strict=True)
        for (number, cells), (_, others) in pairs:
            rows[number] = {column: _cell(cell, others[column]) for column, cell in cells.items()}
            if (room := room - len(cells)) < 0:
                raise _too_large(values.title)
    found = _MERGED.findall(archive.read(values._worksheet_path))  # openpyxl skips them as it reads row by row
    merged = [(int(top) - 1, int(bottom) - 1, _column(left), _column(right)) for left, top, right, bottom in found]
    hidden = [int(number) - 1 for number, about in parser.row_dimensions.items() if _is_hidden(about)]
    spans = (about for about in parser.column_dimensions.values() if _is_hidden(about))
    columns = {number - 1 for about in spans for number in range(int(about["min"]), int(about["max"]) + 1)}
    if hidden or columns:
        repeat_merged_cells(rows, merged)
        merged = []
        without_hidden(rows, hidden, columns, left_out)
    return text_of_sheet(values.title, rows, merged, sheet_notes(archive, values._worksheet_path, left_out))


def _parser(sheet: Any, source: Any) -> Any:
    """Return what parses a sheet. openpyxl itself adds the rows that a file lacks, however many."""
    from openpyxl.worksheet._reader import WorkSheetParser

    book = sheet.parent
    how = {"epoch": book.epoch, "date_formats": book._date_formats, "timedelta_formats": book._timedelta_formats}
    how["rich_text"] = True
    return WorkSheetParser(source, sheet._shared_strings, data_only=book.data_only, **how)


def _rows(sheet: Any, parser: Any) -> Iterator[tuple[int, dict[int, Any]]]:
    """Yield the number and the cells of each row."""
    from openpyxl.cell.read_only import ReadOnlyCell

    for number, row in parser.parse():
        yield number - 1, {cell["column"] - 1: ReadOnlyCell(sheet, **cell) for cell in row}


def _is_hidden(attributes: dict[str, str]) -> bool:
    return attributes.get("hidden") in ("1", "true")


def without_hidden(rows: dict[int, Row], hidden: Collection[int], columns: Collection[int], left_out: LeftOut) -> None:
    """Take hidden rows and columns with text out, and count them."""
    with_text = {number for number, row in rows.items() if any(row.values())}
    left_out["hidden row"] += len(with_text & set(hidden))
    for number in hidden:
        rows.pop(number, None)
    gone = {column for row in rows.values() for column, text in row.items() if text and column in columns}
    left_out["hidden column"] += len(gone)
    if gone:
        for number, row in rows.items():
            rows[number] = {
                column - sum(other < column for other in columns): text
                for column, text in row.items()
                if column not in columns
            }


def text_of_sheet(title: str, rows: dict[int, Row], merged: list[tuple[int, int, int, int]], notes: str = "") -> str:
    """Return a sheet as a table under its name, without empty columns before it; nothing if it is empty.

    A merged cell is repeated in each row and column, unless it is alone in its row.

    Parameters
    ----------
    rows : dict of int to Row
        The cells of each row that has any, by its number.
    merged : list of (int, int, int, int)
        First and last row, first and last column of each merged cell.
    notes : str
        Paragraphs that follow the table.

    Raises
    ------
    OctavoError
        The table would be too large.
    """
    rows = {number: row for number, row in rows.items() if any(row.values())}
    repeat_merged_cells(rows, merged)
    first = min((min(column for column, text in row.items() if text) for row in rows.values()), default=0)
    columns = range(first, max(map(max, rows.values()), default=0) + 1)
    n_empty = sum(max(row) + 1 - first - len(row) for row in rows.values())
    used: list[int] | range = columns
    with_text = sorted({column for row in rows.values() for column, text in row.items() if text})
    if n_empty > _MOST_EMPTY or any(after - column > _MOST_GAP for column, after in pairwise(with_text)):
        used = with_text
    if n_empty > _MOST_EMPTY and len(used) * len(rows) > _MOST_CELLS:
        raise _too_large(title)
    table = markdown_table(
        [row.get(column, "") for column in used[: bisect_right(used, max(row))]] for row in rows.values()
    )
    return f"## {title}\n\n{table}{notes}" if table else f"## {title}\n{notes}" if notes else ""


def repeat_merged_cells(rows: dict[int, Row], merged: list[tuple[int, int, int, int]]) -> None:
    """Repeat the text of each merged cell in the rows and columns that it covers, as far as there is room."""
    alone = {number for number, row in rows.items() if sum(map(bool, row.values())) == 1}
    last, room = {number: max(row) for number, row in rows.items() if any(row.values())}, _MOST_EMPTY
    numbers = sorted(last)
    for top, bottom, left, right in merged:
        text = rows[top].get(left, "") if top in rows else ""
        if len(text) <= MOST_REPEATED and not (top == bottom and top in alone):
            for number in numbers[bisect_left(numbers, top) : bisect_right(numbers, bottom)]:
                columns = range(left, min(right, last[number]) + 1)
                room -= 1 + len(columns)
                if room < 0:
                    return
                rows[number].update(dict.fromkeys(columns, text))


def _too_large(title: str) -> OctavoError:
    return OctavoError(
        f"The sheet {title} has more than {_MOST_CELLS:,} cells, with the empty ones between them: save the cells that "
        "matter in a file of their own."
    )


def _column(letters: bytes) -> int:
    """Return the number of a column, from 0, by its letters."""
    number = 0
    for letter in letters:
        number = number * 26 + letter - 64
    return number - 1


def _cell(cell: Any, formula: Any) -> str:
    from openpyxl.cell.rich_text import CellRichText

    if cell.value is None and cell.data_type != "str":  # of which an empty text is one
        return shown_value(formula.value)
    value = cell.value
    if isinstance(value, CellRichText):
        fonts = [getattr(run, "font", None) for run in value]
        sides = [_SIDES.get(getattr(font, "vertAlign", None) or "", 0) for font in fonts]
        value = with_scripts(zip(map(str, value), sides, strict=True))
    return shown_value(value, cell.number_format)
