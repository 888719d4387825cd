"""Quest: the pages whose keys could score highest (Tang et al. 2024, section 3.4, algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...cpu_kernels.compile import Shape
from ...cpu_kernels.methods.quest import CHUNK_PAGES, HOOKS, PAGE_ROWS, STATE, extras_bytes
from ..cache.index import Index
from . import DEFAULT_BUDGET
from .method import LEAST_READ, Heads, Keeps, Method, rows_of_budget
from .parameters import parameter

#: Bytes of a page's bounds, two vectors, over those of its keys and values.
_LOOKUP = 1 / PAGE_ROWS


@dataclass(frozen=True)
class Quest(Method):
    """Select pages of 16 rows by an upper bound of their scores; a batch attends to everything.

    Parameters
    ----------
    budget : float
        Share of the KV bytes that a step reads in a layer that selects, the bounds included. Four pages are read in
        any case. 1 reads everything.
    dense_layers : int
        Number of first layers that attend to everything; 2 in the paper, section 4.2.
    """

    budget: float = parameter(DEFAULT_BUDGET, above=0, most=1)
    dense_layers: int = parameter(2, least=0)

    name = "quest"
    hooks = HOOKS
    state = STATE
    keeps = Keeps.ORDER

    def extras_bytes(self, shape: Shape) -> int:
        """Return what a chunk keeps of its rows for selection, in bytes."""
        return extras_bytes(shape)

    def n_items(self, heads: Heads) -> int:
        """Return the pages that are scored in one head."""
        return heads.n_chunks * CHUNK_PAGES

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Let the number of pages grow with the sequence."""
        share = self.budget * heads.scale
        n_rows = rows_of_budget(1.0, np.where(share < 1, np.maximum(share - _LOOKUP, 0), 1.0), n_tokens, LEAST_READ)
        heads.state["n_pages"] = np.maximum(np.rint(n_rows / PAGE_ROWS), 1) + (share >= 1)
