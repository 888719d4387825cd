"""H2O: the rows that got most attention, and recent ones (Zhang et al. 2023, algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...cpu_kernels.methods.h2o import HOOKS, STATE, extras_bytes, positions_and_attention
from ...cpu_kernels.numba_support.shape import Shape
from ...cpu_kernels.rows.tiles import CHUNK_ROWS
from ..document.index import Index
from .evicting import FULL, EvictingMethod
from .method import Heads, Storage
from .parameters import parameter


@dataclass(frozen=True)
class H2O(EvictingMethod):
    """Keep the heavy hitters, by accumulated attention, and a recent part; forget the other rows.

    A step attends to what is kept and to its own tokens, and then forgets what is over the budget. Batches end at each
    256th token of the sequence, and forget there only. So their tokens see more than they would one by one. Of a
    document that comes from an index, rows are kept by the attention that its last tokens gave them.

    Parameters
    ----------
    recent : float
        Share of the kept rows that are the newest; a half in the paper, section 5.
    """

    recent: float = parameter(0.5, least=0, most=1)

    name = "h2o"
    hooks = HOOKS
    state = STATE
    storage = Storage.SELECTED
    batch_end = CHUNK_ROWS

    def extras_bytes(self, shape: Shape) -> int:
        return extras_bytes(shape)

    def n_items(self, heads: Heads) -> int:
        return heads.n_chunks * CHUNK_ROWS

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Let the number of kept rows grow with the sequence if it is a share."""
        n_rows = self.rows_to_keep(heads, n_tokens)
        heads.state["n_rows"], heads.state["n_recent"] = n_rows, (self.recent * n_rows).astype(int)

    def before_batch(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Keep all rows of a prompt if `prefill` is "full"; else forget at multiples of `batch_end`."""
        self.before_step(heads, index, n_tokens)
        if self.prefill == FULL or n_tokens % self.batch_end:
            heads.state["n_rows"] = n_tokens

    def document_rows(self, state: np.void, position: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """Choose the newest rows and those with most attention, in the order of their positions."""
        n_rows, n_recent = int(state["n_rows"]), int(state["n_recent"])
        order = position.argsort()
        older = order[: len(order) - n_recent]
        heaviest = older[mass[older].argsort(kind="stable")[len(older) - (n_rows - n_recent) :]]
        kept = np.concatenate([heaviest, order[len(order) - n_recent :]])
        rows: np.ndarray = kept[position[kept].argsort()]
        return rows

    def start_extras(self, shape: Shape, extras: np.ndarray, position: np.ndarray, mass: np.ndarray) -> None:
        """Write the positions of copied rows, and their attention."""
        positions, attention, _ = positions_and_attention(shape, extras)
        positions[: len(position)], attention[: len(mass)] = position, mass
