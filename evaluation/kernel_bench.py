"""Time the attention kernels alone, over random keys and values, against the memory bandwidth of the same minute.

A measurement is a pass over many layers, about 512 MiB of keys and values, so that no layer finds the last one's rows
in a processor's cache. All threads take part, as in a model's layers. Passes alternate with passes that only read.
Times and shares of the bandwidth are medians.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..convert.clusters import ClusterSettings, no_mass
from ..cpu_kernels.attend.head import ANY_ORDER
from ..cpu_kernels.attend.hooks import native
from ..cpu_kernels.attend.layer import WORK, attend_layers, scratch_bytes
from ..cpu_kernels.attend.partials import partial_size
from ..cpu_kernels.attend.spans import SPAN
from ..cpu_kernels.numba_support import background_compile
from ..cpu_kernels.numba_support.machine import ReadTest, cpu_name, seconds_together
from ..cpu_kernels.numba_support.shape import F16, Q4_0, Q8_0, Shape
from ..cpu_kernels.numba_support.vector import CACHE_LINE
from ..cpu_kernels.select.scores import padded, selection_scratch_bytes
from ..progress import Progress
from ..runtime.cache.cache_memory import CpuMemory
from ..runtime.cache.kv_cache import KVCache
from ..runtime.document.cache_layer import CacheLayer
from ..runtime.document.index import Index, IndexLayer
from ..runtime.document.mean_values import ClusterMeans
from ..runtime.document.stored_rows import row_format
from ..runtime.methods import DENSE, METHODS, method_class
from ..runtime.methods.attention import Attention
from ..runtime.methods.method import Assignment, Storage

N_KV_HEAD = 8
LENGTHS = (8192, 32768)
DENSE_SHAPES = ((64, 1), (64, 3), (64, 4), (64, 8), (128, 1), (128, 4), (128, 8))
SPARSE_SHAPES = ((64, 1), (64, 4), (128, 4))

#: Share of the rows that sparse kernels attend.
KEPT = 1 / 8

_BYTES = 1 << 29
_REPEATS = 5

#: Time of a case over that of its passes, as measured on 2 cores.
_PREPARING = 3.4

#: The smallest budget to try, and the steps of the bisection that finds the budget.
_LEAST_BUDGET, _BISECTIONS = 1 / 1024, 16

#: Number of random f16 numbers, which repeat to make all rows.
_NUMBERS = 1 << 22

#: The scale of q8_0 rows, and of each block of q4_0 rows.
_SCALE, _BLOCK_SCALE = np.frombuffer(np.float32(0.01).tobytes(), np.uint8), np.float16(0.1).view(np.uint16)


@dataclass(frozen=True)
class Case:
    """One method's kernels on one shape.

    Parameters
    ----------
    rows : int
        Rows that are stored for each KV head.
    tokens : int
        Tokens of a batch; 1 for decode.
    """

    method: str
    shape: Shape
    rows: int
    tokens: int = 1

    @property
    def kernel(self) -> str:
        """Name of the kernel in results."""
        return self.method if self.tokens == 1 else f"{self.method} prefill"


def sparse_methods() -> list[str]:
    """Return the methods that select among rows, all of which are stored."""
    return [name for name in METHODS if name != DENSE and not method_class(name).storage.evicts]


def cases() -> Iterator[Case]:
    """Yield the cases, dense decode before the cases that are compared with it."""
    for kv_type in (F16, Q8_0, Q4_0):
        for sizes in DENSE_SHAPES:
            for rows in LENGTHS:
                yield Case(DENSE, Shape(*sizes, kv_type), rows)
    for sizes in SPARSE_SHAPES:
        for name in sparse_methods():
            yield Case(name, Shape(*sizes), LENGTHS[-1])
    for sizes in SPARSE_SHAPES:
        yield Case(DENSE, Shape(*sizes), LENGTHS[0], tokens=512)


class Layers:
    """Layers of random rows in a cache, and a method that serves all of their heads.

    The method's budget is set so that a step attends to KEPT of the rows.

    Parameters
    ----------
    memory : float16 array
        Random numbers to make rows of every type from, at least _BYTES.

    Attributes
    ----------
    n_rows : int64 array, shape (N_KV_HEAD,)
        Rows that each head of the last layer attended to.
    """

    def __init__(self, case: Case, memory: np.ndarray, n_threads: int) -> None:
        self.case, shape = case, case.shape
        self.rng = np.random.default_rng(0)
        layer_bytes = 2 * N_KV_HEAD * case.rows * shape.row_bytes
        self.count = max(2, _BYTES // layer_bytes) if case.tokens == 1 else 2  # a prefill does not wait for memory
        queries = self.rng.standard_normal((N_KV_HEAD, case.tokens, shape.group, shape.head_dim), np.float32)
        self.queries = queries / np.float32(np.sqrt(shape.head_dim))
        self.out = np.empty((case.tokens, N_KV_HEAD * shape.group, shape.head_dim), np.float32)
        self._fill(memory)
        self._make_work(n_threads)
        if case.method != DENSE:
            self._set_budget()

    def _fill(self, memory: np.ndarray) -> None:
        """Store the rows: as a document if the method reads it in place, else in tails."""
        case, shape = self.case, self.case.shape
        layer = CacheLayer(N_KV_HEAD, shape.head_dim, 0, shape.kv_type, shape.group)
        heads = np.arange(self.count * N_KV_HEAD)
        assignment = Assignment(Attention(case.method, budget=1.0).new_method(), heads, np.ones(len(heads)))
        self.cache = KVCache([layer] * self.count, case.rows + case.tokens, [assignment])
        self.cache.connect()
        dtype, n_elements = row_format(shape.head_dim, shape.kv_type)
        n_bytes = 2 * self.count * N_KV_HEAD * case.rows * shape.row_bytes
        rows = memory.view(np.uint8)[:n_bytes].view(dtype)
        rows = rows.reshape(self.count, 2, N_KV_HEAD, case.rows, n_elements)
        if shape.kv_type == Q8_0:
            rows[..., shape.head_dim :] = _SCALE
        if shape.kv_type == Q4_0:
            rows[..., shape.head_dim // 4 :] = _BLOCK_SCALE
        if method_class(case.method).storage is Storage.MAPPED:
            self.cache.attach(self._document(rows))
        else:
            self.cache.append_rows([(keys, values) for keys, values in rows])

    def _document(self, rows: np.ndarray) -> Index:
        """Return the rows as a document, with clusters if the method needs them: the same ones in each layer."""
        n_tokens, clusters = self.case.rows, method_class(self.case.method).needs_clusters
        settings = ClusterSettings() if clusters else ClusterSettings(shortest=n_tokens + 1)
        first = self._layer(rows[0, 0], rows[0, 1], settings)
        layers = [replace(first, keys=keys, values=values) for keys, values in rows]
        if not clusters:
            return Index(np.zeros(n_tokens, np.int32), layers)
        layers = [
            replace(
                layer,
                centroids=first.centroids.copy(),
                coarse_centroids=first.coarse_centroids.copy(),
                known_means=ClusterMeans(*(array.copy() for array in first.means)),
            )
            for layer in layers
        ]
        return Index(np.zeros(n_tokens, np.int32), layers)

    def _layer(self, keys: np.ndarray, values: np.ndarray, settings: ClusterSettings) -> IndexLayer:
        """Return a layer whose rows lie in clusters at random."""
        n_tokens, head_dim = keys.shape[1], self.case.shape.head_dim
        n_clustered, n_clusters = settings.n_clustered(n_tokens), settings.n_clusters(n_tokens)
        n_coarse = settings.n_coarse(n_tokens)
        starts = np.sort(self.rng.integers(0, n_clustered + 1, (N_KV_HEAD, n_clusters + 1)), axis=1).astype(np.int32)
        starts[:, 0], starts[:, -1] = 0, n_clustered
        coarse_starts = np.linspace(0, n_clusters, n_coarse + 1).astype(np.int32)
        centroids, coarse_centroids = (
            self.rng.standard_normal((N_KV_HEAD, n, head_dim), np.float32).astype(np.float16)
            for n in (n_clusters, n_coarse)
        )
        return IndexLayer(
            keys,
            values,
            ANY_ORDER,
            centroids,
            starts,
            coarse_centroids,
            np.tile(coarse_starts, (N_KV_HEAD, 1)),
            np.zeros((N_KV_HEAD, n_tokens), np.int32),
            no_mass(keys),
        )

    def _make_work(self, n_threads: int) -> None:
        """Make the work area that threads share, and the scratch of the selection."""
        shape, heads, memory = self.case.shape, self.cache.heads, CpuMemory()
        thread_bytes = -(-scratch_bytes(shape) // CACHE_LINE) * CACHE_LINE
        n_items, n_spans = padded(self.cache.max_items), self.cache.max_spans
        scratch = np.zeros((N_KV_HEAD, selection_scratch_bytes(shape.group, n_items)), np.uint8)
        heads["scratch"] = np.tile(scratch.ctypes.data + np.arange(N_KV_HEAD) * scratch.strides[0], self.count)
        heads["scratch_items"] = n_items
        self.n_rows = np.empty(N_KV_HEAD, np.int64)
        self.work = np.zeros(1, WORK)
        self._buffers = {
            "queries": self.queries,
            "spans": np.empty((N_KV_HEAD, n_spans), SPAN),
            "n_spans": np.empty(N_KV_HEAD, np.int64),
            "n_rows": self.n_rows,
            "partials": np.empty((n_threads, N_KV_HEAD, partial_size(shape)), np.float32),
            "scratch": memory.allocate(n_threads * thread_bytes).reshape(n_threads, thread_bytes),
        }
        for name, array in self._buffers.items():
            self.work[name] = array.ctypes.data
        self.work["span_capacity"], self.work["scratch_bytes"] = n_spans, self._buffers["scratch"].shape[1]
        self._buffers["selection"] = scratch

    def _set_budget(self) -> None:
        """Set the smallest budget with which the method attends to KEPT of the rows, by bisection."""
        low, high = _LEAST_BUDGET, 1.0
        for _ in range(_BISECTIONS):
            budget = math.sqrt(low * high)
            if self._share_attended(budget) < KEPT:
                low = budget
            else:
                high = budget
        self._share_attended(high)

    def _share_attended(self, budget: float) -> float:
        """Set the method's budget, and return the share of its rows that the last layer attends to."""
        served = self.cache.served[0]
        method = Attention(self.case.method, budget=budget).new_method()
        method.start(served.heads, self.cache.document)
        method.before_step(served.heads, self.cache.document, self.case.rows)
        self.attend(0, 1, n_layers=1)
        return float(self.n_rows.mean() / self.case.rows)

    def operations(self, n_bytes: int) -> int:
        """Return the multiplications and additions of a pass that reads n_bytes, for all query heads and tokens."""
        elements = n_bytes * self.case.shape.head_dim // self.case.shape.row_bytes
        return 2 * elements * self.case.shape.group * self.case.tokens

    def attend(self, ith: int, n_threads: int, n_layers: int | None = None) -> None:
        """Compute one thread's part of a pass."""
        attend_layers(
            self.case.shape,
            self.cache.heads.ctypes.data,
            n_layers or self.count,
            N_KV_HEAD,
            self.case.tokens,
            self.work.ctypes.data,
            self.out.ctypes.data,
            self.out.strides[0],
            self.out.strides[1],
            ith,
            n_threads,
        )


def _expected_seconds(n_cases: int, bandwidth: float) -> float:
    """Return about how long n_cases take: each pass reads _BYTES, and as much to compare; preparing takes longer."""
    return _PREPARING * n_cases * (_REPEATS + 1) * 2 * _BYTES / bandwidth


class KernelBench:
    """Time all cases."""

    def __init__(self, n_threads: int, progress: Progress) -> None:
        self.n_threads, self.progress = n_threads, progress
        numbers = np.random.default_rng(0).standard_normal(_NUMBERS, np.float32).astype(np.float16)
        self.memory = {kv_type: np.tile(numbers, _BYTES // numbers.nbytes + 1) for kv_type in (F16, Q8_0, Q4_0)}

    def run(self) -> dict[str, Any]:
        """Time all cases; return the content of `octavo bench --kernels -o json`."""
        todo = list(cases())
        self.progress.start("Timing kernels", len(todo), "kernels")
        bandwidths: list[float] = []
        rows: list[dict[str, Any]] = []
        with ThreadPoolExecutor(self.n_threads) as pool:
            reading = ReadTest(pool, self.n_threads)
            reading.bytes_per_second()  # the first pass compiles
            minutes = _expected_seconds(len(todo), reading.bytes_per_second()) / 60
            self.progress.notice(f"Timing {len(todo)} kernels takes about {minutes:.1f} minutes.")
            self._compile(todo[0])
            for case in todo:
                rows.append(self._time(case, pool, reading, bandwidths))
                self.progress.advance(1)
        dense = {(row["kernel"], row["kv_type"], row["head_dim"], row["group"], row["rows"]): row["ms"] for row in rows}
        for row in rows:
            key = (DENSE, row["kv_type"], row["head_dim"], row["group"], row["rows"])
            if row["tokens"] == 1 and row["kernel"] != DENSE:
                row["times_dense"] = round(dense[key] / row["ms"], 2)
        machine = {
            "cpu": cpu_name(),
            "threads": self.n_threads,
            "read_bandwidth_gb_s": round(float(np.median(bandwidths)) / 1e9, 2),
        }
        return {"machine": machine, "kv_heads": N_KV_HEAD, "kernels": rows}

    def _compile(self, case: Case) -> None:
        """Compile in two processes what a case and the methods need, before anything is timed."""
        methods = [Attention(name, budget=KEPT).new_method() for name in sparse_methods()]
        hooks = list(dict.fromkeys(hook for method in methods for hook in method.hooks if hook is not None))
        n_elsewhere = len(hooks) * 2 // 3
        background_compile.compile_ahead(hooks[:n_elsewhere])
        Layers(case, self.memory[case.shape.kv_type], self.n_threads).attend(0, 1, n_layers=1)
        for hook in hooks[n_elsewhere:]:
            native(hook)
        background_compile.wait()

    def _time(self, case: Case, pool: ThreadPoolExecutor, reading: ReadTest, bandwidths: list[float]) -> dict[str, Any]:
        layers = Layers(case, self.memory[case.shape.kv_type], self.n_threads)
        seconds, shares = [], []
        for i in range(_REPEATS + 1):
            bandwidth = reading.bytes_per_second()
            layers.cache.heads["bytes_read"] = layers.work["arrived"] = 0
            elapsed = seconds_together(pool, self.n_threads, lambda ith: layers.attend(ith, self.n_threads))
            n_bytes = int(layers.cache.heads["bytes_read"].sum())
            if i > 0:  # the first pass compiles
                seconds.append(elapsed / layers.count)
                shares.append(n_bytes / elapsed / bandwidth)
                bandwidths.append(bandwidth)
        median = float(np.median(seconds))
        n_operations = layers.operations(n_bytes)
        return {
            "kernel": case.kernel,
            "kv_type": case.shape.kv_type,
            "head_dim": case.shape.head_dim,
            "group": case.shape.group,
            "rows": case.rows,
            "tokens": case.tokens,
            "ms": round(median * 1e3, 4),
            "bytes": n_bytes // layers.count,
            "operations": n_operations // layers.count,
            "gb_per_s": round(n_bytes / layers.count / median / 1e9, 2),
            "share_of_read_bandwidth": round(float(np.median(shares)), 3),
            "gflop_per_s": round(n_operations / layers.count / median / 1e9, 1),
        }
