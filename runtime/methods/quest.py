"""Quest: attend the pages whose keys could score highest (Tang et al. 2024, section 3.3, algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...cpu_kernels.methods.quest import PAGE_ROWS, native_score_pages, native_select_pages
from ...metal.records import Method
from ..cache.index import Index
from .method import LEAST_READ, Heads, Keeps, rows_of_budget

#: Bounds, two vectors, over a page's keys and values.
_LOOKUP = 1 / PAGE_ROWS


@dataclass(frozen=True)
class Quest:
    """Pages of 16 rows by an upper bound of q.k; a batch of more than one token attends everything.

    Parameters
    ----------
    budget : share of the KV bytes that a step reads in a layer that selects, the bounds included; four pages are
        read in any case. 1 reads everything
    dense_layers : first layers that attend everything; 2 in the paper, section 4.1
    """

    budget: float = 0.125
    dense_layers: int = 2

    keeps = Keeps.ORDER
    beside = ("page_offset",)
    chunk_items = 16
    metal = Method.PAGES
    native_score = staticmethod(native_score_pages)
    native_select = staticmethod(native_select_pages)
    native_settle = None

    def prepare(self, own: Heads, n_tokens: int, document: Index | None) -> None:
        """Let the number of pages grow with the sequence."""
        share = self.budget * own.scale
        n_rows = rows_of_budget(1.0, np.where(share < 1, np.maximum(share - _LOOKUP, 0), 1.0), n_tokens, LEAST_READ)
        own.set(n_selected=np.maximum(np.rint(n_rows / PAGE_ROWS), 1) + (share >= 1))
