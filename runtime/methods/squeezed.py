"""Squeezed: the clusters of keys that matter (Squeezed Attention, Hooper et al. 2024, sections 3.1 and 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...cpu_kernels.compile import Shape
from ...cpu_kernels.head import CHUNK_ROWS
from ...cpu_kernels.methods.squeezed import HOOKS, STATE, extras_bytes
from ...cpu_kernels.scores import ITEMS_STEP, padded
from ...cpu_kernels.tail_clusters import CHUNK_CLUSTERS, order_of
from ..cache.index import Index
from . import DEFAULT_BUDGET
from .method import Heads, Method
from .parameters import parameter

#: How a head's threshold follows its budget without a document. With each step it makes up for a share of its
#: logarithmic error (_GAIN), of which it believes no more than a factor (_BELIEVED). It stays within a factor of an
#: even share of attention (_REACH). Clusters get at least a share of their budget (_LEAST), even if the rows that are
#: always read take up all of it.
_GAIN, _BELIEVED, _REACH, _LEAST = 0.3, 4.0, 1e6, 0.25


@dataclass(frozen=True)
class Squeezed(Method):
    """Look up the clusters of a document, and of the tail, whose chunks are clustered as they fill.

    The document's first and last rows, and the newest of the tail, are always attended.

    Parameters
    ----------
    budget : float
        Share of the KV bytes that a step reads on average, the lookup included.
    """

    budget: float = parameter(DEFAULT_BUDGET, above=0, most=1)

    name = "squeezed"
    hooks = HOOKS
    state = STATE
    needs_clusters = True
    document_arrays: ClassVar[tuple[str, ...]] = ("centroids", "cluster_starts")
    document_counts: ClassVar[tuple[str, ...]] = ("n_clusters",)

    def extras_bytes(self, shape: Shape) -> int:
        """Return what a chunk keeps of its rows for selection, in bytes."""
        return extras_bytes(shape)

    def n_items(self, heads: Heads) -> int:
        """Return the clusters that are scored in one head."""
        return padded(int(heads.state["n_clusters"].max(initial=0))) + heads.n_chunks * ITEMS_STEP

    def start(self, heads: Heads, index: Index | None) -> None:
        """Set a threshold for each head, with which all read the same share (see convert/calibrate.py)."""
        if index is not None and index.curve is not None:
            heads.state["threshold"] = index.curve.at(self.budget, heads.numbers, heads.scale)

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Without a document's thresholds, have them follow the budget."""
        if index is None or index.curve is None:
            follow_budget(heads, self.budget, n_tokens)

    def chunk_order(self, state: np.void, shape: Shape, number: int, chunk: np.ndarray) -> np.ndarray | None:
        """Return where each row of a clustered chunk was when it came."""
        return order_of(shape, chunk) if number < state["n_clustered_chunks"] else None

    def truncate(self, state: np.void, n_chunks: int) -> None:
        """Take all chunks but the first n_chunks for chunks that are not clustered."""
        state["n_clustered_chunks"] = min(int(state["n_clustered_chunks"]), n_chunks)


def follow_budget(heads: Heads, budget: float, n_tokens: int) -> None:
    """Set each head's threshold without a document to calibrate on, in proportion to an even share of attention.

    The threshold rises while the head reads more of its clusters than the budget leaves for them, and falls while it
    reads less. The error is that of the last step, so there is nothing else to remember. A batch has none, because its
    tokens attend to what any of them selects.

    Parameters
    ----------
    heads : Heads
        The heads, whose state has the fields of `squeezed`.
    budget : float
        Share of the KV bytes that a step reads.
    n_tokens : int
        Tokens that are stored after the step.
    """
    state = heads.state
    stored, n_chunks = heads.get("n_document") + heads.get("n_tail"), state["n_clustered_chunks"]
    clustered = CHUNK_ROWS * n_chunks
    lookup = n_chunks * CHUNK_CLUSTERS * heads.head_dim / heads.row_bytes  # in rows: of a key and a value each
    spare = np.maximum(budget * heads.scale * stored - (stored - clustered) - lookup, _LEAST * budget * clustered)
    n_selected = state["n_tail_selected"]
    error = np.where((clustered > 0) & (n_selected >= 0), n_selected / np.maximum(spare, 1), 1.0)
    error = np.clip(error, 1 / _BELIEVED, _BELIEVED)
    factor = np.where(clustered, np.clip(state["threshold"] * stored * error**_GAIN, 1 / _REACH, _REACH), 1.0)
    state["threshold"] = factor / n_tokens if budget < 1 else -1.0
