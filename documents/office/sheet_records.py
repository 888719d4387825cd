"""Look at the records of an old workbook (XLS): for the text boxes of its sheets, which xlrd passes over."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import NamedTuple

from ..left_out import LeftOut

#: Kinds of records: beginning and end of a sheet or chart, a sheet, a name, an object, its text, and more of it.
_BEGIN, _END, _SHEET, _NAME, _OBJECT, _TEXT, _MORE = 0x809, 0x0A, 0x85, 0x18, 0x5D, 0x1B6, 0x3C

#: A kind of record that xlrd passes over.
_UNKNOWN = 0xFFFF

#: Kinds of sheets and objects.
_WORKSHEET, _CHART_SHEET, _CHART, _PICTURE, _REMARK = 0, 2, 5, 8, 0x19


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
    boxes = []
    for sheet in _records(stream, 0, _SHEET):
        if len(sheet.body) > 5:
            start, _, kind = struct.unpack_from("<IBB", sheet.body)
            left_out["chart"] += kind == _CHART_SHEET
            if kind == _WORKSHEET:
                boxes.append(list(_lines(stream, start, left_out)))
    return boxes


def _lines(stream: bytes, start: int, left_out: LeftOut) -> Iterator[str]:
    text, n_missing, is_remark = "", 0, False
    for record in _records(stream, start, _OBJECT, _TEXT, _MORE):
        if record.kind == _OBJECT and len(record.body) > 5:
            (kind,) = struct.unpack_from("<H", record.body, 4)
            is_remark = kind == _REMARK
            left_out["chart"] += kind == _CHART
            left_out["picture"] += kind == _PICTURE
        elif record.kind == _TEXT and len(record.body) > 11 and not is_remark:
            text, (n_missing,) = "", struct.unpack_from("<H", record.body, 10)
        elif record.kind == _MORE and n_missing > 0:
            is_wide = record.body[:1] == b"\x01"
            text += record.body[1:].decode("utf-16-le" if is_wide else "latin-1", errors="replace")[:n_missing]
            n_missing -= len(record.body[1:]) // (1 + is_wide) or n_missing
            if n_missing <= 0:
                yield from filter(None, (" ".join(line.split()) for line in text.splitlines()))


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
