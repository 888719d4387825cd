"""Index many documents on a Dask cluster: each document is a task."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

from ... import __version__
from ...errors import OctavoError
from ...runtime.store.files import disk_errors, make_private, sync_folder
from ...runtime.store.library import Library
from ..catalogue import damage_of
from ..documents import Source
from ..progress import DocumentProgress, ProgressOfMany
from . import on_worker
from .job import Job, as_text_message
from .on_worker import Order
from .outcomes import Outcome
from .run import hear, told

if TYPE_CHECKING:
    from distributed import Client, Future

#: Seconds to wait for the scheduler, and for its first worker.
_CONNECT, _FIRST_WORKER = 10, 60

#: How the name of the file begins by which workers tell that they see a library.
_PROBE = ".probe"

_GONE = "The Dask scheduler is gone: start it, and the same command goes on."

#: Bytes of a file that are fetched at once.
_PIECE = 32 << 20

#: How often a document is begun whose index is lost before it is fetched.
_ATTEMPTS = 3

#: Documents that are sent for each that can be read at once, so that no worker waits.
_AHEAD = 2


def index_on_cluster(
    sources: Sequence[Source],
    job: Job,
    named: str | None,
    scheduler: str,
    progress: ProgressOfMany,
    notice: Callable[[str], None],
) -> list[Outcome]:
    """Index documents on a Dask cluster. One that cannot be indexed does not stop the others.

    The client reads the files, so workers need not see them. Workers write into the client's library if they see that;
    else what they make is fetched. A task whose worker dies goes to another one, three times at most, as Dask's
    `allowed-failures` says.

    Parameters
    ----------
    sources : sequence of Source
        The documents.
    job : Job
        How they are read; `n_threads` of None shares the cores of each worker's machine among its documents.
    named : str, optional
        The model as the user named it: workers may have it at another path.
    scheduler : str
        Address of the scheduler, such as "tcp://10.0.0.5:8786".
    progress : ProgressOfMany
        Is told how far the work is.
    notice : callable
        Receives sentences about what happens.

    Returns
    -------
    list of Outcome
        What became of each document.

    Raises
    ------
    OctavoError
        dask.distributed is missing, the cluster cannot be reached, has no workers, or one that lacks the model.
    """
    try:
        from distributed import Client
    except ImportError as problem:
        raise OctavoError('A cluster needs dask.distributed: pip install "octavo[cluster]".') from problem
    for name in [each for each in logging.root.manager.loggerDict if each.startswith("distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters is said in sentences
    library = job.open_library()
    try:
        client = Client(scheduler, timeout=_CONNECT, set_as_default=False)
    except (OSError, ValueError) as problem:  # TimeoutError is an OSError
        raise OctavoError(
            f"There is no Dask scheduler at {scheduler}: start one with `dask scheduler`, and its workers with "
            "`dask worker`."
        ) from problem
    try:
        with client, _probe(library) as probe:
            return _Run(sources, client, library, progress, notice).run(job, named, probe)
    except OSError as problem:  # of a connection; those of disks are sentences already
        raise OctavoError(_GONE) from problem


@contextmanager
def _probe(library: Library) -> Iterator[str]:
    """Leave a file in a library by which workers tell that they see it."""
    library.make_folder()
    path = library.folder / f"{_PROBE}-{secrets.token_hex(16)}"
    with disk_errors(library.folder):
        path.touch()
    try:
        yield path.name
    finally:
        path.unlink(missing_ok=True)


class _Run:
    """Documents on their way through a cluster. One thread hands them on, hears of them, and fetches indexes."""

    def __init__(
        self,
        sources: Sequence[Source],
        client: Client,
        library: Library,
        progress: ProgressOfMany,
        notice: Callable[[str], None],
    ) -> None:
        self._sources, self._client, self._library = sources, client, library
        self._progress, self._notice = progress, notice
        self._outcomes: list[Outcome | None] = [None] * len(sources)
        self._waiting = list(range(len(sources)))[::-1]
        self._futures: dict[int, Future[Any]] = {}
        self._begun: Counter[int] = Counter()
        self._shown: dict[int, DocumentProgress] = {}
        self._heard: SimpleQueue[tuple[int, dict[str, Any]]] = SimpleQueue()

    def run(self, job: Job, named: str | None, probe: str) -> list[Outcome]:
        """Index all documents."""
        topic = f"octavo-{secrets.token_hex(8)}"
        self._order = order = self._ordered(job, named, probe, topic)
        self._client.subscribe_topic(topic, self._hear_event)
        self._progress.begin(len(self._sources))
        try:
            while self._waiting or self._futures:
                self._hand_on()
                if self._futures:
                    self._take(*self._heard.get())
        finally:
            with suppress(Exception):  # the cluster may be gone
                self._client.cancel(list(self._futures.values()), force=True)
                self._client.run(on_worker.end, order.topic, on_error="ignore")
        return [outcome for outcome in self._outcomes if outcome is not None]

    def _ordered(self, job: Job, named: str | None, probe: str, topic: str) -> Order:
        """Return what workers are to do, once all of them have said that they can."""
        try:
            self._client.wait_for_workers(1, timeout=_FIRST_WORKER)
        except TimeoutError as problem:
            raise OctavoError(
                f"The Dask cluster has no workers: start some with `dask worker {self._client.scheduler.address}`."
            ) from problem
        slots: Counter[str] = Counter()
        for address, n_threads in self._client.nthreads().items():
            slots[urlparse(address).hostname or ""] += n_threads
        plan = Path(job.plan) if job.plan else self._library.plan_path
        known = tuple(path.name for path, _ in self._library.indexes())
        order = Order(
            version=__version__,
            job=Job(**{**job.as_json(), "model": _path_on_workers(job), "known": known}),
            named=named,
            model_hash=self._library.model_hash,
            plan=(plan.name, plan.read_bytes()) if plan.is_file() else None,
            library=str(self._library.folder.resolve()),
            probe=probe,
            slots=dict(slots),
            topic=topic,
        )
        problems, shares = (
            self._client.run(function, order, on_error="return")
            for function in (on_worker.check, on_worker.sees_library)
        )
        for address, answer in problems.items():
            if answer:
                why = answer if isinstance(answer, str) else f"octavo fails there, with {answer!r}: install it."
                raise OctavoError(f"The worker {address} cannot read documents: {why}")
        where = (
            f"Indexes are written into {self._library.folder}."
            if all(shares.values())
            else f"Workers do not see {self._library.folder}, so indexes are fetched from them."
        )
        n_workers, n_slots = len(shares), sum(slots.values())
        who = f"{n_workers:,} workers read" if n_workers > 1 else "1 worker reads"
        self._notice(
            f"{who} {n_slots:,} documents at once. {where}" if n_slots > 1 else f"{who} the documents. {where}"
        )
        return order

    def _hear_event(self, event: tuple[Any, dict[str, Any]]) -> None:
        """Take what a worker tells of a document; in the client's thread."""
        _, message = event
        self._heard.put((message.pop("number"), message))

    def _hand_on(self) -> None:
        """Send documents, as many as the workers can soon begin."""
        n_slots = sum(self._client.nthreads().values())
        while self._waiting and len(self._futures) < max(1, _AHEAD * n_slots):
            number = self._waiting.pop()
            source = self._sources[number]
            try:
                message = as_text_message(source)
            except OctavoError as problem:
                self._finish(number, Outcome(source.name, None, str(problem)))
                continue
            vars(source).pop("document", None)
            self._begun[number] += 1
            future = self._client.submit(
                on_worker.read, self._order, number, message, key=f"{self._order.topic}-{number}-{self._begun[number]}"
            )
            self._futures[number] = future
            future.add_done_callback(lambda future, number=number: self._heard.put((number, {"is_over": True})))

    def _take(self, number: int, message: dict[str, Any]) -> None:
        """Take note of what was heard of a document."""
        if number not in self._futures:  # a late word of one that is done
            return
        if "is_over" in message:
            self._end(number, self._futures.pop(number))
            return
        if number not in self._shown:
            self._shown[number] = self._progress.document(self._sources[number].name)
        if "begins" not in message:
            hear(message, self._shown[number], self._notice)

    def _end(self, number: int, future: Future[Any]) -> None:
        """Take what a task has returned."""
        name = self._sources[number].name
        if future.status == "error":
            result = {"error": _told_error(name, future)}
        elif future.status != "finished":
            raise OctavoError(_GONE)
        else:
            result = future.result()
        if "fatal" in result:
            raise OctavoError(result["fatal"])
        if "error" in result:
            self._finish(number, Outcome(name, None, result["error"]))
        elif result.get("known"):
            path = self._library.folder / Path(result["folder"]).name
            self._notice(f"{name} is indexed already: {path}")
            self._finish(number, told(name, path, self._notice))
        elif "files" not in result:
            self._finish(number, told(name, Path(result["folder"]), self._notice))
        elif (fetched := self._fetched(result)) is not None:
            self._finish(number, told(name, fetched, self._notice))
        elif self._begun[number] < _ATTEMPTS:
            self._notice(f"The index of {name} was lost with its worker: it is read again.")
            self._waiting.append(number)
        else:
            self._finish(
                number, Outcome(name, None, f"The index of {name} was lost {_ATTEMPTS} times with its worker.")
            )

    def _finish(self, number: int, outcome: Outcome) -> None:
        self._outcomes[number] = outcome
        (self._shown.pop(number, None) or self._progress.document(outcome.name)).end()

    def _fetched(self, result: dict[str, Any]) -> Path | None:
        """Fetch an index from the worker that made it; None if that is gone."""
        made, worker = Path(result["folder"]), result["worker"]
        path = self._library.folder / made.name
        with disk_errors(self._library.folder), _temporary(self._library.folder) as temporary:
            folder = temporary / made.name
            make_private(folder)
            for name, size in result["files"].items():
                with open(folder / Path(name).name, "wb") as file:
                    for offset in range(0, size, _PIECE):
                        content = self._on(
                            worker, on_worker.piece, str(made / name), offset, min(_PIECE, size - offset)
                        )
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
        self._on(worker, on_worker.remove, str(made))
        return path

    def _on(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on a worker; None if that fails."""
        try:
            return self._client.run(function, *arguments, workers=[worker], on_error="return").get(worker)
        except (OSError, ValueError, KeyError):  # the worker is gone
            return None


def _path_on_workers(job: Job) -> str:
    """Return where workers look for the model first: where it lies on this machine."""
    return os.path.abspath(job.model)


@contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """Make a folder in a folder, and remove it at the end."""
    path = Path(tempfile.mkdtemp(prefix="fetched-", dir=folder))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _told_error(name: str, future: Future[Any]) -> str:
    """Return why a task failed."""
    from distributed import KilledWorker

    problem = future.exception()
    if isinstance(problem, KilledWorker):
        return f"{name} could not be read: each worker that read it died. Its memory may not suffice."
    return f"{name} could not be read: its worker failed with {problem!r}."
