"""Sketch: every row as a few codes; the best rows are attended exactly, the others by their codes. A method of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...cpu_kernels.methods.sketch import BY_QUALITY, HOOKS, HOOKS_BELOW, LIMITS, SINKS, STATE, extras_bytes
from ...cpu_kernels.numba_support.shape import Shape
from ...cpu_kernels.rows.tiles import CHUNK_ROWS
from ...cpu_kernels.select.product_quantisation import BLOCK_ROWS, CODES
from ...cpu_kernels.select.tail_codes import BLOCKS, LAYOUT, RECENT, TRAINED
from ..document.index import Index
from . import DEFAULT_BUDGET
from .method import Heads, Method, Storage
from .parameters import parameter


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
    """

    budget: float = parameter(DEFAULT_BUDGET, above=0, most=1)
    quality: float = parameter(0.0, least=0, most=1)
    most: float = parameter(1.0, above=0, most=1)
    dense: int = parameter(0, least=0)
    columns: int = parameter(4, choices=(2, 4, 8))

    name = "sketch"
    hooks, limits = HOOKS, LIMITS
    state = STATE
    storage = Storage.CHUNKS
    runs_after_copy = updates_apart = waits_for_step = True
    hooks_below = HOOKS_BELOW

    @property
    def selects_from(self) -> int:  # type: ignore[override]
        """Return the first number of rows of which it reads a part."""
        return max(TRAINED + RECENT, self.dense + 1)

    @property
    def takes_budget(self) -> bool:
        """Return whether the budget makes a difference: not with a quality."""
        return not self.quality

    def extras_bytes(self, shape: Shape) -> int:
        return extras_bytes(shape, shape.head_dim // self.columns)

    @property
    def kept_name(self) -> str:
        """Return the name of codes with as many columns each, of this layout."""
        return f"codes-{self.columns}-{LAYOUT}"

    def kept_state(self, shape: Shape) -> Mapping[str, int]:
        """Return the fields that belong to the codes."""
        of_keys = dict.fromkeys(("order", "weights", "errors"), shape.head_dim)
        codebooks = {"codebooks": CODES * shape.head_dim, "values": CODES * shape.value_dim}
        return {"n_coded": 1, "trained": 1, **of_keys, **codebooks}

    def check_kept(self, shape: Shape, n_rows: int, state: Mapping[str, np.ndarray]) -> bool:
        """Return whether all columns exist, and whether the numbers of trained and of coded rows are right."""
        n_ready, columns = max(n_rows - RECENT, 0) // BLOCK_ROWS, np.sort(state["order"])
        trained, n_coded = int(state["trained"][0]), int(state["n_coded"][0])
        due = int(_trained_rows(np.array(n_ready)))
        is_due = (trained, n_coded) == (due, n_ready if due else 0)
        return is_due and bool((columns == np.arange(shape.head_dim)).all())

    def n_items(self, heads: Heads) -> int:
        return heads.n_chunks * CHUNK_ROWS

    def lookup_share(self, heads: Heads, index: Index | None, n_tokens: int) -> np.ndarray:
        """Return the bytes of codes, means and codebooks as a share of those of all rows."""
        n_blocks, head_dim = _n_blocks(n_tokens), heads.head_dim
        n_bytes = n_blocks * BLOCK_ROWS * (head_dim // self.columns + 1) / 2
        n_bytes += n_blocks * 2 * head_dim + (4 * CODES * (head_dim + heads.value_dim) if n_blocks else 0)
        share: np.ndarray = n_bytes / (heads.token_bytes * n_tokens)
        return share

    def least_selected(self, index: Index | None, n_tokens: int) -> float:
        """Return the share of the rows without codes and the first rows."""
        return min((n_tokens - _n_blocks(n_tokens) * BLOCK_ROWS + SINKS) / n_tokens, 1.0)

    def start(self, heads: Heads, index: Index | None) -> None:
        """Set the number of codes of a key."""
        heads.state["n_codes"] = heads.head_dim // self.columns

    def fixed_chunks(self, state: np.ndarray, n_rows: np.ndarray) -> np.ndarray:
        """Return the chunks whose blocks all have codes, unless the codebooks are to be made anew."""
        n_ready = np.maximum(n_rows - RECENT, 0) // BLOCK_ROWS
        coded = np.minimum(state["n_coded"], n_ready) // BLOCKS
        fixed: np.ndarray = np.where(_trained_rows(n_ready) == state["trained"], coded, 0)
        return fixed

    def rows_to_act(self, n_rows: np.ndarray) -> np.ndarray:
        """Return after how many more rows the next block gets codes."""
        n_more: np.ndarray = BLOCK_ROWS - (n_rows - RECENT) % BLOCK_ROWS
        return n_more

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Turn the budget that the codes leave into rows."""
        state = heads.state
        state["quality"] = self.quality
        if n_tokens <= self.dense:
            state["n_rows"] = n_tokens
            return
        share = np.minimum((self.most if self.quality else self.budget) * heads.scale, 1.0)
        n_exact = n_tokens - _n_blocks(n_tokens) * BLOCK_ROWS
        rows = (share - self.lookup_share(heads, index, n_tokens)) * n_tokens - n_exact
        rows = np.where(share < 1, np.maximum(np.rint(rows), SINKS), n_tokens)
        state["n_rows"] = rows
        if self.quality:
            state["n_rows"], state["n_most"] = BY_QUALITY, rows

    def before_batch(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Attend to all rows exactly, as batches do."""
        self.before_step(heads, index, n_tokens)
        heads.state["n_rows"] = n_tokens


def _trained_rows(n_ready: np.ndarray) -> np.ndarray:
    """Return on how many rows codebooks are found where n_ready blocks get codes: TRAINED, its double, and so on."""
    doublings = np.floor(np.log2(np.maximum(n_ready * BLOCK_ROWS / TRAINED, 0.5)))
    rows: np.ndarray = np.where(doublings >= 0, TRAINED * 2 ** np.maximum(doublings, 0).astype(np.int64), 0)
    return rows


def _n_blocks(n_tokens: int) -> int:
    """Return the number of blocks with codes in a step of one token, after which n_tokens tokens are stored."""
    n_blocks = max(n_tokens - 1 - RECENT, 0) // BLOCK_ROWS
    return n_blocks if n_blocks * BLOCK_ROWS >= TRAINED else 0
