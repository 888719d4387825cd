"""What runs on the workers of a Dask cluster. Each document is read by a process of its own beside the worker."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from ... import __version__
from ...errors import OctavoError
from ...runtime.models import default_threads, find_model
from ...runtime.store.library import LIBRARY, Library
from .job import Job
from .process import Died, Ended, ReadingProcess

#: Seconds that a process waits for another document before it is ended.
_IDLE = 60.0

#: How often a document is begun whose process dies while the worker lives.
_ATTEMPTS = 2


@dataclass(frozen=True)
class Order:
    """What the workers of a cluster are to do, the same for all documents.

    Parameters
    ----------
    version : str
        Version of octavo that the client has.
    job : Job
        How documents are read. Its paths are the client's.
    named : str or None
        The model as the user named it.
    model_hash : str
        Hash of the model file.
    plan : tuple of str and bytes, optional
        Name and content of the plan's file.
    library : str
        The client's library, where workers write if they see it.
    probe : str
        A file in it, whose name tells that it is the client's.
    slots : dict of str to int
        For each machine, how many documents are read there at once.
    topic : str
        What progress is told under.
    """

    version: str
    job: Job
    named: str | None
    model_hash: str
    plan: tuple[str, bytes] | None
    library: str
    probe: str
    slots: dict[str, int]
    topic: str

    @property
    def is_shared(self) -> bool:
        """Whether this machine sees the client's library."""
        return os.path.exists(os.path.join(self.library, self.probe))


def sees_library(order: Order) -> bool:
    """Return whether this machine sees the client's library."""
    return order.is_shared


def check(order: Order) -> str:
    """Return a sentence about why this machine cannot do what is ordered; "" if it can."""
    if order.version != __version__:
        return f"it runs octavo {__version__}, and this machine {order.version}: install the same."
    try:
        _model(order)
    except OctavoError as problem:
        return str(problem)
    return ""


def _model(order: Order) -> Path:
    """Return where the model lies on this machine: at the client's path, or by its name, or where OCTAVO_MODEL says."""
    named = os.environ.get("OCTAVO_MODEL")
    others = []
    for path in (order.job.model, order.named, *([named] if named else [])):
        try:
            found = find_model(path, lambda sentence: None)
        except OctavoError:
            continue
        if found.is_file():
            if Library.of(found).model_hash == order.model_hash:
                return found
            others.append(found)
    if others:
        raise OctavoError(f"its {others[0]} is another model than this machine's: copy it there.")
    raise OctavoError(
        f"it has no model {order.job.model}: copy it there, or start the worker with OCTAVO_MODEL set to its path."
    )


def _job(order: Order, folder: Path, host: str) -> Job:
    """Return how documents are read on this machine."""
    plan = order.job.plan
    if order.plan is not None:
        name, content = order.plan
        plan = str(folder / name)
        folder.mkdir(parents=True, exist_ok=True)
        Path(plan).write_bytes(content)
    model = _model(order)
    library, known = (
        (order.library, ()) if order.is_shared else (str(folder / f"{model.stem}{LIBRARY}"), order.job.known)
    )
    n_threads = order.job.n_threads or max(1, default_threads() // order.slots.get(host, 1))
    return replace(order.job, model=str(model), library=library, known=known, plan=plan, n_threads=n_threads)


def read(order: Order, number: int, message: dict[str, Any]) -> dict[str, Any]:
    """Have a document read: a task of the cluster.

    Parameters
    ----------
    order : Order
        How.
    number : int
        The document's number, for progress.
    message : dict
        The document (`as_text_message`).

    Returns
    -------
    dict
        `error` or `fatal` with a sentence, or `folder`, the index. If the client does not see that, `worker` and
        `files` say what to fetch; `known` stands in their place if the client has the index.
    """
    from distributed import get_worker

    worker = get_worker()

    def tell(heard: dict[str, Any]) -> None:
        worker.log_event(order.topic, {"number": number, **heard})

    if problem := check(order):
        return {"fatal": f"The worker {worker.address} cannot read documents: {problem}"}
    tell({"begins": True})
    folder = Path(worker.local_directory, f"octavo-{order.topic}")
    job = _job(order, folder, urlparse(worker.address).hostname or "")
    result = _read(job, order.topic, message, tell)
    if "folder" not in result or order.is_shared:
        return result
    path = Path(result["folder"])
    if not path.exists():
        return {**result, "known": True}
    files = {file.name: file.stat().st_size for file in path.iterdir()}
    return {**result, "worker": worker.address, "files": files}


def _read(job: Job, topic: str, message: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Have a process read a document."""
    died = ""
    for _ in range(_ATTEMPTS):
        process = _processes.take(job, topic)
        try:
            result = process.read(message, tell)
        except Died as problem:
            died = str(problem)
            continue
        except Ended:
            return {"error": "It was cancelled."}
        if "fatal" not in result:
            _processes.give_back(process)
        return result
    name = message["document"]["name"]
    return {
        "error": f"{name} could not be read: the process that reads it ended {_ATTEMPTS} times, lastly with {died}."
    }


class _Processes:
    """The processes of this worker: those that read, and those that wait for the next document."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: dict[ReadingProcess, str] = {}
        self._waiting: dict[ReadingProcess, threading.Timer] = {}

    def take(self, job: Job, topic: str) -> ReadingProcess:
        """Return a process that does a client's job: one that waits, or a new one."""
        with self._lock:
            process = next((each for each in self._waiting if each.job == job), None)
            if process is None:
                process = ReadingProcess(job)
                self._topics[process] = topic
            else:
                self._waiting.pop(process).cancel()
            return process

    def give_back(self, process: ReadingProcess) -> None:
        """Have a process wait for the next document."""
        with self._lock:
            if process in self._topics:
                self._waiting[process] = timer = threading.Timer(_IDLE, self._end_idle, [process])
                timer.daemon = True
                timer.start()

    def _end_idle(self, process: ReadingProcess) -> None:
        with self._lock:
            if self._waiting.pop(process, None) is None:
                return
            del self._topics[process]
        process.end()

    def end(self, topic: str) -> None:
        """End the processes that work for a client."""
        with self._lock:
            own = [process for process, of_client in self._topics.items() if of_client == topic]
            for process in own:
                del self._topics[process]
                if process in self._waiting:
                    self._waiting.pop(process).cancel()
        for process in own:
            process.end()


_processes = _Processes()


def end(topic: str) -> None:
    """End the processes that work for a client."""
    _processes.end(topic)


def piece(path: str, offset: int, size: int) -> bytes:
    """Return a part of a file."""
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)


def remove(folder: str) -> None:
    """Remove an index that was fetched."""
    shutil.rmtree(folder, ignore_errors=True)
