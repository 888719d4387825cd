"""Time the attention kernels alone, over random keys and values, against the memory bandwidth of the same minute.

Each measurement is a pass over many layers, about 1 GiB of keys and values, so that nothing is still in a cache from
the layer before; all threads run it as they run a model's layers. Passes alternate with passes that only read, and
medians are taken of both the time and the share of the bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..convert.calibrate import cluster_importance
from ..convert.progress import Progress
from ..cpu_kernels.chunks import chunk_layout
from ..cpu_kernels.compile import F16, Q8_0, Shape
from ..cpu_kernels.decode import partial_size
from ..cpu_kernels.layer import WORK, attend_layers, scratch_bytes
from ..cpu_kernels.machine import ReadTest, cpu_name, seconds_together
from ..cpu_kernels.methods.quest import PAGE_ROWS, native_score_pages, native_select_pages
from ..cpu_kernels.methods.sparq import native_score_rows, native_select_rows
from ..cpu_kernels.methods.squeezed import (
    native_score_clusters,
    native_score_coarse_clusters,
    native_select_clusters,
    native_select_clusters_of_clusters,
)
from ..cpu_kernels.scores import native_select_all, padded, selection_scratch_bytes
from ..cpu_kernels.spans import ANY_ORDER, CHUNK_ROWS, HEAD, SPAN
from ..runtime.methods.quest import Quest
from ..runtime.methods.sparq import SparQ

N_KV_HEAD = 8
LENGTHS = (8192, 32768)
DENSE_SHAPES = ((64, 1), (64, 3), (64, 4), (64, 8), (128, 1), (128, 4), (128, 8))
SPARSE_SHAPES = ((64, 1), (64, 4), (128, 4))
#: Share of the rows that sparse kernels attend.
KEPT = 1 / 8
_BYTES = 1 << 30
_REPEATS = 7


@dataclass(frozen=True)
class Case:
    """One kernel on one shape. `rows` : stored, for each KV head    `tokens` : of a batch, 1 for decode."""

    kernel: str
    shape: Shape
    rows: int
    tokens: int = 1


def cases() -> Iterator[Case]:
    """What is measured, dense decode before what is compared with it."""
    for kv_type in (F16, Q8_0):
        for sizes in DENSE_SHAPES:
            for rows in LENGTHS:
                yield Case("dense", Shape(*sizes, kv_type), rows)
    for sizes in SPARSE_SHAPES:
        for name in ("squeezed", "squeezed, two levels", "quest", "sparq"):
            yield Case(name, Shape(*sizes), LENGTHS[-1])
    for sizes in SPARSE_SHAPES:
        yield Case("dense prefill", Shape(*sizes), LENGTHS[0], tokens=512)
        yield Case("squeezed prefill", Shape(*sizes), LENGTHS[-1], tokens=32)


class Layers:
    """Layers of random rows, with all that a case's selector needs of them.

    They are documents in any order, but where a selector keeps something beside each chunk of a tail: then tails.
    memory : random f16, of which all kinds of rows are made: 1 GiB, and as much again
    """

    def __init__(self, case: Case, memory: np.ndarray, n_threads: int) -> None:
        self.case, self.memory, shape = case, memory, case.shape
        self.rng = np.random.default_rng(0)
        layer_bytes = 2 * N_KV_HEAD * case.rows * shape.row_bytes
        self.count = max(2, _BYTES // layer_bytes) if case.tokens == 1 else 2  # a prefill does not wait for memory
        self.heads = np.zeros((self.count, N_KV_HEAD), HEAD)
        self._kept: list[np.ndarray] = []
        self.heads["document_position"] = ANY_ORDER
        self.heads["select"] = native_select_all(shape).address
        self.queries = self.rng.standard_normal(
            (N_KV_HEAD, case.tokens, shape.group, shape.head_dim), np.float32
        ) / np.float32(np.sqrt(shape.head_dim))
        self.out = np.empty((case.tokens, N_KV_HEAD * shape.group, shape.head_dim), np.float32)
        self._make_work(n_threads)
        prepare = {"quest": self._bound_pages, "sparq": self._transpose_keys}
        if case.kernel in prepare:
            prepare[case.kernel]()
            return
        rows = memory.view(np.uint8)[: self.count * layer_bytes].reshape(2, -1, shape.row_bytes)
        if shape.kv_type == Q8_0:
            rows[:, :, shape.head_dim :] = np.frombuffer(np.float32(0.01).tobytes(), np.uint8)
        self._place("document_keys", rows[0])
        self._place("document_values", rows[1])
        self.heads["n_document"] = case.rows
        if case.kernel.startswith("squeezed"):
            self._cluster(two_levels=case.kernel.endswith("two levels"))

    def _keep(self, array: np.ndarray) -> np.ndarray:
        """Arrays are known by their addresses only: keep them alive."""
        self._kept.append(array)
        return array

    def _place(self, name: str, array: np.ndarray) -> None:
        """Point each head of each layer at its part of an array."""
        parts = self._keep(array).reshape(self.heads.size, -1)
        addresses = parts.ctypes.data + np.arange(self.heads.size) * parts.strides[0]
        self.heads[name] = addresses.reshape(self.heads.shape)

    def _halves(self, *shape: int) -> np.ndarray:
        """Random f16 from the part of the memory where no rows are."""
        return self.memory[_BYTES // 2 :][: math.prod(shape)].reshape(shape)

    def _make_work(self, n_threads: int) -> None:
        case, shape = self.case, self.case.shape
        n_items = padded(case.rows)
        scratch = self._keep(np.zeros((N_KV_HEAD, selection_scratch_bytes(shape.group, n_items)), np.uint8))
        self.heads["scratch"] = scratch.ctypes.data + np.arange(N_KV_HEAD) * scratch.strides[0]
        self.heads["scratch_items"] = n_items
        self.work = np.zeros(1, WORK)
        buffers = {
            "queries": self.queries,
            "spans": np.empty((N_KV_HEAD, case.rows), SPAN),
            "n_spans": np.empty(N_KV_HEAD, np.int64),
            "n_rows": np.empty(N_KV_HEAD, np.int64),
            "partials": np.empty((n_threads, N_KV_HEAD, partial_size(shape)), np.float32),
            "scratch": np.empty((n_threads, -(-scratch_bytes(shape) // 64) * 64), np.uint8),
        }
        for name, array in buffers.items():
            self.work[name] = self._keep(array).ctypes.data
        self.work["span_capacity"], self.work["scratch_bytes"] = case.rows, buffers["scratch"].shape[1]

    def _cluster(self, two_levels: bool) -> None:
        """Clusters of about 20 rows (5 %), and of the clusters (1 % of the rows), at random."""
        case, shape, n_heads = self.case, self.case.shape, self.heads.size
        n_clusters, n_coarse = round(case.rows * 0.05), round(case.rows * 0.01)
        centroids = self._halves(n_heads, n_clusters, shape.head_dim)
        starts = np.sort(self.rng.integers(0, case.rows, (n_heads, n_clusters + 1)), axis=1).astype(np.int32)
        starts[:, 0], starts[:, -1] = 0, case.rows
        self._place("centroids", centroids)
        self._place("cluster_starts", starts)
        self.heads["n_clusters"] = n_clusters
        self.heads["select"] = native_select_clusters(shape).address
        self.heads["score"] = native_score_clusters(shape).address
        if two_levels:
            coarse = self._halves(n_heads, n_coarse, shape.head_dim)
            first = np.linspace(0, n_clusters, n_coarse + 1).astype(np.int32)
            self._place("coarse_centroids", coarse)
            self._place("coarse_starts", np.tile(first, (n_heads, 1)))
            self.heads["n_coarse"] = n_coarse
            self.heads["select"] = native_select_clusters_of_clusters(shape).address
            self.heads["score"] = native_score_coarse_clusters(shape).address
        for i, head in enumerate(self.heads.reshape(-1)):
            queries = self.queries[i % N_KV_HEAD]
            if two_levels:  # a quarter of the coarse clusters, and half of the clusters in them
                kept = _most_important(queries, coarse[i], np.diff(starts[i][first]), 2 * KEPT)
                head["coarse_threshold"] = kept.threshold
                inside = np.isin(np.searchsorted(first, np.arange(n_clusters), "right") - 1, kept.clusters)
                sizes = np.where(inside, np.diff(starts[i]), 0)
                head["threshold"] = _most_important(queries, centroids[i], sizes, 0.5).threshold
            else:
                head["threshold"] = _most_important(queries, centroids[i], np.diff(starts[i]), KEPT).threshold

    def _fill_tails(self, beside: tuple[str, ...]) -> np.ndarray:
        """All rows in chunks, f16, and beside them what a selector keeps, at random, too. Returns the chunks' bytes."""
        offsets, n_bytes = chunk_layout(self.case.shape, beside)
        n_chunks = -(-self.case.rows // CHUNK_ROWS)
        chunks = self.memory.view(np.uint8)[: self.heads.size * n_chunks * n_bytes]
        table = self._keep(chunks.ctypes.data + np.arange(self.heads.size * n_chunks, dtype=np.int64) * n_bytes)
        self._place("tail_chunks", table)
        for name, offset in offsets.items():
            self.heads[name] = offset
        self.heads["n_tail"] = self.case.rows
        return chunks.reshape(-1, n_bytes)

    def _bound_pages(self) -> None:
        case, shape = self.case, self.case.shape
        self._fill_tails(Quest.beside)
        self.heads["n_selected"] = round(case.rows // PAGE_ROWS * KEPT)
        self.heads["select"] = native_select_pages(shape).address
        self.heads["score"] = native_score_pages(shape).address

    def _transpose_keys(self) -> None:
        case, shape = self.case, self.case.shape
        chunks = self._fill_tails(SparQ.beside)
        offset, n_bytes = int(self.heads["moment_offset"][0, 0]), 4 * shape.head_dim
        chunks[:, offset : offset + 2 * n_bytes].view(np.float32)[:] = np.repeat([0, CHUNK_ROWS], shape.head_dim)
        self.heads["n_selected"], self.heads["n_components"] = round(case.rows * KEPT), shape.head_dim // 4
        self.heads["select"] = native_select_rows(shape).address
        self.heads["score"] = native_score_rows(shape).address

    def operations(self, n_bytes: int) -> int:
        """Multiplications and additions for each element that is read, for all query heads and tokens."""
        elements = n_bytes * self.case.shape.head_dim // self.case.shape.row_bytes
        return 2 * elements * self.case.shape.group * self.case.tokens

    def attend(self, ith: int, n_threads: int) -> None:
        """One thread's part of a pass."""
        attend_layers(
            self.case.shape,
            self.heads.ctypes.data,
            self.count,
            N_KV_HEAD,
            self.case.tokens,
            self.work.ctypes.data,
            self.out.ctypes.data,
            self.out.strides[0],
            self.out.strides[1],
            ith,
            n_threads,
        )


@dataclass(frozen=True)
class _Kept:
    """Clusters that a threshold keeps."""

    clusters: np.ndarray
    threshold: float


def _most_important(queries: np.ndarray, centroids: np.ndarray, sizes: np.ndarray, share: float) -> _Kept:
    """The clusters with the highest importance that hold this share of the rows, and the threshold below them."""
    importance = cluster_importance(queries, centroids, sizes, 0.0).mean(axis=0)
    order = np.argsort(-importance)
    n_kept = int(np.searchsorted(np.cumsum(sizes[order]), share * sizes.sum())) + 1
    return _Kept(order[:n_kept], float(importance[order[n_kept]]))


class KernelBench:
    """Times all cases. The result is what `octavo bench --kernels -o json` prints."""

    def __init__(self, n_threads: int, progress: Progress) -> None:
        self.n_threads, self.progress = n_threads, progress
        numbers = np.random.default_rng(0).standard_normal(1 << 22, np.float32).astype(np.float16)
        self.memory = {kv_type: np.tile(numbers, _BYTES // numbers.size) for kv_type in (F16, Q8_0)}

    def run(self) -> dict[str, Any]:
        """Measure."""
        todo = list(cases())
        self.progress.start("Timing kernels", len(todo), "kernels")
        bandwidths: list[float] = []
        rows: list[dict[str, Any]] = []
        with ThreadPoolExecutor(self.n_threads) as pool:
            reading = ReadTest(pool, self.n_threads)
            for case in todo:
                rows.append(self._time(case, pool, reading, bandwidths))
                self.progress.advance(1)
        dense = {(row["kernel"], row["kv_type"], row["head_dim"], row["group"], row["rows"]): row["ms"] for row in rows}
        for row in rows:
            key = ("dense", row["kv_type"], row["head_dim"], row["group"], row["rows"])
            if row["tokens"] == 1 and row["kernel"] != "dense":
                row["times_dense"] = round(dense[key] / row["ms"], 2)
        machine = {
            "cpu": cpu_name(),
            "threads": self.n_threads,
            "read_bandwidth_gb_s": round(float(np.median(bandwidths)) / 1e9, 2),
        }
        return {"machine": machine, "kv_heads": N_KV_HEAD, "kernels": rows}

    def _time(self, case: Case, pool: ThreadPoolExecutor, reading: ReadTest, bandwidths: list[float]) -> dict[str, Any]:
        layers = Layers(case, self.memory[case.shape.kv_type], self.n_threads)
        seconds, shares = [], []
        for i in range(_REPEATS + 1):
            bandwidth = reading.bytes_per_second()
            layers.heads["bytes_read"] = layers.work["arrived"] = 0
            elapsed = seconds_together(pool, self.n_threads, lambda ith: layers.attend(ith, self.n_threads))
            n_bytes = int(layers.heads["bytes_read"].sum())
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
