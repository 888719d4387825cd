"""Hold the tails of a cache's heads; copy them as checkpoints and as forks, which share memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from ...cpu_kernels.layout.head import CHUNK_ROWS, HEAD
from ..document.cache_layer import CacheLayer
from ..document.index import Index, IndexLayer
from .cache_memory import Memory
from .chunk import Chunk
from .head_table import HeadTable
from .tail import Tail

#: Fields of HEAD that belong to the step, independent of the cache's content.
OF_THE_STEP = ("scratch", "scratch_items", "bytes_read", "n_covered", "covered")

#: Fields that are addresses in one cache's memory.
_PLACES = ("state", "tail_chunks")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The content of a cache after some token, without its document."""

    n_tail: int
    origin: int
    heads: np.ndarray
    states: list[np.ndarray]
    dropped: np.ndarray
    chunks: list[list[Chunk | None]]


class Tails(HeadTable):
    """The content of a cache: a document, and a tail for each head.

    Parameters
    ----------
    n_ctx : int
        Most tokens that a token may see, and most tokens of a step.

    Attributes
    ----------
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
    """

    def __init__(self, layers: list[CacheLayer], n_ctx: int, memory: Memory) -> None:
        super().__init__(layers, n_ctx)
        self.memory = memory
        self.document: Index | None = None
        self.tails: list[Tail] = []
        self.n_tail = self.origin = 0
        self.n_chunks = self.dropped = self.n_shared = np.zeros(0, np.int64)
        self.shared: dict[int, IndexLayer] = {}

    def checkpoint(self) -> Checkpoint:
        """Copy everything after the document, to return to it even if rows are evicted later."""
        plain = partial(np.empty, dtype=np.uint8)
        chunks = [[chunk and chunk.copy(tail.shape, plain) for chunk in tail.chunks] for tail in self.tails]
        states = [served.heads.state.copy() for served in self.served]
        return Checkpoint(self.n_tail, self.origin, self.heads.copy(), states, self.dropped.copy(), chunks)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Return to a checkpoint that was taken with the same assignments and document."""
        for name in HEAD.names or ():
            if name not in OF_THE_STEP:
                self.heads[name] = checkpoint.heads[name]
        for served, state in zip(self.served, checkpoint.states, strict=True):
            served.heads.state[...] = state
        for tail, chunks in zip(self.tails, checkpoint.chunks, strict=True):
            tail.restore(chunks)
        self.n_tail, self.origin = checkpoint.n_tail, checkpoint.origin
        self.dropped, self.n_shared = checkpoint.dropped.copy(), np.zeros_like(self.n_shared)
        self._count_chunks()

    def share_chunks(self, other: Tails) -> None:
        """Share the rows of another cache with the same methods; copy them if its memory is out of reach."""
        for name in HEAD.names or ():
            if name not in (*OF_THE_STEP, *_PLACES):
                self.heads[name] = other.heads[name]
        for mine, theirs in zip(self.served, other.served, strict=True):
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

    def own_changing(self, n_before: np.ndarray, n_after: np.ndarray) -> None:
        """Copy the shared chunks that change when the heads' numbers of rows do.

        Parameters
        ----------
        n_before, n_after : int64 arrays, shape (n_heads,)
            Rows that each head keeps of those it has, and rows that it has then.
        """
        if not self.n_shared.any():
            return
        kept = n_before // CHUNK_ROWS
        for served in self.assigned:
            numbers = served.heads.numbers
            kept[numbers] = np.minimum(kept[numbers], served.method.fixed_chunks(served.heads.state, n_after[numbers]))
        for i in np.flatnonzero(self.n_shared > kept):
            tail = self.tails[i]
            for number in range(int(kept[i]), min(int(self.n_shared[i]), len(tail.chunks))):
                tail.own(number)
            self.n_shared[i] = kept[i]

    def _count_chunks(self) -> None:
        self.n_chunks = np.array([len(tail.chunks) for tail in self.tails])
