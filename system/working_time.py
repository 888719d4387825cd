"""Tell the time without what compiling takes: kernels are compiled once, and rates are those of each run after that."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from numba.core import event


class _Compiling(event.Listener):
    """Add up the time in which any thread compiles kernels, loads them, or waits for that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_open, self._began, self._ended = 0, 0.0, 0.0

    def on_start(self, event: object) -> None:
        with self._lock:
            if self._n_open == 0:
                self._began = time.perf_counter()
            self._n_open += 1

    def on_end(self, event: object) -> None:
        with self._lock:
            self._n_open -= 1
            if self._n_open == 0:
                self._ended += time.perf_counter() - self._began

    def seconds(self, now: float) -> tuple[float, float]:
        """Return the seconds until now, and those since the current compiling began: 0 without one."""
        current = now - self._began if self._n_open else 0.0
        return self._ended + current, current


_compiling = _Compiling()
event.register("numba:compiler_lock", _compiling)


def working_time() -> float:
    """Return the seconds of a clock that stands still while kernels are compiled; only differences mean something."""
    now = time.perf_counter()
    return now - _compiling.seconds(now)[0]


def compiling_time() -> float:
    """Return the seconds for which this process has compiled so far, or waited for that."""
    return _compiling.seconds(time.perf_counter())[0]


def compiling_now() -> float:
    """Return the seconds for which this process has compiled without a break until now; 0 if it does not."""
    return _compiling.seconds(time.perf_counter())[1]


@contextmanager
def not_working() -> Iterator[None]:
    """Stop the clock meanwhile: this process waits for another one that compiles."""
    _compiling.on_start(None)
    try:
        yield
    finally:
        _compiling.on_end(None)
