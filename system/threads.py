"""Limit the threads of other libraries: those of NumPy's products, and those that ggml keeps for each calling thread.

ggml's threads wait for each other dozens of times in a layer. As long as there are at most as many as cores, they wait
in a loop; otherwise OpenMP makes them sleep. Where cores are free, a step takes a fifth longer if they sleep. Where
others compute, it takes many times as long if they loop: they hold the core that the thread that they wait for needs.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

from .processors import Look, look, usable_cpus

#: omp_pause_soft: OpenMP keeps its state, and its threads end.
_SOFT = 1

#: Settings by which users choose how threads wait.
_CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")

#: Seconds between looks at what others do; the longest that a look tells about, unless this process computed meanwhile.
_LOOK, _LONGEST = 0.25, 2.0

#: Cores that others may use of those that threads need to wait in a loop.
_UNNOTICED = 0.25


def release_threads() -> None:
    """End the threads that ggml keeps for this thread, so that another one may compute at full speed.

    The next computation starts them again in a tenth of a millisecond.
    """
    pause = _of_openmp("omp_pause_resource_all")
    if pause is not None:
        pause(_SOFT)


def _of_openmp(name: str) -> Any:
    """Return a function of ggml's OpenMP; None if it has none of this name, or ggml was built without OpenMP."""
    from llama_cpp.llama_cpp import _lib

    return getattr(_lib, name, None)


class Waiting:
    """How ggml's threads wait for each other: in a loop while cores are free for them, else asleep.

    GCC's OpenMP decides by the number of all of its threads. To make them sleep, a thread keeps a team of more threads
    than there are cores, which sleep too.
    """

    def __init__(self) -> None:
        self._last, self._ended = look(), 0.0
        self._team: threading.Event | None = None

    @contextmanager
    def step(self, n_threads: int) -> Iterator[None]:
        """Compute a step on n_threads threads within this context."""
        if n_threads > 1 and time.monotonic() >= self._last.at + _LOOK and not any(map(os.environ.get, _CHOSEN)):
            self._sleep(self._others_work(n_threads, look()))
        try:
            yield
        finally:
            self._ended = time.monotonic()

    def _others_work(self, n_threads: int, now: Look) -> bool:
        """Return whether others need the cores of these threads, or may do so, as nothing was computed lately."""
        last, self._last = self._last, now
        if now.at > last.at + _LONGEST and now.at > self._ended + _LONGEST:
            return True
        return last.cores_of_others(now) + n_threads > usable_cpus() + _UNNOTICED

    def _sleep(self, sleeping: bool) -> None:
        """Have threads sleep while they wait, or loop."""
        if sleeping == (self._team is not None):
            return
        if self._team is not None:
            self._team.set()
            self._team = None
        elif (start := _of_openmp("GOMP_parallel")) is not None:
            self._team, started = threading.Event(), threading.Event()
            threading.Thread(target=_keep_team, args=(start, started, self._team), daemon=True).start()
            started.wait()


def _keep_team(start: Any, started: threading.Event, ended: threading.Event) -> None:
    """Start a team of more threads than cores, which do nothing, and keep it until it is to end, with this thread."""
    nothing = ctypes.cast(_of_openmp("omp_get_thread_num"), ctypes.c_void_p)
    start(nothing, None, ctypes.c_uint(usable_cpus() + 1), ctypes.c_uint(0))
    started.set()
    ended.wait()


#: How threads wait in this process.
waiting = Waiting()


def one_thread() -> AbstractContextManager[Any]:
    """Limit NumPy's products to one thread inside the context: ggml's threads still spin after a step."""
    limit: AbstractContextManager[Any] = _pools().limit(limits=1)
    return limit


@cache
def _pools() -> Any:
    """Return the limits of NumPy's threads, cached: finding its libraries takes some milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
