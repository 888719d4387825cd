"""Have the workers of a Dask cluster do tasks, whatever the tasks are."""

from __future__ import annotations

import logging
import os
import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlparse

from ..errors import OctavoError
from ..runtime.store.model_library import Library
from ..runtime.store.plan import GATES_CONFIG, GATES_SUFFIX
from . import cluster_worker as on_worker
from .cluster_worker import Order
from .work import Message, Work, name_of

if TYPE_CHECKING:
    from distributed import Client, Future

Item = TypeVar("Item")

#: Seconds to wait for the scheduler, and for its first worker.
_CONNECT, _FIRST_WORKER = 10, 60

_GONE = "The Dask scheduler is gone: start it, and the same command resumes."

#: Tasks to send for each that can run at once, so that no worker waits.
_AHEAD = 2


def order_for(
    work: type[Work],
    settings: dict[str, Any],
    library: Library,
    model: str | os.PathLike[str],
    named: str | os.PathLike[str] | None,
    n_threads: int | None,
    plan: Path | None = None,
) -> Order:
    """Return the order for the workers.

    Parameters
    ----------
    settings : dict
        Settings of the work, in JSON's types. `plan` is added: the name of the plan's file, or None.
    named : path, optional
        The model as the user named it: workers may have it at another path.
    """
    files = {}
    if plan is not None and plan.is_file():
        config = [plan.with_name(GATES_CONFIG)] if plan.suffix == GATES_SUFFIX else []
        files = {path.name: path.read_bytes() for path in (plan, *config) if path.is_file()}
    return Order(
        name_of(work),
        {**settings, "plan": plan.name if plan is not None and files else None},
        _path_on_workers(model),
        None if named is None else os.fspath(named),
        library.model_hash,
        n_threads,
        files,
    )


def _path_on_workers(model: str | os.PathLike[str]) -> str:
    """Return the path at which workers look for the model first: the path on this machine."""
    return os.path.abspath(model)


@contextmanager
def workers_of(scheduler: str, order: Order) -> Iterator[Workers]:
    """Connect to a cluster; at the end cancel open tasks and disconnect.

    Yields
    ------
    Workers
        The workers, all of which can do the work.

    Raises
    ------
    OctavoError
        dask.distributed is missing, the cluster cannot be reached, has no workers, or one that lacks the model.
    """
    try:
        from distributed import Client
    except ImportError as problem:
        raise OctavoError('A cluster needs dask.distributed: pip install "octavo[cluster]".') from problem
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # octavo prints its own notices
    try:
        client = Client(scheduler, timeout=_CONNECT, set_as_default=False)
    except (OSError, ValueError) as problem:  # TimeoutError is an OSError
        raise OctavoError(
            f"There is no Dask scheduler at {scheduler}: start one with `dask scheduler`, and its workers with "
            "`dask worker`."
        ) from problem
    try:
        with client:
            workers = Workers(client, order)
            try:
                yield workers
            finally:
                workers.end()
    except OSError as problem:  # of a connection; those of disks are sentences already
        raise OctavoError(_GONE) from problem


class Workers:
    """The workers of a cluster. One thread sends tasks to them, and receives their messages.

    A task whose worker dies moves to another one, three times at most, as Dask's `allowed-failures` says.

    Attributes
    ----------
    order : Order
        The order, with the number of tasks that each machine does at once.
    """

    def __init__(self, client: Client, order: Order) -> None:
        self._client = client
        try:
            client.wait_for_workers(1, timeout=_FIRST_WORKER)
        except TimeoutError as problem:
            raise OctavoError(
                f"The Dask cluster has no workers: start some with `dask worker {client.scheduler.address}`."
            ) from problem
        slots: Counter[str] = Counter()
        for address, n_threads in client.nthreads().items():
            slots[urlparse(address).hostname or ""] += n_threads
        self._topic = f"octavo-{secrets.token_hex(8)}"
        self.order = replace(order, slots=dict(slots), topic=self._topic)
        self._n_begun = 0
        self._futures: dict[int, Future[Any]] = {}
        self._received: SimpleQueue[tuple[int, Message]] = SimpleQueue()
        for address, answer in self.ask(on_worker.check).items():
            if answer:
                raise OctavoError(f"The worker {address} cannot be used: {answer}")
        client.subscribe_topic(self._topic, self._receive)

    def ask(self, question: Callable[..., Any]) -> dict[str, Any]:
        """Call a function on all workers; return each one's answer by its address.

        Parameters
        ----------
        question : callable
            Takes the order, and the worker if it has a parameter `dask_worker`.

        Raises
        ------
        OctavoError
            A worker fails to answer.
        """
        answers: dict[str, Any] = self._client.run(question, self.order, on_error="return")
        for address, answer in answers.items():
            if isinstance(answer, Exception):
                raise OctavoError(
                    f"The worker {address} cannot be used: octavo fails there, with {answer!r}: install it."
                )
        return answers

    def call(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on a worker; None if that fails."""
        try:
            return self._client.run(function, *arguments, workers=[worker], on_error="return").get(worker)
        except (OSError, ValueError, KeyError):  # the worker is gone
            return None

    def at_once(self, do: str, tasks: str) -> str:
        """Return a sentence about the number of workers, with a verb such as "read" and a noun such as "documents"."""
        n_workers, n_slots = len(self._client.nthreads()), sum(self.order.slots.values())
        who = f"{n_workers:,} workers {do}" if n_workers > 1 else f"1 worker {do}s"
        return f"{who} {n_slots:,} {tasks} at once." if n_slots > 1 else f"{who} the {tasks}."

    def results(
        self,
        waiting: deque[Item],
        message_of: Callable[[Item], Message | None],
        receive: Callable[[Item, Message], None],
    ) -> Iterator[tuple[Item, Message]]:
        """Have tasks done, and yield each item with its result, in the order of completion.

        Parameters
        ----------
        waiting : deque
            Items to do. More may be added meanwhile.
        message_of : callable
            Returns the task of an item for `Work.do`, once a worker can soon begin it; None if there is none.
        receive : callable
            Takes an item and a message about it.

        Yields
        ------
        tuple
            The item, and the result of `cluster_worker.do`.

        Raises
        ------
        OctavoError
            The model cannot be used on a worker, or the scheduler is gone.
        """
        items: dict[int, Item] = {}
        while waiting or self._futures:
            while waiting and self._takes_more():
                item = waiting.popleft()
                message = message_of(item)
                if message is not None:
                    items[self._hand_on(message)] = item
            if not self._futures:
                continue
            number, message = self._received.get()
            if number not in self._futures:  # a late message about a finished task
                continue
            if "is_over" in message:
                yield items.pop(number), _outcome(self._futures.pop(number))
            else:
                receive(items[number], message)

    def _takes_more(self) -> bool:
        """Return whether a worker will soon be free."""
        n_slots: int = sum(self._client.nthreads().values())
        return len(self._futures) < max(1, _AHEAD * n_slots)

    def _hand_on(self, message: Message) -> int:
        """Send a task; return its number."""
        self._n_begun += 1
        number = self._n_begun
        future = self._client.submit(on_worker.do, self.order, number, message, key=f"{self._topic}-{number}")
        self._futures[number] = future
        future.add_done_callback(lambda future: self._received.put((number, {"is_over": True})))
        return number

    def _receive(self, event: tuple[Any, Message]) -> None:
        """Receive a worker's message about a task, in the client's thread."""
        _, message = event
        self._received.put((message.pop("number"), message))

    def end(self) -> None:
        """Cancel open tasks."""
        with suppress(Exception):  # the cluster may be gone
            self._client.cancel(list(self._futures.values()), force=True)
            self._client.run(on_worker.end, self._topic, on_error="ignore")


def _outcome(future: Future[Any]) -> Message:
    """Return the result of a task, or its failure."""
    from distributed import KilledWorker

    if future.status == "error":
        problem = future.exception()
        if isinstance(problem, KilledWorker):
            return {"failed": "each worker that tried it died. Its memory may not suffice."}
        return {"failed": f"its worker failed with {problem!r}."}
    if future.status != "finished":
        raise OctavoError(_GONE)
    result: Message = future.result()
    if "fatal" in result:
        raise OctavoError(result["fatal"])
    return result


def result_of(outcome: Message, measured: str) -> Message:
    """Return the result of a task that measures.

    Parameters
    ----------
    outcome : dict
        Result of `cluster_worker.do`.
    measured : str
        Subject of the measurement, for messages.

    Raises
    ------
    OctavoError
        The measurement failed.
    """
    if "failed" in outcome:
        raise OctavoError(f"{measured} could not be measured: {outcome['failed']}")
    if "error" in outcome:
        raise OctavoError(outcome["error"])
    result: Message = outcome["result"]
    return result
