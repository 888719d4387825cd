"""Copies of what a cache holds: checkpoints, which one goes back to, and forks, which share memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...cpu_kernels.attend.head import CHUNK_ROWS, HEAD

if TYPE_CHECKING:
    from ..cache.kv_cache import KVCache

#: Fields of HEAD that belong to the step, whatever the cache holds.
OF_THE_STEP = ("scratch", "scratch_items", "bytes_read", "n_covered", "covered")

#: Fields that say where memory of one cache lies.
_PLACES = ("state", "tail_chunks")


@dataclass(frozen=True)
class Checkpoint:
    """What a cache held after some token: `KVCache.checkpoint` takes it, and `restore` goes back to it."""

    n_tail: int
    origin: int
    heads: np.ndarray
    states: list[np.ndarray]
    dropped: np.ndarray
    chunks: list[list[np.ndarray | None]]

    @classmethod
    def of(cls, cache: KVCache) -> Checkpoint:
        """Copy all that came after a cache's document."""
        chunks = [[None if chunk is None else chunk.copy() for chunk in tail.chunks] for tail in cache.tails]
        states = [each.heads.state.copy() for each in cache.served]
        return cls(cache.n_tail, cache.origin, cache.heads.copy(), states, cache.dropped.copy(), chunks)

    def restore(self, cache: KVCache) -> None:
        """Have a cache hold it again."""
        for name in HEAD.names or ():
            if name not in OF_THE_STEP:
                cache.heads[name] = self.heads[name]
        for each, state in zip(cache.served, self.states, strict=True):
            each.heads.state[...] = state
        for tail, chunks in zip(cache.tails, self.chunks, strict=True):
            tail.restore(chunks)
        cache.n_tail, cache.origin = self.n_tail, self.origin
        cache.dropped, cache.n_shared = self.dropped.copy(), np.zeros_like(cache.n_shared)
        cache.n_chunks = np.array([len(tail.chunks) for tail in cache.tails])


def share_chunks(cache: KVCache, other: KVCache) -> None:
    """Have an empty cache hold what another one holds, in the same memory if both can reach it.

    Parameters
    ----------
    cache, other : KVCache
        The caches. Their heads are served by the same methods.
    """
    for name in HEAD.names or ():
        if name not in (*OF_THE_STEP, *_PLACES):
            cache.heads[name] = other.heads[name]
    for own, its in zip(cache.served, other.served, strict=True):
        own.heads.state[...] = its.heads.state
        own.heads.scale[...], own.layer_scale[...] = its.heads.scale, its.layer_scale
    shares = cache.memory.is_common
    for own_tail, its_tail in zip(cache.tails, other.tails, strict=True):
        own_tail.restore(its_tail.chunks, copied=not shares)
    cache.document, cache.shared = other.document, {} if not shares else other.shared
    cache.n_tail, cache.origin, cache.dropped = other.n_tail, other.origin, other.dropped.copy()
    cache.n_chunks = np.array([len(tail.chunks) for tail in cache.tails])
    if shares:
        cache.n_shared, other.n_shared = cache.n_chunks.copy(), other.n_chunks.copy()


def own_changing(cache: KVCache, n_before: np.ndarray, n_after: np.ndarray) -> None:
    """Copy the shared chunks that change when a cache goes from some rows in each head to others.

    Parameters
    ----------
    cache : KVCache
        The cache.
    n_before, n_after : int64 arrays, shape (n_heads,)
        Rows that each head keeps of those it has, and rows that it has then.
    """
    if not cache.n_shared.any():
        return
    kept = n_before // CHUNK_ROWS
    for each in cache.assigned:
        numbers = each.heads.numbers
        kept[numbers] = np.minimum(kept[numbers], each.method.fixed_chunks(each.heads.state, n_after[numbers]))
    for i in np.flatnonzero(cache.n_shared > kept):
        tail = cache.tails[i]
        for number in range(int(kept[i]), min(int(cache.n_shared[i]), len(tail.chunks))):
            tail.own(number)
        cache.n_shared[i] = kept[i]
