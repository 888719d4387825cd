"""Tell the kind of a document by its content, and call the reader of that kind: a line for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from ..errors import OctavoError
from .archive import Archive
from .document import Document

#: The beginnings of pictures, PNG, JPEG and TIFF, whose text tesseract recognises.
PICTURES = b"\x89PNG", b"\xff\xd8\xff", b"II*\0", b"MM\0*"

#: The beginnings of zip archives, and of files of old Word, Excel, PowerPoint and Outlook.
ZIP, OLE = (b"PK\x03\x04", b"PK\x05\x06"), b"\xd0\xcf\x11\xe0"

#: Files in zip archives that identify documents, with the module and the function that read them from an `Archive`.
OF_ARCHIVES = {
    "word/document.xml": ("office.docx", "read_docx"),
    "META-INF/container.xml": ("html.epub", "read_epub"),
    "ppt/presentation.xml": ("office.slides", "read_slides"),
    "xl/workbook.xml": ("office.sheets", "read_sheets"),
    "content.xml": ("office.opendocument", "read_opendocument"),
    "*.fb2": ("html.fiction_book", "read_zipped_book"),
}

#: What newer versions of Office add to their names.
_NUMBERED = re.compile(r"(word/document|xl/workbook|ppt/presentation)\d+\.xml")

#: A book that is zipped alone.
_BOOK = re.compile(r"^[^/]+\.fb2$", re.IGNORECASE)

#: The names of such files, for damaged ones.
NAMES_OF_ARCHIVES = (".docx", ".epub", ".pptx", ".xlsx", ".odt", ".ods", ".odp", ".fb2.zip")

#: Modules of kinds in OLE files, with the functions that recognise them and that read them.
_OF_OLE = [
    ("mail.msg", "is_msg", "read_msg"),
    ("office.old_office", "is_old_word", "read_old_word"),
    ("office.old_office", "is_old_slides", "read_old_slides"),
    ("office.old_sheets", "is_old_sheets", "read_old_sheets"),
]

#: Modules of kinds of text, likewise; the last one reads any text.
_OF_TEXT = [
    ("html.fiction_book", "is_fiction_book", "read_fiction_book"),
    ("mail.mail", "is_mail", "read_mail"),
    ("text.notebook", "is_notebook", "read_notebook"),
    ("text.subtitles", "is_subtitles", "read_subtitles"),
    ("html.html", "is_html", "read_html"),
]

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

#: A string in encrypted files of Office, in UTF-16.
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")


def read_archive(content: bytes, name: str) -> Document:
    """Read a document that is a zip archive."""
    archive = Archive(content, name)
    if (part := main_part(archive.names)) is not None:
        document: Document = _in(*OF_ARCHIVES[part])(archive)
        return document
    raise OctavoError(f"{name} is a zip archive, but none of a document: unpack it, or save it as DOCX or PDF.")


def main_part(names: Iterable[str]) -> str | None:
    """Return the file that identifies the document in a zip archive, by its usual name; None for another archive."""
    parts = {_NUMBERED.sub(r"\1.xml", name) for name in names}
    if len(parts) == 1:
        parts = {_BOOK.sub("*.fb2", part) for part in parts}
    return next((part for part in OF_ARCHIVES if part in parts), None)


def read_ole(content: bytes, name: str) -> Document:
    """Read an OLE file: mail of Outlook, or an old file of Word, PowerPoint or Excel."""
    if _ENCRYPTED in content[: 1 << 20]:
        raise OctavoError(f"{name} is encrypted: save it without a password.")
    if (reader := _recognised(_OF_OLE, content)) is None:
        raise OctavoError(f"{name} is an old file of a kind that octavo does not read: save it as PDF.")
    return reader(content, name)


def read_any_text(content: bytes, name: str) -> Document:
    """Read a file that is neither a PDF nor an archive."""
    for beginning, what in OTHERS.items():
        if content.startswith(beginning):
            raise OctavoError(f"{name} is {what}.")
    if content.startswith(b"{\\rtf1"):
        return _in("office.rtf", "read_rtf")(content, name)  # type: ignore[no-any-return]
    return (_recognised(_OF_TEXT, content, name) or _in("text.text", "read_text"))(content, name)


def is_readable_ole(content: bytes) -> bool:
    """Return whether an OLE file is of a kind that octavo reads."""
    return _recognised(_OF_OLE, content) is not None


def _recognised(kinds: list[tuple[str, str, str]], content: bytes, *name: str) -> Callable[..., Document] | None:
    """Return the function that reads a file, of the first kind that recognises it."""
    return next((_in(module, read) for module, is_kind, read in kinds if _in(module, is_kind)(content, *name)), None)


def _in(module: str, function: str) -> Any:
    """Return a function of a module, which is imported now."""
    return getattr(import_module(f".{module}", __package__), function)
