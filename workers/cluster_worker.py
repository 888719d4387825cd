"""Run tasks on the workers of a Dask cluster, each in a process of its own beside the worker."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from ..errors import OctavoError
from ..runtime.models.find_model import find_model
from ..runtime.store.model_library import Library
from ..system.files import write_bytes
from ..system.processors import default_threads
from ..version import __version__
from .work import Message
from .worker_process import Died, Ended, WorkerProcess

#: Seconds that a process waits for another task before it ends.
_IDLE = 60.0

#: Attempts at a task whose process dies while the worker lives.
_ATTEMPTS = 2


@dataclass(frozen=True)
class Order:
    """The order for a cluster's workers, the same for all tasks.

    Parameters
    ----------
    work : str
        The kind of work (`work.name_of`).
    settings : dict
        Settings of the work, in JSON's types. A worker adds `model`, `n_threads`, and `folder`, which has the files.
    model : str
        Path of the model on the client's machine.
    named : str or None
        The model as the user named it.
    model_hash : str
        Hash of the model file.
    files : mapping of str to bytes
        Files that the work needs, by name.
    version : str
        The client's version of octavo.
    slots : mapping of str to int
        For each machine, the number of tasks that it does at once.
    topic : str
        The topic of messages about progress.
    """

    work: str
    settings: dict[str, Any]
    model: str
    named: str | None
    model_hash: str
    n_threads: int | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    version: str = __version__
    slots: Mapping[str, int] = field(default_factory=dict)
    topic: str = ""


def check(order: Order) -> str:
    """Return why this machine cannot do the order, as a sentence; "" if it can."""
    if order.version != __version__:
        return f"it runs octavo {__version__}, and this machine {order.version}: install the same."
    try:
        _model(order)
    except OctavoError as problem:
        return str(problem)
    return ""


def _model(order: Order) -> Path:
    """Return the model's path on this machine: the client's path, its name, or OCTAVO_MODEL."""
    named = os.environ.get("OCTAVO_MODEL")
    others = []
    for path in (order.model, order.named, *([named] if named else [])):
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
        f"it has no model {order.model}: copy it there, or start the worker with OCTAVO_MODEL set to its path."
    )


def threads_of(order: Order, address: str) -> int:
    """Return the threads of a task on this machine, whose worker has this address."""
    return order.n_threads or max(1, default_threads() // order.slots.get(urlparse(address).hostname or "", 1))


def _settings(order: Order, folder: Path, address: str) -> dict[str, Any]:
    """Return the settings of a process on this machine, and write the files that it needs."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in order.files.items():
        if not (folder / name).exists():
            write_bytes(folder / name, content)
    here = {"model": str(_model(order)), "n_threads": threads_of(order, address), "folder": str(folder)}
    return {**order.settings, **here}


def do(order: Order, number: int, message: Message) -> Message:
    """Have a task done: the function of a cluster's task.

    Returns
    -------
    dict
        `result`, and the address of the `worker`; or `error` or `fatal` with a sentence; or `failed` with the ends of
        the processes that tried it.
    """
    from distributed import get_worker

    worker = get_worker()

    def send(message: Message) -> None:
        worker.log_event(order.topic, {"number": number, **message})

    if problem := check(order):
        return {"fatal": f"The worker {worker.address} cannot be used: {problem}"}
    send({"begins": True})
    settings = _settings(order, _folder(worker, order.topic), worker.address)
    return {**_done(order, settings, message, send), "worker": worker.address}


def _done(order: Order, settings: dict[str, Any], message: Message, send: Callable[[Message], None]) -> Message:
    """Have a process do a task."""
    died = ""
    for _ in range(_ATTEMPTS):
        process = _processes.take(order.work, settings, order.topic)
        try:
            result = process.do(message, send)
        except Died as problem:
            died = str(problem)
            continue
        except Ended:
            return {"error": "It was cancelled."}
        if "fatal" not in result:
            _processes.give_back(process)
        return result
    return {"failed": f"its process ended {_ATTEMPTS} times, lastly with {died}."}


class _Processes:
    """The processes of this worker: those that do a task, and those that wait for the next one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: dict[WorkerProcess, str] = {}
        self._waiting: dict[WorkerProcess, threading.Timer] = {}

    def take(self, work: str, settings: dict[str, Any], topic: str) -> WorkerProcess:
        """Return a process for a client's work: a waiting one, or a new one."""
        with self._lock:
            alike = (process for process in self._waiting if (process.work, process.settings) == (work, settings))
            process = next(alike, None)
            if process is None:
                process = WorkerProcess(work, settings)
                self._topics[process] = topic
            else:
                self._waiting.pop(process).cancel()
            return process

    def give_back(self, process: WorkerProcess) -> None:
        """Have a process wait for the next task."""
        with self._lock:
            if process in self._topics:
                self._waiting[process] = timer = threading.Timer(_IDLE, self._end_idle, [process])
                timer.daemon = True
                timer.start()

    def _end_idle(self, process: WorkerProcess) -> None:
        with self._lock:
            if self._waiting.pop(process, None) is None:
                return
            del self._topics[process]
        process.end()

    def end(self, topic: str) -> None:
        """End the processes that work for a client."""
        with self._lock:
            ended = [process for process, of_client in self._topics.items() if of_client == topic]
            for process in ended:
                del self._topics[process]
                if process in self._waiting:
                    self._waiting.pop(process).cancel()
        for process in ended:
            process.end()


_processes = _Processes()


def end(topic: str, dask_worker: Any) -> None:
    """End the processes that work for a client, and remove their files."""
    _processes.end(topic)
    shutil.rmtree(_folder(dask_worker, topic), ignore_errors=True)


def _folder(worker: Any, topic: str) -> Path:
    return Path(worker.local_directory, topic)
