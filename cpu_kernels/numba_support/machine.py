"""Describe this machine: its processor's name, and its read bandwidth, which bounds every attention kernel."""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from .compile import kernel
from .machine_features import LANES
from .memory import barrier
from .vector import add, load, splat, sum_of

#: Bytes that all threads read together: far more than a laptop's caches hold.
_BYTES = 1 << 29


@kernel
def _sum(address, n_floats):
    """Sum n_floats f32, a multiple of 8 * LANES, in eight independent chains: one would wait for its additions."""
    a = b = c = d = e = f = g = h = splat(np.float32(0))
    step = LANES * 4
    for i in range(0, n_floats * 4, 8 * step):
        at = address + i
        a, b = add(a, load(at)), add(b, load(at + step))
        c, d = add(c, load(at + 2 * step)), add(d, load(at + 3 * step))
        e, f = add(e, load(at + 4 * step)), add(f, load(at + 5 * step))
        g, h = add(g, load(at + 6 * step)), add(h, load(at + 7 * step))
    return sum_of(add(add(add(a, b), add(c, d)), add(add(e, f), add(g, h))))


@kernel
def _sum_together(arrived, n_threads, address, n_floats):
    """Do what `_sum` does, once all threads have arrived. arrived : address of an int64 that is 0."""
    barrier(arrived, n_threads)
    return _sum(address, n_floats)


def seconds_together(pool: ThreadPoolExecutor, n_threads: int, work: Callable[[int], Any]) -> float:
    """Time work that threads do together.

    Parameters
    ----------
    work : callable
        Called as work(0) to work(n_threads - 1), once in each thread. It starts with a barrier.

    Returns
    -------
    float
        Seconds from the last start to the last end.
    """

    def timed(ith: int) -> tuple[float, float]:
        start = time.perf_counter()
        work(ith)
        return start, time.perf_counter()

    starts, ends = zip(*pool.map(timed, range(n_threads)), strict=True)
    return float(max(ends) - max(starts))


class ReadTest:
    """Read 512 MiB of memory, in equal parts, on all threads of a pool."""

    def __init__(self, pool: ThreadPoolExecutor, n_threads: int) -> None:
        self._pool, self._n_threads = pool, n_threads
        self._n_floats = _BYTES // 4 // n_threads // (8 * LANES) * (8 * LANES)
        self._parts = [np.ones(self._n_floats, np.float32) for _ in range(n_threads)]

    def bytes_per_second(self) -> float:
        """Read everything once, and return the bytes per second of all threads together."""
        arrived = np.zeros(1, np.int64)

        def read(ith: int) -> None:
            _sum_together(arrived.ctypes.data, self._n_threads, self._parts[ith].ctypes.data, self._n_floats)

        seconds = seconds_together(self._pool, self._n_threads, read)
        return self._n_threads * self._n_floats * 4 / seconds


def read_bandwidth(n_threads: int, repeats: int = 5) -> float:
    """Measure the read bandwidth of the memory.

    Parameters
    ----------
    repeats : int
        Passes to take the median of, after one to warm up.

    Returns
    -------
    float
        Bytes per second.
    """
    with ThreadPoolExecutor(n_threads) as pool:
        test = ReadTest(pool, n_threads)
        return float(np.median([test.bytes_per_second() for _ in range(repeats + 1)][1:]))


def cpu_name() -> str:
    """Return the name of this machine's processor, or its architecture if the system does not name it."""
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        for line in facts.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    if platform.system() == "Darwin":
        return subprocess.check_output(["sysctl", "-n", "machdep.cpu.brand_string"], text=True).strip()
    return platform.machine()
