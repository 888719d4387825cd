"""Selectors: which stored rows a step attends, and which are stored at all. One file for each.

A selector is a frozen dataclass of parameters, and says
  native_score, native_select, native_settle : its compiled functions for a shape (see cpu_kernels/select.py); all but
      the second may be None
  keeps, beside : what is stored of a head (see `Keeps`, and cpu_kernels/chunks.py for what can lie beside its rows)
  metal : what it is for the Metal kernels; None where they do not have it
  chunk_items : what it scores in a chunk of the tail: rows, pages or clusters
  prepare : before each step, fills its fields of the HEAD records
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import numpy as np

from ...cpu_kernels.spans import CHUNK_ROWS
from ...metal.records import Method
from ..cache.index import Index


class Keeps(Enum):
    """What a KV head stores of the sequence."""

    DOCUMENT = "all rows, those of a document where its index maps them"
    ORDER = "all rows, in order: those of a document are copied"
    RECENT = "sinks and recent rows"
    HEAVY = "rows that got much attention, and recent ones"

    @property
    def evicts(self) -> bool:
        """Whether rows are forgotten."""
        return self in (Keeps.RECENT, Keeps.HEAVY)


class Selector(Protocol):
    """What the runtime needs of a selector."""

    @property
    def keeps(self) -> Keeps: ...

    @property
    def beside(self) -> tuple[str, ...]: ...

    @property
    def chunk_items(self) -> int: ...

    @property
    def metal(self) -> Method | None: ...

    @property
    def native_score(self) -> Any: ...

    @property
    def native_select(self) -> Any: ...

    @property
    def native_settle(self) -> Any: ...

    def prepare(self, own: Heads, n_tokens: int, document: Index | None) -> None:
        """Fill the fields of the heads that this selector serves, before a step after which n_tokens are stored."""


@dataclass(frozen=True)
class Assignment:
    """Which KV heads a selector serves: their numbers in the cache, and the scale of each one's budget."""

    selector: Selector
    heads: np.ndarray
    scale: np.ndarray


@dataclass(frozen=True)
class Heads:
    """KV heads that one selector serves.

    records : HEAD records of all heads of the cache    numbers : which of them are its own
    scale : for each of its own, what a plan makes of its share of the budget, 1 where there is none
    head_dim, group : of each of its own
    rest : for each of its own, address of (group + head_dim) f32 that `reallocation` may point at
    """

    records: np.ndarray
    numbers: np.ndarray
    scale: np.ndarray
    head_dim: np.ndarray
    group: np.ndarray
    rest: np.ndarray

    def set(self, **fields: Any) -> None:
        """Set fields of the HEAD records."""
        for name, values in fields.items():
            self.records[name][self.numbers] = values

    def get(self, field: str) -> np.ndarray:
        """A field of the HEAD records, a copy."""
        values: np.ndarray = self.records[field][self.numbers]
        return values


#: Rows that are kept, or read, of a short sequence, whatever the budget: a chunk takes no less memory.
LEAST_KEPT, LEAST_READ = CHUNK_ROWS, 64


def rows_of_budget(budget: float, scale: np.ndarray, n_tokens: int, least: int) -> np.ndarray:
    """A share of n_tokens rows for each head, at least `least` and at most all of them: int64."""
    rows = np.minimum(budget * scale, 1.0) * n_tokens
    return np.clip(rows.astype(np.int64), min(least, n_tokens), n_tokens)
