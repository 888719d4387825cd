"""Keep the documents that are to be read in the background: one SQLite file for each user."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from ...system.files import make_private, state_folder
from ...system.locks import Busy, do_not_wait, locked
from ...system.sqlite_file import sqlite_errors

#: A document that is in the queue has a row, which tells of the progress while it is read. Those of the last question
#: come first.
_TABLES = """
CREATE TABLE IF NOT EXISTS documents (
    path TEXT, library TEXT, job TEXT, asked REAL, place INTEGER, task TEXT DEFAULT '', unit TEXT DEFAULT '',
    done INTEGER DEFAULT 0, total INTEGER DEFAULT 0, problem TEXT DEFAULT '', PRIMARY KEY (path, library)
);
CREATE TABLE IF NOT EXISTS process (pid INTEGER, created REAL);
"""

_COLUMNS = "path, library, job, task, unit, done, total, problem"


class QueuedDocument(NamedTuple):
    """A document in the queue.

    Parameters
    ----------
    path : str
        Its file.
    library : str
        Folder of the library that its index will stand in.
    job : str
        How it is read: the fields of a `Job` (library/batch/job.py), in JSON.
    task, unit : str
        What is done with it now, and the unit of that; "" if it waits.
    done, total : int
        Units that are done, and all.
    problem : str
        Why it could not be read; else "".
    """

    path: str
    library: str
    job: str
    task: str
    unit: str
    done: int
    total: int
    problem: str

    @property
    def name(self) -> str:
        """Return the file's name."""
        return Path(self.path).name

    @property
    def model(self) -> str:
        """Return the model's name."""
        return f"{Path(self.library).stem}.gguf"

    def is_same(self, other: QueuedDocument | None) -> bool:
        """Return whether both are the same document for the same library."""
        return other is not None and (self.path, self.library) == (other.path, other.library)


class ReadingQueue:
    """The documents that are to be read in the background, those of the last question first."""

    def __init__(self) -> None:
        self.folder = state_folder() / "reading"
        self._file = self.folder / "queue.sqlite"

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one change or question."""
        make_private(self.folder)
        with (
            sqlite_errors("The list of documents to read", self._file, "questions make it anew"),
            closing(sqlite3.connect(self._file, timeout=60)) as database,
            database,
        ):
            database.executescript(_TABLES)
            yield database

    def add(self, paths: Iterable[str | os.PathLike[str]], library: Path, job: dict[str, Any]) -> None:
        """Add documents, in the order in which they are to be read, before all others.

        Parameters
        ----------
        library : Path
            Folder of the library that the indexes will stand in.
        job : dict
            Fields of a `Job`.
        """
        asked, how = time.time(), json.dumps(job)
        rows = [
            (os.path.realpath(path), os.path.realpath(library), how, asked, place) for place, path in enumerate(paths)
        ]
        with self._open() as database:
            database.executemany(
                "INSERT INTO documents (path, library, job, asked, place) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET job = excluded.job, asked = excluded.asked, place = excluded.place, "
                "problem = ''",
                rows,
            )

    def documents(self) -> list[QueuedDocument]:
        """Return all documents, in the order in which they are read; those that could not be read come last."""
        if not self._file.exists():
            return []
        with self._open() as database:
            rows = database.execute(f"SELECT {_COLUMNS} FROM documents ORDER BY problem != '', asked DESC, place")
            return [QueuedDocument(*row) for row in rows]

    def next(self) -> QueuedDocument | None:
        """Return the document that is to be read now; None if there is none."""
        return next((document for document in self.documents() if not document.problem), None)

    def note_progress(self, document: QueuedDocument, task: str, unit: str, done: int, total: int) -> None:
        """Keep how far the reading of a document is."""
        self._set(document, "task = ?, unit = ?, done = ?, total = ?", task, unit, done, total)

    def fail(self, document: QueuedDocument, problem: str) -> None:
        """Keep why a document could not be read. It is tried again when it is added again."""
        self._set(document, "task = '', problem = ?", problem)

    def _set(self, document: QueuedDocument, fields: str, *values: Any) -> None:
        with self._open() as database:
            database.execute(
                f"UPDATE documents SET {fields} WHERE path = ? AND library = ?",
                (*values, document.path, document.library),
            )

    def remove(self, documents: Iterable[QueuedDocument]) -> None:
        """Remove documents. One that is being read is left, and nothing that was read of it is lost."""
        with self._open() as database:
            keys = [(document.path, document.library) for document in documents]
            database.executemany("DELETE FROM documents WHERE path = ? AND library = ?", keys)

    @property
    def has_reader(self) -> bool:
        """Return whether a process reads."""
        if not self.folder.is_dir():
            return False
        try:
            with locked(self.folder, waiting=do_not_wait):
                return False
        except Busy:
            return True

    def note_process(self, pid: int) -> None:
        """Keep which process reads for the one that holds the lock."""
        with suppress(psutil.NoSuchProcess), self._open() as database:
            database.execute("DELETE FROM process")
            database.execute("INSERT INTO process VALUES (?, ?)", (pid, psutil.Process(pid).create_time()))

    def end_left_over(self) -> None:
        """End the process that a killed reader left behind: if it was just being halted, it would hold its locks."""
        with self._open() as database:
            kept = database.execute("SELECT pid, created FROM process").fetchone()
            database.execute("DELETE FROM process")
        with suppress(psutil.NoSuchProcess):
            if kept is not None and (process := psutil.Process(kept[0])).create_time() == kept[1]:
                process.kill()

    def hand_over(self, path: str | None, library: Path) -> bool:
        """Have the reader leave a document that this process reads on. Return whether it was reading it."""
        if not self.folder.is_dir():
            return False
        if not self.has_reader:
            self.end_left_over()
            return False
        found = self.next() if path is not None else None
        if found is None or (found.path, found.library) != (os.path.realpath(str(path)), os.path.realpath(library)):
            return False
        self.remove([found])
        return True
