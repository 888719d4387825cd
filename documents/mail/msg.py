"""Extract mail of Outlook (MSG): headers, the body, the names of attachments, and mail in mail."""

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
from .mail import MOST_NESTED, mail_text

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
_NAMES_OF_ATTACHMENTS = ("3707", "3704", "3001")
_SENT = 0x0039

#: The folders of an attachment, and of a message in it; and the stream of a message's properties.
_ATTACHMENT, _MESSAGE, _PROPERTIES = "__attach_version1.0_", "__substg1.0_3701000D/", "__properties_version1.0"

#: Bytes before the properties of a message, of one within another, and of each property.
_HEAD, _INNER_HEAD, _EACH = 32, 24, 16


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
            return document_of(_message(file, "", name, left_out), notices=left_out.notices(name))
    except (OSError, struct.error, ValueError, IndexError, TypeError) as problem:  # olefile's errors are OSErrors
        raise OctavoError(f"{name} is damaged: download or save it again.") from problem


def _message(file: Any, folder: str, name: str, left_out: LeftOut, depth: int = 1) -> str:
    """Return the text of the message in a folder, and of those in it."""
    body = _text(file, _BODY, folder) or _html(file, folder, name, left_out) or _rtf(file, folder, name, left_out)
    sender, address = _text(file, _SENDER, folder), _text(file, _ADDRESS, folder)
    headers = {
        "From": f"{sender} <{address}>".strip() if address else sender,
        "To": _text(file, _TO, folder),
        "Cc": _text(file, _CC, folder),
        "Date": _sent(file, folder),
    }
    names, messages = list[str](), list[str]()
    for attachment in _attachments(file, folder):
        inner = f"{attachment}{_MESSAGE}"
        if depth < MOST_NESTED and file.exists(f"{inner}{_PROPERTIES}"):
            messages.append("\n" + _message(file, inner, name, left_out, depth + 1))
        else:
            found = (_text(file, number, attachment) for number in _NAMES_OF_ATTACHMENTS)
            names.append(next(filter(None, found), "unnamed"))
    text = mail_text(_text(file, _SUBJECT, folder), headers, names, body.replace("\r\n", "\n"))
    return text + "".join(messages)


def _attachments(file: Any, folder: str) -> list[str]:
    """Return the folders of the attachments of a message, each with a slash behind it."""
    depth = folder.count("/")
    inner = {path[depth] for path in file.listdir() if "".join(f"{each}/" for each in path[:depth]) == folder}
    return [f"{folder}{each}/" for each in sorted(inner) if each.startswith(_ATTACHMENT)]


def _text(file: Any, number: str, folder: str) -> str:
    """Return a property that is text; nothing without it."""
    for kind, encoding in (("001F", "utf-16-le"), ("001E", "cp1252")):
        if file.exists(path := f"{folder}__substg1.0_{number}{kind}"):
            return str(file.openstream(path).read().decode(encoding, errors="replace")).rstrip("\0")
    return ""


def _html(file: Any, folder: str, name: str, left_out: LeftOut) -> str:
    """Return the body that is HTML; nothing without it."""
    if not file.exists(path := f"{folder}__substg1.0_{_HTML}0102"):
        text = _text(file, _HTML, folder)
        return text and markdown_of_html(text, name, left_out)
    return markdown_of_html(decode(file.openstream(path).read(), name, last="cp1252")[0], name, left_out)


def _rtf(file: Any, folder: str, name: str, left_out: LeftOut) -> str:
    """Return the body that is compressed RTF; nothing without it."""
    if not file.exists(path := f"{folder}__substg1.0_{_RTF}0102"):
        return ""
    from compressed_rtf import decompress

    try:
        written = decompress(file.openstream(path).read())
    except Exception as problem:  # all that it raises
        raise OctavoError(f"{name} is damaged: download or save it again.") from problem
    return markdown_of_html(html_of_rtf(written, left_out), name, left_out)


def _sent(file: Any, folder: str) -> str:
    """Return when a mail was sent; nothing if it does not say."""
    properties = file.openstream(f"{folder}{_PROPERTIES}").read()[_INNER_HEAD if folder else _HEAD :]
    for start in range(0, len(properties) - _EACH + 1, _EACH):
        _, number, _, ticks = struct.unpack_from("<HHIQ", properties, start)
        if number == _SENT and ticks:
            return f"{datetime(1601, 1, 1, tzinfo=UTC) + timedelta(microseconds=ticks // 10):%Y-%m-%d %H:%M} UTC"
    return ""
