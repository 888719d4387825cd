"""Extract sheets of Excel (XLSX): a table for each sheet, under its name."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
from bisect import bisect_left, bisect_right
from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple
from xml.etree.ElementTree import Element

from ...errors import OctavoError
from ..archive import Archive
from ..document import Document
from ..left_out import LeftOut
from ..markdown import document_of
from ..markdown_table import MOST_REPEATED, markdown_table
from ..scripts import Run, struck, with_marks
from ..xml_text import attribute, element_name
from .number_formats import shown_value
from .package import links_of, office_package
from .sheet_notes import sheet_notes

#: The part that names the sheets, which newer versions of Excel number, and the first and last cell of a merged one.
_BOOK = re.compile(r"xl/workbook\d*\.xml")
_MERGED = re.compile(r"([A-Z]{1,3})(\d{1,7}):([A-Z]{1,3})(\d{1,7})")

#: Lines on top and at the foot of printed pages, and the codes in them, such as &P for the number of the page.
_PRINTED = re.compile("(?:odd|even|first)(Header|Footer)")
_CODES = re.compile(r'&(?:"[^"]*"|K[\dA-F]{6}|\d+|.)')

_TRUE = ("1", "true")

#: The formula of a cell, and its value.
_FORMULA, _VALUE = (f"{{http://schemas.openxmlformats.org/spreadsheetml/2006/main}}{name}" for name in "fv")

#: What a file writes before the names of newer functions, and Excel does not show.
_NEWER = re.compile(r"\b(?:_xl(?:fn|ws|pm|udf)\.)+")

#: What says that a sheet is calculated when it is opened. A workbook says so for all of its sheets.
_CALCULATED_ON_LOAD = re.compile(rb"""sheetCalcPr\s[^>]*fullCalcOnLoad\s*=\s*["'](?:1|true)["']""")

#: What Excel shows in place of a value that it cannot read.
UNREADABLE = "#VALUE!"

#: Most cells of a sheet, empty and merged ones included: more than models read. Beyond the second number of empty
#: cells, columns without any text are left out.
_MOST_CELLS, _MOST_EMPTY = 3_000_000, 1_000_000

#: Most columns without text between two with text: beyond them a cell is far off by accident, as a rule.
_MOST_GAP = 50

#: Where text is that is not in its line.
_SIDES = {"superscript": 1, "subscript": -1}

#: The cells of a row by column, from 0; and the first and last row, first and last column of a merged cell.
Row = dict[int, str]
Merged = tuple[int, int, int, int]


def extract_sheets(archive: Archive) -> Document:
    """Extract the values of sheets; a formula whose value the file lacks stays a formula.

    Raises
    ------
    OctavoError
        The file is damaged, or a sheet has too many cells.
    """
    left_out = LeftOut()
    try:
        sheets = _sheets(office_package(archive), left_out)
    except (MemoryError, OctavoError):
        raise
    except Exception as problem:  # openpyxl trusts its input: it may raise anything
        raise archive.damaged() from problem
    return document_of("\n".join(filter(None, sheets)), notices=left_out.notices(archive.name))


def _sheets(archive: Archive, left_out: LeftOut) -> list[str]:
    """Return the text of each sheet, by the parts that openpyxl reads only as a whole, and refuses for trifles."""
    path = next(name for name in archive.names if _BOOK.fullmatch(name))
    book, links = archive.xml(path), links_of(archive, path)
    kinds = dict(links.values())
    strings, styles = _strings(archive, kinds.get("sharedStrings", "")), _styles(archive, kinds.get("styles", ""))
    since_1904 = any(attribute(node, "date1904") in _TRUE for node in book if element_name(node) == "workbookPr")
    awaits = any(attribute(node, "fullCalcOnLoad") in _TRUE for node in book if element_name(node) == "calcPr")
    written: list[str] = []
    for node in (node for node in book.iter() if element_name(node) == "sheet"):
        kind, target = links.get(attribute(node, "id") or str(node.get("id")), ("", ""))
        title = node.get("name") or f"Sheet{len(written) + 1}"
        if node.get("state") in ("hidden", "veryHidden"):
            left_out["hidden sheet"] += 1
        elif kind.lower().endswith("sheet"):  # of cells, a chart, or macros
            cells = _Cells(strings, styles, since_1904, awaits)
            written.append(_sheet(archive, target, title, cells, left_out))
        else:
            left_out["missing sheet"] += 1
    return written


def _strings(archive: Archive, path: str) -> list[str]:
    """Return the texts that cells refer to by their numbers."""
    texts = []
    for _, node in ElementTree.iterparse(io.BytesIO(archive.read(path) if path else b"<none/>")):
        if element_name(node) == "si":
            texts.append(_rich_text(node))
            node.clear()
    return texts


def _rich_text(node: Element) -> str:
    """Return the text of a cell, with marks of powers and struck-out text, without the readings of Japanese texts."""
    runs: list[Run] = []
    for child in node:
        if element_name(child) in ("t", "r"):
            text = "".join(each.text or "" for each in child.iter() if element_name(each) == "t")
            side = next((attribute(each, "val") for each in child.iter() if element_name(each) == "vertAlign"), "")
            runs.append(Run(text, _SIDES.get(side, 0), _is_struck(child)))
    return with_marks(runs)


def _is_struck(font: Element) -> bool:
    """Return whether a font, or a run of text, strikes text out."""
    return any(element_name(each) == "strike" and each.get("val", "1") in _TRUE for each in font.iter())


class _Style(NamedTuple):
    """How a cell shows its value: the format of numbers, and whether text is struck out."""

    number_format: str = "General"
    is_struck: bool = False


def _styles(archive: Archive, path: str) -> list[_Style]:
    """Return the styles of cells, by their numbers."""
    from openpyxl.styles.numbers import BUILTIN_FORMATS

    groups = {element_name(node): node for node in (archive.xml(path) if path else ())}
    own = {node.get("numFmtId"): node.get("formatCode", "") for node in groups.get("numFmts", ())}
    struck_fonts = {str(number) for number, font in enumerate(groups.get("fonts", ())) if _is_struck(font)}
    names = [(node.get("numFmtId", "0"), node.get("fontId", "0")) for node in groups.get("cellXfs", ())]
    return [
        _Style(own.get(name) or BUILTIN_FORMATS.get(int(name), "General"), font in struck_fonts) for name, font in names
    ]


class _Cells:
    """Reads the cells of a sheet row by row.

    Parameters
    ----------
    awaits_calculation : bool
        Whether the sheet is calculated when it is opened. Programs that do not calculate, such as XlsxWriter, then
        write 0 as the value of each formula; any other value was calculated.
    """

    def __init__(self, strings: list[str], styles: list[_Style], since_1904: bool, awaits_calculation: bool) -> None:
        from openpyxl.styles.numbers import is_date_format, is_timedelta_format
        from openpyxl.utils.datetime import MAC_EPOCH, WINDOWS_EPOCH
        from openpyxl.worksheet._reader import WorkSheetParser

        self._styles, self.awaits_calculation = styles, awaits_calculation
        formats = [style.number_format for style in styles]
        self._arrays: list[tuple[tuple[int, int, int, int], str]] = []  # formulas of several cells
        self.values, self._formulas = (
            WorkSheetParser(
                None,
                strings,
                data_only=only,
                epoch=MAC_EPOCH if since_1904 else WINDOWS_EPOCH,
                date_formats={number for number, code in enumerate(formats) if is_date_format(code)},
                timedelta_formats={number for number, code in enumerate(formats) if is_timedelta_format(code)},
            )
            for only in (True, False)
        )

    def row(self, element: Element) -> tuple[int, Row]:
        """Return the number of a row, and its cells."""
        for node in element.iter():
            if element_name(node) == "is":
                text = _rich_text(node)
                node.clear()
                ElementTree.SubElement(node, node.tag[:-2] + "t").text = text
        number, _ = self.values.parse_row(Element(element.tag, element.attrib))
        row = {}
        for node in element:
            column, value, kind, number_of_style = self._value(node)
            style = self._styles[number_of_style] if number_of_style < len(self._styles) else _Style()
            formula = self._formula(node)
            if self.awaits_calculation and kind in ("n", "d") and _is_zero(node):
                formula = formula or self._formula_around(number, column)
                value = None if formula else value
            is_bare = value is None and kind != "str"  # of which an empty text is one
            text = formula if is_bare else shown_value(value, style.number_format)
            row[column - 1] = struck(text) if style.is_struck else text
        return number - 1, row

    def _value(self, node: Element) -> tuple[int, object, str, int]:
        """Return the column of a cell, its value, the kind of the value, and its style."""
        before = self.values.col_counter
        try:
            cell = self.values.parse_cell(node)
        except (ValueError, IndexError, OverflowError):  # one cell does not make a file unreadable
            column = self.values.col_counter
            self.values.col_counter += column == before
            text = node.findtext(_VALUE, "") if node.get("t", "n") in ("n", "d", "b") else UNREADABLE
            return self.values.col_counter, text, "str", 0
        return cell["column"], cell["value"], cell["data_type"], cell["style_id"]

    def _formula(self, node: Element) -> str:
        """Return the formula of a cell; nothing without it, and if openpyxl cannot read it."""
        if node.find(_FORMULA) is None:
            return ""
        from openpyxl.utils.cell import range_boundaries

        try:
            formula = self._formulas.parse_cell(node)["value"]
            text = _NEWER.sub("", formula if isinstance(formula, str) else formula.text)
            if text and not isinstance(formula, str):
                self._arrays.append((range_boundaries(formula.ref), text))
        except Exception:  # openpyxl trusts its input: it may raise anything
            return ""
        return text

    def _formula_around(self, row: int, column: int) -> str:
        """Return the formula of several cells that gives a cell its value; nothing without it."""
        ranges = ((place, text) for place, text in self._arrays if place[0] <= column <= place[2])
        return next((text for place, text in ranges if place[1] <= row <= place[3]), "")


def _is_zero(node: Element) -> bool:
    """Return whether the value of a cell is 0, before a format makes it a date or a time."""
    return not (node.findtext(_VALUE) or "0").strip("-0.")


def _sheet(archive: Archive, path: str, title: str, cells: _Cells, left_out: LeftOut) -> str:
    rows: dict[int, Row] = {}
    merged: list[Merged] = []
    columns: set[int] = set()
    objects: set[str | None] = set()
    room, content = _MOST_CELLS, archive.read(path)
    cells.awaits_calculation |= _CALCULATED_ON_LOAD.search(content) is not None
    for _, node in ElementTree.iterparse(io.BytesIO(content)):
        name = element_name(node)
        if name == "row":
            number, rows[number] = cells.row(node)
            node.clear()
            if (room := room - len(rows[number])) < 0:
                raise _too_large(title)
        elif name == "col" and node.get("hidden") in _TRUE:
            columns |= {*range(int(node.get("min", 1)) - 1, int(node.get("max", 0)))}
        elif name == "mergeCell" and (found := _MERGED.fullmatch(node.get("ref", ""))):
            left, top, right, bottom = found.groups()
            merged.append((int(top) - 1, int(bottom) - 1, _column(left), _column(right)))
        elif (printed := _PRINTED.fullmatch(name)) and re.search(r"\w", _CODES.sub("", node.text or "")):
            left_out[f"printed {'head' if printed[1] == 'Header' else 'foot'}"] += 1
        elif name == "oleObject":  # once for new programs, and once for old ones
            objects.add(node.get("shapeId"))
    left_out["embedded object"] += len(objects)
    hidden = [int(row) - 1 for row, about in cells.values.row_dimensions.items() if about.get("hidden") in _TRUE]
    shown = shown_cells(title, rows, merged, hidden, columns, left_out)
    return text_of_sheet(title, shown, sheet_notes(archive, path, left_out))


def shown_cells(
    title: str,
    rows: dict[int, Row],
    merged: list[Merged],
    hidden: Collection[int],
    columns: Collection[int],
    left_out: LeftOut,
) -> list[list[str]]:
    """Return the cells that a sheet shows, row by row, without empty rows, and without empty columns before them.

    A merged cell is repeated in each row and column, unless it is alone in its row.

    Parameters
    ----------
    title : str
        The name of the sheet, for an error.
    rows : dict of int to Row
        The cells of each row that has any, by its number.
    merged : list of Merged
        The merged cells.
    hidden, columns : collections of int
        The numbers of the hidden rows, and of the hidden columns.
    left_out : LeftOut
        Counts the hidden ones with text.

    Raises
    ------
    OctavoError
        The table would be too large.
    """
    _count_hidden(rows, set(hidden), columns, left_out)
    merged = _from_shown_cells(rows, merged, hidden, columns)
    _repeat_merged_cells(rows, merged)
    _remove_hidden(rows, hidden, columns)
    rows = {number: row for number, row in sorted(rows.items()) if any(row.values())}
    first = min((min(column for column, text in row.items() if text) for row in rows.values()), default=0)
    columns = range(first, max(map(max, rows.values()), default=0) + 1)
    n_empty = sum(max(row) + 1 - first - len(row) for row in rows.values())
    used: list[int] | range = columns
    with_text = sorted({column for row in rows.values() for column, text in row.items() if text})
    if n_empty > _MOST_EMPTY or any(after - column > _MOST_GAP for column, after in pairwise(with_text)):
        used = with_text
    if n_empty > _MOST_EMPTY and len(used) * len(rows) > _MOST_CELLS:
        raise _too_large(title)
    return [[row.get(column, "") for column in used[: bisect_right(used, max(row))]] for row in rows.values()]


def text_of_sheet(title: str, cells: list[list[str]], notes: str = "") -> str:
    """Return a sheet as a table under its name, and the paragraphs that follow it; nothing if it is empty."""
    table = markdown_table(cells)
    return f"## {title}\n\n{table}{notes}" if table else f"## {title}\n{notes}" if notes else ""


def _count_hidden(rows: dict[int, Row], hidden: set[int], columns: Collection[int], left_out: LeftOut) -> None:
    left_out["hidden row"] += sum(any(rows[number].values()) for number in hidden & rows.keys())
    shown = (row for number, row in rows.items() if columns and number not in hidden)
    left_out["hidden column"] += len({column for row in shown for column in row if row[column] and column in columns})


def _from_shown_cells(
    rows: dict[int, Row], merged: list[Merged], hidden: Collection[int], columns: Collection[int]
) -> list[Merged]:
    """Return merged cells from their first shown row and column on, and put their texts there."""
    after_row, after_column, found = _following(hidden), _following(columns), []
    for top, bottom, left, right in merged:
        row, column = after_row.get(top, top), after_column.get(left, left)
        if (row, column) != (top, left) and row <= bottom and column <= right and rows.get(top, {}).get(left):
            text, rows[top][left] = rows[top][left], ""
            rows.setdefault(row, {})[column] = text
            top, left = row, column
        found.append((top, bottom, left, right))
    return found


def _following(hidden: Collection[int]) -> dict[int, int]:
    """Return which row or column is the next shown one after each hidden one."""
    following: dict[int, int] = {}
    for number in sorted(hidden, reverse=True):
        following[number] = following.get(number + 1, number + 1)
    return following


def _repeat_merged_cells(rows: dict[int, Row], merged: list[Merged]) -> None:
    """Repeat the text of each merged cell in the rows and columns that it covers, as far as there is room."""
    widest = max((column for row in rows.values() for column, text in row.items() if text), default=0)
    last, room = {number: max(*row, widest) for number, row in rows.items() if any(row.values())}, _MOST_EMPTY
    numbers = sorted(last)
    for top, bottom, left, right in sorted(merged, key=lambda cell: cell[0] == cell[1]):  # several rows first
        row = rows.get(top, {})
        text, is_alone = row.get(left, ""), top == bottom and sum(map(bool, row.values())) == 1
        if len(text) <= MOST_REPEATED and not is_alone:
            for number in numbers[bisect_left(numbers, top) : bisect_right(numbers, bottom)]:
                columns = range(left, min(right, last[number]) + 1)
                room -= 1 + len(columns)
                if room < 0:
                    return
                rows[number].update(dict.fromkeys(columns, text))


def _remove_hidden(rows: dict[int, Row], hidden: Collection[int], columns: Collection[int]) -> None:
    for number in hidden:
        rows.pop(number, None)
    order = sorted(columns)
    for number, row in rows.items() if order else ():
        rows[number] = {
            column - bisect_left(order, column): text for column, text in row.items() if column not in columns
        }


def _too_large(title: str) -> OctavoError:
    return OctavoError(
        f"The sheet {title} has more than {_MOST_CELLS:,} cells, with the empty ones between them: save the cells that "
        "matter in a file of their own."
    )


def _column(letters: str) -> int:
    """Return the number of a column, from 0, by its letters."""
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1
