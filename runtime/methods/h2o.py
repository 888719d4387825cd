"""H2O: keep the rows that got most attention, and recent ones (Zhang et al. 2023, section 4.2, algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

from ...cpu_kernels.methods.h2o import native_score_kept, native_select_kept, native_settle_heavy
from ..cache.index import Index
from .method import LEAST_KEPT, Heads, Keeps, rows_of_budget


@dataclass(frozen=True)
class H2O:
    """Heavy hitters by accumulated attention plus a recent part; the rest is forgotten.

    A step attends what is kept and its own tokens, and then forgets what is over the budget: so a batch's tokens see
    more than they would one by one. Of a document that comes from an index, rows are kept by the attention that its
    last tokens gave them.

    Parameters
    ----------
    budget : share of the rows that is kept; at least a chunk of them
    recent_share : of the kept rows, those that are the newest: a half in the paper, section 5
    """

    budget: float = 0.125
    recent_share: float = 0.5

    keeps = Keeps.HEAVY
    beside = ("slot_offset",)
    chunk_items = 256
    metal = None
    native_score = staticmethod(native_score_kept)
    native_select = staticmethod(native_select_kept)
    native_settle = staticmethod(native_settle_heavy)

    def prepare(self, own: Heads, n_tokens: int, document: Index | None) -> None:
        """Let the number of rows that are kept grow with the sequence."""
        n_kept = rows_of_budget(self.budget, own.scale, n_tokens, LEAST_KEPT)
        own.set(n_selected=n_kept, n_recent=(self.recent_share * n_kept).astype(int))
