"""Keep the documents that are to be read in the background, uploads included: one SQLite file for each user."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from ...errors import shown
from ...settings import state_folder
from ...system.files import make_private
from ...system.locks import is_locked
from ...system.sqlite_file import bound, sqlite_errors

#: Columns that older versions of octavo do not have.
_ADDED = {
    "began": "REAL DEFAULT 0",
    "before": "INTEGER DEFAULT 0",
    "awaited": "REAL DEFAULT 0",
    "folders": "TEXT DEFAULT ''",
    "may_succeed": "INTEGER DEFAULT 0",
    "seconds_left": "REAL",
    "waits_for": "TEXT DEFAULT ''",
}

_TABLES = """
CREATE TABLE IF NOT EXISTS documents (
    path TEXT, library TEXT, job TEXT, asked REAL, place INTEGER, task TEXT DEFAULT '', unit TEXT DEFAULT '',
    done INTEGER DEFAULT 0, total INTEGER DEFAULT 0, problem TEXT DEFAULT '', PRIMARY KEY (path, library)
);
CREATE TABLE IF NOT EXISTS process (pid INTEGER, created REAL);
"""

#: Seconds for which a document counts as awaited after `ReadingQueue.await_document`.
_AWAITED = 5.0

#: Seconds for the reader to leave a document.
_LEAVES = 15.0

#: The process that reads the queue: other processes do not import it, to stay small.
_READER = f"{__package__}.background_reader"

#: Least seconds between the starts of two processes of one number.
_SAME = 0.5

#: The problem of an upload that `octavo stop` stopped.
STOPPED = "Its reading was stopped. Upload it again to continue."


class QueuedDocument(NamedTuple):
    """A document in the queue.

    Parameters
    ----------
    path : str
        Its file.
    library : str
        Folder of the library for its index. The file of an upload is in that folder, too.
    job : str
        How the model reads it: the fields of a `ReadingJob`, in JSON.
    asked : float
        Time at which it was added, in seconds since 1970.
    place : int
        Its place among the documents that were added at that time.
    task, unit : str
        What the reader does with it now, and the unit of that; "" if it waits.
    done, total : int
        Units that are done, and all.
    began : float
        Time at which the task began.
    before : int
        Units that were done at that time.
    problem : str
        Why it could not be read; else "".
    awaited : float
        Time until which a request waits for it.
    folders : str
        The folders of an upload's indexes in JSON, from the end of the reading until a server knows them; else "".
    may_succeed : int
        1 if it could not be read for want of memory or disk: the same file may be read later.
    seconds_left : float, optional
        Seconds that the task takes yet, about; None if that is unknown.
    waits_for : str
        What the reading waits for: "the answer", or "power"; else "".
    """

    path: str
    library: str
    job: str
    asked: float
    place: int
    task: str
    unit: str
    done: int
    total: int
    began: float
    before: int
    problem: str
    awaited: float
    folders: str
    may_succeed: int = 0
    seconds_left: float | None = None
    waits_for: str = ""

    @property
    def file(self) -> Path:
        return Path(self.path)

    @property
    def name(self) -> str:
        """Return the file's name, to print and to send."""
        return shown(self.file.name)

    @property
    def model(self) -> str:
        """Return the model's name."""
        return shown(f"{Path(self.library).stem}.gguf")

    @property
    def is_upload(self) -> bool:
        """Return whether a client of a server uploaded it."""
        return self.file.is_relative_to(self.library)

    @property
    def is_pending(self) -> bool:
        """Return whether the reader will read it."""
        return not self.problem and not self.folders

    @property
    def is_awaited(self) -> bool:
        """Return whether a request waits for it."""
        return 0 < self.awaited - time.time() <= _AWAITED  # or the clock went back

    @property
    def key(self) -> tuple[str | bytes, str | bytes]:
        """Return what the queue knows it by."""
        return bound(self.path), bound(self.library)

    def is_same(self, other: QueuedDocument | None) -> bool:
        """Return whether both are the same document for the same library."""
        return other is not None and (self.path, self.library) == (other.path, other.library)


class ReadingQueue:
    """The documents that are to be read in the background.

    Documents that a request waits for come first, then those of the last question. Uploads are read in their order. An
    upload stays in the queue until a server takes its indexes.
    """

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
            if _missing(database):
                database.execute("BEGIN IMMEDIATE")  # two processes must not add the same column
                for statement in filter(str.strip, _TABLES.split(";")):
                    database.execute(statement)
                for column in _missing(database):
                    database.execute(f"ALTER TABLE documents ADD COLUMN {column} {_ADDED[column]}")
                database.commit()
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
        self._add(enumerate(paths), library, job, self._now())

    def add_upload(self, path: Path, library: Path, job: dict[str, Any]) -> None:
        """Add an upload behind those that the library waits for, or else before all others. See `add`."""
        others = [upload for upload in self.uploads(library) if upload.is_pending]
        asked = min((upload.asked for upload in others), default=self._now())
        self._add([(1 + max((upload.place for upload in others), default=0), path)], library, job, asked)

    def _now(self) -> float:
        """Return the time; later than all documents were added, even if the clock went back."""
        return max(time.time(), *(document.asked + 0.001 for document in self._rows()), 0.0)

    def _add(
        self, places: Iterable[tuple[int, str | os.PathLike[str]]], library: Path, job: dict[str, Any], asked: float
    ) -> None:
        folder, how = os.path.realpath(library), json.dumps(job)
        rows = [(bound(os.path.realpath(path)), bound(folder), how, asked, place) for place, path in places]
        with self._open() as database:
            database.executemany(
                "INSERT INTO documents (path, library, job, asked, place) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET job = excluded.job, asked = excluded.asked, place = excluded.place, "
                "problem = '', folders = '', may_succeed = 0",
                rows,
            )

    def documents(self) -> list[QueuedDocument]:
        """Return all documents, in the order in which they are read; those that could not be read come last."""
        return [row for row in self._rows() if not row.folders]

    def of_library(self, library: Path) -> list[QueuedDocument]:
        """Return the documents for a library, in the same order, with the uploads that were read."""
        folder = os.path.realpath(library)
        return [row for row in self._rows() if row.library == folder]

    def uploads(self, library: Path) -> list[QueuedDocument]:
        """Return the uploads among the documents for a library."""
        return [row for row in self.of_library(library) if row.is_upload]

    def _rows(self) -> list[QueuedDocument]:
        if not self._file.exists():
            return []
        with self._open() as database:
            found = database.execute(f"SELECT {', '.join(QueuedDocument._fields)} FROM documents").fetchall()
        rows = [QueuedDocument(os.fsdecode(path), os.fsdecode(library), *rest) for path, library, *rest in found]
        return sorted(rows, key=lambda row: (bool(row.problem), not row.is_awaited, -row.asked, row.place))

    def next(self) -> QueuedDocument | None:
        """Return the document that is to be read now; None if there is none."""
        return next((document for document in self.documents() if document.is_pending), None)

    def note_progress(
        self,
        document: QueuedDocument,
        task: str,
        unit: str,
        done: int,
        total: int,
        began: float,
        before: int,
        seconds_left: float | None = None,
    ) -> None:
        """Keep how far the reading of a document is."""
        fields = "task = ?, unit = ?, done = ?, total = ?, began = ?, before = ?, seconds_left = ?"
        self._set(document, fields, task, unit, done, total, began, before, seconds_left)

    def note_waiting(self, document: QueuedDocument, waits_for: str) -> None:
        """Keep what the reading of a document waits for."""
        self._set(document, "waits_for = ?", waits_for)

    def await_document(self, document: QueuedDocument) -> None:
        """Have a document read before others for some seconds, even while answers are computed."""
        if document.awaited < time.time() + _AWAITED / 2:
            self._set(document, "awaited = ?", time.time() + _AWAITED)

    def fail(self, document: QueuedDocument, problem: str, may_succeed: bool = False) -> None:
        """Keep why a document could not be read. It is tried again when it is added again."""
        self._set(document, "task = '', problem = ?, may_succeed = ?", problem, int(may_succeed))

    def finish(self, document: QueuedDocument, folders: Sequence[str]) -> None:
        """Take a document that was read from the queue; keep the folders of an upload's indexes for its server."""
        if document.is_upload:
            self._set(document, "folders = ?", json.dumps(folders))
        else:
            self.remove(document)

    def _set(self, document: QueuedDocument, fields: str, *values: Any) -> None:
        with self._open() as database:
            database.execute(
                f"UPDATE documents SET {fields} WHERE path = ? AND library = ?",
                (*values, *document.key),
            )

    def stop(self, documents: Iterable[QueuedDocument]) -> None:
        """Stop reading documents. What was read is kept; an upload stays, with a problem, for its server."""
        for document in documents:
            if document.is_upload and not document.problem:
                self.fail(document, STOPPED)
            else:
                self.remove(document)

    def remove(self, document: QueuedDocument) -> None:
        """Remove a document. The reader leaves it if it reads it, and nothing that was read of it is lost."""
        with self._open() as database:
            database.execute("DELETE FROM documents WHERE path = ? AND library = ?", document.key)

    def end(self, document: QueuedDocument) -> None:
        """Remove a document, and wait until no process reads it."""
        if not self.has_reader:
            self.end_left_over()
        process = self.process() if document.is_same(self.next()) else None
        self.remove(document)
        if process is not None:
            psutil.wait_procs([process], _LEAVES)

    @property
    def has_reader(self) -> bool:
        """Return whether a process reads."""
        with suppress(FileNotFoundError):
            return is_locked(self.folder)
        return False

    def note_process(self, pid: int) -> None:
        """Keep which process reads for the one that holds the lock."""
        with suppress(psutil.NoSuchProcess), self._open() as database:
            database.execute("DELETE FROM process")
            database.execute("INSERT INTO process VALUES (?, ?)", (pid, _started(psutil.Process(pid))))

    def process(self) -> psutil.Process | None:
        """Return the process that reads, or was left behind; None if it has ended."""
        with self._open() as database:
            kept = database.execute("SELECT pid, created FROM process").fetchone()
        with suppress(psutil.NoSuchProcess):
            if kept is not None and abs(_started(process := psutil.Process(kept[0])) - kept[1]) < _SAME:
                return process
        return None

    def end_left_over(self) -> None:
        """End the process that a killed reader left behind: if it was just being halted, it would hold its locks."""
        process = self.process()
        with self._open() as database:
            database.execute("DELETE FROM process")
        if process is not None:
            with suppress(psutil.NoSuchProcess):
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
        self.remove(found)
        return True


def start_reader() -> None:
    """Start the process that reads the queue, unless it runs. It outlives this process and its terminal."""
    queue = ReadingQueue()
    if queue.has_reader:
        return
    with (queue.folder / "reading.log").open("wb") as log:
        command, null = [sys.executable, "-P", "-m", _READER], subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=null, stdout=null, stderr=log, start_new_session=True)
    threading.Thread(target=process.wait, daemon=True).start()  # a server must not keep it as a zombie


def _started(process: psutil.Process) -> float:
    """Return when a process started, in seconds, independent of the clock."""
    booted: float = psutil.boot_time()  # Linux counts from there, and moves it with the clock
    started: float = process.create_time()
    return started - booted if psutil.LINUX else started


def _missing(database: sqlite3.Connection) -> list[str]:
    """Return the columns that the table of documents lacks; without a table, all that were added."""
    there = {column[1] for column in database.execute("PRAGMA table_info(documents)")}
    return [column for column in _ADDED if column not in there]
