"""Extract old sheets of Excel (XLS): a table for each sheet, under its name."""

from __future__ import annotations

from typing import Any

from ...errors import OctavoError
from ..document import Document
from ..markdown import document_of
from .sheets import shown, text_of_sheet


def extract_old_sheets(content: bytes, name: str) -> Document:
    """Extract the values of sheets.

    Raises
    ------
    OctavoError
        The file is damaged or encrypted, or a sheet has too many cells.
    """
    import xlrd

    try:
        book = xlrd.open_workbook(file_contents=content, formatting_info=True, ragged_rows=True, logfile=_Nowhere())
        sheets = [_sheet(book, sheet) for sheet in book.sheets()]
    except (MemoryError, OctavoError):
        raise
    except Exception as problem:  # xlrd trusts its input: it may raise anything
        if "encrypted" in str(problem):
            raise OctavoError(f"{name} is encrypted: save it without a password.") from problem
        raise OctavoError(f"{name} is damaged: download or save it again.") from problem
    return document_of("\n".join(filter(None, sheets)))


class _Nowhere:
    """Take what xlrd says about a file's faults."""

    def write(self, text: str) -> None:
        """Take a text."""


def _sheet(book: Any, sheet: Any) -> str:
    rows = {number: dict(enumerate(_cell(book, cell) for cell in sheet.row(number))) for number in range(sheet.nrows)}
    merged = [(top, bottom - 1, left, right - 1) for top, bottom, left, right in sheet.merged_cells]
    return text_of_sheet(sheet.name, rows, merged)


def _cell(book: Any, cell: Any) -> str:
    import xlrd

    if cell.ctype == xlrd.XL_CELL_DATE:
        return shown(xlrd.xldate.xldate_as_datetime(cell.value, book.datemode))
    if cell.ctype == xlrd.XL_CELL_BOOLEAN:
        return shown(bool(cell.value))
    if cell.ctype == xlrd.XL_CELL_ERROR:
        return str(xlrd.error_text_from_code.get(cell.value, ""))
    if cell.ctype != xlrd.XL_CELL_NUMBER:
        return shown(cell.value)
    number = book.format_map.get(book.xf_list[cell.xf_index].format_key)
    return shown(cell.value, "" if number is None else number.format_str)
