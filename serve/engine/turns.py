"""Whose turn it is: among the engines of several models, and among the requests that wait for one."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from ...system.threads import release_threads
from .running_request import RunningRequest

#: Number of clients whose turns are remembered.
_MOST_CLIENTS = 1000


class Turns:
    """The turns of engines, whose threads together would be more than the cores.

    Work before an engine starts takes a turn, too.

    Parameters
    ----------
    are_several : bool
        Whether there may be more than one engine.
    """

    def __init__(self, are_several: bool = False) -> None:
        self._lock, self._are_several = threading.Lock(), are_several

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn, and take it. Among several engines, each gives its threads back at the end."""
        with self._lock:
            yield
            if self._are_several:
                release_threads()


class WaitingLine:
    """Requests that wait. First come those of clients with the fewest running, then of those with the longest wait."""

    def __init__(self) -> None:
        self._waiting: list[RunningRequest] = []
        self._begun = dict[str, int]()  # number of each client's last begun request, in this order
        self._n_begun = 0

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._waiting)

    def add(self, request: RunningRequest) -> None:
        self._waiting.append(request)

    def take_next(self, running: Iterable[RunningRequest]) -> RunningRequest:
        """Take the request whose turn it is from the line, which is not empty.

        Parameters
        ----------
        running : iterable of RunningRequest
            The requests that are being answered.
        """
        of_clients = Counter(each.request.generation.client for each in running)
        chosen = min(self._waiting, key=lambda waiting: self._precedence(waiting.request.generation.client, of_clients))
        self._waiting.remove(chosen)
        self._note_turn(chosen.request.generation.client)
        return chosen

    def take_all(self, leaves: Callable[[RunningRequest], bool] = lambda request: True) -> list[RunningRequest]:
        """Take the requests from the line that a function chooses; by default all."""
        taken = [request for request in self._waiting if leaves(request)]
        self._waiting = [request for request in self._waiting if request not in taken]
        return taken

    def _precedence(self, client: str, of_clients: Counter[str]) -> tuple[int, int]:
        """Return the rank of a client's request: the least is the next."""
        return of_clients[client], self._begun.get(client, 0)

    def _note_turn(self, client: str) -> None:
        """Note that a client had its turn."""
        self._n_begun += 1
        self._begun.pop(client, None)
        self._begun[client] = self._n_begun
        if len(self._begun) > _MOST_CLIENTS:
            del self._begun[next(iter(self._begun))]
