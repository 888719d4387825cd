"""Quest: the pages whose keys could score highest (Tang et al. 2024, section 3.4, algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...cpu_kernels.methods.quest import CHUNK_PAGES, HOOKS, PAGE_ROWS, STATE, extras_bytes
from ...cpu_kernels.numba_support.compile import Shape
from ..document.index import Index
from . import DEFAULT_BUDGET
from .method import LEAST_READ, Heads, Keeps, Method
from .parameters import parameter

#: Who selects pages.
_GROUP, _HEAD = "group", "head"


@dataclass(frozen=True)
class Quest(Method):
    """Select pages of 16 rows by an upper bound of their scores; a batch attends to everything.

    Parameters
    ----------
    budget : float
        Share of the KV bytes that a step reads, the dense layers and the bounds included. Four pages are read in any
        case. 1 reads everything.
    tokens : int
        Rows that a step attends in a layer that selects, in whole pages, the bounds not counted; the paper's token
        budget. 0: by the budget.
    dense_layers : int
        Number of first layers that attend to everything; 2 in the paper, section 4.2.
    select : str
        Whether the query heads that share a KV head select pages together, or each for itself, as the paper's do, which
        share none. By a budget, each selects as many as leave the budget for what all of them read.
    """

    budget: float = parameter(DEFAULT_BUDGET, above=0, most=1)
    tokens: int = parameter(0, least=0)
    dense_layers: int = parameter(0, least=0)
    select: str = parameter(_GROUP, choices=(_GROUP, _HEAD))

    name = "quest"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper": {"dense_layers": 2, "select": _HEAD}}
    hooks = HOOKS
    state = STATE
    keeps = Keeps.ORDER
    least_rows = LEAST_READ

    @property
    def on_metal(self) -> bool:
        """Return whether the shader part has these rules."""
        return self.select == _GROUP

    def lookup_share(self, heads: Heads, index: Index | None, n_tokens: int) -> np.ndarray:
        """Return what a page's bounds, two vectors of f16, are of its keys and values."""
        share: np.ndarray = 4 * heads.head_dim / (PAGE_ROWS * 2 * heads.row_bytes)
        return share

    def extras_bytes(self, shape: Shape) -> int:
        """Return what a chunk keeps of its rows for selection, in bytes."""
        return extras_bytes(shape)

    def n_items(self, heads: Heads) -> int:
        """Return the pages that are scored in one head."""
        return heads.n_chunks * CHUNK_PAGES

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Let the number of pages grow with the sequence, or turn tokens into pages."""
        state, n_all = heads.state, -(-n_tokens // PAGE_ROWS)
        if self.tokens:
            n_own = np.maximum(np.rint(self.tokens * heads.scale / PAGE_ROWS), 1)
            state["n_pages"] = n_all if self.select == _HEAD else n_own
        else:
            share = self.budget * heads.scale
            left = np.maximum(share - self.lookup_share(heads, index, n_tokens), 0) * n_tokens / PAGE_ROWS
            n_pages = np.maximum(np.diff(np.rint(np.cumsum(left)), prepend=0), 1)  # rounded, and their sum stays
            n_own = state["n_pages"] = np.where(share < 1, n_pages, n_all)
        state["n_own"] = n_own if self.select == _HEAD else 0
