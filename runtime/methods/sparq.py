"""SparQ: the rows that score highest by a few of the query's components (Ribar et al. 2024, algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...cpu_kernels.compile import Shape
from ...cpu_kernels.head import CHUNK_ROWS
from ...cpu_kernels.methods.sparq import HOOKS, STATE, extras_bytes
from ...cpu_kernels.scores import padded
from ..cache.index import Index
from . import DEFAULT_BUDGET
from .method import LEAST_READ, Heads, Keeps, Method, rows_of_budget
from .parameters import parameter


@dataclass(frozen=True)
class SparQ(Method):
    """Select rows by partial scores; a batch of more than one token attends to everything.

    Components are chosen, and the temperature is made, by |q| times the spread of the keys' components, where the paper
    takes |q| alone (steps 1 and 2). Where keys have a large mean, as Gemma's, what is large may tell no rows apart.

    Parameters
    ----------
    budget : float
        Share of the KV bytes that a step reads, the components included. Each gets one half: r = budget * head_dim
        components of each key, and budget / 2 of the rows. 1 reads everything.
    window_share : float
        Share of the selected rows that are the newest; a quarter in the paper, appendix B.
    reallocate : bool or None
        Whether the attention of the rows that are left out goes to the mean value (algorithm 1, step 3). None does so
        for KV heads with one query head, as the paper does (appendix B: it harms grouped-query attention).
    """

    budget: float = parameter(DEFAULT_BUDGET, above=0, most=1)
    window_share: float = parameter(0.25, least=0, most=1)
    reallocate: bool | None = parameter(None, bool)

    name = "sparq"
    hooks = HOOKS
    state = STATE
    keeps = Keeps.ORDER

    def extras_bytes(self, shape: Shape) -> int:
        """Return what a chunk keeps of its rows for selection, in bytes."""
        return extras_bytes(shape)

    def n_items(self, heads: Heads) -> int:
        """Return the rows that are scored in one head. `reallocate` needs room for head_dim and group numbers."""
        return max(heads.n_chunks * CHUNK_ROWS, padded(int((heads.head_dim + heads.group).max())))

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Let the number of rows grow with the sequence."""
        share, state = self.budget * heads.scale, heads.state
        n_rows = rows_of_budget(1.0, np.where(share < 1, share / 2, 1.0), n_tokens, LEAST_READ)
        state["n_rows"], state["n_recent"] = n_rows, np.ceil(self.window_share * n_rows)
        state["n_components"] = np.maximum(np.rint(share * heads.head_dim), 1)
        state["reallocates"] = heads.group == 1 if self.reallocate is None else self.reallocate
