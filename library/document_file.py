"""A document's file, and the hash by which the index of its text is found."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ..documents.document import Document
from ..documents.read import document_name, read_document
from ..runtime.store.library_snapshot import LibrarySnapshot
from ..runtime.store.model_library import hash_text


@dataclass(frozen=True)
class DocumentFile:
    """A document's file.

    Parameters
    ----------
    path : path
        The file; "-" is standard input.
    password : str, optional
        Opens an encrypted PDF.
    """

    path: str | os.PathLike[str]
    password: str | None = None

    @property
    def name(self) -> str:
        """Return what messages call the document."""
        return document_name(self.path)

    @property
    def is_file(self) -> bool:
        """Whether the file can be read again: it is not a pipe."""
        return os.path.isfile(self.path)

    def read(self) -> Document:
        """Read the file.

        Raises
        ------
        OctavoError
            It cannot be read.
        """
        return read_document(self.path, self.password)


@dataclass(frozen=True, eq=False)
class HashedDocument:
    """A document and the hash of its text. The text itself is read when it is needed.

    Parameters
    ----------
    sha256 : str
        Hash of the text.
    file : DocumentFile or None
        The document's file; None for a part of a document, and for a text that another machine read.
    document : Document or None
        What was read; None if the hash was known without.
    """

    sha256: str
    file: DocumentFile | None = None
    document: Document | None = None

    @classmethod
    def of(cls, document: Document, file: DocumentFile | None = None) -> HashedDocument:
        """Return a document that was read."""
        return cls(hash_text(document.text), file, document)

    @property
    def name(self) -> str:
        """Return what messages call the document."""
        if self.document is not None:
            return self.document.name
        assert self.file is not None
        return self.file.name

    @property
    def path(self) -> Path:
        """Return the path by which users know the document: that of its file, or the name of a part."""
        return Path(self.name if self.file is None else self.file.path)

    def with_text(self) -> HashedDocument:
        """Return the document with its text, which is read if it was not.

        Raises
        ------
        OctavoError
            The file cannot be read.
        """
        if self.document is not None or self.file is None:
            return self
        return HashedDocument.of(self.file.read(), self.file)

    def without_text(self) -> HashedDocument:
        """Return the document without its text, if that can be read again."""
        return replace(self, document=None) if self.file is not None and self.file.is_file else self


def hash_document(
    file: DocumentFile | Document, snapshot: LibrarySnapshot, notice: Callable[[str], None]
) -> HashedDocument:
    """Find the hash of a document's text, and read the document unless this very file was indexed.

    Parameters
    ----------
    file : DocumentFile or Document
        The document's file, or what was read of it.
    snapshot : LibrarySnapshot
        The model's indexes.
    notice : callable
        Receives what there is to know about a document that is read.

    Raises
    ------
    OctavoError
        The document cannot be read.
    """
    if isinstance(file, DocumentFile) and file.is_file:
        status = os.stat(file.path)
        sha256 = snapshot.text_hash(os.path.realpath(file.path), status.st_mtime_ns, status.st_size)
        if sha256 is not None:
            return HashedDocument(sha256, file)
    document = file if isinstance(file, Document) else file.read()
    for sentence in document.notices:
        notice(sentence)
    return HashedDocument.of(document, file if isinstance(file, DocumentFile) else None)
