"""A document as a file, and as a text that its hash identifies: indexes are found by it. What became of the file.

A file that was only touched or copied back has another time, and the same bytes. One with other bytes may have the same
text nevertheless, or a part of it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..documents.document import Document, document_name, hash_text
from ..documents.extract import extract_document
from ..documents.ocr.recognised_pages import file_version
from ..errors import OctavoError
from ..progress import LeftOut, Progress
from ..runtime.store.manifest import file_version_of, file_versions_of
from ..settings import DEFAULT_EXTRACTION, Extraction
from ..system.files import FileVersion, sha256_of
from .document_parts import without_part

if TYPE_CHECKING:  # it imports Numba, which a process that only extracts texts does without
    from ..runtime.store.library_snapshot import LibrarySnapshot

#: States of a file: as it was, or with an equal text; with another one; or removed.
SAME, CHANGED, GONE = "", "changed", "gone"


@dataclass(frozen=True)
class SourceFile:
    """A document's file.

    Parameters
    ----------
    path : path
        The file; "-" is standard input.
    extraction : Extraction
        How to take the text from the file.
    label : str
        Its name among several documents (`distinct_names`); "" for the name of the file.
    """

    path: str | os.PathLike[str]
    extraction: Extraction = DEFAULT_EXTRACTION
    label: str = ""

    @property
    def name(self) -> str:
        """Return the document's name for messages."""
        return self.label or document_name(self.path)

    @property
    def is_file(self) -> bool:
        """Return whether the text can be extracted again: the file is not a pipe."""
        return os.path.isfile(self.path)

    @property
    def version(self) -> FileVersion | None:
        """Return the version of the file as it is now, which changes with its text. None for a pipe."""
        if not self.is_file:
            return None
        try:
            return file_version(self.path, self.extraction)
        except OSError:  # it was removed just now
            return None

    def extract(self, progress: Progress | None = None) -> Document:
        """Extract the text. Raise OctavoError if that fails."""
        return extract_document(self.path, self.extraction, progress)


@dataclass(frozen=True, eq=False)
class SourceText:
    """The text of a document, or of a part of one. The text itself is extracted, or loaded from a store, on demand.

    Parameters
    ----------
    sha256 : str
        Hash of the text.
    name : str
        Name for messages.
    path : Path
        Path for users: the file, or the name of a part.
    file : SourceFile or None
        None for a part of a document, and for a text that another machine extracted.
    document : Document or None
        The text; None if it is still to be extracted.
    version : FileVersion or None
        Version of the file that the text was taken from. None without a file.
    number : int
        Its number in the library's `TextStore`; 0 if it is not there.
    length : int
        Its characters; 0 if unknown.
    notices : tuple of str
        Sentences for the reader, as of its `Document`.
    """

    sha256: str
    name: str
    path: Path
    file: SourceFile | None = None
    document: Document | None = None
    version: FileVersion | None = None
    number: int = 0
    length: int = 0
    notices: tuple[str, ...] = ()

    @property
    def of_file(self) -> str:
        """Return the path of its file, which distinguishes documents of one name, and which parts share."""
        if self.version is not None:
            return self.version.path
        return without_part(str(self.path)) if self.file is None else os.fspath(self.file.path)

    @classmethod
    def of(cls, document: Document, file: SourceFile | None = None) -> SourceText:
        """Return the text of a document."""
        path = Path(document.name if file is None else file.path)
        name = file.name if file is not None and file.label else document.name
        known = name, path, file, document, document.version
        return cls(hash_text(document.text), *known, 0, len(document.text), document.notices)

    def extracted(self) -> tuple[SourceText, Document]:
        """Return the text as it is now, and its document, which is extracted if necessary. Raise OctavoError if not."""
        if self.document is not None:
            return self, self.document
        if self.file is None:
            raise ValueError(f"{self.name} has neither a document nor a file.")
        document = self.file.extract()
        return SourceText.of(document, self.file), document

    def without_document(self) -> SourceText:
        """Return the text without its document, if that can be extracted again."""
        return replace(self, document=None) if self.file is not None and self.file.is_file else self


def identify(source: SourceFile | Document, snapshot: LibrarySnapshot, progress: Progress) -> SourceText:
    """Return a document's text by its hash. It is extracted unless this very file is indexed.

    Raises
    ------
    OctavoError
        The text cannot be extracted.
    """
    file = source if isinstance(source, SourceFile) else None
    if file is not None and (version := file.version) is not None and (text := snapshot.text_of(version)) is not None:
        notices = tuple(text.get("notices", ()))
        report_notices(notices, progress)
        version = file_version_of(text)
        return SourceText(text["sha256"], file.name, Path(file.path), file, version=version, notices=notices)
    document = source if isinstance(source, Document) else source.extract(progress)
    report_notices(document.notices_when_kept, progress)
    return SourceText.of(document, file)


def report_notices(notices: Iterable[str], progress: Progress) -> None:
    """Report what a text lacks, whether it was extracted just now or is kept."""
    for sentence in notices:
        progress.notice(LeftOut(sentence))


def state_of_file(described: dict[str, Any]) -> str:
    """Return the state of the file of a text that a manifest describes.

    SAME if there is none, or if it has an equal text, or another file has it.
    """
    states = [_state_of_text(version, described) for version in file_versions_of(described)]
    return SAME if not states or SAME in states else states[0]


def _state_of_text(version: FileVersion, described: dict[str, Any]) -> str:
    """Return whether a file still has the text that a manifest describes: SAME, CHANGED or GONE."""
    state = state_of_version(version)
    if state != CHANGED:
        return state
    try:
        text = _text(file_version(version.path, _extraction_of(version)))
    except (OctavoError, OSError):
        return CHANGED
    start, stop = described.get("part", (0, len(text)))
    return SAME if hash_text(text[start:stop]) == described["sha256"] else CHANGED


def state_of_version(version: FileVersion) -> str:
    """Return whether a file still has a version: SAME, CHANGED or GONE."""
    try:
        now = file_version(version.path, _extraction_of(version))
        assert now is not None
        if version.is_kept(now):
            return SAME
        if not stat.S_ISREG(Path(version.path).stat().st_mode):
            return GONE
        same = version.content and now.n_bytes == version.n_bytes and _content(now) == version.content
    except (FileNotFoundError, NotADirectoryError):
        return GONE
    except (OctavoError, OSError):  # nothing says that it is the same
        return CHANGED
    return SAME if same else CHANGED


@lru_cache(maxsize=4096)
def _content(now: FileVersion) -> str:
    """Return the hash of a file's bytes, which are read once for each version."""
    return sha256_of(Path(now.path))


@lru_cache(maxsize=4)
def _text(now: FileVersion) -> str:
    """Return the text of a file, which is read once for all its parts."""
    return extract_document(now.path, _extraction_of(now)).text


def _extraction_of(version: FileVersion) -> Extraction:
    """Return how the text of a version of a file was taken from it."""
    return Extraction(encoding=version.encoding)
