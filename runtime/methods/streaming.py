"""StreamingLLM: attention sinks and a recent window (Xiao et al. 2024, section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass

from ...cpu_kernels.methods.streaming import native_select_recent
from ...metal.records import Method
from ..cache.index import Index
from .method import LEAST_KEPT, Heads, Keeps, rows_of_budget


@dataclass(frozen=True)
class Streaming:
    """Each token sees the first rows and the newest ones; the rest is forgotten.

    Parameters
    ----------
    n_sinks : first rows that are kept; 4 in the paper, section 3.2. With 0, a sliding window
    n_recent : newest rows that a token sees, its own included; 0 for what the budget leaves beside the sinks
    budget : share of the rows that is kept, where n_recent is 0; at least a chunk of them
    """

    n_sinks: int = 4
    n_recent: int = 0
    budget: float = 1.0

    keeps = Keeps.RECENT
    beside = ()
    chunk_items = 0
    metal = Method.RECENT
    native_score = None
    native_select = staticmethod(native_select_recent)
    native_settle = None

    def prepare(self, own: Heads, n_tokens: int, document: Index | None) -> None:
        """Let the window grow with the sequence, as a share of it."""
        n_recent = self.n_recent or rows_of_budget(self.budget, own.scale, n_tokens, LEAST_KEPT) - self.n_sinks
        own.set(n_sinks=self.n_sinks, n_recent=n_recent)
