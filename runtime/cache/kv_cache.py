"""The KV cache: a read-only document, if one is attached, and a tail of rows that came after it.

One sequence. Each KV head has a tail of its own, in chunks (see cpu_kernels/chunks.py), and keeps of the sequence what
its selector wants kept: all of it, with the document where its index maps it or copied in order; sinks and recent rows,
whose older chunks are dropped; or the rows that got much attention. The compiled step reads all of it through the HEAD
records that this class keeps; it appends the step's new rows itself, to room that `reserve` made, and `settle` forgets
afterwards what is to be forgotten.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import psutil

from ...cpu_kernels.layer import settle_heads
from ...cpu_kernels.methods.h2o import slots_of
from ...cpu_kernels.scores import padded
from ...cpu_kernels.spans import ANY_ORDER, CHUNK_ROWS, HEAD
from ...errors import OctavoError
from ..methods.method import Assignment, Heads, Keeps
from .index import Index, IndexLayer
from .memory import CpuMemory, Memory
from .tail import CacheLayer, Rows, Tail

#: Memory that is left to the rest of the machine.
_SPARE_BYTES = 256 << 20

#: Arrays of a document that are read where they are, and the fields of HEAD records that hold their addresses.
_READ_IN_PLACE = {
    "keys": "document_keys",
    "values": "document_values",
    "centroids": "centroids",
    "cluster_starts": "cluster_starts",
    "coarse_centroids": "coarse_centroids",
    "coarse_starts": "coarse_starts",
}

#: Fields of HEAD records that are the step's own, whatever the cache holds.
_OF_THE_STEP = ("scratch", "scratch_items", "bytes_read")


@dataclass(frozen=True)
class Checkpoint:
    """What a cache held after some token, to go back to: `KVCache.checkpoint` takes it, `restore` goes there."""

    n_tail: int
    heads: np.ndarray
    dropped: np.ndarray
    chunks: list[list[np.ndarray | None]]


class KVCache:
    """Keys and values of one sequence of at most n_ctx tokens.

    first_heads : (n_layers,) number of each layer's first head    tables : (n_heads, n) int64, addresses of chunks
    memory : of the device that attends; plain memory where it is the CPU
    """

    def __init__(
        self, layers: list[CacheLayer], n_ctx: int, assignments: Sequence[Assignment], memory: Memory | None = None
    ) -> None:
        self.layers = layers
        self._memory: Memory = memory or CpuMemory()
        self.document: Index | None = None
        self.n_tail = 0  # tokens after the document
        self._unsettled = 0  # those of them whose step is not over
        self._shared: dict[int, IndexLayer] = {}  # where the device reads it
        self._n_chunks = self._dropped = np.zeros(0, np.int64)  # of each head: in its tail, and dropped from it
        first = np.cumsum([0] + [layer.n_kv_head for layer in layers])
        self.heads = np.zeros(first[-1], HEAD)
        self._layer_of = np.repeat(np.arange(len(layers)), [layer.n_kv_head for layer in layers])
        self._first, self.first_heads = first, first[:-1]
        self._layer_heads = [self.heads[a:b] for a, b in itertools.pairwise(first)]
        self.tables = np.zeros((first[-1], -(-n_ctx // CHUNK_ROWS) + 2), np.int64)
        self.arrange(assignments)

    def arrange(self, assignments: Sequence[Assignment]) -> None:
        """Say which selector serves which heads, and start over with nothing."""
        self.assignments = list(assignments)
        self.heads[:] = 0
        head_dim = np.array([layer.head_dim for layer in self.layers])[self._layer_of]
        group = np.array([layer.group for layer in self.layers])[self._layer_of]
        rest_bytes = 4 * int((group + head_dim).max())
        self._rest = self._memory.allocate(len(self.heads) * rest_bytes).reshape(len(self.heads), rest_bytes)
        self._rest[:] = 0
        rest = self._rest.ctypes.data + np.arange(len(self.heads)) * self._rest.strides[0]
        self.served = [
            Heads(self.heads, a.heads, a.scale, head_dim[a.heads], group[a.heads], rest[a.heads]) for a in assignments
        ]
        by_head = {int(number): a.selector for a in assignments for number in a.heads}
        self.tails: list[Tail] = []
        for number, layer_number in enumerate(self._layer_of):
            selector, record = by_head[number], self.heads[number : number + 1]
            layer = self.layers[layer_number]
            record["window"], record["softcap"] = layer.window, layer.softcap
            for name, native in (
                ("score", selector.native_score),
                ("select", selector.native_select),
                ("settle", selector.native_settle),
            ):
                record[name] = native(layer.shape).address if native else 0
            self.tails.append(Tail(layer, selector, record, self.tables[number], self._memory))
        self.evicts = any(a.selector.keeps.evicts for a in assignments)
        self._heavy = np.array([tail.keeps is Keeps.HEAVY for tail in self.tails])
        self._recent = np.array([tail.keeps is Keeps.RECENT for tail in self.tails])
        self._slides = np.array([tail.window > 0 for tail in self.tails]) & self.evicts
        self.attach(None)

    def layer_heads(self, layer: int) -> np.ndarray:
        """The HEAD records of a layer, a view."""
        return self._layer_heads[layer]

    @property
    def n_document(self) -> int:
        """Tokens of the attached document."""
        return len(self.document.tokens) if self.document else 0

    @property
    def n_tokens(self) -> int:
        """Tokens that were read, those that are forgotten included."""
        return self.n_document + self.n_tail

    @property
    def row_bytes(self) -> int:
        """Bytes that one token takes in all layers, where all of it is kept."""
        return sum(layer.row_bytes for layer in self.layers)

    @property
    def kv_bytes(self) -> int:
        """Bytes allocated or mapped for keys, values, and what selectors keep beside them."""
        mapped = 0
        for tail, layer in zip(self.tails, self._layer_of, strict=True):
            if self.document and tail.keeps is Keeps.DOCUMENT:
                stored = self.document.layers[layer]
                mapped += stored.n_bytes // stored.keys.shape[0]
        return mapped + sum(tail.chunk_bytes for tail in self.tails for chunk in tail.chunks if chunk is not None)

    def check_memory(self, n_tail: int) -> None:
        """Raise OctavoError, with the figures, where a tail of n_tail rows that are all kept does not fit in memory."""
        n_chunks = -(-n_tail // CHUNK_ROWS)
        needed = sum(max(0, n_chunks - len(tail.chunks)) * tail.chunk_bytes for tail in self.tails)
        self._check_free(needed, n_tail)

    def _check_free(self, needed: int, n_tail: int) -> None:
        free = psutil.virtual_memory().available
        if needed and needed + _SPARE_BYTES > free:
            raise OctavoError(
                f"The KV cache of {self.n_document + n_tail:,} tokens needs {needed / 2**30:.2f} GiB more, but only "
                f"{free / 2**30:.2f} GiB of memory are free: close other programs, or give a shorter text."
            )

    def reserve(self, n_new: int) -> None:
        """Prepare the selectors, make room for n_new more rows and count them in: the step that follows writes them."""
        self._prepare(self.n_tokens + n_new)
        n_chunks = -(-(self.heads["n_tail"] + n_new) // CHUNK_ROWS)
        growing = [i for i in np.flatnonzero(n_chunks > self._n_chunks) if n_chunks[i] > len(self.tails[i].chunks)]
        if growing:
            needed = sum((int(n_chunks[i]) - len(self.tails[i].chunks)) * self.tails[i].chunk_bytes for i in growing)
            self._check_free(needed, self.n_tail + n_new)
            for i in growing:
                self.tails[i].grow(int(n_chunks[i]))
                self._n_chunks[i] = n_chunks[i]
        self.heads["n_tail"] += n_new
        self.n_tail += n_new
        self._unsettled = n_new

    def _prepare(self, n_tokens: int) -> None:
        for assignment, own in zip(self.assignments, self.served, strict=True):
            assignment.selector.prepare(own, n_tokens, self.document)

    def settle(self) -> None:
        """After the step that `reserve` made room for: forget what is not kept, cluster what is to be clustered."""
        n_new, self._unsettled = self._unsettled, 0
        settle_heads(self.heads.ctypes.data, len(self.heads), n_new)
        self._drop()
        for i in np.flatnonzero(self._heavy):
            tail = self.tails[i]
            if len(tail.chunks) > tail.n_rows // CHUNK_ROWS + 1:
                tail.shrink(tail.n_rows // CHUNK_ROWS + 1)
                self._n_chunks[i] = len(tail.chunks)

    def _drop(self) -> None:
        """Free the chunks that no later token sees: of streaming heads, and of sliding windows beside them."""
        heads = self.heads
        seen = np.where(self._recent, heads["n_recent"], np.where(self._slides, heads["window"], heads["n_tail"]))
        needed = np.maximum(heads["n_tail"] - seen + 1, 0) // CHUNK_ROWS
        for i in np.flatnonzero(needed > self._dropped):
            first = max(int(self._dropped[i]), 1 if heads["n_sinks"][i] else 0)
            self.tails[i].drop(first, int(needed[i]))
        self._dropped = np.maximum(self._dropped, needed)
        heads["n_dropped"] = self._dropped * CHUNK_ROWS

    def truncate(self, n_tokens: int) -> bool:
        """Forget all but the first n_tokens tokens; False where rows that would be needed then are gone already.

        Cutting into a document does that too, but cutting everything: it detaches the document.
        """
        if n_tokens == 0:
            self.attach(None)
            return True
        n_less = self.n_tokens - n_tokens
        if n_tokens < self.n_document or (n_less > self._unsettled and any(tail.evicted for tail in self.tails)):
            return False
        n_rows = self.heads["n_tail"] - n_less
        seen = np.where(self._recent, self.heads["n_recent"], self.heads["window"])
        if np.any(np.maximum(n_rows - seen + 1, 0) // CHUNK_ROWS < self._dropped):
            return False
        for tail, rows in zip(self.tails, n_rows, strict=True):
            tail.truncate(int(rows))
        self._n_chunks[:] = [len(tail.chunks) for tail in self.tails]
        self.n_tail -= n_less
        self._unsettled = 0
        return True

    def checkpoint(self) -> Checkpoint:
        """A copy of all that came after the document: so one can go back where rows are evicted, too."""
        chunks = [[None if chunk is None else chunk.copy() for chunk in tail.chunks] for tail in self.tails]
        return Checkpoint(self.n_tail, self.heads.copy(), self._dropped.copy(), chunks)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go back to a checkpoint that was taken with the same assignments and document."""
        for name in self.heads.dtype.names or ():
            if name not in _OF_THE_STEP:
                self.heads[name] = checkpoint.heads[name]
        for tail, chunks in zip(self.tails, checkpoint.chunks, strict=True):
            tail.restore(chunks)
        self.n_tail, self._unsettled = checkpoint.n_tail, 0
        self._dropped = checkpoint.dropped.copy()
        self._n_chunks = np.array([len(tail.chunks) for tail in self.tails])

    def attach(self, document: Index | None) -> None:
        """Start over with a document, or with nothing."""
        self.document, self.n_tail, self._unsettled = document, 0, 0
        self._dropped = np.zeros(len(self.tails), np.int64)
        for name in ("document_keys", "document_values", "n_document", "centroids", "cluster_starts", "n_clusters"):
            self.heads[name] = 0
        for name in (
            "coarse_centroids",
            "coarse_starts",
            "n_coarse",
            "n_clustered",
            "n_tail",
            "tail_position",
            "n_dropped",
        ):
            self.heads[name] = 0
        self.heads["threshold"] = 0
        self.heads["document_position"] = ANY_ORDER
        for tail in self.tails:
            tail.shrink(0)
        self._n_chunks = np.zeros(len(self.tails), np.int64)
        self._shared = {}
        self._memory.release()
        if document is None:
            return
        self._prepare(self.n_tokens)
        for number, tail in enumerate(self.tails):
            layer = int(self._layer_of[number])
            head, stored = number - int(self._first[layer]), document.layers[layer]
            if tail.keeps is Keeps.DOCUMENT:
                _point_at(tail.record, self._share(layer, stored), head)
                tail.record["tail_position"] = self.n_document
            else:
                self._copy_rows(tail, stored, head)
        self._n_chunks[:] = [len(tail.chunks) for tail in self.tails]
        self._drop()

    def _share(self, layer: int, stored: IndexLayer) -> IndexLayer:
        """A document's layer where the device reads it."""
        if layer not in self._shared:
            arrays: dict[str, Any] = {name: self._memory.share(getattr(stored, name)) for name in _READ_IN_PLACE}
            self._shared[layer] = replace(stored, **arrays)
        return self._shared[layer]

    def _copy_rows(self, tail: Tail, stored: IndexLayer, head: int) -> None:
        """Copy what a head keeps of a document into its tail."""
        position = _positions(stored, head)
        kept = heavy_rows(tail.record, position, stored.mass[head]) if tail.keeps is Keeps.HEAVY else position.argsort()
        n_rows = len(kept)
        tail.record["n_tail"] = n_rows
        first = 0  # row of those that are seen
        if tail.keeps is Keeps.RECENT:
            first = max(n_rows - int(tail.record["n_recent"][0]) + 1, 0) // CHUNK_ROWS * CHUNK_ROWS
        for start in range(0, n_rows, CHUNK_ROWS):
            chunk = slice(start, start + CHUNK_ROWS)
            if start >= first or (start == 0 and tail.record["n_sinks"][0]):
                tail.grow(start // CHUNK_ROWS + 1)
                tail.write(start, stored.keys[head][kept[chunk]], stored.values[head][kept[chunk]])
            else:
                tail.chunks.append(None)
        if tail.keeps is Keeps.HEAVY:
            tail.record["tail_position"] = self.n_document - n_rows
            for i in range(len(tail.chunks)):
                own = kept[i * CHUNK_ROWS : (i + 1) * CHUNK_ROWS]
                positions, masses = slots_of(tail.chunk_part(i, "slot_offset"))
                positions[: len(own)], masses[: len(own)] = position[own], stored.mass[head][own]

    def rows(self, layer: int, start: int = 0) -> Rows:
        """Copies of a layer's keys and values in the tail from row `start`, as they are stored (see rows.py).

        (n_kv_head, n_rows, head_dim) f16 each, or (n_kv_head, n_rows, head_dim + 4) uint8 of q8_0. Raises OctavoError
        where rows are evicted.
        """
        self._refuse_eviction()
        joined = self.layers[layer].new_rows(self.n_tail - start)
        for head, tail in enumerate(self._layer_tails(layer)):
            done = 0
            for keys, values in tail.copies(tail.n_rows - self.n_tail + start, tail.n_rows):
                stop = done + len(keys)
                joined[0, head, done:stop], joined[1, head, done:stop] = keys, values
                done = stop
        return joined[0], joined[1]

    def append_rows(self, layers: list[Rows]) -> None:
        """Add rows that were taken with `rows`: keys and values of each layer. Raises OctavoError where some evict."""
        self._refuse_eviction()
        n_new = layers[0][0].shape[1]
        self.reserve(n_new)
        for layer, (keys, values) in enumerate(layers):
            for head, tail in enumerate(self._layer_tails(layer)):
                tail.write(tail.n_rows - n_new, keys[head], values[head])
        self.settle()

    def all_rows(self, assignments: Sequence[Assignment]) -> list[Rows]:
        """The rows of the tail in all layers, for other assignments to store; none where there are none."""
        if self.n_tail == 0:
            return []
        if self.evicts or any(a.selector.keeps.evicts for a in assignments):
            raise OctavoError(
                f"The context holds {self.n_tail:,} tokens that were stored for another attention, and one of the two "
                "forgets rows: reset it first."
            )
        return [self.rows(layer) for layer in range(len(self.layers))]

    def _refuse_eviction(self) -> None:
        if self.evicts:
            raise OctavoError("This attention forgets rows as it goes, so they cannot be saved, nor given to it.")

    def _layer_tails(self, layer: int) -> list[Tail]:
        return self.tails[self._first[layer] : self._first[layer + 1]]

    @property
    def max_items(self) -> int:
        """Clusters, pages or rows that a selector may score in one head, for what is reserved now."""
        n_chunks = -(-self.heads["n_tail"] // CHUNK_ROWS)
        in_chunks = max(int(n_chunks[a.heads].max()) * a.selector.chunk_items for a in self.assignments)
        return padded(int(self.heads["n_clusters"].max())) + in_chunks

    @property
    def max_spans(self) -> int:
        """Spans that a selector may need for one head, for what is reserved now."""
        return self.max_items + 2 + 3 * int(-(-self.heads["n_tail"].max() // CHUNK_ROWS))


def heavy_rows(record: np.ndarray, position: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Which rows of a document H2O keeps, in the order of their positions: the newest, and those with most mass.

    record : HEAD record that says how many    position, mass : (n_rows,)
    """
    n_kept, n_recent = int(record["n_selected"][0]), int(record["n_recent"][0])
    order = position.argsort()
    older = order[: len(order) - n_recent]
    heaviest = older[mass[older].argsort(kind="stable")[len(older) - (n_kept - n_recent) :]]
    kept = np.concatenate([heaviest, order[len(order) - n_recent :]])
    rows: np.ndarray = kept[position[kept].argsort()]
    return rows


def _positions(stored: IndexLayer, head: int) -> np.ndarray:
    """The position of each stored row of one KV head."""
    if stored.position == ANY_ORDER:
        order: np.ndarray = stored.order[head]
        return order
    return stored.position + np.arange(stored.keys.shape[1])


def _point_at(record: np.ndarray, stored: IndexLayer, head: int) -> None:
    """Have a HEAD record read a document where it is."""
    for name, field in _READ_IN_PLACE.items():
        array = getattr(stored, name)
        record[field] = array.ctypes.data + head * array.strides[0]
    record["n_document"], record["document_position"] = stored.keys.shape[1], stored.position
    record["n_clusters"], record["n_coarse"] = stored.n_clusters, stored.n_coarse
