"""Squeezed: the clusters of keys that matter (Squeezed Attention, Hooper et al. 2024, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ...cpu_kernels.compile import Shape
from ...cpu_kernels.head import CHUNK_ROWS
from ...cpu_kernels.methods.squeezed import BATCH_MEAN, BY_HEAD, EXACT_TAIL, HOOKS, STATE, extras_bytes
from ...cpu_kernels.scores import ITEMS_STEP, padded
from ...cpu_kernels.tail_clusters import CHUNK_CLUSTERS, order_of
from ..cache.index import Calibration, Index, ThresholdCurve
from ..cache.thresholds import measured_curve
from . import DEFAULT_BUDGET
from .method import Heads, Method
from .parameters import parameter

#: With a document, what steps select follows what the budget leaves for it: a step makes up for a share of the
#: logarithmic error of the one before (_FOLLOW), within a factor (_FARTHEST) of what the document's thresholds say.
_FOLLOW, _FARTHEST = 0.25, 4.0

#: Share of a document that steps select at least, if the budget did so without what came after the document.
_LEAST_SELECTED = 0.02

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
    tokens : int
        Rows that a step attends on average, the lookup not counted, in place of the budget; 0 for by the budget.
    threshold : str
        Whether each head has its own threshold, with which all read the same share, or one serves all heads.
    queries : str
        Whether thresholds come from the importance of clusters under each of the document's last queries, or from its
        mean over them. One threshold for all heads is the same either way.
    keys : str
        Whether K-means over a document's keys minds their lengths, or runs over their directions.
    centroids : float
        Clusters of a document, as a share of its tokens.
    batch : str
        Whether a batch attends to what any of its tokens selects, or to what the mean of their importance selects.
    tail : str
        Whether what comes after the document is clustered as it grows, or attended exactly.
    select : str
        Whether the query heads of a group select together, or each selects for itself. Those of a batch attend to what
        any of them selects.
    """

    budget: float = parameter(DEFAULT_BUDGET, above=0, most=1)
    tokens: int = parameter(0, least=0)
    threshold: str = parameter("head", choices=("head", "global"))
    queries: str = parameter("each", choices=("each", "mean"))
    keys: str = parameter("raw", choices=("raw", "normalised"))
    centroids: float = parameter(0.05, above=0, most=0.5)
    batch: str = parameter("union", choices=("union", "mean"))
    tail: str = parameter("clustered", choices=("clustered", "exact"))
    select: str = parameter("group", choices=("group", "head"))

    name = "squeezed"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {
            "threshold": "global",
            "queries": "mean",
            "keys": "normalised",
            "batch": "mean",
            "tail": "exact",
            "select": "head",
        }
    }
    hooks = HOOKS
    state = STATE
    needs_clusters = True
    levels: ClassVar[int] = 1  # of the lookup in a document's clusters
    document_arrays: ClassVar[tuple[str, ...]] = ("centroids", "cluster_starts")
    document_counts: ClassVar[tuple[str, ...]] = ("n_clusters",)

    @property
    def clustering(self) -> dict[str, Any]:
        """Return how a document's keys have to be clustered, where that is not as usual."""
        wanted = {"keys": (self.keys, "raw"), "centroid_share": (self.centroids, 0.05)}
        return {name: value for name, (value, usual) in wanted.items() if value != usual}

    @property
    def on_metal(self) -> bool:
        """Return whether the shaders know these parameters: they have none of the rules."""
        return self.rules == 0

    @property
    def rules(self) -> int:
        """Return the rules by which the hooks select."""
        chosen = {BATCH_MEAN: self.batch == "mean", EXACT_TAIL: self.tail == "exact", BY_HEAD: self.select == "head"}
        return sum(rule for rule, holds in chosen.items() if holds)

    @cached_property
    def calibration(self) -> Calibration:
        """Return how a document's thresholds are measured."""
        queries = "each" if self.threshold == "global" else self.queries  # the same either way
        return Calibration(self.threshold, queries, self.select, self.levels)

    def extras_bytes(self, shape: Shape) -> int:
        """Return what a chunk keeps of its rows for selection, in bytes."""
        return extras_bytes(shape) if self.tail == "clustered" else 0

    def n_items(self, heads: Heads) -> int:
        """Return the clusters that are scored in one head."""
        return padded(int(heads.state["n_clusters"].max(initial=0))) + heads.n_chunks * ITEMS_STEP

    def lookup_share(self, heads: Heads, index: Index | None, n_tokens: int) -> np.ndarray:
        """Return the share that centroids and exact rows take, of a document and of what came after it.

        A document that is too short for clusters is read whole.
        """
        curve = self.curve_of(index)
        if index is None or curve is None:
            return np.full(len(heads.numbers), (len(index.tokens) if index is not None else 0) / n_tokens)
        return _fixed_rows(heads, index, curve, n_tokens) / n_tokens

    def least_selected(self, index: Index | None, n_tokens: int) -> float:
        """Return the share of a document's clusters that a head selects whatever the budget."""
        curve = self.curve_of(index)
        return self._least_rows(index, curve) / n_tokens if index is not None and curve is not None else 0.0

    def most_share(self, index: Index | None, n_tokens: int) -> float:
        """Return the largest share below 1 that a step reads: two levels do not see all of a document."""
        curve = self.curve_of(index)
        if index is None or curve is None:
            return 1.0
        return 1.0 - float(1 - curve.budgets[-1]) * len(index.tokens) / n_tokens

    def curve_of(self, index: Index | None) -> ThresholdCurve | None:
        """Return the thresholds for a document, which are measured the first time; None without a clustered one."""
        return measured_curve(index, self.calibration) if index is not None else None

    def measure(self, index: Index) -> None:
        """Measure the thresholds."""
        self.curve_of(index)

    def start(self, heads: Heads, index: Index | None) -> None:
        """Set the rules, and the thresholds that were measured for the budget (see runtime/cache/thresholds.py)."""
        heads.state["rules"] = self.rules
        curve = self.curve_of(index)
        if index is not None and curve is not None:
            self.set_thresholds(heads, curve, self.shares_of(heads, index, curve))

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Have thresholds follow the budget, less what is read in any case, and what steps have read."""
        curve, heads.asked_bytes = self.curve_of(index), 0.0
        if index is None or curve is None:
            self.follow_budget(heads, n_tokens)
            return
        fixed, n_document = _fixed_rows(heads, index, curve, n_tokens), len(index.tokens)
        wanted, of_document = self._wanted_rows(heads, index, curve, n_tokens, fixed), n_document - index.n_exact
        selected = heads.correction * (wanted - fixed)
        selected /= 1 + heads.state["n_clustered_chunks"] * (CHUNK_ROWS / max(of_document, 1))
        shares = np.minimum(curve.least + selected / n_document, 1 - 1e-9)
        self.set_thresholds(heads, curve, np.where(wanted >= n_tokens, 1.0, shares))
        heads.asked_bytes = float(2 * (wanted @ heads.row_bytes))

    def before_batch(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Have a batch select of a document as if nothing had come after it: all of its tokens share what is read."""
        curve = self.curve_of(index)
        if index is None or curve is None:
            self.follow_budget(heads, n_tokens)
        else:
            self.set_thresholds(heads, curve, self.shares_of(heads, index, curve))

    def set_thresholds(self, heads: Heads, curve: ThresholdCurve, shares: np.ndarray) -> None:
        """Set the thresholds with which each head reads a share of a document, on average."""
        heads.state["threshold"] = curve.at(shares, heads.numbers)

    def after_token(self, heads: Heads, n_bytes: int) -> float:
        """Correct what later steps select by what a token has read."""
        corrected: float = heads.correction * (n_bytes / heads.asked_bytes) ** -_FOLLOW
        return min(max(corrected, 1 / _FARTHEST), _FARTHEST)

    def _wanted_rows(
        self, heads: Heads, index: Index, curve: ThresholdCurve, n_tokens: int, fixed: np.ndarray
    ) -> np.ndarray:
        """Rows that each head should read, centroids counted as rows. `fixed` are those that it reads in any case."""
        wanted = (self.tokens or self.budget * n_tokens) * heads.scale
        if self.tokens:
            lookup = curve.least * len(index.tokens) - index.n_exact + _lookup_rows(heads)
            wanted = np.where(wanted < n_tokens, wanted + lookup, n_tokens)
        rows: np.ndarray = np.maximum(wanted, fixed + self._least_rows(index, curve))
        return rows

    def _least_rows(self, index: Index, curve: ThresholdCurve) -> float:
        """Rows of a document's clusters that a head selects at least."""
        n_document = len(index.tokens)
        asked = (self.tokens - index.n_exact) / n_document if self.tokens else self.budget - curve.least
        return min(_LEAST_SELECTED, max(asked, 0.0)) * n_document

    def least_tokens(self, index: Index | None) -> int:
        """Return the number of a document's rows that are always attended."""
        return index.n_exact if index is not None else 1

    def shares_of(self, heads: Heads, index: Index, curve: ThresholdCurve) -> np.ndarray:
        """Return the share of a document's bytes that a step reads of each head: the budget, or what the tokens take.

        Parameters
        ----------
        heads : Heads
            The heads.
        index : Index
            The document.
        curve : ThresholdCurve
            Its thresholds.
        """
        if not self.tokens:
            return self.budget * heads.scale
        rows, n_tokens = self.tokens * heads.scale, len(index.tokens)
        lookup = curve.least - index.n_exact / n_tokens
        return np.where(rows < n_tokens, rows / n_tokens + lookup, 1.0)

    def follow_budget(self, heads: Heads, n_tokens: int) -> None:
        """Set each head's threshold without a document to calibrate on, in proportion to an even share of attention.

        The threshold rises while the head reads more of its clusters than the budget leaves for them, and falls while
        it reads less. The error is that of the last step, so there is nothing else to remember. A batch has none,
        because its tokens attend to what any of them selects.

        Parameters
        ----------
        heads : Heads
            The heads, whose state has the fields of `squeezed`.
        n_tokens : int
            Tokens that are stored after the step.
        """
        state = heads.state
        stored, n_chunks = heads.get("n_document") + heads.get("n_tail"), state["n_clustered_chunks"]
        clustered = CHUNK_ROWS * n_chunks
        wanted = self.tokens * heads.scale if self.tokens else self.budget * heads.scale * stored - _lookup_rows(heads)
        least = _LEAST * clustered * (self.tokens / np.maximum(stored, 1) if self.tokens else self.budget)
        spare = np.maximum(wanted - (stored - clustered), least)
        n_selected = state["n_tail_selected"]
        error = np.where((clustered > 0) & (n_selected >= 0), n_selected / np.maximum(spare, 1), 1.0)
        error = np.clip(error, 1 / _BELIEVED, _BELIEVED)
        before = np.where(state["threshold"] < 0, 1.0, state["threshold"] * stored)  # it was -1 while all was read
        factor = np.where(clustered, np.clip(before * error**_GAIN, 1 / _REACH, _REACH), 1.0)
        everything = self.tokens >= n_tokens if self.tokens else self.budget >= 1
        state["threshold"] = -1.0 if everything else factor / n_tokens

    def chunk_order(self, state: np.void, shape: Shape, number: int, chunk: np.ndarray) -> np.ndarray | None:
        """Return where each row of a clustered chunk was when it came."""
        return order_of(shape, chunk) if number < state["n_clustered_chunks"] else None

    def truncate(self, state: np.void, n_chunks: int) -> None:
        """Take all chunks but the first n_chunks for chunks that are not clustered."""
        state["n_clustered_chunks"] = min(int(state["n_clustered_chunks"]), n_chunks)


def _lookup_rows(heads: Heads) -> np.ndarray:
    """Centroids of the tail that each head reads, in rows of a key and a value."""
    rows: np.ndarray = heads.state["n_clustered_chunks"] * CHUNK_CLUSTERS * heads.head_dim / heads.row_bytes
    return rows


def _fixed_rows(heads: Heads, index: Index, curve: ThresholdCurve, n_tokens: int) -> np.ndarray:
    """Rows that each head reads whatever it selects, of a document and of what came after it; and centroids."""
    in_document = curve.least * len(index.tokens) + n_tokens - len(index.tokens)
    chunks = heads.state["n_clustered_chunks"]
    if not chunks.any():  # of most steps, which must not wait for this
        return np.full(len(chunks), in_document)
    rows: np.ndarray = in_document - CHUNK_ROWS * chunks + _lookup_rows(heads)
    return rows
