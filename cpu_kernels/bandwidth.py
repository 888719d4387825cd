"""How fast this machine reads memory: the floor of every attention kernel."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .compile import LANES, kernel
from .vector import add, load, splat, sum_of

#: Read by all threads together: far more than any cache of a laptop holds.
_BYTES = 1 << 30


@kernel
def _sum(address, n_floats):
    """Sum of n_floats f32 (a multiple of 8 * LANES) at an address, in eight independent chains."""
    a = b = c = d = e = f = g = h = splat(np.float32(0))
    step = LANES * 4
    for i in range(0, n_floats * 4, 8 * step):
        at = address + i
        a, b = add(a, load(at)), add(b, load(at + step))
        c, d = add(c, load(at + 2 * step)), add(d, load(at + 3 * step))
        e, f = add(e, load(at + 4 * step)), add(f, load(at + 5 * step))
        g, h = add(g, load(at + 6 * step)), add(h, load(at + 7 * step))
    return sum_of(add(add(add(a, b), add(c, d)), add(add(e, f), add(g, h))))


def read_bandwidth(n_threads: int, repeats: int = 5) -> float:
    """Bytes per second that n_threads threads read together, the median of some passes over 1 GiB."""
    n_floats = _BYTES // 4 // n_threads // (8 * LANES) * (8 * LANES)
    parts = [np.ones(n_floats, np.float32) for _ in range(n_threads)]
    times = []
    with ThreadPoolExecutor(n_threads) as pool:
        for _ in range(repeats + 1):
            start = time.perf_counter()
            list(pool.map(lambda part: _sum(part.ctypes.data, n_floats), parts))
            times.append(time.perf_counter() - start)
    return n_threads * n_floats * 4 / float(np.median(times[1:]))
