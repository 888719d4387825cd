"""Index many documents on a Dask cluster: each document is a task."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import failure
from ...progress import DocumentProgress, ProgressOfMany
from ...runtime.store.model_library import Library
from ...system.files import disk_errors, make_private, sync_folder
from ...workers.cluster import Workers, order_for, workers_of
from ...workers.work import Message, receive
from ..catalogue import damage_of
from ..reading_job import ReadingJob
from ..source_text import SourceFile
from . import cluster_index
from .index_result import IndexResult
from .job import as_text_message
from .local_run import report

#: Beginning of the name of the file by which workers recognise a library.
_PROBE = ".probe"

#: Bytes of a file to fetch at once.
_PIECE = 32 << 20

#: Attempts at a document whose index is lost before it is fetched.
_ATTEMPTS = 3


def index_on_cluster(
    files: Sequence[SourceFile],
    job: ReadingJob,
    named: str | None,
    scheduler: str,
    progress: ProgressOfMany,
    notice: Callable[[str], None],
) -> list[IndexResult]:
    """Index documents on a Dask cluster. One that cannot be indexed does not stop the others.

    The client reads the files, so workers need not see them. Workers write into the client's library if they see it;
    else the client fetches the indexes.

    Parameters
    ----------
    job : ReadingJob
        Settings without `n_threads` share the cores of each worker's machine among its documents.
    named : str, optional
        The model as the user named it: workers may have it at another path.

    Returns
    -------
    list of IndexResult
        The result of each document.

    Raises
    ------
    OctavoError
        dask.distributed is missing, the cluster cannot be reached, has no workers, or one that lacks the model.
    """
    library = job.open_library(notice)
    plan = Path(job.attention.plan_file or library.plan_path)
    known = [path.name for path, _ in library.indexes()]
    settings = {"job": {**job.as_json(), "known": known, "extraction": {}}, "library": str(library.folder.resolve())}
    with _probe(library) as probe:
        order = order_for(
            cluster_index.ReadForClient,
            {**settings, "probe": probe},
            library,
            str(job.settings.model),
            named,
            job.settings.n_threads,
            plan,
        )
        with workers_of(scheduler, order) as workers:
            shares = workers.ask(cluster_index.sees_library).values()
            where = (
                f"Indexes are written into {library.folder}."
                if all(shares)
                else f"Workers do not see {library.folder}, so indexes are fetched from them."
            )
            notice(f"{workers.at_once('read', 'documents')} {where}")
            return _Documents(files, workers, library, progress, notice).index()


@contextmanager
def _probe(library: Library) -> Iterator[str]:
    """Create a file in a library by which workers recognise it."""
    library.make_folder()
    path = library.folder / f"{_PROBE}-{secrets.token_hex(16)}"
    with disk_errors(library.folder):
        path.touch()
    try:
        yield path.name
    finally:
        path.unlink(missing_ok=True)


class _Documents:
    """Documents on their way through a cluster."""

    def __init__(
        self,
        files: Sequence[SourceFile],
        workers: Workers,
        library: Library,
        progress: ProgressOfMany,
        notice: Callable[[str], None],
    ) -> None:
        self._files, self._workers, self._library = files, workers, library
        self._progress, self._notice = progress, notice
        self._results: list[IndexResult | None] = [None] * len(files)
        self._waiting = deque(range(len(files)))
        self._begun: Counter[int] = Counter()
        self._shown: dict[int, DocumentProgress] = {}

    def index(self) -> list[IndexResult]:
        """Index all documents."""
        self._progress.begin(len(self._files))
        for number, result in self._workers.results(self._waiting, self._message, self._receive):
            self._end(number, result)
        return [result for result in self._results if result is not None]

    def _message(self, number: int) -> Message | None:
        """Return the message from which a worker reads a document; None if it cannot be read."""
        file = self._files[number]
        try:
            message = as_text_message(file.extract())
        except Exception as problem:  # of any kind: others can be read
            self._finish(number, IndexResult(file.name, (), failure(file.name, problem)))
            return None
        self._begun[number] += 1
        return message

    def _receive(self, number: int, message: Message) -> None:
        """Pass on a message about a document."""
        if number not in self._shown:
            self._shown[number] = self._progress.document(self._files[number].name)
        if "begins" not in message:
            receive(message, self._shown[number], self._notice)

    def _end(self, number: int, outcome: Message) -> None:
        """Take the result of a document."""
        name = self._files[number].name
        if "failed" in outcome:
            self._finish(number, IndexResult(name, (), f"{name} could not be read: {outcome['failed']}"))
            return
        if "error" in outcome:
            self._finish(number, IndexResult(name, (), outcome["error"]))
            return
        result = outcome["result"]
        folders = [Path(folder) for folder in result["folders"]]
        if "files" in result:
            folders = self._brought(name, folders, result["files"], outcome["worker"])
        if folders:
            self._finish(number, report(name, folders, self._notice))
        elif self._begun[number] < _ATTEMPTS:
            self._notice(f"The index of {name} was lost with its worker: it is read again.")
            self._waiting.appendleft(number)
        else:
            problem = f"The index of {name} was lost {_ATTEMPTS} times with its worker."
            self._finish(number, IndexResult(name, (), problem))

    def _finish(self, number: int, result: IndexResult) -> None:
        self._results[number] = result
        (self._shown.pop(number, None) or self._progress.document(result.name)).end()

    def _brought(self, name: str, remote: list[Path], files: list[dict[str, int] | None], worker: str) -> list[Path]:
        """Return the local folders of a document's indexes, after fetching missing ones; none if one is lost."""
        brought = []
        for folder, sizes in zip(remote, files, strict=True):
            path: Path | None = self._library.folder / folder.name
            if sizes is None:
                self._notice(f"{name} is indexed already: {path}")
            else:
                path = self._fetched(folder, sizes, worker)
            if path is None:
                return []
            brought.append(path)
        return brought

    def _fetched(self, remote: Path, files: dict[str, int], worker: str) -> Path | None:
        """Fetch an index from the worker that made it; None if the worker is gone."""
        path = self._library.folder / remote.name
        with disk_errors(self._library.folder), _temporary(self._library.folder) as temporary:
            folder = temporary / remote.name
            make_private(folder)
            for name, size in files.items():
                with open(folder / Path(name).name, "wb") as file:
                    for offset in range(0, size, _PIECE):
                        content = self._piece(worker, remote / name, offset, min(_PIECE, size - offset))
                        if content is None:
                            return None
                        file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            if damage_of(folder):
                return None
            shutil.rmtree(path, ignore_errors=True)
            folder.rename(path)
            sync_folder(path.parent)
        self._workers.call(worker, cluster_index.remove, str(remote))
        return path

    def _piece(self, worker: str, path: Path, offset: int, size: int) -> Any:
        """Return a part of a file of a worker; None if the worker is gone."""
        return self._workers.call(worker, cluster_index.piece, str(path), offset, size)


@contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """Make a temporary folder in a folder."""
    path = Path(tempfile.mkdtemp(prefix="fetched-", dir=folder))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
