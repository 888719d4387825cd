"""Extract mail of Outlook (MSG): headers, the body, and the names of attachments."""

from __future__ import annotations

import io
import struct
from datetime import UTC, datetime, timedelta
from typing import Any

from ...errors import OctavoError
from ..document import Document
from ..encodings import decode
from ..html.html import markdown_of_html
from ..left_out import LeftOut
from ..markdown import document_of
from ..office.rtf import html_of_rtf
from .mail import mail_text

#: Properties of a message, by their numbers in MS-OXPROPS.
_SUBJECT, _SENDER, _ADDRESS, _TO, _CC, _BODY, _HTML, _RTF = (
    "0037",
    "0C1A",
    "5D01",
    "0E04",
    "0E03",
    "1000",
    "1013",
    "1009",
)
_NAMES_OF_ATTACHMENTS = ("3707", "3704")
_SENT = 0x0039

#: Bytes before the properties of a message, and of each.
_HEAD, _EACH = 32, 16


def extract_msg(content: bytes, name: str) -> Document:
    """Extract a mail of Outlook.

    Raises
    ------
    OctavoError
        The file is damaged.
    """
    import olefile

    try:
        with olefile.OleFileIO(io.BytesIO(content)) as file:
            left_out = LeftOut()
            body = _text(file, _BODY) or _html(file, name, left_out) or _rtf(file, name, left_out)
            address = _text(file, _ADDRESS)
            sender = f"{_text(file, _SENDER)} <{address}>".strip() if address else _text(file, _SENDER)
            headers = {"From": sender, "To": _text(file, _TO), "Cc": _text(file, _CC), "Date": _sent(file)}
            folders = sorted({path[0] for path in file.listdir() if path[0].startswith("__attach_version1.0_")})
            names = [
                next(filter(None, (_text(file, number, f"{folder}/") for number in _NAMES_OF_ATTACHMENTS)), "unnamed")
                for folder in folders
            ]
            text = mail_text(_text(file, _SUBJECT), headers, names, body.replace("\r\n", "\n"))
            return document_of(text, notices=left_out.notices(name))
    except (OSError, struct.error, ValueError, IndexError, TypeError) as problem:  # olefile's errors are OSErrors
        raise OctavoError(f"{name} is damaged: download or save it again.") from problem


def _text(file: Any, number: str, folder: str = "") -> str:
    """Return a property that is text; nothing without it."""
    for kind, encoding in (("001F", "utf-16-le"), ("001E", "cp1252")):
        if file.exists(path := f"{folder}__substg1.0_{number}{kind}"):
            return str(file.openstream(path).read().decode(encoding, errors="replace")).rstrip("\0")
    return ""


def _html(file: Any, name: str, left_out: LeftOut) -> str:
    """Return the body that is HTML; nothing without it."""
    if not file.exists(path := f"__substg1.0_{_HTML}0102"):
        return _text(file, _HTML) and markdown_of_html(_text(file, _HTML), name, left_out)
    return markdown_of_html(decode(file.openstream(path).read(), name, last="cp1252")[0], name, left_out)


def _rtf(file: Any, name: str, left_out: LeftOut) -> str:
    """Return the body that is compressed RTF; nothing without it."""
    if not file.exists(path := f"__substg1.0_{_RTF}0102"):
        return ""
    from compressed_rtf import decompress

    try:
        written = decompress(file.openstream(path).read())
    except Exception as problem:  # all that it raises
        raise OctavoError(f"{name} is damaged: download or save it again.") from problem
    return markdown_of_html(html_of_rtf(written, left_out), name, left_out)


def _sent(file: Any) -> str:
    """Return when a mail was sent; nothing if it does not say."""
    properties = file.openstream("__properties_version1.0").read()[_HEAD:]
    for start in range(0, len(properties) - _EACH + 1, _EACH):
        _, number, _, ticks = struct.unpack_from("<HHIQ", properties, start)
        if number == _SENT and ticks:
            return f"{datetime(1601, 1, 1, tzinfo=UTC) + timedelta(microseconds=ticks // 10):%Y-%m-%d %H:%M} UTC"
    return ""
