"""A document that was read once: tokens, keys, values and clusters, read-only, shared by any number of contexts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...errors import BudgetTooSmall
from .rows import kv_type_of


@dataclass(frozen=True)
class IndexLayer:
    """The document's rows in one layer. All arrays are C-contiguous.

    Parameters
    ----------
    keys, values : (n_kv_head, n_rows, head_dim) f16, or (n_kv_head, n_rows, head_dim + 4) uint8 of q8_0 (see rows.py);
        sorted by cluster, the rows that are always exact last
    position : `spans.ANY_ORDER`; in a sliding-window layer, whose rows lie in order, that of the first row it keeps
    centroids : (n_kv_head, n_clusters, head_dim) f16, mean keys of the clusters
    cluster_starts : (n_kv_head, n_clusters + 1) int32, the rows where clusters start and stop
    coarse_centroids : (n_kv_head, n_coarse, head_dim) f16, mean keys of the coarse clusters
    coarse_starts : (n_kv_head, n_coarse + 1) int32, the clusters, not rows, where coarse clusters start and stop
    order : (n_kv_head, n_rows) int32, which position in the sequence each row has, where `position` is ANY_ORDER;
        else (n_kv_head, 0)
    mass : (n_kv_head, n_rows) f32, attention that each row got from the document's last tokens, added up over them
        and over the query heads of its group; 0 in a sliding-window layer
    """

    keys: np.ndarray
    values: np.ndarray
    position: int
    centroids: np.ndarray
    cluster_starts: np.ndarray
    coarse_centroids: np.ndarray
    coarse_starts: np.ndarray
    order: np.ndarray
    mass: np.ndarray

    @property
    def n_clusters(self) -> int:
        """Clusters of each KV head."""
        return int(self.centroids.shape[1])

    @property
    def n_coarse(self) -> int:
        """Coarse clusters of each KV head."""
        return int(self.coarse_centroids.shape[1])

    @property
    def n_bytes(self) -> int:
        """Bytes of keys and values."""
        return int(self.keys.nbytes + self.values.nbytes)


@dataclass(frozen=True)
class ThresholdCurve:
    """Which thresholds spend which budget, measured on the document's last tokens.

    budgets : (n,) f64, rising: share of the document's KV bytes that a step reads, the lookup included
    thresholds : (n_heads, n) f64, falling: of each KV head of the cache; all heads read the same share
    """

    budgets: np.ndarray
    thresholds: np.ndarray

    @property
    def least(self) -> float:
        """The smallest budget: that of the lookup and the rows that are always exact."""
        return float(self.budgets[0])

    def at(self, budget: float, heads: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """The thresholds of these heads that spend `budget` on average: (n,) f64.

        scale : of each head's budget, by a plan: what the lookup leaves is scaled, so that the sum stays
        Raises BudgetTooSmall where the lookup alone costs more.
        """
        least = self.least
        if budget < least:
            raise BudgetTooSmall(
                f"A budget of {budget:g} is too small for this document: looking up its centroids and reading its "
                f"last tokens takes {least:.3f}. Give --budget {np.ceil(least * 100) / 100:.2f} or more."
            )
        own = least + (budget - least) * scale
        right = np.clip(np.searchsorted(self.budgets, own), 1, len(self.budgets) - 1)
        low, high = self.budgets[right - 1], self.budgets[right]
        part = np.clip((own - low) / (high - low), 0.0, 1.0)
        thresholds = self.thresholds[heads, right - 1] ** (1 - part) * self.thresholds[heads, right] ** part
        return np.where(own < 1, thresholds, -1.0)


@dataclass(frozen=True)
class TwoLevelCurve:
    """Which thresholds of a lookup in two levels spend which budget.

    The coarse thresholds are the same for every budget below 1, so what they drop is not read however much is left:
    such a step reads no more than the largest of `curve.budgets`. With a budget of 1 it reads everything.

    Parameters
    ----------
    coarse_thresholds : (n_heads,) f64, importance above which coarse clusters are kept
    curve : thresholds of the clusters in them; its budgets count the lookup of both levels
    """

    coarse_thresholds: np.ndarray
    curve: ThresholdCurve


@dataclass(frozen=True)
class Index:
    """What an index holds, in memory or memory-mapped.

    tokens : (n_tokens,) int32, the prompt head included
    layers : one for each layer that owns a cache
    curve : of thresholds; None where there are no clusters
    two_level : thresholds of a lookup in two levels; None where there are no clusters
    """

    tokens: np.ndarray
    layers: list[IndexLayer]
    curve: ThresholdCurve | None
    two_level: TwoLevelCurve | None

    @property
    def kv_type(self) -> str:
        """How keys and values are stored, F16 or Q8_0."""
        return kv_type_of(self.layers[0].keys)

    @property
    def n_bytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(layer.n_bytes for layer in self.layers)
