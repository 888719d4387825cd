"""Streaming: sink tokens and a recent window (StreamingLLM, Xiao et al. 2023, section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...cpu_kernels.head import CHUNK_ROWS
from ...cpu_kernels.methods.streaming import HOOKS, STATE
from ..cache.index import Index
from . import DEFAULT_BUDGET
from .method import FULL, LEAST_KEPT, Heads, Keeps, Method, prefill_parameter, rows_of_budget
from .parameters import parameter


@dataclass(frozen=True)
class Streaming(Method):
    """Show each token the first rows and the newest ones, and forget the others.

    Parameters
    ----------
    budget : float
        Share of the rows that is kept if n_recent is 0; at least a chunk of them.
    n_sinks : int
        First rows that are kept, at most a chunk; 4 in the paper. With 0 this is a sliding window.
    n_recent : int
        Newest rows that a token sees, its own included; 0 for what the budget leaves besides the sinks.
    prefill : str
        "full": batches attend to everything and forget nothing, and the first step of one token forgets what is over
        the budget, as SqueezeAttention does (Wang et al. 2024, algorithm 1). "evict": batches attend and forget as
        single tokens do, and take less memory.
    """

    budget: float = parameter(DEFAULT_BUDGET, above=0, most=1)
    n_sinks: int = parameter(4, least=0, most=CHUNK_ROWS)
    n_recent: int = parameter(0, least=0)
    prefill: str = prefill_parameter()

    name = "streaming"
    hooks = HOOKS
    state = STATE
    keeps = Keeps.RECENT

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Let the window grow with the sequence, as a share of it."""
        n_recent = self.n_recent or rows_of_budget(self.budget, heads.scale, n_tokens, LEAST_KEPT) - self.n_sinks
        heads.state["n_sinks"], heads.state["n_recent"] = self.n_sinks, n_recent

    def before_batch(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Show everything to a prompt, if it is read so."""
        self.before_step(heads, index, n_tokens)
        if self.prefill == FULL:
            heads.state["n_recent"] = n_tokens

    def kept_window(self, heads: Heads) -> tuple[np.ndarray, np.ndarray]:
        """Return how many sink rows and recent rows each head sees."""
        return heads.state["n_sinks"], heads.state["n_recent"]
