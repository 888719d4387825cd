"""Hold the rows of one KV head's tail, in chunks that are added, and may be dropped.

A chunk is rows and extras in one piece of memory, or extras beside rows that lie in a document's index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...cpu_kernels.numba_support.compile import native
from ...cpu_kernels.numba_support.shape import Shape
from ...cpu_kernels.numba_support.vector import CACHE_LINE
from ...cpu_kernels.rows.tiles import CHUNK_ROWS
from ...errors import OctavoError
from ..document.cache_layer import CacheLayer, Rows
from ..document.stored_rows import converted, rows_format
from ..methods.method import Method
from .cache_memory import Memory

#: Allocates a number of bytes, as uint8.
Allocate = Callable[[int], np.ndarray]


def chunk_bytes(shape: Shape, extras_bytes: int) -> int:
    """Return the size of a chunk, a multiple of 64 bytes."""
    return -(-(CHUNK_ROWS * shape.token_bytes + extras_bytes) // 64) * 64


class Chunk(NamedTuple):
    """The rows and the extras of a chunk (see cpu_kernels/layout/head.py).

    Parameters
    ----------
    keys, values : uint8 arrays
        The bytes of CHUNK_ROWS rows; read-only in an index. Values that are the first part of their keys have none.
    extras : uint8 array
        What the head's method needs for selection.
    """

    keys: np.ndarray
    values: np.ndarray
    extras: np.ndarray

    @classmethod
    def new(cls, shape: Shape, extras_bytes: int, allocate: Allocate) -> Chunk:
        """Return a chunk in one piece of memory, uninitialised."""
        buffer = allocate(chunk_bytes(shape, extras_bytes))
        of_keys, of_both = CHUNK_ROWS * shape.row_bytes, CHUNK_ROWS * shape.token_bytes
        return cls(buffer[:of_keys], buffer[of_keys:of_both], buffer[of_both : of_both + extras_bytes])

    @property
    def is_mapped(self) -> bool:
        """Return whether the rows lie in an index, where they never change."""
        return not self.keys.flags.writeable

    @property
    def n_bytes(self) -> int:
        """Return the bytes of rows and extras."""
        return self.keys.nbytes + self.values.nbytes + self.extras.nbytes

    @property
    def n_own_bytes(self) -> int:
        """Return the same without rows in an index."""
        return self.extras.nbytes if self.is_mapped else self.n_bytes

    @property
    def addresses(self) -> tuple[int, int, int]:
        """Return the fields of its CHUNK record."""
        keys = self.keys.ctypes.data
        return keys, self.values.ctypes.data if self.values.size else keys, self.extras.ctypes.data

    def copy(self, shape: Shape, allocate: Allocate) -> Chunk:
        """Return a copy; rows in an index stay there."""
        if self.is_mapped:
            extras = allocate(len(self.extras))
            extras[:] = self.extras
            return Chunk(self.keys, self.values, extras)
        copy = Chunk.new(shape, len(self.extras), allocate)
        copy.keys[:], copy.values[:], copy.extras[:] = self.keys, self.values, self.extras
        return copy


class Tail:
    """The chunks of one KV head.

    Parameters
    ----------
    record : HEAD array, shape (1,)
        View of the head's record.
    state : STATE record
        View of the method's record of the head.
    table : int64 array, shape (n_chunks, 3)
        Receives the CHUNK records of the chunks.
    """

    def __init__(
        self,
        layer: CacheLayer,
        method: Method,
        record: np.ndarray,
        state: np.void,
        table: np.ndarray,
        memory: Memory,
    ) -> None:
        self.method, self.record, self.state, self.table, self.memory = method, record, state, table, memory
        self.shape, self.window = layer.shape, layer.window
        self.format = rows_format(self.shape)
        self.extras_bytes = method.extras_bytes(self.shape)
        self.chunk_bytes = chunk_bytes(self.shape, self.extras_bytes)
        self.chunks: list[Chunk | None] = []  # None for a dropped chunk
        record["tail_chunks"] = table.ctypes.data

    @property
    def n_rows(self) -> int:
        """Return the number of stored rows."""
        return int(self.record["n_tail"][0])

    def grow(self, n_chunks: int) -> None:
        """Grow to n_chunks chunks in all."""
        while len(self.chunks) < n_chunks:
            self._add(Chunk.new(self.shape, self.extras_bytes, self.memory.allocate))

    def _add(self, chunk: Chunk) -> None:
        self.table[len(self.chunks)] = chunk.addresses
        self.chunks.append(chunk)

    def map_rows(self, keys: np.ndarray, values: np.ndarray) -> int:
        """Take the full chunks of a document's rows where they lie, as the first ones. Return their number.

        Parameters
        ----------
        keys, values : arrays, shape (n_rows, elements of a row)
            Rows in the order of the document.
        """
        n_chunks, size = len(keys) // CHUNK_ROWS, -(-self.extras_bytes // CACHE_LINE) * CACHE_LINE
        if not n_chunks:
            return 0
        rows = [array[: n_chunks * CHUNK_ROWS].reshape(n_chunks, -1).view(np.uint8) for array in (keys, values)]
        for array in rows:
            array.flags.writeable = False
        extras = self.memory.allocate(n_chunks * size).reshape(n_chunks, size)[:, : self.extras_bytes]
        for i, array in enumerate((rows[0], rows[1] if rows[1].size else rows[0], extras)):
            self.table[:n_chunks, i] = array.ctypes.data + np.arange(n_chunks) * array.strides[0]
        self.chunks = list(map(Chunk, *rows, extras))
        return n_chunks

    def shrink(self, n_chunks: int) -> None:
        """Free all chunks but the first n_chunks."""
        self.table[n_chunks : len(self.chunks)] = 0
        del self.chunks[n_chunks:]

    def drop(self, first: int, last: int) -> None:
        """Free the chunks from `first` up to `last`, if they are not free already, but keep their places."""
        for i in range(first, last):
            self.chunks[i], self.table[i] = None, 0

    def close_gap(self, first: int, last: int) -> None:
        """Remove the places of the dropped chunks from `first` up to `last`."""
        del self.chunks[first:last]
        self.table[first : len(self.chunks)] = self.table[last : len(self.chunks) + last - first].copy()
        self.table[len(self.chunks) :] = 0

    def restore(self, chunks: Sequence[Chunk | None], copied: bool = True) -> None:
        """Hold copies of these chunks, or the chunks themselves."""
        self.shrink(0)
        for chunk in chunks:
            if chunk is None:
                self.chunks.append(None)
            else:
                self._add(chunk.copy(self.shape, self.memory.allocate) if copied else chunk)

    def own(self, number: int) -> None:
        """Replace a shared chunk by a copy of its own."""
        if (chunk := self.chunks[number]) is not None:
            self.chunks[number] = copy = chunk.copy(self.shape, self.memory.allocate)
            self.table[number] = copy.addresses

    def chunk(self, number: int) -> Chunk:
        """Return a chunk. Raise OctavoError if it was dropped."""
        chunk = self.chunks[number]
        if chunk is None:
            raise OctavoError("These rows were evicted from the cache.")
        return chunk

    def rows(self, start: int, stop: int) -> list[Rows]:
        """Return views of the keys and values from row `start` to `stop`, chunk by chunk, in the chunk's order."""
        dtype, (n_key, n_value) = self.format
        views = []
        for i in range(start // CHUNK_ROWS, -(-stop // CHUNK_ROWS)):
            keys = self.chunk(i).keys.view(dtype).reshape(CHUNK_ROWS, n_key)
            values = self.chunk(i).values.view(dtype).reshape(CHUNK_ROWS, n_value)
            within = slice(max(start - i * CHUNK_ROWS, 0), min(stop - i * CHUNK_ROWS, CHUNK_ROWS))
            views.append((keys[within], values[within]))
        return views

    def write(self, start: int, keys: np.ndarray, values: np.ndarray) -> None:
        """Store rows from row `start` on, in chunks that exist already, and let the method take them into extras."""
        self.copy_rows(start, keys, values)
        self.append_to_extras(start, start + len(keys))

    def copy_rows(self, start: int, keys: np.ndarray, values: np.ndarray) -> None:
        """Store rows from row `start` on, in chunks that exist already; rows of q8_0 may have its other format."""
        dtype, sizes = self.format
        if (keys.shape[-1], values.shape[-1]) == sizes:
            split = self.shape.value_dim if self.shape.latent else 0
            keys, values = converted(keys, dtype, split), converted(values, dtype)
        done = 0
        for stored_keys, stored_values in self.rows(start, start + len(keys)):
            stop = done + len(stored_keys)
            stored_keys[:], stored_values[:] = keys[done:stop], values[done:stop]
            done = stop

    def append_to_extras(self, start: int, stop: int) -> None:
        """Let the method add stored rows to the chunks' extras."""
        if self.method.hooks.append is not None:
            native(self.method.hooks.append).ctypes(self.record.ctypes.data, start, stop, 0)

    def rows_of_chunk(self, number: int) -> tuple[int, int]:
        """Return the rows where a chunk starts and stops."""
        return number * CHUNK_ROWS, min((number + 1) * CHUNK_ROWS, self.n_rows)

    def run_after_step(self) -> None:
        """Let the method update rows that were copied, or truncated, if it needs to."""
        if self.method.runs_after_copy:
            native(self.method.hooks.after_step).ctypes(self.record.ctypes.data, 0, 0, 0)

    def copies(self, start: int, stop: int) -> Iterator[Rows]:
        """Yield copies of keys and values from row `start` to `stop`, chunk by chunk, in the order of arrival."""
        for i in range(start // CHUNK_ROWS, -(-stop // CHUNK_ROWS)):
            first = i * CHUNK_ROWS
            keys, values = self.rows(first, first + CHUNK_ROWS)[0]
            order = self._order(i)
            came = np.arange(CHUNK_ROWS) if order is None else order.argsort()
            came = came[max(start - first, 0) : stop - first]
            yield keys[came], values[came]

    def _order(self, number: int) -> np.ndarray | None:
        """Return each row's place of arrival in its chunk, or None if the chunk is still in that order."""
        return self.method.chunk_order(self.state, self.shape, number, self.chunk(number).extras)

    def truncate(self, n_rows: int) -> None:
        """Forget all but the first n_rows rows, as if the others had never come."""
        first_changed = self.method.chunks_kept(n_rows)
        for i in range(first_changed, len(self.chunks)):
            if self.chunks[i] is not None and (order := self._order(i)) is not None:
                for stored in self.rows(i * CHUNK_ROWS, (i + 1) * CHUNK_ROWS)[0]:
                    stored[order] = stored.copy()
        self.method.truncate(self.state, first_changed)
        self.record["n_tail"] = n_rows
        self.shrink(-(-n_rows // CHUNK_ROWS))
        if n_rows % CHUNK_ROWS:
            self.append_to_extras(first_changed * CHUNK_ROWS, n_rows)
        self.run_after_step()


def joined_rows(layer: CacheLayer, tails: Sequence[Tail], parts: Sequence[tuple[int, int]]) -> Rows:
    """Copy parts of some heads' rows, one part after another.

    Parameters
    ----------
    parts : sequence of (int, int)
        Start and stop of each part, relative to the newest row: (-3, 0) are the newest three rows.

    Returns
    -------
    keys, values : arrays, shape (n_heads, n_rows, elements of a row)
    """
    all_keys, all_values = (array[: len(tails)] for array in layer.new_rows(sum(stop - start for start, stop in parts)))
    for head, tail in enumerate(tails):
        done = 0
        end = tail.n_rows
        for keys, values in (rows for a, b in parts if b > a for rows in tail.copies(end + a, end + b)):
            until = done + len(keys)
            all_keys[head, done:until], all_values[head, done:until] = keys, values
            done = until
    return all_keys, all_values
