"""Index many documents on this machine: one after another, or several at once, each in a process of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ...errors import OctavoError
from ...progress import DocumentProgress, ProgressOfMany
from ...runtime.models.find_model import default_threads
from ...workers.work import CannotLoad, name_of
from ...workers.worker_process import Died, Ended, WorkProcess
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
    n_threads = job.n_threads or default_threads()
    return _Jobs(sources, replace(job, n_threads=max(1, n_threads // n_jobs)), progress, notice).run(n_jobs)


def told(name: str, folders: Sequence[Path], notice: Callable[[str], None]) -> Outcome:
    """Say where a document's index is, or those of its parts, and return that."""
    if len(folders) == 1:
        notice(f"The index of {name} is {folders[0]}")
    else:
        notice(f"The indexes of the {len(folders)} parts of {name} are in {folders[0].parent}")
    return Outcome(name, folders)


def hear(message: dict[str, Any], progress: DocumentProgress, notice: Callable[[str], None]) -> None:
    """Pass on what a process says of a document that it reads.

    Parameters
    ----------
    message : dict
        What it says.
    progress : DocumentProgress
        That of the document.
    notice : callable
        Receives sentences.
    """
    if "task" in message:
        progress.start(message["task"], message["total"], message["unit"], message["done"])
    elif "advance" in message:
        progress.advance(message["advance"])
    else:
        notice(message["notice"])


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
        outcome = told(source.name, reader.index(source, of_document), notice)
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
    """Documents that are read by several processes. A thread for each hands documents on; one thread tells."""

    def __init__(
        self, sources: Sequence[Source], job: Job, progress: ProgressOfMany, notice: Callable[[str], None]
    ) -> None:
        self._sources, self._job, self._progress, self._notice = sources, job, progress, notice
        self._outcomes: list[Outcome | None] = [None] * len(sources)
        self._waiting = iter(range(len(sources)))
        self._lock = threading.Lock()
        self._heard: SimpleQueue[tuple[int, dict[str, Any]]] = SimpleQueue()

    def run(self, n_jobs: int) -> list[Outcome]:
        """Read all documents."""
        processes = [WorkProcess(name_of(ReadDocuments), self._job.as_json()) for _ in range(n_jobs)]
        threads = [threading.Thread(target=self._hand_on, args=(each,), daemon=True) for each in processes]
        for thread in threads:
            thread.start()
        try:
            self._tell()
        finally:
            for process in processes:
                process.end()
        return [outcome for outcome in self._outcomes if outcome is not None]

    def _hand_on(self, process: WorkProcess) -> None:
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
            self._heard.put((number, message))

    def _read(self, process: WorkProcess, number: int) -> dict[str, Any]:
        """Have a process read a document; returns its last message."""
        source, died = self._sources[number], ""
        self._heard.put((number, {"begins": source.name}))
        try:
            document = as_message(source)
        except OctavoError as problem:
            return {"error": str(problem)}
        for _ in range(_ATTEMPTS):
            try:
                return process.do(document, lambda message: self._heard.put((number, message)))
            except Died as problem:
                died = str(problem)
        return {
            "error": f"{source.name} could not be read: the process that reads it ended {_ATTEMPTS} times, lastly "
            f"with {died}. If memory is short, read fewer documents at once with --jobs."
        }

    def _tell(self) -> None:
        """Tell what the processes say, until all documents are done."""
        shown: dict[int, DocumentProgress] = {}
        left = len(self._sources)
        while left:
            number, message = self._heard.get()
            if "fatal" in message:
                raise OctavoError(message["fatal"])
            if "begins" in message:
                shown[number] = self._progress.document(message["begins"])
            elif "result" in message or "error" in message:
                name = self._sources[number].name
                if "result" in message:
                    folders = [Path(folder) for folder in message["result"]["folders"]]
                    self._outcomes[number] = told(name, folders, self._notice)
                else:
                    self._outcomes[number] = Outcome(name, (), message["error"])
                shown.pop(number).end()
                left -= 1
            else:
                hear(message, shown[number], self._notice)
