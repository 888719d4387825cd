"""Read a document's file, and find its index by the hash of its text."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from ..documents.document import Document
from ..documents.extract import document_name, extract_document
from ..documents.ocr.recognised_pages import file_version
from ..progress import Progress
from ..runtime.store.library_snapshot import LibrarySnapshot
from ..runtime.store.model_library import hash_text
from ..settings import DEFAULT_EXTRACTION, Extraction


@dataclass(frozen=True)
class DocumentFile:
    """A document's file.

    Parameters
    ----------
    path : path
        The file; "-" is standard input.
    extraction : Extraction
        How to take the text from the file.
    """

    path: str | os.PathLike[str]
    extraction: Extraction = DEFAULT_EXTRACTION

    @property
    def name(self) -> str:
        """Return the document's name for messages."""
        return document_name(self.path)

    @property
    def is_file(self) -> bool:
        """Return whether the file can be read again: it is not a pipe."""
        return os.path.isfile(self.path)

    @property
    def version(self) -> tuple[str, int, int] | None:
        """Return what tells whether the file's text is the same as before (`file_version`).

        None for a pipe, and with an encoding, as the text that is kept of the file may be of another.
        """
        if not self.is_file or self.extraction.encoding is not None:
            return None
        return file_version(self.path, self.extraction)

    def read(self, progress: Progress | None = None) -> Document:
        """Read the file. Raise OctavoError if that fails."""
        return extract_document(self.path, self.extraction, progress)


@dataclass(frozen=True, eq=False)
class HashedDocument:
    """A document with the hash of its text. The text itself is read on demand.

    Parameters
    ----------
    sha256 : str
        Hash of the text.
    file : DocumentFile or None
        None for a part of a document, and for a text that another machine read.
    document : Document or None
        None if the hash was known without reading.
    """

    sha256: str
    file: DocumentFile | None = None
    document: Document | None = None

    @classmethod
    def of(cls, document: Document, file: DocumentFile | None = None) -> HashedDocument:
        """Return a document with its hash."""
        return cls(hash_text(document.text), file, document)

    @property
    def name(self) -> str:
        """Return the document's name for messages."""
        if self.document is not None:
            return self.document.name
        assert self.file is not None
        return self.file.name

    @property
    def path(self) -> Path:
        """Return the document's path for users: its file, or the name of a part."""
        return Path(self.name if self.file is None else self.file.path)

    def with_text(self) -> HashedDocument:
        """Return the document with its text, read now if necessary. Raise OctavoError if the file cannot be read."""
        if self.document is not None or self.file is None:
            return self
        return HashedDocument.of(self.file.read(), self.file)

    def without_text(self) -> HashedDocument:
        """Return the document without its text, if the file can be read again."""
        return replace(self, document=None) if self.file is not None and self.file.is_file else self


def hash_document(file: DocumentFile | Document, snapshot: LibrarySnapshot, progress: Progress) -> HashedDocument:
    """Return a document's hash, and read the document unless this very file is indexed.

    Parameters
    ----------
    file : DocumentFile or Document
        The document, or its file.

    Raises
    ------
    OctavoError
        The document cannot be read.
    """
    if isinstance(file, DocumentFile) and (version := file.version) is not None:
        sha256 = snapshot.text_hash(*version)
        if sha256 is not None:
            return HashedDocument(sha256, file)
    document = file if isinstance(file, Document) else file.read(progress)
    for sentence in document.notices_when_kept:
        progress.notice(sentence)
    return HashedDocument.of(document, file if isinstance(file, DocumentFile) else None)
