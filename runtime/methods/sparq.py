"""SparQ: the rows that score highest by a few of the query's components (Ribar et al. 2024, algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...cpu_kernels.layout.hooks import Hooks
from ...cpu_kernels.layout.scores import padded
from ...cpu_kernels.methods.sparq import HOOKS, HOOKS_OF_ONE_COPY, MEASURED_CHUNKS, STATE, extras_bytes, moments_bytes
from ...cpu_kernels.numba_support.shape import Shape
from ...cpu_kernels.numba_support.vector import CACHE_LINE
from ...cpu_kernels.rows.tiles import CHUNK_ROWS
from ..document.index import Index
from .method import Heads
from .parameters import parameter
from .scorer import ScorerMethod

#: Rows to select at least, whatever the budget.
LEAST_ROWS = 16

#: Words of the parameters that choose among rules.
SPREAD, QUERY, L1 = "spread", "query", "l1"
AUTO, ON, OFF = "auto", "on", "off"
TWO, ONE = "two", "one"
GROUP, HEAD = "group", "head"


@dataclass(frozen=True)
class SparQ(ScorerMethod):
    """Select rows by partial scores; a batch of more than one token attends to everything.

    Parameters
    ----------
    budget : float
        Share of the KV bytes that a step reads, the components included. Components get one half, rows the other. At
        least 16 rows and one component are read. 1 reads everything.
    r : int
        Components of each key that score rows; 0: as many as the budget allows. With k, the budget has no part.
    k : int
        Rows that are selected; 0: as many as the budget allows. With r, the budget has no part.
    recent : float
        Share of the selected rows that are the newest; a quarter in the paper, table G1.
    components : str
        What chooses the components: |q| times the spread of the keys' components, or |q| alone (algorithm 1, step 1).
        Where keys have a large mean, as Gemma's, large components may tell no rows apart.
    temperature : str
        What makes up for the other components: the squares of |q| times the spread, or their L1 coverage, of |q|
        (equation 9).
    reallocate : str
        Whether the attention of the rows that are left out goes to the mean value (algorithm 1, step 3). "auto" does so
        for KV heads with one query head, as the paper does (section 4: models with more do better without it).
    layout : str
        Whether the keys are stored once more, transposed, which is half the memory more; or "one": components are read
        from the rows, which takes whole cache lines.
    select : str
        Whether the query heads of a group select together, or each its own r components and k rows. A budget counts
        what any of them reads.
    """

    r: int = parameter(0, least=0)
    k: int = parameter(0, least=0)
    recent: float = parameter(0.25, least=0, most=1)
    components: str = parameter(SPREAD, choices=(SPREAD, QUERY))
    temperature: str = parameter(SPREAD, choices=(SPREAD, L1))
    reallocate: str = parameter(AUTO, choices=(AUTO, ON, OFF))
    layout: str = parameter(TWO, choices=(TWO, ONE))
    select: str = parameter(GROUP, choices=(GROUP, HEAD))

    name = "sparq"
    state = STATE
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {"r": 32, "k": 128, "components": QUERY, "temperature": L1, "reallocate": AUTO},
    }

    @property
    def hooks(self) -> Hooks:  # type: ignore[override]
        return HOOKS_OF_ONE_COPY if self.layout == ONE else HOOKS

    @property
    def reads_columns(self) -> bool:  # type: ignore[override]
        return self.layout == ONE

    @property
    def asked_tokens(self) -> int:
        """Return the number of rows in place of a budget: k, if the number of components is known."""
        return self.k if self.r else 0

    @property
    def least_rows(self) -> int:  # type: ignore[override]
        return self.k or LEAST_ROWS

    @property
    def on_metal(self) -> bool:  # type: ignore[override]
        return (self.components, self.temperature, self.layout, self.select) == (SPREAD, SPREAD, TWO, GROUP)

    def item_bytes(self, heads: Heads) -> np.ndarray:
        """Return the bytes of r components of a key, or of the fewest that a budget pays for.

        With one copy, these are the whole key: so many components lie on all of its cache lines.
        """
        fewest = heads.head_dim if self.layout == ONE and not self.k else 1
        n_components = self.r * self._selectors(heads) if self.r else fewest
        return self._lookup(heads, np.minimum(n_components, heads.head_dim))

    def lookup_share(self, heads: Heads, index: Index | None, n_tokens: int) -> np.ndarray:
        """Return the share of the components and the chunks' sums."""
        n_bytes = self.item_bytes(heads) + self._sums(heads, n_tokens) / n_tokens
        share: np.ndarray = n_bytes / heads.token_bytes
        return share

    def extras_bytes(self, shape: Shape) -> int:
        return moments_bytes(shape) if self.layout == ONE else extras_bytes(shape)

    def n_items(self, heads: Heads) -> int:
        """Return the number of rows to score in one head. `reallocate` needs room for value_dim and group numbers."""
        return max(super().n_items(heads), padded(int((heads.value_dim + heads.group).max())))

    def start(self, heads: Heads, index: Index | None) -> None:
        """Choose the rules."""
        state = heads.state
        state["by_query"], state["by_coverage"] = self.components == QUERY, self.temperature == L1
        state["reallocates"] = heads.group == 1 if self.reallocate == AUTO else self.reallocate == ON

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Turn the budget into numbers of components and rows."""
        state, row = heads.state, heads.token_bytes
        budget = np.minimum(self.budget * heads.scale, 1.0) * row
        n_components = self._components(heads, budget, n_tokens)
        lookup = self._lookup(heads, n_components) + self._sums(heads, n_tokens) / n_tokens
        by_budget = np.maximum((budget - lookup) / row * n_tokens, LEAST_ROWS)
        k = np.maximum(np.rint(self.asked_tokens * heads.scale), 1) if self.asked_tokens else self.k
        n_rows = np.minimum(k * self._selectors(heads) if self.k else by_budget, n_tokens)
        n_rows = np.where((budget == row) & self.takes_budget, n_tokens, n_rows)
        apart = self._selectors(heads) > 1
        state["n_components"], state["n_rows"] = n_components, n_rows
        state["n_own"] = k if self.k else n_tokens
        state["n_own_components"] = np.where(apart, self.r or heads.head_dim, 0)
        state["n_recent"] = np.ceil(self.recent * np.minimum(state["n_own"], state["n_rows"]))
        state["n_bytes"] = np.where((apart | (self.layout == ONE)) & (self.k == 0), budget * n_tokens, 0)

    def before_batch(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Select all rows, as batches do."""
        self.before_step(heads, index, n_tokens)
        heads.state["n_rows"] = heads.state["n_own"] = n_tokens

    def _components(self, heads: Heads, budget: np.ndarray, n_tokens: int) -> np.ndarray:
        """Return the number of components that score rows.

        Costs and budgets are in bytes for each row of the sequence.
        """
        if self.r:
            n: Any = self.r * self._selectors(heads)
        elif self.k:
            left = budget - (2 * self.k * heads.row_bytes + self._sums(heads, n_tokens)) / n_tokens
            n = left / CACHE_LINE if self.layout == ONE else (left - _scales(heads)) / _element(heads)
        elif self.layout == ONE:
            n = budget / heads.token_bytes * heads.head_dim
        else:
            n = (budget / 2 - _scales(heads)) / _element(heads)
        counts: np.ndarray = np.clip(np.rint(n), 1, heads.head_dim)
        return counts

    def _lookup(self, heads: Heads, n_components: np.ndarray) -> np.ndarray:
        """Return the cost of reading components: with one copy, at most whole keys."""
        if self.layout == ONE:
            lines: np.ndarray = np.minimum((n_components + _quantised(heads)) * CACHE_LINE, heads.row_bytes)
            return lines
        cost: np.ndarray = n_components * _element(heads) + _scales(heads)
        return cost

    def _sums(self, heads: Heads, n_tokens: int) -> np.ndarray:
        """Return the bytes of moments and of sums of values that a step reads."""
        measured = min(max(n_tokens // CHUNK_ROWS, 1), MEASURED_CHUNKS) if SPREAD in self._rules else 0
        n_chunks = -(-n_tokens // CHUNK_ROWS)
        n_bytes: np.ndarray = (
            8 * measured * heads.head_dim + 4 * n_chunks * heads.state["reallocates"] * heads.value_dim
        )
        return n_bytes

    def _selectors(self, heads: Heads) -> np.ndarray:
        """Return how many query heads of each KV head select for themselves: 1 if they select together."""
        return heads.group if self.select == HEAD else np.ones_like(heads.group)

    @property
    def _rules(self) -> tuple[str, str]:
        return self.components, self.temperature


def _quantised(heads: Heads) -> np.ndarray:
    """Return whether heads store int8 columns: not f16."""
    quantised: np.ndarray = heads.row_bytes < 2 * heads.head_dim
    return quantised


def _element(heads: Heads) -> np.ndarray:
    """Return the bytes of an element of the transposed copy (see cpu_kernels/rows/columns.py)."""
    return np.where(_quantised(heads), 1, 2)


def _scales(heads: Heads) -> np.ndarray:
    """Return the bytes of the transposed copy's scale of a row."""
    return np.where(_quantised(heads), 2, 0)
