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

from ..convert.clusters import ClusterSettings
from ..cpu_kernels.layout.head import ANY_ORDER
from ..cpu_kernels.numba_support import background_compile
from ..cpu_kernels.numba_support.compile import native
from ..cpu_kernels.numba_support.machine import ReadTest, cpu_name
from ..cpu_kernels.numba_support.shape import F16, Q4_0, Q8_0, Shape
from ..progress import Progress
from ..runtime.devices.random_layers import RandomLayers, as_rows, random_numbers
from ..runtime.document.cache_layer import CacheLayer
from ..runtime.document.index import ClusterMeans, Index, IndexLayer, no_mass
from ..runtime.document.stored_rows import row_format
from ..runtime.methods import DENSE, METHODS, method_class
from ..runtime.methods.attention import Attention
from ..runtime.methods.method import Storage

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
    return [name for name in METHODS if name != DENSE and not method_class(name).evicts]


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


class Layers(RandomLayers):
    """Layers that a case's method serves, with the budget with which a step attends to KEPT of the rows.

    Parameters
    ----------
    memory : float16 array
        Random numbers to make rows of every type from, at least _BYTES.
    """

    def __init__(self, case: Case, memory: np.ndarray, n_threads: int) -> None:
        self.case, shape = case, case.shape
        self.rng = np.random.default_rng(0)
        layer = CacheLayer(N_KV_HEAD, shape.head_dim, 0, shape.kv_type, shape.group)
        layer_bytes = 2 * N_KV_HEAD * case.rows * shape.row_bytes
        count = max(2, _BYTES // layer_bytes) if case.tokens == 1 else 2  # a prefill does not wait for memory
        dtype, n_elements = row_format(shape.head_dim, shape.kv_type)
        rows = memory.view(np.uint8)[: count * layer_bytes].view(dtype)
        rows = as_rows(shape.kv_type, shape.head_dim, rows.reshape(count, 2, N_KV_HEAD, case.rows, n_elements))
        method = Attention(case.method, budget=1.0).new_method()
        document = self._document(rows) if method.storage is Storage.MAPPED else None
        super().__init__(layer, [(keys, values) for keys, values in rows], method, n_threads, case.tokens, document)
        if case.method != DENSE:
            self._set_budget()

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
        group = self.cache.table.groups[0]
        method = Attention(self.case.method, budget=budget).new_method()
        method.start(group.heads, self.cache.document)
        method.before_step(group.heads, self.cache.document, self.case.rows)
        self.attend(0, 1, n_layers=1)
        return float(self.n_attended.mean() / self.case.rows)

    def operations(self, n_bytes: int) -> int:
        """Return the multiplications and additions of a pass that reads n_bytes, for all query heads and tokens."""
        elements = n_bytes * self.case.shape.head_dim // self.case.shape.row_bytes
        return 2 * elements * self.case.shape.group * self.case.tokens


def _expected_seconds(n_cases: int, bandwidth: float) -> float:
    """Return about how long n_cases take: each pass reads _BYTES, and as much to compare; preparing takes longer."""
    return _PREPARING * n_cases * (_REPEATS + 1) * 2 * _BYTES / bandwidth


class KernelBench:
    """Time all cases."""

    def __init__(self, n_threads: int, progress: Progress) -> None:
        self.n_threads, self.progress = n_threads, progress
        numbers = random_numbers()
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
            layers.cache.table.heads["bytes_read"] = 0
            elapsed = layers.seconds(pool)
            n_bytes = int(layers.cache.table.heads["bytes_read"].sum())
            if i > 0:  # the first pass compiles
                seconds.append(elapsed)
                shares.append(n_bytes / layers.count / elapsed / bandwidth)
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
