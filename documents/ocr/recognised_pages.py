"""Keep the recognised text of scanned pages for a user, as recognising it takes a second a page and more."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ...settings import DEFAULT_EXTRACTION, Extraction, state_folder
from ...system.files import FileVersion, file_mark
from ...system.sqlite_file import SqliteFile, bound

_TABLES = """
CREATE TABLE IF NOT EXISTS pages (
    content TEXT, page INTEGER, languages TEXT, pdf BLOB, PRIMARY KEY (content, page)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (
    source TEXT PRIMARY KEY, mtime_ns INTEGER, n_bytes INTEGER, content TEXT, is_whole INTEGER, checksum INTEGER
) WITHOUT ROWID;
"""


class RecognisedFile(NamedTuple):
    """What was recognised of a file: the hash of its bytes, whether no page lacks text, and a checksum of the pages."""

    content: str
    is_whole: bool
    checksum: int


class RecognisedPages(SqliteFile):
    """The recognised pages of all files: each a PDF whose letters lie where those of the page do.

    Parameters
    ----------
    path : Path
        Its file, made if it is missing.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "The recognised pages", "--ocr makes it anew")
        with self._reporting():
            self._db.executescript(_TABLES)

    def of(self, content: str, languages: str | None = None) -> dict[int, bytes]:
        """Return the recognised pages of a file by number, from 0.

        Parameters
        ----------
        content : str
            Hash of the file's bytes.
        languages : str, optional
            Only pages that were recognised in these.
        """
        query = "SELECT page, pdf FROM pages WHERE content = ? AND languages = ifnull(?, languages) ORDER BY page"
        with self._reporting():
            return dict(self._db.execute(query, (content, languages)))

    def languages(self, content: str) -> set[str]:
        """Return the languages in which a file's pages were recognised."""
        with self._reporting():
            return {each for (each,) in self._db.execute("SELECT languages FROM pages WHERE content = ?", (content,))}

    def add(self, content: str, page: int, languages: str, pdf: bytes) -> None:
        """Keep a page, in place of what was recognised of it before."""
        with self._reporting():
            self._db.execute("INSERT OR REPLACE INTO pages VALUES (?, ?, ?, ?)", (content, page, languages, pdf))

    def find(self, source: str, mtime_ns: int, n_bytes: int) -> RecognisedFile | None:
        """Return what was recognised of a file, if it was read and has not changed since."""
        query = "SELECT content, is_whole, checksum FROM files WHERE (source, mtime_ns, n_bytes) = (?, ?, ?)"
        with self._reporting():
            found = self._db.execute(query, (bound(source), mtime_ns, n_bytes)).fetchone()
        return found and RecognisedFile(*found)

    def note(self, source: str, mtime_ns: int, n_bytes: int, file: RecognisedFile) -> None:
        """Note what was recognised of a file."""
        with self._reporting():
            row = bound(source), mtime_ns, n_bytes, *file
            self._db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?)", row)

    def sources(self) -> list[str]:
        """Return the paths of the files that were read."""
        with self._reporting():
            return [os.fsdecode(source) for (source,) in self._db.execute("SELECT source FROM files")]

    def forget(self, chosen: Callable[[str], bool]) -> int:
        """Forget what was recognised of the files whose paths are chosen. Return of how many."""
        sources = list(filter(chosen, self.sources()))
        with self._reporting():
            if sources:
                with self._transaction("IMMEDIATE"):
                    self._db.executemany("DELETE FROM files WHERE source = ?", [(bound(source),) for source in sources])
                    self._db.execute("DELETE FROM pages WHERE content NOT IN (SELECT content FROM files)")
                self._erase_forgotten()
        return len(sources)


def checksum_of(pages: Mapping[int, bytes]) -> int:
    """Return a checksum of recognised pages; 0 without any."""
    checksum = 0
    for number in sorted(pages):
        checksum = zlib.crc32(pages[number], zlib.crc32(str(number).encode(), checksum))
    return checksum


def recognised_pages(make: bool = False) -> RecognisedPages | None:
    """Return what this user's pages were recognised as; None if there is nothing yet, unless it is to be made."""
    path = state_folder() / "recognised.sqlite"
    return _opened(path) if make or path.exists() else None


@cache
def _opened(path: Path) -> RecognisedPages:
    return RecognisedPages(path)


def file_version(
    path: str | os.PathLike[str], extraction: Extraction = DEFAULT_EXTRACTION, status: os.stat_result | None = None
) -> FileVersion | None:
    """Return the version of a file and its text, by its status now or then.

    None if pages are still to be recognised, or may be.
    """
    source, status, store = os.path.realpath(path), status or os.stat(path), recognised_pages()
    found = None if store is None else store.find(source, status.st_mtime_ns, status.st_size)
    if extraction.ocr:
        if store is None or found is None or not found.is_whole:
            return None
        if extraction.ocr_languages is not None and store.languages(found.content) - {extraction.ocr_languages}:
            return None
    n_bytes = status.st_size + (found.checksum if found else 0)
    mark = " ".join(filter(None, (file_mark(status), extraction.encoding)))
    return FileVersion(source, status.st_mtime_ns, n_bytes, mark)
