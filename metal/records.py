"""The records that shaders read: what a head's method is, and HEAD records with the GPU's addresses."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from ..cpu_kernels.spans import HEAD
from .memory import Memory


class Method(IntEnum):
    """How a head selects, as the shaders number it (metal/common.metal). Each selector names its own."""

    ALL = 0
    RECENT = 1
    PAGES = 2
    ROWS = 3
    CLUSTERS = 4
    COARSE = 5


#: From this method on, items are scored before a token selects.
FIRST_THAT_SCORES = Method.PAGES

#: What a step computes: `Step` in metal/common.metal.
STEP = np.dtype(
    [
        ("n_kv_head", "u4"),
        ("n_tokens", "u4"),
        ("n_shares", "u4"),
        ("span_capacity", "u4"),
        ("softcap", "f4"),
        ("has_sinks", "u4"),
    ]
)

#: Bytes of a `Span` and of a `Selected` there.
SPAN_BYTES, SELECTED_BYTES = 40, 8

#: HEAD's fields that are addresses, and the field that is 0 where there is nothing at them.
_ADDRESSES = {
    "document_keys": "n_document",
    "document_values": "n_document",
    "cluster_starts": "n_document",
    "coarse_starts": "n_document",
    "centroids": "n_clusters",
    "coarse_centroids": "n_coarse",
    "reallocation": "reallocation",
    "scratch": "scratch",
}


class GpuHeads:
    """A copy of a cache's HEAD records, and of the tables of chunks that they point at, with the GPU's addresses.

    The fields that hold addresses of compiled functions mean nothing there, but `select`, which holds the method.
    """

    def __init__(self, memory: Memory, n_heads: int, table_size: int) -> None:
        self._memory = memory
        self.records = memory.new((n_heads,), HEAD)
        self._tables = memory.new((n_heads, table_size), np.int64)
        self._tables[:] = 0
        self._translated = np.zeros((n_heads, table_size), np.int64)  # the CPU's tables when they were last looked at
        self._generation = -1

    def update(self, heads: np.ndarray, tables: np.ndarray, methods: np.ndarray) -> None:
        """Take over what the CPU has before a step.

        heads : HEAD records    tables : (n_heads, table_size) int64, addresses of chunks, 0 for none
        methods : (n_heads,) int64
        """
        records, memory = self.records, self._memory
        records[...] = heads
        for name, exists in _ADDRESSES.items():
            records[name] = memory.on_gpu(np.where(heads[exists] != 0, heads[name], 0))
        if memory.generation != self._generation:
            self._translated[:], self._generation = -1, memory.generation
        changed = np.flatnonzero(np.any(tables != self._translated, axis=1))
        if len(changed):
            self._tables[changed] = memory.on_gpu(tables[changed])
            self._translated[changed] = tables[changed]
        first = self._tables.ctypes.data + np.arange(len(records)) * self._tables.strides[0]
        records["tail_chunks"] = memory.on_gpu(first)
        records["select"] = methods

    def take_back(self, heads: np.ndarray) -> None:
        """After a step: what the GPU counted, and how many rows of clusters it selected."""
        heads["bytes_read"] = self.records["bytes_read"]
        clusters = self.records["select"] >= Method.CLUSTERS
        heads["n_selected"] = np.where(clusters, self.records["n_selected"], heads["n_selected"])
