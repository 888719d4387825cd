"""Index many documents on this machine: one after another, or several at once, each in a process of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

from ...errors import OctavoError
from ...progress import DocumentProgress, ProgressOfMany
from ...runtime.models.find_model import default_threads
from ...workers.work import CannotLoad, Message, name_of, receive
from ...workers.worker_process import Died, Ended, WorkerProcess
from ..open_index import Source
from .index_result import Outcome
from .job import Job, ReadDocuments, Reader, as_message

#: How often a document is begun whose process dies.
_ATTEMPTS = 2


def index_all(
    sources: Sequence[Source], job: Job, progress: ProgressOfMany, notice: Callable[[str], None], n_jobs: int = 1
) -> list[Outcome]:
    """Index documents. One that cannot be indexed does not stop the others.

    Parameters
    ----------
    sources : sequence of Source
        The documents.
    job : Job
        How they are read.
    progress : ProgressOfMany
        Is told how far the work is.
    notice : callable
        Receives sentences about what happens.
    n_jobs : int
        Documents that are read at once. They share the job's threads.

    Returns
    -------
    list of Outcome
        What became of each.

    Raises
    ------
    OctavoError
        The model cannot be used, or `n_jobs` is no number of documents.
    """
    if n_jobs < 1:
        raise OctavoError(f"One document or more is read at once: not {n_jobs}.")
    progress.begin(len(sources))
    n_jobs = min(n_jobs, len(sources))
    if n_jobs <= 1:
        return _one_after_another(sources, job, progress, notice)
    n_threads = (job.settings.n_threads or default_threads()) // n_jobs
    job = replace(job, settings=replace(job.settings, n_threads=max(1, n_threads)))
    return _Jobs(sources, job, progress, notice).run(n_jobs)


def report(name: str, folders: Sequence[Path], notice: Callable[[str], None]) -> Outcome:
    """Send a notice of where a document's index is, or those of its parts, and return the result."""
    if len(folders) == 1:
        notice(f"The index of {name} is {folders[0]}")
    else:
        notice(f"The indexes of the {len(folders)} parts of {name} are in {folders[0].parent}")
    return Outcome(name, folders)


def index_one(reader: Reader, source: Source, progress: ProgressOfMany, notice: Callable[[str], None]) -> Outcome:
    """Index a document in this process.

    Parameters
    ----------
    reader : Reader
        What reads it.
    source : Source
        The document. Its text is forgotten afterwards.
    progress : ProgressOfMany
        Is told how far the work is.
    notice : callable
        Receives sentences about what happens.

    Returns
    -------
    Outcome
        What became of it.

    Raises
    ------
    CannotLoad
        The model cannot be used.
    """
    of_document = progress.document(source.name)
    try:
        outcome = report(source.name, reader.index(source, of_document), notice)
    except CannotLoad:
        raise
    except OctavoError as problem:
        outcome = Outcome(source.name, (), str(problem))
    of_document.end()
    vars(source).pop("document", None)
    return outcome


def _one_after_another(
    sources: Sequence[Source], job: Job, progress: ProgressOfMany, notice: Callable[[str], None]
) -> list[Outcome]:
    """Index documents in this process."""
    reader, outcomes = Reader(job, notice), []
    try:
        for source in sources:
            outcomes.append(index_one(reader, source, progress, notice))
    finally:
        reader.close()
    return outcomes


class _Jobs:
    """Documents that are read by several processes. A thread for each hands documents on; one thread receives."""

    def __init__(
        self, sources: Sequence[Source], job: Job, progress: ProgressOfMany, notice: Callable[[str], None]
    ) -> None:
        self._sources, self._job, self._progress, self._notice = sources, job, progress, notice
        self._outcomes: list[Outcome | None] = [None] * len(sources)
        self._waiting = iter(range(len(sources)))
        self._lock = threading.Lock()
        self._received: SimpleQueue[tuple[int, Message]] = SimpleQueue()

    def run(self, n_jobs: int) -> list[Outcome]:
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
        return [outcome for outcome in self._outcomes if outcome is not None]

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
            except Exception as problem:  # whatever it is, the main thread must not wait for ever
                message = {"fatal": f"Reading {self._sources[number].name} failed: {problem!r}."}
            self._received.put((number, message))

    def _read(self, process: WorkerProcess, number: int) -> Message:
        """Have a process read a document, and return its last message."""
        source, died = self._sources[number], ""
        self._received.put((number, {"begins": source.name}))
        try:
            document = as_message(source)
        except OctavoError as problem:
            return {"error": str(problem)}
        for _ in range(_ATTEMPTS):
            try:
                return process.do(document, lambda message: self._received.put((number, message)))
            except Died as problem:
                died = str(problem)
        return {
            "error": f"{source.name} could not be read: the process that reads it ended {_ATTEMPTS} times, lastly "
            f"with {died}. If memory is short, read fewer documents at once with --jobs."
        }

    def _receive(self) -> None:
        """Pass on what the processes send, until all documents are done."""
        shown: dict[int, DocumentProgress] = {}
        left = len(self._sources)
        while left:
            number, message = self._received.get()
            if "fatal" in message:
                raise OctavoError(message["fatal"])
            if "begins" in message:
                shown[number] = self._progress.document(message["begins"])
            elif "result" in message or "error" in message:
                name = self._sources[number].name
                if "result" in message:
                    folders = [Path(folder) for folder in message["result"]["folders"]]
                    self._outcomes[number] = report(name, folders, self._notice)
                else:
                    self._outcomes[number] = Outcome(name, (), message["error"])
                shown.pop(number).end()
                left -= 1
            else:
                receive(message, shown[number], self._notice)
