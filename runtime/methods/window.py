"""Window: the newest tokens, without sinks; one of the policies that SqueezeAttention allots (Wang et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...cpu_kernels.methods.streaming import HOOKS, STATE
from ..document.index import Index
from .evicting import FULL, EvictingMethod
from .method import Heads, Storage

#: A window that is a share of the sequence grows at multiples of this number of tokens.
STEP = 64


@dataclass(frozen=True)
class Window(EvictingMethod):
    """Show each token the newest rows, and forget the others.

    A window that is a share of the sequence grows at multiples of STEP tokens. Batches end there, so that what a token
    sees does not depend on its batch.
    """

    name = "window"
    hooks = HOOKS
    state = STATE
    storage = Storage.SINKS_AND_WINDOW

    @property
    def rolls(self) -> bool:
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
        n_recent = self.rows_to_keep(heads, self.length(n_tokens))
        heads.state["n_recent"] = np.minimum(n_recent, heads.n_ctx)

    def before_batch(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Show everything to a prompt if `prefill` is "full"."""
        self.before_step(heads, index, n_tokens)
        if self.prefill == FULL:
            heads.state["n_recent"] = n_tokens

    def kept_window(self, heads: Heads) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of sink rows, 0, and of recent rows that each head sees."""
        return heads.state["n_sinks"], heads.state["n_recent"]
