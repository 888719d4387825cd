"""Index many documents on this machine: one after another, or several at once, each in a process of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

from ...errors import OctavoError, failure
from ...progress import DocumentProgress, ProgressOfMany
from ...system.processors import default_threads
from ...workers.work import CannotLoad, Message, name_of, receive
from ...workers.worker_process import Died, Ended, WorkerProcess
from ..background.computing import computing
from ..reading_job import ReadingJob
from ..source_text import SourceFile
from .index_result import IndexResult
from .job import ReadDocuments, Reader, as_message

#: Attempts at a document whose process dies.
_ATTEMPTS = 2


@computing()
def index_all(
    files: Sequence[SourceFile],
    job: ReadingJob,
    progress: ProgressOfMany,
    notice: Callable[[str], None],
    n_jobs: int = 1,
) -> list[IndexResult]:
    """Index documents. One that cannot be indexed does not stop the others.

    Parameters
    ----------
    n_jobs : int
        Documents to read at once. They share the job's threads.

    Raises
    ------
    OctavoError
        The model cannot be used, or `n_jobs` is not a number of documents.
    """
    if n_jobs < 1:
        raise OctavoError(f"One document or more is read at once: not {n_jobs}.")
    progress.begin(len(files))
    n_jobs = min(n_jobs, len(files))
    if n_jobs <= 1:
        return _one_after_another(files, job, progress, notice)
    n_threads = (job.settings.n_threads or default_threads()) // n_jobs
    job = replace(job, settings=replace(job.settings, n_threads=max(1, n_threads)))
    return _Jobs(files, job, progress, notice).run(n_jobs)


def report(name: str, folders: Sequence[Path], notice: Callable[[str], None]) -> IndexResult:
    """Send a notice of the folders of a document's index, and return the result."""
    if len(folders) == 1:
        notice(f"The index of {name} is {folders[0]}")
    else:
        notice(f"The indexes of the {len(folders)} parts of {name} are in {folders[0].parent}")
    return IndexResult(name, folders)


@computing()
def index_one(reader: Reader, file: SourceFile, progress: ProgressOfMany, notice: Callable[[str], None]) -> IndexResult:
    """Index a document in this process. Raise CannotLoad if the model cannot be used."""
    of_document = progress.document(file.name)
    try:
        result = report(file.name, reader.index(file, of_document), notice)
    except CannotLoad:
        raise
    except Exception as problem:  # of any kind: others can be read
        result = IndexResult(file.name, (), failure(file.name, problem))
    of_document.end()
    return result


def _one_after_another(
    files: Sequence[SourceFile], job: ReadingJob, progress: ProgressOfMany, notice: Callable[[str], None]
) -> list[IndexResult]:
    """Index documents in this process."""
    reader = Reader(job, notice)
    try:
        return [index_one(reader, file, progress, notice) for file in files]
    finally:
        reader.close()


class _Jobs:
    """Documents that several processes read. A thread for each hands documents on; one thread receives."""

    def __init__(
        self, files: Sequence[SourceFile], job: ReadingJob, progress: ProgressOfMany, notice: Callable[[str], None]
    ) -> None:
        self._files, self._job, self._progress, self._notice = files, job, progress, notice
        self._results: list[IndexResult | None] = [None] * len(files)
        self._waiting = iter(range(len(files)))
        self._lock = threading.Lock()
        self._received: SimpleQueue[tuple[int, Message]] = SimpleQueue()

    def run(self, n_jobs: int) -> list[IndexResult]:
        """Read all documents."""
        processes = [WorkerProcess(name_of(ReadDocuments), self._job.as_json()) for _ in range(n_jobs)]
        threads = [threading.Thread(target=self._hand_on, args=(process,), daemon=True) for process in processes]
        for thread in threads:
            thread.start()
        try:
            self._receive()
        finally:
            for process in processes:
                process.end()
        return [result for result in self._results if result is not None]

    def _hand_on(self, process: WorkerProcess) -> None:
        """Give a process one document after another."""
        while True:
            with self._lock:
                number = next(self._waiting, None)
            if number is None:
                return
            try:
                message = self._read(process, number)
            except Ended:
                return
            except Exception as problem:  # of any kind: the main thread must not wait for ever
                message = {"error": failure(self._files[number].name, problem)}
            self._received.put((number, message))

    def _read(self, process: WorkerProcess, number: int) -> Message:
        """Have a process read a document, and return its last message."""
        file, died = self._files[number], ""
        self._received.put((number, {"begins": file.name}))
        document = as_message(file)
        for _ in range(_ATTEMPTS):
            try:
                return process.do(document, lambda message: self._received.put((number, message)))
            except Died as problem:
                died = str(problem)
        return {
            "error": f"{file.name} could not be read: the process that reads it ended {_ATTEMPTS} times, lastly "
            f"with {died}. If memory is short, read fewer documents at once with `n_jobs`."
        }

    def _receive(self) -> None:
        """Pass on the processes' messages, until all documents are done."""
        shown: dict[int, DocumentProgress] = {}
        left = len(self._files)
        while left:
            number, message = self._received.get()
            if "fatal" in message:
                raise OctavoError(message["fatal"])
            if "begins" in message:
                shown[number] = self._progress.document(message["begins"])
            elif "result" in message or "error" in message:
                name = self._files[number].name
                if "result" in message:
                    folders = [Path(folder) for folder in message["result"]["folders"]]
                    self._results[number] = report(name, folders, self._notice)
                else:
                    self._results[number] = IndexResult(name, (), message["error"])
                shown.pop(number).end()
                left -= 1
            else:
                receive(message, shown[number], self._notice)
