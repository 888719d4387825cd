"""Squeezed: the clusters of keys that matter (Squeezed Attention, Hooper et al. 2024, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ...cpu_kernels.layout.hooks import Hooks
from ...cpu_kernels.layout.scores import ITEMS_STEP, padded
from ...cpu_kernels.methods.squeezed import HOOKS, HOOKS_WITH_ESTIMATE, STATE, extras_bytes
from ...cpu_kernels.numba_support.shape import Shape
from ...cpu_kernels.rows.tiles import CHUNK_ROWS
from ...cpu_kernels.select.cluster_items import (
    BATCH_MEAN,
    BATCH_UNION,
    BY_HEAD,
    BY_THRESHOLD,
    ESTIMATE,
    EVERYTHING,
    EXACT_TAIL,
    LOOKUP_APART,
)
from ...cpu_kernels.select.cluster_means import mean_value_bytes
from ...cpu_kernels.select.tail_clusters import CHUNK_CLUSTERS, RECENT, SINKS, lookup_extras_bytes, order_of
from ..document.index import Calibration, Index, ThresholdCurve
from ..document.thresholds import measured_curve
from . import DEFAULT_BUDGET
from .method import Heads, Method
from .parameters import parameter

#: Clusters get at least this share of their budget, even if the rows that are always read take up all of it.
_LEAST = 0.25


@dataclass(frozen=True)
class Squeezed(Method):
    """Look up the clusters of a document, and of the tail, whose chunks are clustered as they fill.

    The document's first and last rows, and the newest of the tail, are always attended.

    Parameters
    ----------
    budget : float
        Share of the KV bytes that a step reads, the lookup included.
    tokens : int
        Rows that a step attends, the lookup not counted, in place of the budget; 0 for by the budget.
    threshold : str
        Whether each step finds the threshold with which a head reads its budget. Or each head has a threshold that the
        document's last queries read the budget with on average, or one serves all heads; without a document that has
        clusters each step finds it all the same.
    queries : str
        Whether the document's thresholds come from the importance of clusters under each of its last queries, or from
        its mean over them.
    keys : str
        Whether K-means over a document's keys minds their lengths, or runs over their directions.
    centroids : float
        Clusters of a document, as a share of its tokens.
    batch : str
        Whether a batch attends to everything, to what any of its tokens selects, or to what the mean of their
        importance selects.
    tail : str
        Whether what comes after the document is clustered as it grows, or attended exactly.
    select : str
        Whether the query heads of a group select together, or each selects for itself. Those of a batch attend to what
        any of them selects.
    rest : bool
        Whether clusters that are not selected are estimated, by their mean values; by default on, but off on Metal, and
        where thresholds are measured.
    """

    budget: float = parameter(DEFAULT_BUDGET, above=0, most=1)
    tokens: int = parameter(0, least=0)
    threshold: str = parameter("step", choices=("step", "head", "global"))
    queries: str = parameter("each", choices=("each", "mean"))
    keys: str = parameter("raw", choices=("raw", "normalised"))
    centroids: float = parameter(0.05, above=0, most=0.5)
    batch: str = parameter("all", choices=("all", "union", "mean"))
    tail: str = parameter("clustered", choices=("clustered", "exact"))
    select: str = parameter("group", choices=("group", "head"))
    rest: bool | None = parameter(None, bool)

    name = "squeezed"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {
            "threshold": "global",
            "queries": "mean",
            "keys": "normalised",
            "batch": "mean",
            "tail": "exact",
            "select": "head",
            "rest": False,
        }
    }
    state = STATE
    needs_clusters = True
    levels: ClassVar[int] = 1  # of the lookup in a document's clusters
    lookup_hooks: ClassVar[Hooks] = HOOKS  # of the lookup alone, and with the estimate
    rest_hooks: ClassVar[Hooks] = HOOKS_WITH_ESTIMATE
    lookup_arrays: ClassVar[tuple[str, ...]] = ("centroids", "cluster_starts")
    rest_arrays: ClassVar[tuple[str, ...]] = ("mean_values", "spread")
    document_counts: ClassVar[tuple[str, ...]] = ("n_clusters",)

    @property
    def estimates(self) -> bool:
        """Return whether the method estimates clusters that it does not select."""
        return self.rest if self.rest is not None else self.threshold == "step"

    @property
    def hooks(self) -> Hooks:  # type: ignore[override]
        return self.rest_hooks if self.estimates else self.lookup_hooks

    @property
    def document_arrays(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*self.lookup_arrays, *(self.rest_arrays if self.estimates else ()))

    @property
    def clustering(self) -> dict[str, Any]:  # type: ignore[override]
        wanted = {"keys": (self.keys, "raw"), "centroid_share": (self.centroids, 0.05)}
        return {name: value for name, (value, usual) in wanted.items() if value != usual}

    @property
    def on_metal(self) -> bool:  # type: ignore[override]
        return self.threshold == "step" and self.for_metal().rules in (0, LOOKUP_APART)

    def for_metal(self) -> Squeezed:
        """Return the method without the estimate, unless the user asked for it."""
        return replace(self, rest=False) if self.rest is None else self

    @property
    def rules(self) -> int:
        """Return the rules by which the hooks select."""
        chosen = {
            BATCH_MEAN: self.batch == "mean",
            BATCH_UNION: self.batch == "union",
            EXACT_TAIL: self.tail == "exact",
            BY_HEAD: self.select == "head",
            LOOKUP_APART: self.tokens > 0,
            ESTIMATE: self.estimates,
        }
        return sum(rule for rule, holds in chosen.items() if holds)

    @cached_property
    def calibration(self) -> Calibration:
        """Return how to measure a document's thresholds."""
        return Calibration(self.threshold, self.queries, self.select, self.levels)

    def extras_bytes(self, shape: Shape) -> int:
        if self.tail == "exact":
            return 0
        return extras_bytes(shape) if self.estimates else lookup_extras_bytes(shape)

    def n_items(self, heads: Heads) -> int:
        """Return the number of clusters to score in one head."""
        return padded(int(heads.state["n_clusters"].max(initial=0))) + heads.n_chunks * ITEMS_STEP

    def lookup_share(self, heads: Heads, index: Index | None, n_tokens: int) -> np.ndarray:
        """Return the share of centroids and unclustered rows, in a document and after it."""
        n_exact = n_tokens - sum(self.clustered_rows(index, n_tokens))
        n_chunks = self.n_chunks(index, n_tokens)
        n_bytes = (self.looked_up(index) + n_chunks * CHUNK_CLUSTERS) * self.centroid_bytes(heads)
        if self.estimates:
            n_bytes += (n_chunks + (self.levels if self.looked_up(index) else 0)) * 4 * heads.head_dim
        share: np.ndarray = (n_exact + n_bytes / heads.token_bytes) / n_tokens
        return share

    def centroid_bytes(self, heads: Heads) -> np.ndarray:
        """Return the bytes that each head reads to look up a cluster."""
        n_bytes: np.ndarray = 2 * heads.head_dim + self.mean_value_bytes(heads)
        return n_bytes

    def mean_value_bytes(self, heads: Heads) -> np.ndarray:
        """Return the bytes that each head reads to estimate a cluster."""
        n_bytes = mean_value_bytes(heads.value_dim) if self.estimates else np.zeros_like(heads.value_dim)
        return np.array(n_bytes, np.int64)

    def looked_up(self, index: Index | None) -> float:
        """Return the number of a document's centroids that a step reads."""
        return float(index.n_clusters) if index is not None else 0.0

    def n_chunks(self, index: Index | None, n_tokens: int) -> int:
        """Return how many chunks of the tail a step of one token looks up, after which n_tokens tokens are stored."""
        n_tail = n_tokens - (len(index.tokens) if index is not None else 0)
        return max(n_tail - 1 - RECENT, 0) // CHUNK_ROWS if self.tail == "clustered" else 0

    def clustered_rows(self, index: Index | None, n_tokens: int) -> tuple[int, int]:
        """Return the number of rows in clusters, in a document and after it, for such a step."""
        n_rows = self.n_chunks(index, n_tokens) * CHUNK_ROWS
        if index is None:
            return 0, max(n_rows - SINKS, 0)
        return len(index.tokens) - index.n_exact, n_rows

    def least_selected(self, index: Index | None, n_tokens: int) -> float:
        """Return the share of all rows that a head selects among clustered ones whatever the budget."""
        if self.curve_of(index) is not None:
            return 0.0
        return self.least_share(n_tokens) * sum(self.clustered_rows(index, n_tokens)) / n_tokens

    def least_share(self, n_tokens: int) -> float:
        """Return the share of clustered rows that a head selects whatever the budget."""
        return _LEAST * (min(self.tokens / n_tokens, 1.0) if self.tokens else self.budget)

    def curve_of(self, index: Index | None) -> ThresholdCurve | None:
        """Return a document's thresholds, measured at the first call; None if each step finds them."""
        return measured_curve(index, self.calibration) if index is not None and self.threshold != "step" else None

    def measure(self, index: Index) -> None:
        """Measure the thresholds, if the document has its own."""
        self.curve_of(index)

    def start(self, heads: Heads, index: Index | None) -> None:
        """Set the rules, and the measured thresholds for the budget (see runtime/document/thresholds.py)."""
        state, curve = heads.state, self.curve_of(index)
        state["rules"], state["n_bytes"], state["threshold"] = self.rules, BY_THRESHOLD, -1
        if index is not None and curve is not None:
            self.set_thresholds(heads, curve, self.shares_of(heads, index, curve))

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Set the bytes that a step reads, unless measured thresholds decide."""
        if self.curve_of(index) is not None:
            heads.state["n_bytes"] = BY_THRESHOLD
            return
        n_rows = (self.tokens or self.budget * n_tokens) * heads.scale
        heads.state["n_bytes"] = np.where(n_rows < n_tokens, np.rint(n_rows * heads.token_bytes), BY_THRESHOLD)
        heads.state["least_share"] = self.least_share(n_tokens)

    def before_batch(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Select all clusters, unless batches have a rule of their own."""
        super().before_batch(heads, index, n_tokens)
        if self.batch == "all":
            heads.state["n_bytes"] = EVERYTHING

    def set_thresholds(self, heads: Heads, curve: ThresholdCurve, shares: np.ndarray) -> None:
        """Set the thresholds with which each head reads a share of a document, on average."""
        heads.state["threshold"] = curve.at(shares, heads.numbers)

    def least_tokens(self, index: Index | None) -> int:
        """Return the number of a document's rows that a step always attends to."""
        return index.n_exact if index is not None else 1

    def shares_of(self, heads: Heads, index: Index, curve: ThresholdCurve) -> np.ndarray:
        """Return each head's share of a document's bytes that a step reads: the budget, or that of the tokens."""
        if not self.tokens:
            read = self.looked_up(index) * self.mean_value_bytes(heads) / (heads.token_bytes * len(index.tokens))
            shares = self.budget * heads.scale
            return np.where(shares < 1, np.maximum(shares - read, curve.least), shares)
        rows, n_tokens = self.tokens * heads.scale, len(index.tokens)
        lookup = curve.least - index.n_exact / n_tokens
        return np.where(rows < n_tokens, rows / n_tokens + lookup, 1.0)

    def chunk_order(self, state: np.void, shape: Shape, number: int, extras: np.ndarray) -> np.ndarray | None:
        """Return the original place of each row of a clustered chunk."""
        return order_of(shape, extras) if number < state["n_clustered_chunks"] else None

    def rows_to_act(self, n_rows: np.ndarray) -> np.ndarray:
        """Return after how many more rows the next chunk is clustered."""
        n_more: np.ndarray = CHUNK_ROWS - (n_rows - RECENT) % CHUNK_ROWS
        return n_more

    def chunks_kept(self, n_rows: int) -> int:
        return max(n_rows - RECENT, 0) // CHUNK_ROWS  # the others were not clustered when the tail had so many rows

    def truncate(self, state: np.void, n_chunks: int) -> None:
        """Mark all chunks but the first n_chunks as not clustered."""
        state["n_clustered_chunks"] = min(int(state["n_clustered_chunks"]), n_chunks)
