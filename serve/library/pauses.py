"""Halt the reading of uploads while answers are computed, and what commands read in the background during both."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ...library.background.computing import computing
from ...workers.worker_process import WorkerProcess


class Pauses:
    """Halts a reading while answers are computed, unless a request waits for a document. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: WorkerProcess | None = None
        self._is_busy, self._n_waiting = False, 0
        self._computes = ExitStack()

    def note_busy(self, is_busy: bool) -> None:
        """Note whether answers are computed."""
        with self._lock:
            self._is_busy = is_busy
            self._computes.close()
            if is_busy:
                self._computes.enter_context(computing())
            self._apply()

    @contextmanager
    def of(self, process: WorkerProcess) -> Iterator[None]:
        """Halt a process when necessary, inside a `with` block. There is one at a time."""
        with self._lock:
            self._process = process
            self._apply()
        try:
            with computing():
                yield
        finally:
            with self._lock:
                self._process = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Halt nothing inside a `with` block: a request waits for a reading, which may be after the current one."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, n_more: int) -> None:
        with self._lock:
            self._n_waiting += n_more
            self._apply()

    def _apply(self) -> None:
        if self._process is not None:
            self._process.pause(self._is_busy and not self._n_waiting)
