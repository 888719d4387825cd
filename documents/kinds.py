"""Determine the kind of a document by its content. `documents/extract.py` calls the reader of each kind."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable
from typing import Any, Literal

from .archive import path_in_archive

#: The beginnings of pictures, PNG, JPEG and TIFF, whose text tesseract recognises.
PICTURES = b"\x89PNG", b"\xff\xd8\xff", b"II*\0", b"MM\0*"

#: The beginnings of zip archives, and of files of old Word, Excel, PowerPoint and Outlook.
ZIP, OLE = (b"PK\x03\x04", b"PK\x05\x06"), b"\xd0\xcf\x11\xe0"

ArchiveKind = Literal["docx", "epub", "pptx", "xlsx", "opendocument", "zipped book"]
OleKind = Literal["msg", "doc", "ppt", "xls"]
XMLKind = Literal["fiction book", "flat opendocument", "word xml", "sheets xml", "evernote"]
TextKind = XMLKind | Literal["rtf", "mail", "calendar", "notebook", "subtitles", "html", "plain text"]

#: Files in zip archives that identify documents. The first of them in an archive decides.
_IN_ARCHIVES: dict[str, ArchiveKind] = {
    "word/document.xml": "docx",
    "META-INF/container.xml": "epub",
    "ppt/presentation.xml": "pptx",
    "xl/workbook.xml": "xlsx",
    "content.xml": "opendocument",
    "*.fb2": "zipped book",
}

#: Newer versions of Office add a number to these names.
_NUMBERED = re.compile(r"(word/document|xl/workbook|ppt/presentation)\d+\.xml")

#: A book that is zipped alone.
_BOOK = re.compile(r"^[^/]+\.fb2$", re.IGNORECASE)

#: Endings of the names of documents that are archives, for damaged ones.
NAMES_OF_ARCHIVES = (".docx", ".epub", ".pptx", ".xlsx", ".odt", ".ods", ".odp", ".fb2.zip")

#: Names in OLE files that identify documents, in UTF-16. The first of them in a file decides.
_IN_OLE: dict[str, OleKind] = {
    "__properties_version1.0": "msg",
    "WordDocument": "doc",
    "PowerPoint Document": "ppt",
    "Workbook\0": "xls",
    "Book\0": "xls",
}

#: Beginnings of files that are not text, and advice for the user.
OTHERS = {
    b"GIF87a": "a picture: octavo reads text",
    b"GIF89a": "a picture: octavo reads text",
    b"%!PS": "PostScript: make a PDF of it, with `ps2pdf`",
    b"AT&TFORM": "DjVu: make a PDF of it",
    b"\x1f\x8b": "packed with gzip: unpack it",
    b"BZh91AY": "packed with bzip2: unpack it",
    b"\xfd7zXZ": "packed with xz: unpack it",
    b"7z\xbc\xaf": "packed with 7z: unpack it",
    b"Rar!\x1a": "packed with rar: unpack it",
    b"GGUF\x03\0": "a model: give it with `model`",
}

#: The elements that files of XML begin with, which identify documents.
_IN_XML: dict[XMLKind, re.Pattern[bytes]] = {
    "fiction book": re.compile(rb"<(?:\w+:)?FictionBook\b"),
    "flat opendocument": re.compile(rb"<office:document\b"),
    "word xml": re.compile(rb"<(?:w:wordDocument|pkg:package)\b"),
    "sheets xml": re.compile(rb"<(?:\w+:)?Workbook\b[^>]*urn:schemas-microsoft-com:office:spreadsheet"),
    "evernote": re.compile(rb"<en-export\b"),
}

#: The headers of a mail, those of which every mail has one, and the endings of its file's name.
_HEADERS = re.compile(rb"(?:[!-9;-~]+:[^\n]*\n(?:[ \t][^\n]*\n)*)+", re.ASCII)
_OF_MAIL = re.compile(
    rb"^(?:MIME-Version:[ \t]*1|Message-ID:\s*<[^>]+>|Snapshot-Content-Location:|"
    rb"Received:[ \t]*(?:from|by)\b(?:[^\n;]|\n[ \t])*;(?:[^\n;]|\n[ \t])*\d\d:\d\d)",
    re.IGNORECASE | re.MULTILINE,
)
_MAIL_NAMES = (".eml", ".emlx", ".mht", ".mhtml", ".mbox")

#: The line before each mail of a mailbox: after a blank line, or with a date. Apple's mail begins with its length.
ENVELOPE = re.compile(
    rb"(?:(?:\A|(?<=\n\n))From [^\n:]+[^\n]*|"
    rb"(?<=\n)From \S+[ \t]+(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d[^\n]*)\n(?=[!-9;-~]+:)",
    re.ASCII,
)
_LENGTH = re.compile(rb"\s*(\d+)[ \t]*\r?\n(?=[!-9;-~]+:)", re.ASCII)

#: The beginnings of calendars and of contacts.
_CALENDAR = re.compile(rb"(?:\xef\xbb\xbf)?\s*BEGIN[ \t]*:[ \t]*V(?:CALENDAR|CARD|EVENT)\b", re.IGNORECASE)

_SUBTITLES = re.compile(r"\ufeff?(?:WEBVTT(?:[ \t\n]|$)|\s*\d+[ \t]*\n\s*\d+:\d\d:\d\d[,.]\d+[ \t]*-->)")

#: The beginning of HTML, the tags that any HTML has, and the endings of names of partial pages.
_HTML = re.compile(r"<(!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_TAG, _HTML_NAMES = re.compile(r"<[a-z][a-z1-6]*(\s[^<>]*)?>", re.IGNORECASE), (".html", ".htm", ".xhtml")


def is_pdf(content: bytes) -> bool:
    """Return whether a file is a PDF, perhaps after other bytes, and not a text that mentions PDF."""
    beginning = content[:1024]
    if beginning.lstrip(b"\xef\xbb\xbf\0 \t\r\n").startswith(b"%PDF-"):
        return True
    if b"%PDF-" not in beginning:
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return True
    return False


def archive_kind(names: Iterable[str]) -> ArchiveKind | None:
    """Return the kind of the document that is a zip archive of these files; None for another archive."""
    parts = {_NUMBERED.sub(r"\1.xml", path_in_archive(name)) for name in names}
    if len(parts) == 1:
        parts = {_BOOK.sub("*.fb2", part) for part in parts}
    return next((kind for part, kind in _IN_ARCHIVES.items() if part in parts), None)


def ole_kind(content: bytes) -> OleKind | None:
    """Return the kind of an OLE file: mail of Outlook, or an old file of Office; None for another one."""
    for beginning in ("", "(?i)"):  # some programs write all letters large
        for name, kind in _IN_OLE.items():
            if re.search(beginning.encode() + re.escape(name.encode("utf-16-le")), content):
                return kind
    return None


def text_kind(content: bytes, name: str) -> TextKind:
    """Return the kind of a file that is neither a PDF nor a picture nor an archive."""
    if content.startswith(b"{\\rtf1"):
        return "rtf"
    content = content.removeprefix(codecs.BOM_UTF8)
    if content.lstrip().startswith(b"<"):
        for kind, element in _IN_XML.items():
            if element.search(content[:4096]):
                return kind
    if _is_mail(content, name):
        return "mail"
    if _CALENDAR.match(content):
        return "calendar"
    if _is_notebook(content):
        return "notebook"
    beginning = content[:4096].decode("utf-8", errors="ignore").replace("\r\n", "\n")
    if _SUBTITLES.match(beginning) and "-->" in beginning:
        return "subtitles"
    return "html" if _is_html(content, name) else "plain text"


def _is_mail(content: bytes, name: str) -> bool:
    """Return whether a file begins with the headers of a mail, after the line that mailboxes put before each."""
    beginning = of_apple_mail(content[: 1 << 16]).replace(b"\r\n", b"\n").lstrip()
    envelope = ENVELOPE.match(beginning)
    head = _HEADERS.match(beginning, envelope.end() if envelope else 0)
    if head is None or b"from:" not in head[0].lower():
        return False
    return name.lower().endswith(_MAIL_NAMES) or _OF_MAIL.search(head[0]) is not None


def of_apple_mail(content: bytes) -> bytes:
    """Return the mail in a file of Apple's mail program (EMLX), which has properties after it; else the file."""
    length = _LENGTH.match(content)
    return content[length.end() : length.end() + int(length[1])] if length and len(length[1]) < 12 else content


def _is_notebook(content: bytes) -> bool:
    if not content.lstrip().startswith(b"{") or b'"nbformat"' not in content:
        return False
    try:
        return bool(notebook_cells(json.loads(content)))
    except (ValueError, TypeError, AttributeError, KeyError, IndexError, RecursionError):
        return False


def notebook_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells; those of the third version are in sheets."""
    cells: list[dict[str, Any]] = (notebook if "cells" in notebook else notebook["worksheets"][0])["cells"]
    return cells


def _is_html(content: bytes, name: str) -> bool:
    """Return whether a file is HTML: by its beginning, or by its name if it has any tags."""
    text = content[:8192].decode(errors="ignore").lstrip()
    if name.lower().endswith(_HTML_NAMES) and _TAG.search(text):
        return True
    while text.startswith(("<!--", "<?")):
        text = text.partition("-->" if text.startswith("<!--") else ">")[2].lstrip()
    return _HTML.match(text) is not None
