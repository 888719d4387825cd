"""Scorers: methods that only score. Selection, reads and counts follow from the scores.

A scorer is a `score` hook, and a class with the number of rows of a score and the bytes that it reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...cpu_kernels.layout.scores import padded
from ...cpu_kernels.methods.select_top import SELECTION
from ...cpu_kernels.rows.tiles import CHUNK_ROWS
from ..document.index import Index
from . import DEFAULT_BUDGET
from .method import LEAST_READ, Heads, Method, Storage
from .parameters import parameter


@dataclass(frozen=True)
class ScorerMethod(Method):
    """Select the items (rows, or pages of neighbouring rows) that score highest; a batch attends to everything.

    A subclass has `hooks` whose `score` is its own and whose `select` is `select_top`, which reads the state that is
    set here. `tests/runtime/methods/test_scorers.py` compares the selection with its twin in NumPy.

    Parameters
    ----------
    budget : float
        Share of the KV bytes that a step reads, dense layers and scores included. 64 rows are always read. 1 reads
        everything.

    Attributes
    ----------
    item_rows : int
        Rows of an item, a divisor of CHUNK_ROWS.
    n_recent : int
        Newest items, always selected.
    """

    budget: float = parameter(DEFAULT_BUDGET, above=0, most=1)

    state = SELECTION
    storage = Storage.CHUNKS
    least_rows = LEAST_READ
    item_rows: ClassVar[int] = 1
    n_recent: ClassVar[int] = 1

    def item_bytes(self, heads: Heads) -> np.ndarray | int:
        """Return the bytes that the score of an item reads: one number, or one for each head."""
        raise NotImplementedError

    def lookup_share(self, heads: Heads, index: Index | None, n_tokens: int) -> np.ndarray:
        """Return the bytes of the scores as a share of those of all rows."""
        share: np.ndarray = self.item_bytes(heads) / (self.item_rows * heads.token_bytes)
        return share

    def n_items(self, heads: Heads) -> int:
        return padded(heads.n_chunks * (CHUNK_ROWS // self.item_rows))

    def start(self, heads: Heads, index: Index | None) -> None:
        """Set the constant part of the state."""
        state = heads.state
        state["n_recent"], state["item_rows"] = self.n_recent, self.item_rows
        state["item_bytes"] = self.item_bytes(heads)

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Turn the budget that the scores leave into a number of items."""
        share = self.budget * heads.scale
        left = np.maximum(share - self.lookup_share(heads, index, n_tokens), 0) * n_tokens / self.item_rows
        n_items = np.maximum(np.diff(np.rint(np.cumsum(left)), prepend=0), 1)  # rounds, and keeps the sum
        heads.state["n_selected"] = np.where(share < 1, n_items, -(-n_tokens // self.item_rows))

    def before_batch(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Select all items, as batches do."""
        super().before_batch(heads, index, n_tokens)
        heads.state["n_selected"], heads.state["n_own"] = -(-n_tokens // self.item_rows), 0
