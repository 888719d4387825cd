"""Extract the text of a document of any kind. Its content determines the kind, not its name."""

from __future__ import annotations

import codecs
import io
import os
import stat
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import BinaryIO

from ..errors import OctavoError, failure, well_formed
from ..progress import Progress
from ..settings import DEFAULT_EXTRACTION, Extraction
from ..system.files import file_mark
from .archive import Archive
from .document import STANDARD_INPUT, Document, Place, document_name
from .encodings import decode, in_utf_8, is_wide, looks_like_text
from .kinds import NAMES_OF_ARCHIVES, OLE, OTHERS, PICTURES, ZIP, archive_kind, is_pdf, ole_kind, text_kind
from .ocr.recognised_pages import file_version
from .ocr.recognition import Recognition
from .opening_problem import opening_problem

#: The module and the function that read each kind of document (kinds.py). They are imported when they are called, as
#: most need a library.
_READERS = {
    "pdf": "pdf.pdf:extract_pdf",
    "picture": "pdf.pdf:extract_picture",
    "docx": "office.docx:extract_docx",
    "pptx": "office.slides:extract_slides",
    "xlsx": "office.sheets:extract_sheets",
    "opendocument": "office.opendocument:extract_opendocument",
    "epub": "html.epub:extract_epub",
    "zipped book": "html.fiction_book:extract_zipped_book",
    "fiction book": "html.fiction_book:extract_fiction_book",
    "doc": "office.old_office:extract_old_word",
    "ppt": "office.old_office:extract_old_slides",
    "xls": "office.old_sheets:extract_old_sheets",
    "msg": "mail.msg:extract_msg",
    "mail": "mail.mail:extract_mail",
    "flat opendocument": "office.opendocument:extract_flat_opendocument",
    "word xml": "office.flat_xml:extract_word_xml",
    "sheets xml": "office.flat_xml:extract_sheets_xml",
    "evernote": "office.flat_xml:extract_evernote",
    "calendar": "text.calendars:extract_calendar",
    "rtf": "office.rtf:extract_rtf",
    "notebook": "text.notebook:extract_notebook",
    "subtitles": "text.subtitles:extract_subtitles",
    "html": "html.html:extract_html",
    "plain text": "text.plain_text:extract_text",
}

#: Most bytes of a document: more than any model reads, as pictures take space.
MOST_BYTES = 512 << 20

#: Times that a file is read again because it was saved meanwhile.
_READINGS = 5

#: Seconds to wait for the first byte of a pipe.
_WAIT_FOR_WRITER = 1.0

#: Bytes of a file that decide whether it may be a document.
_BEGINNING = 1 << 16

#: The part of a file of OpenDocument that lists the others.
_MANIFEST = "META-INF/manifest.xml"

#: The part of a workbook of Excel that is neither XLS nor XML.
_BINARY_WORKBOOK = "xl/workbook.bin"

#: A string in encrypted files of Office, in UTF-16.
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")


def extract_document(
    path: str | os.PathLike[str], extraction: Extraction = DEFAULT_EXTRACTION, progress: Progress | None = None
) -> Document:
    """Extract the text of a document of any kind (docs/documents.md).

    Parameters
    ----------
    path : path
        A file, or a pipe, which is read to its end; "-" is standard input.
    extraction : Extraction
        How to extract the text.
    progress : Progress, optional
        Receives the progress of recognising pages.

    Returns
    -------
    Document
        The document, which depends only on the file's bytes, and on what was recognised of its pages.

    Raises
    ------
    OctavoError
        The document cannot be opened or read, or has no text. The message has a remedy.
    """
    name, content, status = _content(path)
    recognition = Recognition(content, name, extraction, progress)
    document = _well_formed(_extract_whatever(content, name, recognition))
    if not document.text.strip():
        raise OctavoError(f"{name} is empty: there is nothing to read in it.")
    if status is None or not stat.S_ISREG(status.st_mode):
        return replace(document, name=name)
    source = os.path.realpath(path)
    recognition.note(source, status)
    version = file_version(source, Extraction(encoding=extraction.encoding), status)
    assert version is not None
    of_file = version._replace(content=recognition.content_hash)
    return replace(document, name=name, **of_file._asdict())


def may_be_document(path: str | os.PathLike[str]) -> bool:
    """Return whether octavo reads files of this kind, by their beginning. An unreadable file may be one."""
    try:
        with open(path, "rb") as file:
            beginning = file.read(_BEGINNING)
            if beginning.startswith(ZIP):
                return _is_zipped_document(file, os.fspath(path))
            if beginning.startswith(OLE):
                return ole_kind(beginning + file.read()) is not None
    except Exception:  # of any library: reading it reports the error
        return True
    if is_pdf(beginning):
        return True
    return bool(beginning) and not beginning.startswith(tuple(OTHERS)) and looks_like_text(beginning)


def _is_zipped_document(file: BinaryIO, name: str) -> bool:
    """Return whether a zip archive is a document. For a damaged one its name decides."""
    try:
        return archive_kind(zipfile.ZipFile(file).namelist()) is not None
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError):
        return name.lower().endswith(NAMES_OF_ARCHIVES)


def _content(path: str | os.PathLike[str]) -> tuple[str, bytes, os.stat_result | None]:
    """Return a file's name in messages, its bytes, and its status when these were read; None of standard input.

    A file that is saved meanwhile is read again. One that does not come to rest has the status before the last reading,
    so that it counts as changed.
    """
    name = document_name(path)
    if os.fspath(path) == STANDARD_INPUT:
        if sys.stdin is None:
            raise OctavoError("Standard input is closed: give a file.")
        return name, _all_of(sys.stdin.buffer, name), None
    try:
        for _ in range(_READINGS):
            status = os.stat(path)
            if stat.S_ISDIR(status.st_mode):
                raise OctavoError(f"{path} is a folder: give a file.")
            if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
                raise OctavoError(f"{path} is a device: give a file.")
            with _opened(path, status, name) as file:
                status = os.fstat(file.fileno())
                content = _all_of(file, name)
                if not stat.S_ISREG(status.st_mode) or file_mark(os.fstat(file.fileno())) == file_mark(status):
                    break
    except OSError as problem:
        raise opening_problem(path, problem) from problem
    return name, content, status


def _opened(path: str | os.PathLike[str], status: os.stat_result, name: str) -> BinaryIO:
    """Open a file, or a pipe if something writes to it."""
    if not stat.S_ISFIFO(status.st_mode):
        return open(path, "rb")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    pipe, until = io.FileIO(descriptor), time.monotonic() + _WAIT_FOR_WRITER
    beginning = pipe.read(1)
    while beginning == b"" and time.monotonic() < until:  # None means that a writer has not written yet
        time.sleep(0.05)
        beginning = pipe.read(1)
    if beginning == b"":
        pipe.close()
        raise OctavoError(f"{name} is a pipe without a writer: start the writer first.")
    os.set_blocking(descriptor, True)
    return _Rest(beginning or b"", pipe)


class _Rest(io.BufferedReader):
    """A pipe whose beginning has been read."""

    def __init__(self, beginning: bytes, pipe: io.FileIO) -> None:
        super().__init__(pipe)
        self._beginning = beginning

    def read(self, size: int | None = -1) -> bytes:
        """Read the pipe to its end, or as many bytes."""
        return self._beginning + super().read(size)


def _all_of(file: object, name: str) -> bytes:
    content: bytes = file.read(MOST_BYTES + 1)  # type: ignore[attr-defined]
    if len(content) > MOST_BYTES:
        raise OctavoError(f"{name} has more than {MOST_BYTES >> 20} MiB: no model reads so much. Split it.")
    return content


def _extract_whatever(content: bytes, name: str, recognition: Recognition) -> Document:
    """Extract the text of a file. Whatever its reader raises is an OctavoError, so that other documents can be read."""
    try:
        return _extract(content, name, recognition)
    except (OctavoError, MemoryError):
        raise
    except Exception as problem:
        raise OctavoError(failure(name, problem)) from problem


def _well_formed(document: Document) -> Document:
    """Return a document without halves of characters, which JSON, mail and others can hold, but UTF-8 cannot."""
    places = (
        Place(offset, page and well_formed(page), heading and well_formed(heading))
        for offset, page, heading in document.places
    )
    notices, left_out = tuple(map(well_formed, document.notices)), tuple(map(well_formed, document.left_out))
    text = well_formed(document.text)
    return replace(document, text=text, places=tuple(places), notices=notices, left_out=left_out)


def _extract(content: bytes, name: str, recognition: Recognition) -> Document:
    if is_pdf(content) or content.startswith(PICTURES):
        return _reader("pdf" if is_pdf(content) else "picture")(content, name, recognition)
    if content.startswith(ZIP):
        archive = Archive(content, name)
        if _MANIFEST in archive and b"encryption-data" in archive.read(_MANIFEST):
            raise OctavoError(f"{name} is encrypted: save it without a password.")
        if _BINARY_WORKBOOK in archive:
            raise OctavoError(f"{name} is a binary workbook (XLSB), which octavo does not read: save it as XLSX.")
        if (in_archive := archive_kind(archive.names)) is None:
            raise OctavoError(
                f"{archive.name} is a zip archive, but none of a document: unpack it, or save it as DOCX or PDF."
            )
        return _reader(in_archive)(archive)
    if content.startswith(OLE):
        if _ENCRYPTED in content[: 1 << 20]:
            raise OctavoError(f"{name} is encrypted: save it without a password.")
        if (in_ole := ole_kind(content)) is None:
            raise OctavoError(f"{name} is an old file of a kind that octavo does not read: save it as PDF.")
        return _reader(in_ole)(content, name)
    notices: tuple[str, ...] = ()
    encoding = recognition.extraction.encoding
    if encoding is not None:
        content, notices = in_utf_8(content, encoding, name)
    for beginning, advice in OTHERS.items():
        if content.startswith(beginning):
            raise OctavoError(f"{name} is {advice}.")
    if is_wide(content):
        content = codecs.BOM_UTF8 + decode(content, name)[0].encode(errors="replace")
    document = _reader(text_kind(content, name))(content, name)
    return replace(document, notices=(*notices, *document.notices))


def _reader(kind: str) -> Callable[..., Document]:
    """Import the reader of a kind of document, which is called with the arguments of that kind."""
    module, _, function = _READERS[kind].partition(":")
    reader: Callable[..., Document] = getattr(import_module(f".{module}", __package__), function)
    return reader
