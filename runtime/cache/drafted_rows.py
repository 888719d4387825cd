"""Hold the rows of a token and of a draft after it, which one step computes as if the tokens came one by one.

Each token has records of its own of all heads, with the method's state and the number of rows that a step of it alone
would have: so it scores, selects and estimates as it would alone. The rows of the tokens before it are stored, and
exact. The cache has none of these rows before it takes their tokens, in order. It then does what it does after a step.
"""

from __future__ import annotations

import numpy as np

from ...cpu_kernels.rows.tiles import CHUNK_ROWS
from ..methods.budgets import MethodHeads
from .kv_cache import KVCache
from .tail import Tail

#: Fields of HEAD that count what steps read.
_COUNTERS = "bytes_read", "n_covered", "covered"


class DraftedRows:
    """The rows of a token and its draft, in memory that a cache has reserved.

    Parameters
    ----------
    n_tokens : int
        The token and its draft: at most `KVCache.draft_room`.
    states : list of STATE arrays
        The states of earlier drafts, which are overwritten: to allocate them anew takes long.

    Attributes
    ----------
    records : list of HEAD arrays, shape (n_heads,)
        The records of all heads for each token.
    n_taken : int
        Tokens that the cache has taken.

    Raises
    ------
    OctavoError
        Memory does not suffice.
    """

    def __init__(self, cache: KVCache, n_tokens: int, states: list[np.ndarray]) -> None:
        self.cache, self.n_taken = cache, 0
        self.records: list[np.ndarray] = []
        self._states = states  # where the records' addresses point
        self._n_before = cache.n_tokens
        try:
            for number in range(n_tokens):
                cache.reserve(1)
                self.records.append(self._copied_records(is_last=number == n_tokens - 1))
        except BaseException:
            self.step_back()
            raise

    def _copied_records(self, is_last: bool) -> np.ndarray:
        """Copy the records of all heads, and the state that their methods have in this step, unless it is the last."""
        records = self.cache.table.heads.copy()
        for name in _COUNTERS:
            records[name] = 0
        groups = [] if is_last else self.cache.table.groups
        for number, group in enumerate(groups, len(self.records) * len(groups)):
            state = self._room_for(number, group.heads.state)
            _copy_state(group, state)
            records["state"][group.heads.numbers] = state.ctypes.data + np.arange(len(state)) * state.itemsize
        return records

    def _room_for(self, number: int, state: np.ndarray) -> np.ndarray:
        """Return an array like a state, the one that an earlier draft used if it has the same form."""
        if number == len(self._states):
            self._states.append(np.empty_like(state))
        elif (self._states[number].dtype, len(self._states[number])) != (state.dtype, len(state)):
            self._states[number] = np.empty_like(state)
        return self._states[number]

    def share_memory(self) -> None:
        """Have all tokens select in the working memory that the cache has for the last of them, as they take turns."""
        for records in self.records:
            for name in ("scratch", "scratch_items", "document_pages"):
                records[name] = self.cache.table.heads[name]

    def step_back(self) -> None:
        """Return the cache to the tokens before these, whose rows stay in memory."""
        cache = self.cache
        cache.step_back(cache.n_tokens - self._n_before)
        for tail in self._summarising():
            tail.append_to_extras(tail.n_rows // CHUNK_ROWS * CHUNK_ROWS, tail.n_rows)
        cache.ahead = self

    def _summarising(self) -> list[Tail]:
        """Return the tails whose methods add each row to extras."""
        return [tail for tail in self.cache.tails if tail.method.hooks.append is not None]

    def is_next_of(self, cache: KVCache) -> bool:
        """Return whether a cache can take the next token: its own, which has not changed since the last one."""
        return cache.ahead is self and self.n_taken < len(self.records)

    def take(self, n_threads: int) -> None:
        """Have the cache take the next token, as a step of it would have."""
        cache, records = self.cache, self.records[self.n_taken]
        cache.reserve(1)
        for tail in self._summarising():
            tail.append_to_extras(tail.n_rows - 1, tail.n_rows)
        for name in _COUNTERS:
            cache.table.heads[name] += records[name]
        cache.finish_step(n_threads)
        cache.ahead = self
        self.n_taken += 1


def _copy_state(group: MethodHeads, copy: np.ndarray) -> None:
    """Copy the state of a method's heads; of long arrays, which have room for the largest heads, only what is used."""
    state, kept = group.heads.state, group.kept_state
    for name in state.dtype.names or ():
        used = kept.get(name) if state.dtype[name].shape else None
        copy[name][..., slice(used)] = state[name][..., slice(used)]
