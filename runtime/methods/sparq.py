"""SparQ: the rows that score highest by a few of the query's components (Ribar et al. 2024, algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...cpu_kernels.methods.sparq import native_score_rows, native_select_rows
from ...metal.records import Method
from ..cache.index import Index
from .method import LEAST_READ, Heads, Keeps, rows_of_budget


@dataclass(frozen=True)
class SparQ:
    """Partial scores choose rows; a batch of more than one token attends everything.

    Components are chosen, and the temperature is made, by |q| times the spread of the keys' components, where the paper
    takes |q| alone (steps 1 and 2): where keys have a large mean, as Gemma's, what is large may tell no rows apart.

    Parameters
    ----------
    budget : share of the KV bytes that a step reads, the components included. Half of it goes to either: r = budget
        * head_dim components of each key, and budget / 2 of the rows. 1 reads everything
    window_share : of the selected rows, those that are the newest: a quarter in the paper, appendix B
    reallocate : give the attention of the rows that are left out to the mean value (algorithm 1, step 3); None where
        a KV head has one query head, as the paper does (appendix B: it harms grouped-query attention)
    """

    budget: float = 0.125
    window_share: float = 0.25
    reallocate: bool | None = None

    keeps = Keeps.ORDER
    beside = ("column_offset", "moment_offset", "sum_offset")
    chunk_items = 256
    metal = Method.ROWS
    native_score = staticmethod(native_score_rows)
    native_select = staticmethod(native_select_rows)
    native_settle = None

    def prepare(self, own: Heads, n_tokens: int, document: Index | None) -> None:
        """Let the number of rows grow with the sequence."""
        share = self.budget * own.scale
        n_selected = rows_of_budget(1.0, np.where(share < 1, share / 2, 1.0), n_tokens, LEAST_READ)
        n_components = np.maximum(np.rint(share * own.head_dim), 1)
        n_recent = np.ceil(self.window_share * n_selected)
        reallocates = own.group == 1 if self.reallocate is None else self.reallocate
        own.set(n_selected=n_selected, n_recent=n_recent, n_components=n_components)
        own.set(reallocation=np.where(reallocates, own.rest, 0))
