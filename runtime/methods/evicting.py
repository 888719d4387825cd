"""Methods that forget rows as a sequence grows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...cpu_kernels.numba_support.shape import Shape
from ...cpu_kernels.rows.tiles import CHUNK_ROWS
from . import DEFAULT_BUDGET
from .method import Heads, Method, Storage
from .parameters import parameter

#: Rows of a short sequence that a method keeps whatever the budget: a chunk takes no less memory.
LEAST_KEPT = CHUNK_ROWS

#: Values of the parameter `prefill`: each batch forgets rows, or only steps of one token do; or a batch sees all of
#: itself, and forgets rows.
EVICT, FULL, CHUNK = "evict", "full", "chunk"


@dataclass(frozen=True)
class EvictingMethod(Method):
    """Keep some rows of the sequence, and forget the others. Its `storage` is SINKS_AND_WINDOW or SELECTED.

    Parameters
    ----------
    budget : float
        Share of the rows that is kept; at least a chunk of them.
    tokens : int
        Number of rows that are kept; 0 for a share, the budget.
    prefill : str
        "full": batches attend to everything and forget nothing, and the first step of one token forgets what is over
        the budget, as SqueezeAttention does (Wang et al. 2024, algorithm 1). "evict": batches forget rows, too, and
        take less memory.
    """

    budget: float = parameter(DEFAULT_BUDGET, above=0, most=1)
    tokens: int = parameter(0, least=0)
    prefill: str = parameter(EVICT, choices=(EVICT, FULL))

    least_rows = LEAST_KEPT
    evicts = True

    @property
    def selects(self) -> bool:  # type: ignore[override]
        return self.prefill == CHUNK or (self.storage is Storage.SELECTED and self.prefill != FULL)

    @property
    def rolls(self) -> bool:
        """Return whether tokens see only rows that are kept, however long the sequence is."""
        return False

    def move_origin(self, heads: Heads, origin: int) -> None:
        """Note that later positions count from another token of the sequence."""

    def kept_window(self, heads: Heads) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of sink rows and recent rows that each head sees: by default all that it keeps."""
        return np.zeros_like(heads.numbers), np.full_like(heads.numbers, heads.n_ctx)

    def document_rows(self, state: np.void, position: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """Choose the rows of a document that a head copies, in the order in which it stores them.

        Parameters
        ----------
        position : int array, shape (n_rows,)
            Position of each of the document's rows.
        mass : float32 array, shape (n_rows,)
            Attention that each row got from the document's last tokens.
        """
        rows: np.ndarray = position.argsort()
        return rows

    def start_extras(self, shape: Shape, extras: np.ndarray, position: np.ndarray, mass: np.ndarray) -> None:
        """Write the data of copied rows that the `append` hook does not make.

        Parameters
        ----------
        shape : Shape
            Shape of the head's kernels.
        extras : uint8 array
            The chunk's extras.
        position, mass : arrays, shape (n_rows,)
            Of the rows in this chunk, as in `document_rows`.
        """

    def rows_to_keep(self, heads: Heads, n_tokens: int) -> np.ndarray:
        """Return the number of rows that each head keeps of a sequence of n_tokens tokens: at least one, (n_heads,)."""
        rows = self.tokens * heads.scale if self.tokens else self.budget * heads.scale * n_tokens
        least = 1 if self.tokens else min(LEAST_KEPT, n_tokens)
        kept: np.ndarray = np.clip(np.rint(rows).astype(np.int64), least, n_tokens)
        return kept
