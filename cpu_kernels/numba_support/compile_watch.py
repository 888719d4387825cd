"""Watch how long this process waits for kernels that are being compiled, here or in the background process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event

#: Nested waits now, the start of the outermost one, and the seconds of those that have ended.
_depth, _since, _ended = 0, 0.0, 0.0

_lock = threading.Lock()


def seconds_of_waiting() -> float:
    """Return the seconds for which this process has waited so far."""
    return _ended + (time.perf_counter() - _since if _depth else 0.0)


def seconds_of_this_wait() -> float:
    """Return the seconds of the current wait; 0 without one."""
    return time.perf_counter() - _since if _depth else 0.0


@contextmanager
def waiting() -> Iterator[None]:
    """Count the time of a block as waiting."""
    _begin()
    try:
        yield
    finally:
        _end()


def _begin() -> None:
    global _depth, _since
    with _lock:
        if _depth == 0:
            _since = time.perf_counter()
        _depth += 1


def _end() -> None:
    global _depth, _ended
    with _lock:
        _depth -= 1
        if _depth == 0:
            _ended += time.perf_counter() - _since


class _OfNumba(event.Listener):
    """Counts the time in which Numba compiles a function, or looks for it on disk."""

    def on_start(self, _event: Any) -> None:
        _begin()

    def on_end(self, _event: Any) -> None:
        _end()


def watch() -> None:
    """Begin to count."""
    event.register("numba:compiler_lock", _OfNumba())
