"""Hold the keys and values of one sequence: a read-only document, if one is attached, and a tail of later rows.

Each KV head has its own tail, in chunks (see cpu_kernels/layout/head.py), and keeps the rows that its method needs (see
`Storage`). The compiled step reads everything through the HEAD records of this class, and through the method's own
state of each head. The step stores its new rows itself, in memory that `reserve` allocated. `finish_step` then forgets
rows that are not kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ...cpu_kernels.layer import after_step
from ...cpu_kernels.layout.head import ANY_ORDER, HEAD
from ...cpu_kernels.rows.tiles import CHUNK_ROWS
from ...errors import OctavoError
from ...system.free_memory import LEAST_SPARE_BYTES, NOTHING, check_free
from ..document.cache_layer import CacheLayer, Rows
from ..document.index import ClusterMeans, Index, IndexLayer, StreamingRows
from ..methods.budgets import MethodHeads, budget_warning, distribute_budget, minimum_share
from ..methods.evicting import EvictingMethod
from ..methods.method import Assignment, Storage
from .cache_memory import CpuMemory, Memory
from .document_rows import HeadWithDocument, copy_streaming_rows, derive_extras, kept_rows
from .head_table import HeadTable
from .tail import Chunk, Tail, joined_rows

#: Positions beyond the context at which the origin moves, so that angles of any step stay accurate in f32.
_FARTHEST = 1 << 16

#: Every block of rows that a method summarises ends at a multiple of these.
_BLOCK_ROWS = 32


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The content of a cache after some token, without its document."""

    n_tail: int
    origin: int
    heads: np.ndarray
    states: list[np.ndarray]
    dropped: np.ndarray
    chunks: list[list[Chunk | None]]


class KVCache:
    """Keys and values of one sequence.

    Parameters
    ----------
    n_ctx : int
        Most tokens that a token may see, and most tokens of a step.
    assignments : sequence of Assignment
        The methods and their heads; each head is in one assignment.
    memory : Memory, optional
        Memory of the attending device; plain memory by default.

    Attributes
    ----------
    table : HeadTable
        The records of all heads, and the methods that serve them.
    tails : list of Tail
        The rows of each head after the document.
    evicts : bool
        Whether any method forgets rows.
    rolls : bool
        Whether no token ever sees beyond the rows that are kept, so that the sequence may have any length.
    n_tail : int
        Tokens after the document.
    origin : int
        Token of the sequence from which positions are counted. It moves if the sequence may have any length, because
        RoPE loses accuracy at large positions.
    n_chunks, dropped, n_shared : int64 arrays, shape (n_heads,)
        Chunks of each head's tail; the dropped ones among them, from the first; and the first ones that it may share
        with other caches.
    shared : dict of int to IndexLayer
        Layers of the document in memory that the device reads.
    ahead : DraftedRows or None
        Rows of a draft in memory after the cache's own, until anything else changes the cache.
    """

    def __init__(
        self, layers: list[CacheLayer], n_ctx: int, assignments: Sequence[Assignment], memory: Memory | None = None
    ) -> None:
        self.layers, self.n_ctx, self.memory = layers, n_ctx, memory or CpuMemory()
        self.table = HeadTable(layers, n_ctx)
        self.document: Index | None = None
        self.n_tail = self.origin = 0
        self.n_chunks = self.dropped = self.n_shared = np.zeros(0, np.int64)
        self._n_unfinished = self._n_waiting = 0  # tokens of the current step, and of batches that `end_prompt` ends
        self._is_step = False
        self.shared: dict[int, IndexLayer] = {}
        self.ahead: object = None
        self.arrange(assignments)

    def arrange(self, assignments: Sequence[Assignment]) -> None:
        """Assign methods to the heads, and start with an empty cache."""
        self.table.serve(assignments)
        self.evicts, self.rolls = self.table.evicts, self.table.rolls
        tails: dict[int, Tail] = {}
        for group in self.table.groups:
            for i, number in enumerate(group.heads.numbers.tolist()):
                layer, record = self.layers[self.table.layer_of[number]], self.table.heads[number : number + 1]
                state = group.heads.state[i]
                tails[number] = Tail(layer, group.method, record, state, self.table.tables[number], self.memory)
        self.tails = [tails[number] for number in range(len(self.table.heads))]
        self.attach(None)

    @property
    def n_document(self) -> int:
        """Return the number of tokens of the attached document."""
        return len(self.document.tokens) if self.document else 0

    @property
    def n_tokens(self) -> int:
        """Return the number of tokens that were read, including forgotten ones."""
        return self.n_document + self.n_tail

    @property
    def row_bytes(self) -> int:
        """Return the bytes of one token in all layers, if all rows are kept."""
        return sum(layer.row_bytes for layer in self.layers)

    @property
    def kv_bytes(self) -> int:
        """Return the bytes that are allocated or mapped for keys, values and extras."""
        mapped = 0
        for tail, layer in zip(self.tails, self.table.layer_of, strict=True):
            if self.document and tail.method.storage is Storage.MAPPED:
                stored = self.document.layers[layer]
                mapped += stored.keys[0].nbytes + stored.values[0].nbytes
        return mapped + sum(chunk.n_bytes for tail in self.tails for chunk in tail.chunks if chunk is not None)

    def minimum_share(self, n_tokens: int) -> float:
        """Return the share that a step reads of n_tokens tokens with the smallest budget (see methods/budgets.py)."""
        return minimum_share(self.table.assigned, n_tokens, self.document)

    def budget_warning(self, n_tokens: int) -> str:
        """Return a warning about a budget below that share; "" without such a budget."""
        return budget_warning(self.table.assigned, n_tokens, self.document)

    def check_memory(self, n_tail: int, others: Mapping[str, int] = NOTHING) -> None:
        """Check that memory can hold a tail of n_tail rows, all of them kept.

        Parameters
        ----------
        others : mapping of str to int
            Other memory in use then: names and bytes.

        Raises
        ------
        OctavoError
            It cannot; the message has the figures.
        """
        n_chunks = -(-n_tail // CHUNK_ROWS)
        needed = sum(max(0, n_chunks - len(tail.chunks)) * tail.chunk_bytes for tail in self.tails)
        if needed:
            check_free(f"The KV cache of {self.n_document + n_tail:,} tokens", needed, others)

    def reserve(self, n_new: int, is_step: bool | None = None, n_threads: int = 1) -> None:
        """Prepare a batch of n_new tokens: set the methods' state, and allocate memory for the new rows.

        Parameters
        ----------
        is_step : bool, optional
            Whether a single token is predicted from, and so may see less; by default it is.
        n_threads : int
            Threads to end a prompt with.
        """
        self._is_step = is_step = n_new == 1 if is_step is None else is_step
        self.ahead = None
        if is_step:
            self.end_prompt(n_threads)
        if self.n_tokens + n_new - self.origin > self.n_ctx + _FARTHEST:
            self._move_origin()
        self.table.connect(n_new)
        distribute_budget(self.table.assigned, self.n_tokens + n_new, self.document)
        for group in self.table.groups:
            prepare = group.method.before_step if is_step else group.method.before_batch
            prepare(group.heads, self.document, self.n_tokens + n_new)
        if is_step and self.table.ends_prompts:
            after_step(self.table.address, len(self.table.heads), 0)  # a prompt that was kept whole ends here
        if self.evicts and self.table.heads["n_tail"].max() + n_new > self.table.tables.shape[1] * CHUNK_ROWS:
            self._close_gaps()
        n_rows = self.table.heads["n_tail"] + n_new
        self._own_changing(n_rows - n_new, n_rows)
        n_chunks = -(-n_rows // CHUNK_ROWS)
        growing = [i for i in np.flatnonzero(n_chunks > self.n_chunks) if n_chunks[i] > len(self.tails[i].chunks)]
        if growing:
            needed = sum((int(n_chunks[i]) - len(self.tails[i].chunks)) * self.tails[i].chunk_bytes for i in growing)
            n_tokens = self.n_tokens + n_new
            check_free(f"The KV cache of {n_tokens:,} tokens", needed, spare=LEAST_SPARE_BYTES)
            for i in growing:
                self.tails[i].grow(int(n_chunks[i]))
                self.n_chunks[i] = n_chunks[i]
        self.table.heads["n_tail"] = n_rows
        self.n_tail += n_new
        self._n_unfinished = n_new

    def finish_step(self, n_threads: int = 1) -> None:
        """End the step of `reserve`: let the methods update the stored rows, and free rows that no token sees."""
        n_new, self._n_unfinished = self._n_unfinished, 0
        if not self._is_step and all(group.method.waits_for_step for group in self._updating()):
            self._n_waiting += n_new
        else:
            self._update(n_new, n_threads)
        self._drop()
        for group in self.table.groups:
            if group.method.storage is Storage.SELECTED:
                for number in group.heads.numbers.tolist():
                    self._shrink(number)

    def end_prompt(self, n_threads: int = 1) -> None:
        """Let methods whose update waits for a step update the rows that batches stored."""
        n_waiting, self._n_waiting = self._n_waiting, 0
        if n_waiting:
            self._update(n_waiting, n_threads)

    @property
    def draft_room(self) -> int:
        """Return how many tokens one step may compute as steps of their own: 1 where each step changes stored rows.

        Only after the last of them may a method summarise rows, or the cache move its origin or the rows.
        """
        heads = self.table.heads
        room = self.n_ctx + _FARTHEST - (self.n_tokens - self.origin)
        if self.evicts:
            room = min(room, self.table.tables.shape[1] * CHUNK_ROWS - int(heads["n_tail"].max()))
        for group in self.table.groups:
            if group.method.hooks.after_step is not None:
                room = min(room, int(group.method.rows_to_act(heads["n_tail"][group.heads.numbers]).min()))
        return room

    def step_back(self, n_tokens: int) -> None:
        """Count no longer the newest tokens, which were reserved as steps that have not ended. Their memory stays."""
        self.table.heads["n_tail"] -= n_tokens
        self.n_tail -= n_tokens
        self._n_unfinished = 0

    def _updating(self) -> list[MethodHeads]:
        """Return the methods that update the stored rows."""
        return [group for group in self.table.groups if group.method.hooks.after_step is not None]

    def _update(self, n_new: int, n_threads: int) -> None:
        """Call the heads' `after_step` hooks, on several threads if rows fill blocks that the methods may summarise."""
        updating = self._updating()
        if not updating:
            return
        first, n_heads = self.table.address, len(self.table.heads)
        apart = all(group.method.updates_apart for group in updating)
        if n_threads == 1 or not apart or self.n_tokens % _BLOCK_ROWS >= n_new:
            after_step(first, n_heads, n_new)
            return
        starts = np.linspace(0, n_heads, min(4 * n_threads, n_heads) + 1).astype(int).tolist()
        with ThreadPoolExecutor(n_threads) as pool:  # compiled code releases the GIL
            parts = [(first + start * HEAD.itemsize, stop - start) for start, stop in itertools.pairwise(starts)]
            list(pool.map(lambda part: after_step(*part, n_new), parts))

    def _shrink(self, number: int) -> None:
        """Free all empty chunks of a head but one."""
        tail = self.tails[number]
        if len(tail.chunks) > tail.n_rows // CHUNK_ROWS + 1:
            tail.shrink(tail.n_rows // CHUNK_ROWS + 1)
            self.n_chunks[number] = len(tail.chunks)

    def _drop(self) -> None:
        """Free the chunks that no later token sees: behind the windows of methods, and behind sliding windows."""
        if not self.evicts:
            return
        heads = self.table.heads
        slides, window, n_sinks = self.table.seen()
        needed = np.maximum(heads["n_tail"] - np.where(slides, window, heads["n_tail"]) + 1, 0) // CHUNK_ROWS
        for i in np.flatnonzero(needed > self.dropped):
            self.tails[i].drop(max(int(self.dropped[i]), 1 if n_sinks[i] else 0), int(needed[i]))
        self.dropped = np.maximum(self.dropped, needed)
        heads["n_dropped"] = self.dropped * CHUNK_ROWS

    def _move_origin(self) -> None:
        """Count positions from a later token, before all kept rows but sinks, and rotate the kept keys accordingly."""
        slides, window, n_sinks = self.table.seen()
        origin = self.n_tokens - int(window[slides].max(initial=0)) // CHUNK_ROWS * CHUNK_ROWS - 2 * CHUNK_ROWS
        for tail, layer, n_kept in zip(self.tails, self.table.layer_of, n_sinks.tolist(), strict=True):
            rope = self.layers[layer].rope
            for number, chunk in enumerate(tail.chunks):
                if chunk is not None and rope is not None:
                    start = number * CHUNK_ROWS
                    first, stop = max(start, n_kept), min(start + CHUNK_ROWS, tail.n_rows)
                    for keys, _ in tail.rows(first, stop):  # none where sinks fill the chunk
                        rope.turn(keys, self.origin - origin, self.layers[layer].split)
        self.origin = origin
        for group in self.table.groups:
            if isinstance(group.method, EvictingMethod):
                group.method.move_origin(group.heads, origin)

    def _close_gaps(self) -> None:
        """Remove the places of dropped chunks from the tails: the rows behind them get lower numbers."""
        _, _, n_sinks = self.table.seen()
        for i, tail in enumerate(self.tails):
            first = 1 if n_sinks[i] else 0
            n_gone = max(int(self.dropped[i]) - first, 0)
            tail.close_gap(first, first + n_gone)
            self.table.heads["n_tail"][i] -= n_gone * CHUNK_ROWS
            self.table.heads["tail_position"][i] += n_gone * CHUNK_ROWS
            self.dropped[i] -= n_gone
        self._count_chunks()
        self.table.heads["n_dropped"] = self.dropped * CHUNK_ROWS

    def truncate(self, n_tokens: int) -> bool:
        """Forget all but the first n_tokens tokens. Forgetting everything detaches the document.

        Returns
        -------
        bool
            False if that would cut into the document, or if rows that it needs are gone.
        """
        self.ahead = None
        if n_tokens == 0:
            self.attach(None)
            return True
        n_less = self.n_tokens - n_tokens
        n_rows = self.table.heads["n_tail"] - n_less
        is_finished = n_less > self._n_unfinished
        if n_tokens < self.n_document:
            return False
        if is_finished and (self.table.chooses_rows or self._has_dropped(n_rows)):
            return False
        self._own_changing(n_rows, n_rows)
        for tail, rows in zip(self.tails, n_rows, strict=True):
            tail.truncate(int(rows))
        self._count_chunks()
        self.n_tail -= n_less
        self._n_unfinished = self._n_waiting = 0  # each tail has updated its rows
        return True

    def _has_dropped(self, n_rows: np.ndarray) -> bool:
        """Return whether truncating each head to n_rows rows would uncover rows that were dropped."""
        _, window, _ = self.table.seen()
        return bool(np.any(np.maximum(n_rows - window + 1, 0) // CHUNK_ROWS < self.dropped))

    def checkpoint(self) -> Checkpoint:
        """Copy everything after the document, to return to it even if rows are evicted later."""
        self.end_prompt()
        plain = partial(np.empty, dtype=np.uint8)
        chunks = [[chunk and chunk.copy(tail.shape, plain) for chunk in tail.chunks] for tail in self.tails]
        states = [group.heads.state.copy() for group in self.table.groups]
        return Checkpoint(self.n_tail, self.origin, self.table.heads.copy(), states, self.dropped.copy(), chunks)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Return to a checkpoint that was taken with the same assignments and document."""
        self.ahead = None
        self.table.copy_records(checkpoint.heads)
        for group, state in zip(self.table.groups, checkpoint.states, strict=True):
            group.heads.state[...] = state
        for tail, chunks in zip(self.tails, checkpoint.chunks, strict=True):
            tail.restore(chunks)
        self.n_tail, self.origin = checkpoint.n_tail, checkpoint.origin
        self.dropped, self.n_shared = checkpoint.dropped.copy(), np.zeros_like(self.n_shared)
        self._count_chunks()
        self._n_unfinished = self._n_waiting = 0

    def fork(self, other: KVCache, n_tokens: int) -> None:
        """Hold the first n_tokens tokens of another cache, sharing its memory until either of them changes it.

        Parameters
        ----------
        other : KVCache
            A cache with the same methods. It must not evict rows, and it holds more than its document.
        n_tokens : int
            Number of tokens, at least those of its document.
        """
        self.attach(None)
        self.table.connect()
        other.table.connect()  # before its first step it may hold only a document
        other.end_prompt()
        self._share_chunks(other)
        self._n_unfinished = 0
        self.truncate(n_tokens)

    def _share_chunks(self, other: KVCache) -> None:
        """Share the rows of another cache with the same methods; copy them if its memory is out of reach."""
        self.table.copy_records(other.table.heads, of_other_table=True)
        for mine, theirs in zip(self.table.groups, other.table.groups, strict=True):
            mine.heads.state[...] = theirs.heads.state
            mine.heads.scale[...], mine.layer_scale[...] = theirs.heads.scale, theirs.layer_scale
        shares = self.memory.is_common
        for tail, other_tail in zip(self.tails, other.tails, strict=True):
            tail.restore(other_tail.chunks, copied=not shares)
        self.document, self.shared = other.document, {} if not shares else other.shared
        self.n_tail, self.origin, self.dropped = other.n_tail, other.origin, other.dropped.copy()
        self._count_chunks()
        if shares:
            self.n_shared, other.n_shared = self.n_chunks.copy(), other.n_chunks.copy()

    def _own_changing(self, n_before: np.ndarray, n_after: np.ndarray) -> None:
        """Copy the shared chunks that change when the heads' numbers of rows do.

        Parameters
        ----------
        n_before, n_after : int64 arrays, shape (n_heads,)
            Rows that each head keeps of those it has, and rows that it has then.
        """
        if not self.n_shared.any():
            return
        kept = n_before // CHUNK_ROWS
        for group in self.table.assigned:
            numbers = group.heads.numbers
            kept[numbers] = np.minimum(kept[numbers], group.method.fixed_chunks(group.heads.state, n_after[numbers]))
        for i in np.flatnonzero(self.n_shared > kept):
            tail = self.tails[i]
            for number in range(int(kept[i]), min(int(self.n_shared[i]), len(tail.chunks))):
                tail.own(number)
            self.n_shared[i] = kept[i]

    def _count_chunks(self) -> None:
        self.n_chunks = np.array([len(tail.chunks) for tail in self.tails], np.int64)

    def attach(self, document: Index | None) -> None:
        """Start with a document, or with an empty cache. Raise OctavoError if rows must be copied and do not fit."""
        if document is not None:
            copied = sum(
                tail.chunk_bytes
                for tail, layer in zip(self.tails, self.table.layer_of.tolist(), strict=True)
                if tail.method.storage is Storage.CHUNKS and document.layers[layer].position == ANY_ORDER
            )
            if copied:  # its index has sorted them by cluster
                n_bytes = copied * -(-len(document.tokens) // CHUNK_ROWS)
                check_free("A copy of the document's rows, which `--attention squeezed` reads where they are,", n_bytes)
        self.document, self.n_tail, self.origin = document, 0, 0
        self._n_unfinished = self._n_waiting = 0
        self.ahead = None
        self.table.clear_rows()
        self.dropped, self.n_shared = np.zeros((2, len(self.tails)), np.int64)
        for tail in self.tails:
            tail.shrink(0)
        self._count_chunks()
        self.shared = {}
        self.memory.release()
        for group, assignment in zip(self.table.groups, self.table.assignments, strict=True):
            group.layer_scale[...] = assignment.scale
        # The budget comes first: `start` turns it into a document's thresholds.
        distribute_budget(self.table.groups, max(self.n_tokens, 1), document)
        for group in self.table.groups:
            group.heads.state[...] = np.zeros((), group.heads.state.dtype)
            group.method.start(group.heads, document)
        if document is None:
            return
        # `before_step` sets the windows, which decide the rows of a document that a head takes.
        for group in self.table.groups:
            group.method.before_step(group.heads, document, self.n_tokens)
        self._take_document(document)
        self._count_chunks()
        self._drop()

    def _take_document(self, document: Index) -> None:
        """Give each head its rows of a document: stored sinks and recent rows, mapped rows, or a tail.

        Extras come last, for all heads together: to derive them takes long, and runs on all cores.
        """
        _, window, n_sinks = self.table.seen()
        taken: list[HeadWithDocument] = []
        for number, tail in enumerate(self.tails):
            layer = int(self.table.layer_of[number])
            head, stored = number - int(self.table.first_heads[layer]), document.layers[layer]
            seen = int(window[number]), int(n_sinks[number])
            if stored.streaming and head in stored.streaming.heads:
                copy_streaming_rows(tail, stored.streaming, head, self.n_document, *seen)
            elif tail.method.storage is Storage.MAPPED:
                self._map_rows(tail, self._share(layer, stored), stored.heads.index(head))
                tail.record["tail_position"] = self.n_document
            else:
                self._take_rows(tail, stored, stored.heads.index(head), *seen)
                taken.append(HeadWithDocument(layer, head, tail))
        derive_extras(document, taken)

    def _share(self, layer: int, stored: IndexLayer) -> IndexLayer:
        """Return a document's layer in memory that the device reads."""
        if layer not in self.shared:
            named = {name for group in self.table.groups for name in group.method.document_arrays}
            names = (named | {"keys", "values"}) - set(ClusterMeans._fields)
            arrays: dict[str, Any] = {name: self.memory.share(getattr(stored, name)) for name in sorted(names)}
            if named & set(ClusterMeans._fields):
                arrays["known_means"] = ClusterMeans(*(self.memory.share(array) for array in stored.means))
            self.shared[layer] = replace(stored, **arrays)
        return self.shared[layer]

    def _map_rows(self, tail: Tail, stored: IndexLayer, head: int) -> None:
        """Make a head read a document in place, from its index."""
        tail.record["document_keys"] = stored.keys[head].ctypes.data
        values = stored.keys if stored.split else stored.values
        tail.record["document_values"] = values[head].ctypes.data
        tail.record["n_document"], tail.record["document_position"] = stored.keys.shape[1], stored.position
        for name in tail.method.document_arrays:
            array = getattr(stored.means if name in ClusterMeans._fields else stored, name)[head]
            tail.state[name] = array.ctypes.data if array.size else 0
        for name in tail.method.document_counts:
            tail.state[name] = getattr(stored, name)

    def _take_rows(self, tail: Tail, stored: IndexLayer, head: int, window: int, n_sinks: int) -> None:
        """Have a tail hold the rows that a head keeps of a document. Window 0 keeps all.

        Full chunks of rows that lie in order stay in the index, where only the CPU reads them. Others are copied.
        """
        position, mass = stored.positions(head), stored.mass[head]
        evicts = tail.method if isinstance(tail.method, EvictingMethod) else None
        rows = evicts.document_rows(tail.state, position, mass) if evicts else position.argsort()
        n_rows, n_mapped = len(rows), 0
        tail.record["n_tail"], tail.record["tail_position"] = n_rows, self.n_document - n_rows
        if tail.method.storage is Storage.CHUNKS and self.memory.is_common and stored.position == 0 and not window:
            n_mapped = tail.map_rows(stored.keys[head], stored.values[head])
        first = max(n_rows - window + 1, 0) // CHUNK_ROWS * CHUNK_ROWS if window else 0
        for start in range(n_mapped * CHUNK_ROWS, n_rows, CHUNK_ROWS):
            wanted = rows[start : start + CHUNK_ROWS]
            if start >= first or (start == 0 and n_sinks):
                tail.grow(start // CHUNK_ROWS + 1)
                tail.copy_rows(start, stored.keys[head][wanted], stored.values[head][wanted])
                if evicts:
                    extras = tail.chunk(start // CHUNK_ROWS).extras
                    evicts.start_extras(tail.shape, extras, position[wanted], mass[wanted])
            else:
                tail.chunks.append(None)

    def document_rows(self, layer: int) -> tuple[Rows, StreamingRows | None]:
        """Copy the rows that a layer keeps of a sequence, for an index: see `kept_rows`."""
        _, window, n_sinks = self.table.seen()
        first = int(self.table.first_heads[layer])
        heads = slice(first, first + self.layers[layer].n_kv_head)
        return kept_rows(self.layers[layer], self.tails[heads], self.n_tail, window[heads], n_sinks[heads])

    def rows(self, layer: int, start: int = 0) -> Rows:
        """Copy a layer's keys and values of the tail from row `start` on, in their storage format (see rows.py).

        Returns
        -------
        keys, values : arrays, shape (n_kv_head, n_rows, elements of a row)
            float16, q8_0: int8 or uint8, or q4_0: uint16.

        Raises
        ------
        OctavoError
            This attention evicts rows.
        """
        self._refuse_eviction()
        return joined_rows(self.layers[layer], self._layer_tails(layer), [(start - self.n_tail, 0)])

    def append_rows(self, layers: list[Rows]) -> None:
        """Append rows of `rows`: keys and values of each layer.

        Raises
        ------
        OctavoError
            This attention evicts rows.
        """
        self._refuse_eviction()
        n_new = layers[0][0].shape[1]
        if not n_new:
            return
        self.reserve(n_new, is_step=False)
        for layer, (keys, values) in enumerate(layers):
            for head, tail in enumerate(self._layer_tails(layer)):
                tail.write(tail.n_rows - n_new, keys[head], values[head])
        self.finish_step()

    def all_rows(self, assignments: Sequence[Assignment]) -> list[Rows]:
        """Return the rows of the tail in all layers, for other assignments to store; an empty list without a tail.

        Raises
        ------
        OctavoError
            These or the other assignments evict rows.
        """
        if self.n_tail == 0:
            return []
        if self.evicts or any(a.method.evicts for a in assignments):
            raise OctavoError(
                f"The context holds {self.n_tail:,} tokens that were stored for another attention, and one of the two "
                "forgets rows: reset it first."
            )
        return [self.rows(layer) for layer in range(len(self.layers))]

    def _refuse_eviction(self) -> None:
        if self.evicts:
            raise OctavoError("This attention forgets rows as it goes, so they cannot be saved, nor given to it.")

    def _layer_tails(self, layer: int) -> list[Tail]:
        first = int(self.table.first_heads[layer])
        return self.tails[first : first + self.layers[layer].n_kv_head]
