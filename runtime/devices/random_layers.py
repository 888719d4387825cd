"""Time attention without a model, on layers of random rows."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ...cpu_kernels.attend.decode import partial_size
from ...cpu_kernels.layer import WORK, attend_layers, scratch_bytes
from ...cpu_kernels.layout.spans import SPAN
from ...cpu_kernels.numba_support.machine import seconds_together
from ...cpu_kernels.numba_support.shape import Q4_0, Q8_0
from ...cpu_kernels.numba_support.vector import CACHE_LINE
from ..cache.cache_memory import CpuMemory
from ..cache.kv_cache import KVCache
from ..document.cache_layer import CacheLayer, Rows
from ..document.index import Index
from ..methods.method import Assignment, Method

#: The scale of q8_0 rows, and of each block of q4_0 rows.
_SCALE, _BLOCK_SCALE = np.frombuffer(np.float32(0.01).tobytes(), np.uint8), np.float16(0.1).view(np.uint16)

#: Number of random f16 numbers, which repeat to make all rows.
_NUMBERS = 1 << 22


def random_numbers() -> np.ndarray:
    """Return random f16 numbers, (_NUMBERS,), to make rows of."""
    return np.random.default_rng(0).standard_normal(_NUMBERS, np.float32).astype(np.float16)


def as_rows(kv_type: str, length: int, numbers: np.ndarray) -> np.ndarray:
    """Write the scales of stored rows into random numbers, and return them.

    Parameters
    ----------
    length : int
        Length of a key or value, with which each row begins.
    numbers : array, shape (..., elements of a row)
        Of the type of the rows.
    """
    if kv_type == Q8_0:
        numbers[..., length:] = np.tile(_SCALE, (numbers.shape[-1] - length) // len(_SCALE))
    if kv_type == Q4_0:
        numbers[..., length // 4 :] = _BLOCK_SCALE
    return numbers


class RandomLayers:
    """A cache of alike layers with random rows, and a method that serves all of their heads.

    Parameters
    ----------
    rows : sequence of (array, array)
        Keys and values of each layer (see stored_rows.py). A pass goes through all of them, so that none finds its rows
        in a processor's cache.
    n_tokens : int
        Tokens of a batch; 1 for a step.
    document : Index, optional
        The rows as a document. By default they are a tail.

    Attributes
    ----------
    n_attended : int64 array, shape (n_kv_head,)
        Rows that each head of the last layer attended to.
    """

    def __init__(
        self,
        layer: CacheLayer,
        rows: Sequence[Rows],
        method: Method,
        n_threads: int,
        n_tokens: int = 1,
        document: Index | None = None,
    ) -> None:
        self.layer, self.count, self.n_tokens, self.n_threads = layer, len(rows), n_tokens, n_threads
        self.n_rows, shape, n_heads = rows[0][0].shape[1], layer.shape, layer.n_kv_head
        queries = np.random.default_rng(0).standard_normal((n_heads, n_tokens, shape.group, shape.head_dim), np.float32)
        self.queries = queries / np.float32(np.sqrt(shape.head_dim))
        self.out = np.empty((n_tokens, n_heads * shape.group, shape.value_dim), np.float32)
        heads = np.arange(self.count * n_heads)
        assignment = Assignment(method, heads, np.ones(len(heads)))
        self.cache = KVCache([layer] * self.count, self.n_rows + n_tokens, [assignment])
        self.cache.table.connect()
        if document is not None:
            self.cache.attach(document)
        else:
            self.cache.append_rows(list(rows))
            self.cache.end_prompt(n_threads)
        for group in self.cache.table.groups:
            group.method.before_step(group.heads, document, self.n_rows)
        self._make_work()

    def _make_work(self) -> None:
        """Make the work area that threads share, and the scratch of the selection."""
        shape, memory, n_heads = self.layer.shape, CpuMemory(), self.layer.n_kv_head
        thread_bytes = -(-scratch_bytes(shape) // CACHE_LINE) * CACHE_LINE
        self.cache.table.make_room(memory)
        n_spans = self.cache.table.n_spans
        self.n_attended = np.empty(n_heads, np.int64)
        self.work = np.zeros(1, WORK)
        self._buffers: dict[str, Any] = {
            "queries": self.queries,
            "spans": np.empty((n_heads, n_spans), SPAN),
            "n_spans": np.empty(n_heads, np.int64),
            "n_rows": self.n_attended,
            "partials": np.empty((self.n_threads, n_heads, partial_size(shape)), np.float32),
            "scratch": memory.allocate(self.n_threads * thread_bytes).reshape(self.n_threads, thread_bytes),
        }
        for name, array in self._buffers.items():
            self.work[name] = array.ctypes.data
        self.work["span_capacity"], self.work["scratch_bytes"] = n_spans, thread_bytes

    def attend(self, ith: int, n_threads: int, n_layers: int | None = None) -> None:
        """Compute one thread's part of a pass."""
        attend_layers(
            self.layer.shape,
            self.cache.table.heads.ctypes.data,
            n_layers or self.count,
            self.layer.n_kv_head,
            self.n_tokens,
            self.work.ctypes.data,
            self.out.ctypes.data,
            self.out.strides[0],
            self.out.strides[1],
            ith,
            n_threads,
        )

    def seconds(self, pool: ThreadPoolExecutor) -> float:
        """Time a pass on all threads, which the pool must have; return the seconds of a layer."""
        self.work["arrived"] = 0
        return seconds_together(pool, self.n_threads, lambda ith: self.attend(ith, self.n_threads)) / self.count
