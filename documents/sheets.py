"""Read sheets of Excel (XLSX): a table for each sheet, under its name."""

from __future__ import annotations

import io
from datetime import date, datetime, time
from typing import Any

from .archive import Archive
from .document import Document
from .markdown import document_of
from .markdown_table import markdown_table


def read_sheets(archive: Archive) -> Document:
    """Read the values of sheets; a formula whose value the file lacks stays a formula.

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
            sheets = [_sheet(*pair) for pair in zip(*(book.worksheets for book in books), strict=True)]
    except MemoryError:
        raise
    except Exception as problem:  # openpyxl trusts its input: it may raise anything
        raise archive.damaged() from problem
    return document_of("\n".join(filter(None, sheets)))


def _sheet(values: Any, formulas: Any) -> str:
    """Return a sheet as Markdown."""
    for sheet in (values, formulas):
        sheet.reset_dimensions()  # they may be wrong
    rows = zip(values.iter_rows(), formulas.iter_rows(), strict=True)
    table = markdown_table([_cell(*pair) for pair in zip(*row, strict=True)] for row in rows)
    return f"## {values.title}\n\n{table}" if table else ""


def _cell(cell: Any, formula: Any) -> str:
    """Return what a cell shows."""
    value = formula.value if cell.value is None else cell.value
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) or (isinstance(value, int) and "%" in cell.number_format):
        is_share = "%" in cell.number_format
        return f"{value * 100:.15g}%" if is_share else f"{value:.15g}"
    if isinstance(value, datetime):
        return str(value.date() if value.time() == time() else value)
    if isinstance(value, date | time):
        return str(value)
    return "" if value is None else str(getattr(value, "text", value))
