"""Window: the newest tokens, without sinks; one of the policies that SqueezeAttention allots (Wang et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...cpu_kernels.methods.streaming import HOOKS, STATE
from ..cache.index import Index
from . import DEFAULT_BUDGET
from .method import FULL, LEAST_KEPT, Heads, Keeps, Method, prefill_parameter, rows_to_keep
from .parameters import parameter


@dataclass(frozen=True)
class Window(Method):
    """Show each token the newest rows, and forget the others.

    Parameters
    ----------
    budget : float
        Share of the rows that is kept; at least a chunk of them.
    tokens : int
        Number of rows that are kept; 0 for a share, the budget.
    prefill : str
        "full": batches attend to everything and forget nothing, and the first step of one token forgets what is over
        the budget, as SqueezeAttention does (algorithm 1). "evict": batches attend and forget as single tokens do, and
        take less memory.
    """

    budget: float = parameter(DEFAULT_BUDGET, above=0, most=1)
    tokens: int = parameter(0, least=0)
    prefill: str = prefill_parameter()

    name = "window"
    hooks = HOOKS
    state = STATE
    keeps = Keeps.RECENT
    least_rows = LEAST_KEPT

    @property
    def rolls(self) -> bool:
        """Return whether a token sees nothing farther away than what is kept, however long the sequence is."""
        return self.prefill != FULL

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Let the window grow with the sequence if it is a share of it."""
        n_recent = rows_to_keep(self.budget, self.tokens, heads, n_tokens)
        heads.state["n_recent"] = np.minimum(n_recent, heads.n_ctx)

    def before_batch(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Show everything to a prompt, if it is read so."""
        self.before_step(heads, index, n_tokens)
        if self.prefill == FULL:
            heads.state["n_recent"] = n_tokens

    def kept_window(self, heads: Heads) -> tuple[np.ndarray, np.ndarray]:
        """Return that there are no sinks, and how many recent rows each head sees."""
        return heads.state["n_sinks"], heads.state["n_recent"]
