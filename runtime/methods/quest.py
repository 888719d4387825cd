"""Quest: the pages whose keys could score highest (Tang et al. 2024, section 3.4, algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...cpu_kernels.methods.quest import HOOKS, LIMITS, PAGE_ROWS, extras_bytes
from ...cpu_kernels.numba_support.shape import Shape
from ..document.index import Index
from .method import Heads
from .parameters import parameter
from .scorer import ScorerMethod

#: Values of `select`: who selects pages.
_GROUP, _HEAD = "group", "head"


@dataclass(frozen=True)
class Quest(ScorerMethod):
    """Select pages of 16 rows by an upper bound of their scores; a batch attends to everything.

    Parameters
    ----------
    tokens : int
        Rows that a step attends in a layer that selects, in whole pages, the bounds not counted; the paper's token
        budget. 0: by the budget.
    dense_layers : int
        Number of first layers that attend to everything; 2 in the paper, section 4.2.
    select : str
        Whether the query heads that share a KV head select pages together, or each for itself, as the paper's do, which
        share none. By a budget, each selects as many as leave the budget for what all of them read.
    """

    tokens: int = parameter(0, least=0)
    dense_layers: int = parameter(0, least=0)
    select: str = parameter(_GROUP, choices=(_GROUP, _HEAD))

    name = "quest"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper": {"dense_layers": 2, "select": _HEAD}}
    hooks, limits = HOOKS, LIMITS
    item_rows = PAGE_ROWS

    @property
    def on_metal(self) -> bool:  # type: ignore[override]
        return self.select == _GROUP

    def item_bytes(self, heads: Heads) -> np.ndarray:
        """Return the size of a page's bounds, two vectors of f16, in each head."""
        n_bytes: np.ndarray = 4 * heads.head_dim
        return n_bytes

    def extras_bytes(self, shape: Shape) -> int:
        return extras_bytes(shape)

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Let the number of pages grow with the sequence, or turn tokens into pages."""
        super().before_step(heads, index, n_tokens)
        state, apart = heads.state, self.select == _HEAD
        n_pages = state["n_selected"].copy()
        if self.tokens:
            n_pages = np.maximum(np.rint(self.tokens * heads.scale / PAGE_ROWS), 1)
            state["n_selected"] = -(-n_tokens // PAGE_ROWS) if apart else n_pages
        state["n_own"] = n_pages if apart else 0
