"""Sketch: every row as a few codes; the best rows are attended exactly, the others by their codes. A method of ours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...cpu_kernels.attend.head import CHUNK_ROWS
from ...cpu_kernels.methods.sketch import BY_QUALITY, HOOKS, SINKS, STATE, extras_bytes
from ...cpu_kernels.numba_support.compile import LANES, Shape
from ...cpu_kernels.select.cluster_means import mean_value_bytes
from ...cpu_kernels.select.product_quantisation import BLOCK_ROWS, CODES
from ...cpu_kernels.select.tail_codes import BLOCKS, RECENT, TRAINED, ready_blocks
from ...cpu_kernels.select.tree import sort_by_tree
from ..document.index import Index
from ..document.stored_rows import as_floats
from . import DEFAULT_BUDGET
from .method import Heads, Keeps, Method
from .parameters import parameter

#: Share of the leaves that a step looks up, besides twice the share of the bytes that it reads.
_LEAST_LOOKED_UP = 0.125


@dataclass(frozen=True)
class Sketch(Method):
    """Score all rows by 4-bit codes of their keys, and estimate what is not attended exactly; a batch reads everything.

    Parameters
    ----------
    budget : float
        Share of the KV bytes that a step reads, the codes included. 1 reads everything.
    quality : float
        Share of the attention that the rows which are read exactly cover in each step, in place of the budget; 0 for by
        the budget.
    most : float
        Largest share of the KV bytes that a step reads by its quality.
    dense : int
        Tokens of a sequence up to which a step reads everything.
    columns : int
        Columns of a key that share a code of 4 bits.
    leaves : int
        Tokens of a document from which on its rows are sorted into leaves, so that a step looks up the codes of some
        only; 0 for never. In a shorter one, to look up all codes takes no longer.
    """

    budget: float = parameter(DEFAULT_BUDGET, above=0, most=1)
    quality: float = parameter(0.0, least=0, most=1)
    most: float = parameter(1.0, above=0, most=1)
    dense: int = parameter(0, least=0)
    columns: int = parameter(4, choices=(2, 4, 8))
    leaves: int = parameter(6000, least=0)

    name = "sketch"
    hooks = HOOKS
    state = STATE
    keeps = Keeps.ORDER
    settles = True

    @property
    def takes_budget(self) -> bool:
        """Return whether the budget makes a difference: not if a quality is asked for."""
        return not self.quality

    def extras_bytes(self, shape: Shape) -> int:
        """Return what a chunk keeps of its rows for selection, in bytes."""
        return extras_bytes(shape, shape.head_dim // self.columns)

    def n_items(self, heads: Heads) -> int:
        """Return the rows that are scored in one head, and the leaves."""
        return heads.n_chunks * (CHUNK_ROWS + BLOCKS) + LANES

    def lookup_share(self, heads: Heads, index: Index | None, n_tokens: int) -> np.ndarray:
        """Return what codes, means and codebooks take of the bytes of all rows."""
        n_blocks, head_dim, n_leaves = _n_blocks(n_tokens), heads.head_dim, self._n_leaves(heads, index)
        n_looked_up = self._n_looked_up(n_leaves)
        n_bytes = (n_blocks - n_leaves + n_looked_up) * BLOCK_ROWS * (head_dim // self.columns + 1) / 2
        n_bytes += n_blocks * 2 * head_dim + (8 * CODES * head_dim if n_blocks else 0)
        n_bytes += np.where(n_looked_up < n_leaves, n_leaves * mean_value_bytes(head_dim), 0)
        share: np.ndarray = n_bytes / (2 * heads.row_bytes * n_tokens)
        return share

    def least_selected(self, index: Index | None, n_tokens: int) -> float:
        """Return the share of the rows that have no codes, and of the first ones."""
        return min((n_tokens - _n_blocks(n_tokens) * BLOCK_ROWS + SINKS) / n_tokens, 1.0)

    def start(self, heads: Heads, index: Index | None) -> None:
        """Say how many codes a key has, and which blocks are leaves."""
        n_leaves = self._n_leaves(heads, index)
        heads.state["n_codes"], heads.state["n_leaves"] = heads.head_dim // self.columns, n_leaves
        n_rows = 0 if index is None else ready_blocks(len(index.tokens)) * BLOCK_ROWS
        heads.state["first_trained"] = np.where(n_leaves, n_rows, TRAINED)

    def document_rows(self, state: np.void, keys: np.ndarray, position: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """Sort the rows that are in leaves by a tree, and the others by their positions."""
        rows: np.ndarray = position.argsort()
        first, n_rows = CHUNK_ROWS, int(state["n_leaves"]) * BLOCK_ROWS
        if n_rows:
            own, order = rows[first : first + n_rows], np.empty(n_rows, np.int64)
            sort_by_tree(np.ascontiguousarray(as_floats(keys[own])), BLOCK_ROWS, order)
            rows[first : first + n_rows] = own[order]
        return rows

    def fixed_chunks(self, state: np.ndarray, n_rows: np.ndarray) -> np.ndarray:
        """Return the chunks whose blocks all have codes, unless codebooks are found anew."""
        n_ready, first = np.maximum(n_rows - RECENT, 0) // BLOCK_ROWS, np.maximum(state["first_trained"], TRAINED)
        doublings = np.floor(np.log2(np.maximum(n_ready * BLOCK_ROWS / first, 0.5)))
        due = np.where(doublings >= 0, first * 2 ** np.maximum(doublings, 0).astype(np.int64), 0)
        coded = np.minimum(state["n_coded"], n_ready) // BLOCKS
        fixed: np.ndarray = np.where(due == state["trained"], coded, 0)
        return fixed

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Turn what codes leave of the budget into rows."""
        share = np.minimum((self.most if self.quality else self.budget) * heads.scale, 1.0)
        n_exact = n_tokens - _n_blocks(n_tokens) * BLOCK_ROWS
        rows = (share - self.lookup_share(heads, index, n_tokens)) * n_tokens - n_exact
        rows = np.where(share < 1, np.maximum(np.rint(rows), SINKS), n_tokens)
        state = heads.state
        state["n_rows"], state["quality"] = rows, self.quality
        state["n_looked_up"] = self._n_looked_up(state["n_leaves"])
        if n_tokens <= self.dense:
            state["n_rows"] = n_tokens
        elif self.quality:
            state["n_rows"], state["n_most"] = BY_QUALITY, rows

    def _n_looked_up(self, n_leaves: np.ndarray) -> np.ndarray:
        """Return how many of n_leaves leaves a step looks up the codes of: whole chunks."""
        share = _LEAST_LOOKED_UP + (self.most if self.quality else 2 * self.budget)
        n_looked_up: np.ndarray = np.ceil(np.minimum(share, 1.0) * (n_leaves // BLOCKS)).astype(np.int64) * BLOCKS
        return n_looked_up

    def _n_leaves(self, heads: Heads, index: Index | None) -> np.ndarray:
        """Return how many blocks of a document are leaves in each head: none where a window slides."""
        n_tokens = 0 if index is None else len(index.tokens)
        is_sorted = 0 < self.leaves <= n_tokens
        n_leaves = max(ready_blocks(n_tokens) // BLOCKS - 1, 0) * BLOCKS if is_sorted else 0
        leaves: np.ndarray = np.where(heads.get("window") > 0, 0, n_leaves)
        return leaves


def _n_blocks(n_tokens: int) -> int:
    """Return the blocks with codes in a step of one token, after which n_tokens tokens are stored."""
    n_blocks = ready_blocks(n_tokens - 1)
    return n_blocks if n_blocks * BLOCK_ROWS >= TRAINED else 0
