"""Look at the records of an old workbook (XLS): for text boxes and formulas of its sheets, which xlrd passes over."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import NamedTuple

from ..left_out import LeftOut

#: Kinds of records: beginning and end of a sheet or chart, a sheet, a name, an object, its text, and more of it.
_BEGIN, _END, _SHEET, _NAME, _OBJECT, _TEXT, _MORE = 0x809, 0x0A, 0x85, 0x18, 0x5D, 0x1B6, 0x3C

#: The kind of a formula's record, its flag for a value that is calculated when the file is opened, and values that
#: programs write that do not calculate: an empty text, and 0.
_FORMULA, _ON_LOAD, _EMPTY, _ZERO = 0x06, 2, b"\3\0\0\0\0\0\xff\xff", bytes(8)

#: The record of a drawing before its object; kinds of records in it: a shape, all that hold others, and properties of a
#: shape; and the property that says whether it is hidden, with the bits that it has then.
_DRAWING, _SHAPE, _HOLDERS, _PROPERTIES = 0xEC, 0xF004, range(0xF002, 0xF005), 0xF00B
_VISIBILITY, _HIDDEN = 0x3BF, 0x20002

#: A kind of record that xlrd passes over.
_UNKNOWN = 0xFFFF

#: Kinds of sheets and objects.
_WORKSHEET, _CHART_SHEET, _CHART, _PICTURE, _REMARK = 0, 2, 5, 8, 0x19


class Formula(NamedTuple):
    """A formula of a cell, in the code of Excel."""

    row: int
    column: int
    code: bytes


class _Record(NamedTuple):
    """A record: its kind, its bytes, and where it begins."""

    kind: int
    body: bytes
    start: int


def workbook_stream(content: bytes) -> bytes:
    """Return the workbook in a file, without the names in it, whose formulas can be wrong without harm.

    Raises
    ------
    OSError
        The file is damaged.
    """
    import olefile

    with olefile.OleFileIO(io.BytesIO(content)) as file:
        stream = bytearray(file.openstream("Workbook" if file.exists("Workbook") else "Book").read())
    for name in _records(bytes(stream), 0, _NAME):
        struct.pack_into("<H", stream, name.start, _UNKNOWN)
    return bytes(stream)


def text_boxes(stream: bytes, left_out: LeftOut) -> list[list[str]]:
    """Return the lines of the text boxes of each sheet, in the order of the sheets, and count pictures and charts."""
    left_out["chart"] += sum(kind == _CHART_SHEET for _, kind in _sheets(stream))
    return [list(_lines(stream, start, left_out)) for start, kind in _sheets(stream) if kind == _WORKSHEET]


def formulas_without_value(stream: bytes) -> list[list[Formula]]:
    """Return the formulas of each sheet that no program has calculated, in the order of the sheets.

    An empty text is a value, unless the formula awaits its calculation, or no formula of the workbook has another.
    """
    starts = [start for start, kind in _sheets(stream) if kind == _WORKSHEET]
    records = [[each for each in _records(stream, start, _FORMULA) if len(each.body) > 21] for start in starts]
    is_calculated = any(each.body[6:14] != _EMPTY for own in records for each in own)
    return [[_formula(each) for each in own if _lacks_value(each, is_calculated)] for own in records]


def _lacks_value(record: _Record, is_calculated: bool) -> bool:
    value, awaits_calculation = record.body[6:14], record.body[14] & _ON_LOAD
    return value in (_EMPTY, _ZERO) if awaits_calculation else value == _EMPTY and not is_calculated


def _formula(record: _Record) -> Formula:
    row, column, length = (struct.unpack_from("<H", record.body, at)[0] for at in (0, 2, 20))
    return Formula(row, column, record.body[22 : 22 + length])


def _sheets(stream: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each sheet begins, and its kind."""
    for sheet in _records(stream, 0, _SHEET):
        if len(sheet.body) > 5:
            start, _, kind = struct.unpack_from("<IBB", sheet.body)
            yield start, kind


def _lines(stream: bytes, start: int, left_out: LeftOut) -> Iterator[str]:
    text, n_missing, is_remark, is_hidden = "", 0, False, False
    for record in _records(stream, start, _OBJECT, _TEXT, _MORE, _DRAWING):
        if record.kind == _DRAWING:
            is_hidden = _is_hidden(record.body, is_hidden)
        elif record.kind == _OBJECT and len(record.body) > 5:
            (kind,) = struct.unpack_from("<H", record.body, 4)
            is_remark = kind == _REMARK
            left_out["chart"] += kind == _CHART
            left_out["picture"] += kind == _PICTURE
        elif record.kind == _TEXT and len(record.body) > 11 and not is_remark:
            text, (n_missing,) = "", struct.unpack_from("<H", record.body, 10)
            left_out["hidden shape"] += is_hidden and n_missing > 0
            n_missing = 0 if is_hidden else n_missing
        elif record.kind == _MORE and n_missing > 0:
            is_wide = record.body[:1] == b"\x01"
            text += record.body[1:].decode("utf-16-le" if is_wide else "latin-1", errors="replace")[:n_missing]
            n_missing -= len(record.body[1:]) // (1 + is_wide) or n_missing
            if n_missing <= 0:
                yield from filter(None, (" ".join(line.split()) for line in text.splitlines()))


def _is_hidden(drawing: bytes, before: bool) -> bool:
    """Return whether the last shape of a drawing is hidden; as before if it has none, but the place of a text."""
    position, is_hidden = 0, before
    while position <= len(drawing) - 8:
        version, kind, length = struct.unpack_from("<HHI", drawing, position)
        position += 8
        if kind == _PROPERTIES:
            n_known = min(version >> 4, (len(drawing) - position) // 6)
            found = struct.iter_unpack("<HI", drawing[position : position + 6 * n_known])
            is_hidden = any(name == _VISIBILITY and value & _HIDDEN == _HIDDEN for name, value in found)
        is_hidden &= kind != _SHAPE
        position += 0 if kind in _HOLDERS else length
    return is_hidden


def _records(stream: bytes, position: int, *kinds: int) -> Iterator[_Record]:
    """Yield the records of some kinds within a sheet and the charts in it, from its beginning to its end."""
    depth, unpack, last = 0, struct.Struct("<HH").unpack_from, len(stream) - 4
    while position <= last:
        kind, length = unpack(stream, position)
        if kind == _BEGIN:
            depth += 1
        elif kind == _END:
            depth -= 1
            if depth <= 0:
                return
        elif kind in kinds:
            yield _Record(kind, stream[position + 4 : position + 4 + length], position)
        position += 4 + length
