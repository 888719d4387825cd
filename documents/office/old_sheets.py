"""Extract old sheets of Excel (XLS): a table for each sheet, under its name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, time, timedelta
from itertools import chain, pairwise, repeat
from typing import Any

from ...errors import OctavoError
from ..document import Document
from ..left_out import LeftOut
from ..markdown import as_text, document_of
from ..scripts import Run, struck, with_marks
from .number_formats import shown_value
from .sheet_records import Formula, formulas_without_value, text_boxes, workbook_stream
from .sheets import UNREADABLE, shown_cells, text_of_sheet

#: Where text is that is not in its line, by xlrd's number: above it, below it.
_SIDES = {1: 1, 2: -1}

#: A whole number of a formula, as xlrd writes it.
_WHOLE = re.compile(r"(?<![\w.\"])(\d+)\.0(?![\w.])")

#: A format of hours, minutes or seconds of more than a day.
_DURATION = re.compile(r"\[[hms]+\]", re.IGNORECASE)


def extract_old_sheets(content: bytes, name: str) -> Document:
    """Extract the values of sheets.

    Raises
    ------
    OctavoError
        The file is damaged or encrypted, or a sheet has too many cells.
    """
    import xlrd

    left_out = LeftOut()
    try:
        stream = workbook_stream(content)
        book = xlrd.open_workbook(file_contents=stream, formatting_info=True, ragged_rows=True, logfile=_Nowhere())
        boxes = chain(text_boxes(stream, left_out), repeat([]))  # the stream may name fewer sheets
        formulas = chain(formulas_without_value(stream), repeat([]))
        beside = zip(book.sheets(), boxes, formulas, strict=False)
        sheets = [_sheet(book, sheet, own, without_value, left_out) for sheet, own, without_value in beside]
    except (MemoryError, OctavoError):
        raise
    except Exception as problem:  # xlrd trusts its input: it may raise anything
        if "encrypted" in str(problem):
            raise OctavoError(f"{name} is encrypted: save it without a password.") from problem
        raise OctavoError(f"{name} is damaged: download or save it again.") from problem
    return document_of("\n".join(filter(None, sheets)), notices=left_out.notices(name))


class _Nowhere:
    """Take what xlrd says about a file's faults."""

    def write(self, text: str) -> None:
        """Take a text."""


def _sheet(book: Any, sheet: Any, boxes: list[str], formulas: list[Formula], left_out: LeftOut) -> str:
    if sheet.visibility:
        left_out["hidden sheet"] += 1
        return ""
    rows = {number: dict(enumerate(_cell(book, cell) for cell in sheet.row(number))) for number in range(sheet.nrows)}
    for (number, column), runs in sheet.rich_text_runlist_map.items():
        rows[number][column] = _rich_text(book, sheet.cell(number, column), runs)
    for formula in formulas:
        if text := _formula(book, formula):
            rows.setdefault(formula.row, {})[formula.column] = text
    merged = [(top, bottom - 1, left, right - 1) for top, bottom, left, right in sheet.merged_cells]
    hidden = [number for number, about in sheet.rowinfo_map.items() if about.hidden]
    columns = {number for number, about in sheet.colinfo_map.items() if about.hidden}
    shown = shown_cells(sheet.name, rows, merged, hidden, columns, left_out)
    return text_of_sheet(sheet.name, shown, "".join(f"\n{as_text(note)}\n" for note in (*boxes, *_remarks(sheet))))


def _formula(book: Any, formula: Formula) -> str:
    """Return a formula as Excel shows it; nothing if xlrd cannot read it, or if it is shared."""
    from xlrd.formula import FMLA_TYPE_CELL, decompile_formula

    row, column, code = formula
    try:
        text = decompile_formula(book, code, len(code), FMLA_TYPE_CELL, browx=row, bcolx=column)
    except Exception:  # xlrd trusts its input: it may raise anything
        return ""
    text = _WHOLE.sub(r"\1", text or "")  # xlrd writes all numbers with a point
    return f"={text}" if text and text != "?" and not text.startswith("SHARED FMLA") else ""


def _remarks(sheet: Any) -> Iterator[str]:
    import xlrd

    for (row, column), note in sorted(sheet.cell_note_map.items()):
        if text := " ".join(note.text.split()):
            yield f"[Remark on {xlrd.colname(column)}{row + 1}: {text}]"


def _rich_text(book: Any, cell: Any, runs: list[tuple[int, int]]) -> str:
    """Return the text of a cell some of whose characters have other fonts, from a character on each."""
    own = _style(book, cell)
    starts, numbers = zip((0, own.font_index if own else None), *runs, strict=True)
    pieces = (cell.value[start:stop] for start, stop in pairwise([*starts, len(cell.value)]))
    known = dict(enumerate(book.font_list))
    fonts = ((known.get(number), piece) for number, piece in zip(numbers, pieces, strict=True))
    return shown_value(
        with_marks(
            Run(text, _SIDES.get(font.escapement, 0), bool(font.struck_out)) if font else Run(text)
            for font, text in fonts
        )
    )


def _style(book: Any, cell: Any) -> Any:
    """Return the style of a cell; None if the file lacks it."""
    return book.xf_list[cell.xf_index] if cell.xf_index is not None and cell.xf_index < len(book.xf_list) else None


def _cell(book: Any, cell: Any) -> str:
    style = _style(book, cell)
    text = _shown(book, cell, style)
    is_struck = (
        style is not None and style.font_index < len(book.font_list) and book.font_list[style.font_index].struck_out
    )
    return struck(text) if is_struck else text


def _shown(book: Any, cell: Any, style: Any) -> str:
    """Return the value of a cell as its style shows it."""
    import xlrd

    number = None if style is None else book.format_map.get(style.format_key)
    number_format = "General" if number is None else number.format_str
    if cell.ctype == xlrd.XL_CELL_DATE:
        return shown_value(_moment(cell.value, number_format, book.datemode), number_format)
    if cell.ctype == xlrd.XL_CELL_BOOLEAN:
        return shown_value(bool(cell.value))
    if cell.ctype == xlrd.XL_CELL_ERROR:
        return str(xlrd.error_text_from_code.get(cell.value, ""))
    return shown_value(cell.value, number_format)


def _moment(value: float, number_format: str, datemode: int) -> datetime | time | timedelta | str:
    """Return a date, a time of day, or a duration, which have the same form in the file; or an error."""
    import xlrd

    try:
        if _DURATION.search(number_format):
            return timedelta(days=value)
        moment: datetime = xlrd.xldate.xldate_as_datetime(value, datemode)
    except (OverflowError, ValueError):
        return UNREADABLE
    return moment.time() if value < 1 else moment
