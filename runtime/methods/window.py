"""Window: the newest tokens, without sinks; one of the policies that SqueezeAttention allots (Wang et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...cpu_kernels.methods.streaming import HOOKS, STATE
from ..document.index import Index
from . import DEFAULT_BUDGET
from .method import FULL, LEAST_KEPT, Heads, Method, Storage, prefill_parameter, rows_to_keep
from .parameters import parameter

#: A window that is a share of the sequence grows at multiples of this number of tokens.
STEP = 64


@dataclass(frozen=True)
class Window(Method):
    """Show each token the newest rows, and forget the others.

    A window that is a share of the sequence grows at multiples of STEP tokens. Batches end there, so that what a token
    sees does not depend on its batch.

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
    storage = Storage.SINKS_AND_WINDOW
    least_rows = LEAST_KEPT

    @property
    def rolls(self) -> bool:
        """Return whether tokens see only rows that are kept, however long the sequence is."""
        return self.prefill != FULL

    @property
    def batch_end(self) -> int:  # type: ignore[override]
        """Return where batches end: where a share of the sequence grows."""
        return STEP if self.takes_budget and self.prefill != FULL else 0

    def length(self, n_tokens: int) -> int:
        """Return the length whose share is the window, in a step after which n_tokens tokens are stored."""
        step = self.batch_end or 1
        return -(-n_tokens // step) * step

    def least_selected(self, index: Index | None, n_tokens: int) -> float:
        """Return the share of the rows that the method keeps whatever the budget."""
        return self.least_rows / self.length(n_tokens)

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Let a window that is a share grow with the sequence."""
        n_recent = rows_to_keep(self.budget, self.tokens, heads, self.length(n_tokens))
        heads.state["n_recent"] = np.minimum(n_recent, heads.n_ctx)

    def before_batch(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Show everything to a prompt if `prefill` is "full"."""
        self.before_step(heads, index, n_tokens)
        if self.prefill == FULL:
            heads.state["n_recent"] = n_tokens

    def kept_window(self, heads: Heads) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of sink rows, 0, and of recent rows that each head sees."""
        return heads.state["n_sinks"], heads.state["n_recent"]
