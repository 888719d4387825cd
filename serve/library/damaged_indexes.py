"""Have the background reader make damaged indexes again. Meanwhile their documents count as being read."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ...errors import OctavoError
from ...library.background.reading_queue import QueuedDocument, ReadingQueue
from ...library.source_text import SourceText
from ...runtime.store.library_snapshot import LibrarySnapshot
from ...runtime.store.manifest import DOCUMENT, MANIFEST, read_manifest
from ...runtime.store.model_library import Library, folder_name
from ...system.files import DamagedError
from ...system.locks import is_locked
from ..request_error import RequestError
from .served_document import ServedDocument, with_id
from .upload_folder import UploadFolder

_log = logging.getLogger(__name__)


class DamagedIndexes:
    """The documents whose indexes are made again. Any thread may call it.

    Parameters
    ----------
    library : Library
        The library of the indexes.
    queue : ReadingQueue
        What the background reader reads.
    uploads : UploadFolder
        The files of the library's uploads.
    add : callable
        Adds a file to the queue.

    Attributes
    ----------
    when_queued : callable
        Called when the background reader has something to read.
    when_noted : callable
        Receives a function that says of a document whether its index is one of those that were found damaged.
    """

    def __init__(
        self, library: Library, queue: ReadingQueue, uploads: UploadFolder, add: Callable[[Path], None]
    ) -> None:
        self._library, self._queue, self._uploads, self._add = library, queue, uploads, add
        self._ids: dict[str, str] = {}  # of the documents, by path
        self._failed = set[str]()
        self._lock = threading.RLock()
        self.when_queued: Callable[[], object] = lambda: None
        self.when_noted: Callable[[Callable[[SourceText], bool]], None] = lambda is_noted: None

    def id_of(self, upload: QueuedDocument) -> str:
        """Return the id of a document of the queue: of an upload, the name of its folder."""
        return self._ids.get(upload.path, upload.file.parent.name)

    def has(self, document_id: str) -> bool:
        """Return whether the index of a document is made again."""
        return document_id in self._ids.copy().values()

    def note(self, document: ServedDocument, problem: str) -> None:
        """Have a damaged index made again. Raise RequestError if the text of its document is not at hand."""
        path = document.version.path if document.version else ""
        if not os.path.isfile(path):
            raise RequestError(
                f"The index of {document.file_name} is damaged, and its file is not there: put the file back, or "
                "remove the document.",
                404,
                "not_found",
            )
        self._read_again(os.path.realpath(path), document.id, problem)

    def _read_again(self, path: str, document_id: str, problem: str) -> None:
        with self._lock:
            if path in self._ids:
                return
            _log.warning("The index of %s is damaged, so it is made again. %s", Path(path).name, problem)
            self._add(Path(path))
            self._ids[path] = document_id
        self.when_noted(lambda text: with_id(text).id == document_id)
        with suppress(RuntimeError):  # the loop is closed: the next server has it read
            self.when_queued()

    def queued(self) -> list[QueuedDocument]:
        """Return the uploads in the queue, and the documents that are read again."""
        with self._lock:  # also while the queue is read: another thread adds to both
            of_path = {row.path: row for row in self._queue.of_library(self._library.folder)}
            for path in list(self._ids):
                row = of_path.get(path)
                if row is not None and row.problem:
                    _log.warning("The index of %s could not be made again. %s", row.name, row.problem)
                    self._queue.remove(row)
                    self._failed.add(of_path.pop(path).path)
                if row is None or not row.is_pending:
                    del self._ids[path]
            return [row for row in of_path.values() if row.is_upload or row.path in self._ids]

    def look(
        self,
        snapshot: LibrarySnapshot,
        before: Sequence[ServedDocument],
        now: Sequence[ServedDocument],
        queued: Sequence[QueuedDocument],
    ) -> bool:
        """Find indexes whose manifests are damaged or missing. Return whether some will be made again from now on.

        A manifest says which file its index is of. Without it, that is known of those that were listed before, and of
        uploads.

        Parameters
        ----------
        before, now : sequence of ServedDocument
            The documents with indexes at the last look, and at this one.
        queued : sequence of QueuedDocument
            The documents that are to be read.
        """
        n_before, waiting = len(self._ids), {row.path for row in queued}
        for folder, problem in self._unlisted(snapshot):
            known = next((document for document in before if document.folder == folder), None)
            with suppress(OctavoError):
                if known is not None:
                    self.note(known, problem)
                    continue
                whole = {each.id for each in now if len(each.parts(now)) == each.n_parts}
                for file in self._uploads.stored():
                    is_alike = folder.name.rpartition("-")[0] == folder_name(file.name)
                    if not is_alike or file.parent.name in whole or str(file) in self._failed:
                        continue
                    if str(file) not in waiting:
                        self._read_again(str(file), file.parent.name, problem)
                    elif not self._uploads.is_unread(file):  # an earlier server had it read again
                        with self._lock:
                            self._ids.setdefault(str(file), file.parent.name)
        return len(self._ids) > n_before

    def _unlisted(self, snapshot: LibrarySnapshot) -> Iterator[tuple[Path, str]]:
        """Yield indexes without a whole manifest that no process removes or makes, each with its damage."""
        for name in self._library.folder_names() - {folder.name for folder, _ in snapshot.indexes}:
            folder = self._library.folder / name
            if not any((folder / file).exists() for file in (MANIFEST, DOCUMENT)):
                continue
            try:
                read_manifest(folder)
            except DamagedError as problem:
                with suppress(OSError):  # it was removed just now
                    if not is_locked(folder) and folder.exists():
                        yield folder, str(problem)
            except OctavoError:  # of another version
                continue
