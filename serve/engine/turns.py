"""Let the engines of several models compute in turns: their threads together would be more than the cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ...system.threads import release_threads


class Turns:
    """The turns of engines. What computes before an engine starts takes one, too.

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
