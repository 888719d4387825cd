"""One KV head's rows: chunks that grow, and of which some are forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...cpu_kernels.append import native_take_in
from ...cpu_kernels.chunks import chunk_layout
from ...cpu_kernels.compile import F16, Shape
from ...cpu_kernels.spans import CHUNK_ROWS
from ...cpu_kernels.tail_clusters import order_of
from ...errors import OctavoError
from ..methods.method import Keeps, Selector
from .memory import Memory
from .rows import row_bytes, row_format

#: Stored keys and values (see rows.py).
Rows = tuple[np.ndarray, np.ndarray]

#: What beside a chunk's rows is made of them as they come (see `take_in`).
_GATHERED = ("page_offset", "column_offset", "moment_offset", "sum_offset")


@dataclass(frozen=True)
class CacheLayer:
    """Shape of one layer's cache.

    window : newest rows that a token sees, 0 for all
    kv_type : how keys and values are stored, F16 or Q8_0
    group, softcap : of the attention that selects, where it is more than one that reads this cache
    """

    n_kv_head: int
    head_dim: int
    window: int
    kv_type: str = F16
    group: int = 1
    softcap: float = 0.0

    @property
    def shape(self) -> Shape:
        """What its kernels are compiled for."""
        return Shape(self.head_dim, self.group, self.kv_type)

    @property
    def row_bytes(self) -> int:
        """Bytes that one token takes: keys and values of all heads."""
        return 2 * self.n_kv_head * row_bytes(self.head_dim, self.kv_type)

    def new_rows(self, n_rows: int) -> np.ndarray:
        """Room for keys and values: (2, n_kv_head, n_rows, elements of a row); see rows.py."""
        dtype, n_elements = row_format(self.head_dim, self.kv_type)
        return np.empty((2, self.n_kv_head, n_rows, n_elements), dtype)


class Tail:
    """The chunks of one KV head.

    record : its HEAD record, a view of one    table : where the addresses of its chunks go
    memory : where its chunks are
    """

    def __init__(
        self, layer: CacheLayer, selector: Selector, record: np.ndarray, table: np.ndarray, memory: Memory
    ) -> None:
        self.keeps, self.record, self.table, self.memory = selector.keeps, record, table, memory
        beside = selector.beside
        self.shape, self.window = layer.shape, layer.window
        self.format = row_format(layer.head_dim, layer.kv_type)
        offsets, self.chunk_bytes = chunk_layout(self.shape, beside)
        self.gathers = any(name in beside for name in _GATHERED)
        self.chunks: list[np.ndarray | None] = []  # None for one that was dropped
        for name, offset in offsets.items():
            record[name] = offset
        record["tail_chunks"] = table.ctypes.data

    @property
    def n_rows(self) -> int:
        return int(self.record["n_tail"][0])

    @property
    def evicted(self) -> bool:
        """Whether rows that came late were kept in the place of others."""
        return self.keeps is Keeps.HEAVY and int(self.record["tail_position"][0]) > 0

    def grow(self, n_chunks: int) -> None:
        """Make room for so many chunks."""
        while len(self.chunks) < n_chunks:
            self._add(None)

    def _add(self, content: np.ndarray | None) -> None:
        """Add a chunk, a copy of another if one is given."""
        chunk = self.memory.allocate(self.chunk_bytes)
        if content is not None:
            chunk[:] = content
        self.table[len(self.chunks)] = chunk.ctypes.data
        self.chunks.append(chunk)

    def shrink(self, n_chunks: int) -> None:
        """Free all chunks but the first n_chunks."""
        self.table[n_chunks : len(self.chunks)] = 0
        del self.chunks[n_chunks:]

    def drop(self, first: int, last: int) -> None:
        """Free the chunks from `first` up to `last`, where they are not yet."""
        for i in range(first, last):
            self.chunks[i], self.table[i] = None, 0

    def restore(self, chunks: Sequence[np.ndarray | None]) -> None:
        """Hold copies of these chunks."""
        self.shrink(0)
        for chunk in chunks:
            if chunk is None:
                self.chunks.append(None)
            else:
                self._add(chunk)

    def rows(self, start: int, stop: int) -> list[Rows]:
        """Views of the keys and values from row `start` to `stop`, a chunk at a time, in the order in the chunk."""
        dtype, n_elements = self.format
        views = []
        for i in range(start // CHUNK_ROWS, -(-stop // CHUNK_ROWS)):
            chunk = self.chunks[i]
            if chunk is None:
                raise OctavoError("These rows were evicted from the cache.")
            within = slice(max(start - i * CHUNK_ROWS, 0), min(stop - i * CHUNK_ROWS, CHUNK_ROWS))
            size = CHUNK_ROWS * self.shape.row_bytes
            keys, values = (
                chunk[offset : offset + size].view(dtype).reshape(CHUNK_ROWS, n_elements)
                for offset in (0, int(self.record["value_offset"][0]))
            )
            views.append((keys[within], values[within]))
        return views

    def write(self, start: int, keys: np.ndarray, values: np.ndarray) -> None:
        """Store rows, for which there is room, from row `start` on."""
        done = 0
        for stored_keys, stored_values in self.rows(start, start + len(keys)):
            stop = done + len(stored_keys)
            stored_keys[:], stored_values[:] = keys[done:stop], values[done:stop]
            done = stop
        self.take_in(start, start + len(keys))

    def take_in(self, start: int, stop: int) -> None:
        """Take stored rows into what is kept beside them."""
        if self.gathers:
            native_take_in(self.shape).ctypes(self.record.ctypes.data, start, stop, 0)

    def copies(self, start: int, stop: int) -> Iterator[Rows]:
        """Copies of keys and values from row `start` to `stop`, a chunk at a time, in the order in which they came."""
        for i in range(start // CHUNK_ROWS, -(-stop // CHUNK_ROWS)):
            first = i * CHUNK_ROWS
            keys, values = self.rows(first, first + CHUNK_ROWS)[0]
            came = np.arange(CHUNK_ROWS)
            if i < self.record["n_clustered"][0]:
                came = order_of(self.shape, self.chunk_part(i, "cluster_offset")).argsort()
            came = came[max(start - first, 0) : stop - first]
            yield keys[came], values[came]

    def uncluster(self, n_chunks: int) -> None:
        """Bring the rows of all clustered chunks but the first n_chunks back into the order in which they came."""
        for i in range(n_chunks, int(self.record["n_clustered"][0])):
            order = order_of(self.shape, self.chunk_part(i, "cluster_offset"))
            for stored in self.rows(i * CHUNK_ROWS, (i + 1) * CHUNK_ROWS)[0]:
                stored[order] = stored.copy()
        self.record["n_clustered"] = np.minimum(self.record["n_clustered"], n_chunks)

    def chunk_part(self, i: int, offset: str) -> np.ndarray:
        """Bytes of chunk i from an offset on that the HEAD record names."""
        chunk = self.chunks[i]
        assert chunk is not None
        return chunk[int(self.record[offset][0]) :]

    def truncate(self, n_rows: int) -> None:
        """Forget the newest rows. Those that stay are as if the others had never come."""
        self.uncluster(n_rows // CHUNK_ROWS)
        self.record["n_tail"] = n_rows
        self.shrink(-(-n_rows // CHUNK_ROWS))
        if n_rows % CHUNK_ROWS:
            self.take_in(n_rows // CHUNK_ROWS * CHUNK_ROWS, n_rows)
