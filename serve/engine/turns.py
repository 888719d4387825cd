"""Let the engines of several models compute in turns: their threads together would be more than the cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ...runtime.process.threads import release_threads


class Turns:
    """The turns of engines. Loading a model is a turn, too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.are_several = False

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn, and take it. Among several engines, each gives its threads back at the end."""
        with self._lock:
            yield
            if self.are_several:
                release_threads()
