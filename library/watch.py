"""Keep the indexes of folders current: index documents as they appear and change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from ..documents.extract import may_be_document
from ..errors import OctavoError
from ..progress import ProgressOfMany
from ..system.files import file_mark
from .batch.index_result import IndexResult
from .batch.job import Reader
from .batch.local_run import index_all, index_one
from .expand_paths import files_in
from .reading_job import ReadingJob
from .source_text import SourceFile

#: Seconds without changes before a file is read, as it may still be written.
QUIET = 2.0

#: Seconds between scans of folders, as network folders send no events; and on systems that send none.
_SELDOM, _OFTEN = 60.0, 5.0

#: Events that do not change files.
_READINGS = {"opened", "closed_no_write"}


class Watch:
    """Folders whose documents are indexed as they appear and change.

    Parameters
    ----------
    folders : sequence of Path
        Folders, each with its subfolders.

    Raises
    ------
    OctavoError
        A path is not a folder.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        job: ReadingJob,
        progress: ProgressOfMany,
        notice: Callable[[str], None],
    ) -> None:
        for folder in folders:
            if not folder.is_dir():
                raise OctavoError(f"{folder} is not a folder: only folders can be watched.")
        self._folders, self._job, self._progress, self._notice = folders, job, progress, notice
        self._done: dict[Path, str] = {}
        self._waiting: dict[Path, tuple[str, float]] = {}
        self._changed = threading.Event()

    def run(self, n_jobs: int = 1) -> None:
        """Index the present documents, then new and changed ones, until KeyboardInterrupt.

        Parameters
        ----------
        n_jobs : int
            Number of present documents to read at once.

        Raises
        ------
        OctavoError
            The model cannot be used.
        """
        names = ", ".join(map(str, self._folders))
        reader = Reader(self._job, self._notice)
        with ExitStack() as stack:
            stack.callback(reader.close)
            period = self._listen(stack)
            self._index_all(n_jobs)
            self._notice(f"Watching {names}: Ctrl-C ends it.")
            while True:
                self._changed.wait(QUIET / 4 if self._waiting else period)
                self._changed.clear()
                for path in self._due():
                    self._index(reader, path)

    def _listen(self, stack: ExitStack) -> float:
        """Listen for the system's events; return the seconds between scans without events."""
        from watchdog.events import FileSystemEvent, FileSystemEventHandler
        from watchdog.observers import Observer

        changed = self._changed

        class Handler(FileSystemEventHandler):
            def on_any_event(self, event: FileSystemEvent) -> None:
                if event.event_type not in _READINGS:
                    changed.set()

        observer = Observer()
        try:
            for folder in self._folders:
                observer.schedule(Handler(), str(folder), recursive=True)
            observer.start()
        except OSError as problem:
            self._notice(
                f"The system tells of no changes ({problem.strerror}): folders are looked at every few seconds."
            )
            return _OFTEN
        stack.callback(observer.join)
        stack.callback(observer.stop)
        return _SELDOM

    def _index_all(self, n_jobs: int) -> None:
        """Index the present documents."""
        self._done = self._look()
        there = [path for path in sorted(self._done) if may_be_document(path)]
        for result in index_all([self._file(path) for path in there], self._job, self._progress, self._notice, n_jobs):
            self._report(result)

    def _look(self) -> dict[Path, str]:
        """Return the mark of each file, which changes with it."""
        found = {}
        for folder in self._folders:
            for path in files_in(folder, lambda sentence: None):
                try:
                    status = path.stat()
                except OSError:  # it was removed at this moment
                    continue
                found[path] = file_mark(status)
        return found

    def _due(self) -> list[Path]:
        """Return the new and changed files that have not changed for a while."""
        found, now = self._look(), time.monotonic()
        for path in self._done.keys() - found.keys():
            del self._done[path]
            self._notice(f"{path.name} is gone; its index stays until `octavo prune` removes it.")
        due = []
        before, self._waiting = self._waiting, {}
        for path, state in found.items():
            if self._done.get(path) == state:
                continue
            known, since = before.get(path, (None, now))
            if known != state:
                since = now
            if now - since < QUIET:
                self._waiting[path] = state, since
                continue
            self._done[path] = state
            if may_be_document(path):
                due.append(path)
        return sorted(due)

    def _index(self, reader: Reader, path: Path) -> None:
        """Index a new or changed document."""
        self._progress.begin(1)
        self._report(index_one(reader, self._file(path), self._progress, self._notice))

    def _report(self, result: IndexResult) -> None:
        """Send a notice of why a document has no index. It is tried again when it changes."""
        if result.problem:
            self._notice(result.problem)

    def _file(self, path: Path) -> SourceFile:
        return SourceFile(path, self._job.reading.extraction)
