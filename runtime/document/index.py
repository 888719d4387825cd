"""Hold a document's index in memory: tokens, keys, values, clusters and thresholds. Read-only, shared by contexts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...cpu_kernels.layout.head import ANY_ORDER
from ...cpu_kernels.numba_support.shape import FLAT_Q8_0, llama_cpp_name
from ...system.free_memory import check_free
from .kept_state import KeptState
from .mapped_pages import MappedPages
from .stored_rows import as_floats, converted, kv_type_of, mean_rows, row_format, write_floats


@dataclass(frozen=True)
class StreamingRows:
    """Rows of the KV heads of a layer that streamed while the document was read.

    Parameters
    ----------
    heads : tuple of int
        Numbers of these heads in the layer, rising.
    n_sinks : int
        Number of rows from the document's start. The others are from its end, in order.
    keys, values : arrays, shape (n_heads, n_rows, elements of a row)
        As in `IndexLayer`.
    """

    heads: tuple[int, ...]
    n_sinks: int
    keys: np.ndarray
    values: np.ndarray


class ClusterMeans(NamedTuple):
    """Estimates of a layer's clusters, in one or two levels, besides their mean keys. All arrays are C-contiguous.

    Parameters
    ----------
    mean_values : uint8 array, shape (n_kv_head, n_clusters, value_dim + 4)
        The mean value of each cluster, a q8_0 row (see rows.py); 0 for a cluster without rows.
    spread : float32 array, shape (n_kv_head, head_dim)
        The variance of each column of the keys within clusters, averaged over all rows in clusters.
    coarse_mean_values : uint8 array, shape (n_kv_head, n_coarse, value_dim + 4)
        The same for the coarse clusters.
    coarse_spread : float32 array, shape (n_kv_head, head_dim)
        The same within coarse clusters.
    """

    mean_values: np.ndarray
    spread: np.ndarray
    coarse_mean_values: np.ndarray
    coarse_spread: np.ndarray


def cluster_means(
    keys: np.ndarray, values: np.ndarray, cluster_starts: np.ndarray, coarse_starts: np.ndarray, split: int = 0
) -> ClusterMeans:
    """Compute the means of one layer's clusters, from stored rows; see stored_rows.py for the split."""
    heads = []
    for own_keys, own_values, starts, own_coarse in zip(keys, values, cluster_starts, coarse_starts, strict=True):
        of_keys = as_floats(own_keys[: starts[-1]], split)
        of_values = of_keys[:, :split] if split else as_floats(own_values[: starts[-1]])
        with np.errstate(invalid="ignore", over="ignore"):  # rows may hold NaN
            squares = np.square(of_keys).sum(axis=0, dtype=np.float64)
            levels = [
                _of_level(of_keys, of_values, squares, level_starts) for level_starts in (starts, starts[own_coarse])
            ]
        heads.append([array for level in levels for array in level])
    return ClusterMeans(*(np.stack(arrays) for arrays in zip(*heads, strict=True)))


def _of_level(
    keys: np.ndarray, values: np.ndarray, squares: np.ndarray, starts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean values of one head's clusters, and the spread of its keys, given the sum of their squares."""
    sizes, n_rows = np.diff(starts), int(starts[-1])
    dtype, length = row_format(values.shape[1], FLAT_Q8_0)
    rows = np.zeros((len(sizes), length), dtype)
    if n_rows == 0:
        return rows, np.zeros(keys.shape[1], np.float32)
    write_floats(rows, mean_rows(np.ascontiguousarray(values), starts))
    means = mean_rows(keys, starts).astype(np.float64)
    spread = (squares - sizes @ np.square(means)) / n_rows
    return rows, np.maximum(spread, 0).astype(np.float32)


@dataclass(frozen=True)
class IndexLayer:
    """A document's rows in one layer. All arrays are C-contiguous.

    The arrays hold all KV heads of the layer except those in `streaming`.

    Parameters
    ----------
    keys, values : arrays, shape (n_kv_head, n_rows, elements of a row)
        float16, q8_0: int8 or uint8, or q4_0: uint16 (see stored_rows.py). Sorted by cluster, with the rows that are
        always exact last. Values that are the first part of their keys have no elements.
    position : int
        `ANY_ORDER`; in a sliding-window layer, whose rows are in order, the position of the first row.
    centroids : float16 array, shape (n_kv_head, n_clusters, head_dim)
        Mean keys of the clusters.
    cluster_starts : int32 array, shape (n_kv_head, n_clusters + 1)
        Rows where clusters start and stop.
    coarse_centroids : float16 array, shape (n_kv_head, n_coarse, head_dim)
        Mean keys of the coarse clusters.
    coarse_starts : int32 array, shape (n_kv_head, n_coarse + 1)
        Clusters, not rows, where coarse clusters start and stop.
    order : int32 array, shape (n_kv_head, n_rows)
        Position in the sequence of each row, if `position` is ANY_ORDER; else of shape (n_kv_head, 0).
    mass : float32 array, shape (n_kv_head, n_rows)
        Attention that each row got from the document's last tokens, summed over these and over the query heads of the
        group; 0 in a sliding-window layer.
    streaming : StreamingRows, optional
        Rows of the heads that streamed while the document was read.
    known_means : ClusterMeans, optional
        The means of the clusters. By default `means` computes them.
    split : int
        Numbers of a key that are its value; 0 if values are stored.
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
    streaming: StreamingRows | None = None
    known_means: ClusterMeans | None = None
    split: int = 0

    @cached_property
    def means(self) -> ClusterMeans:
        """Return the estimates of clusters that a step does not select."""
        if self.known_means is not None:
            return self.known_means
        return cluster_means(self.keys, self.values, self.cluster_starts, self.coarse_starts, self.split)

    def stored_as(self, dtype: np.dtype) -> IndexLayer:
        """Return the layer with rows of q8_0 of this type, in memory."""
        streaming = self.streaming and replace(
            self.streaming,
            keys=converted(self.streaming.keys, dtype, self.split),
            values=converted(self.streaming.values, dtype),
        )
        keys, values = converted(self.keys, dtype, self.split), converted(self.values, dtype)
        return replace(self, keys=keys, values=values, streaming=streaming, known_means=self.means)

    @property
    def value_dim(self) -> int:
        """Return the length of a value."""
        return self.split or as_floats(self.values[:, :0]).shape[2]

    @property
    def heads(self) -> list[int]:
        """Return the numbers of the KV heads in the arrays, in order."""
        streaming = self.streaming.heads if self.streaming else ()
        return [head for head in range(self.n_kv_head) if head not in streaming]

    def positions(self, place: int) -> np.ndarray:
        """Return the position of each stored row of the head at a place in the arrays."""
        if self.position == ANY_ORDER:
            order: np.ndarray = self.order[place]
            return order
        return self.position + np.arange(self.keys.shape[1])

    @property
    def n_kv_head(self) -> int:
        """Return the number of the layer's KV heads, with those that streamed."""
        return len(self.keys) + (len(self.streaming.heads) if self.streaming else 0)

    @property
    def n_clusters(self) -> int:
        """Return the number of clusters of each KV head."""
        return int(self.centroids.shape[1])

    @property
    def n_coarse(self) -> int:
        """Return the number of coarse clusters of each KV head."""
        return int(self.coarse_centroids.shape[1])

    @property
    def n_bytes(self) -> int:
        """Return the bytes of keys and values, without heads that streamed."""
        return int(self.keys.nbytes + self.values.nbytes)


class Calibration(NamedTuple):
    """How to measure thresholds: the parameters of these names of `squeezed`, and the levels of the lookup."""

    threshold: str = "head"
    queries: str = "each"
    select: str = "group"
    levels: int = 1

    def __str__(self) -> str:
        return "-".join(map(str, self))


@dataclass(frozen=True)
class ThresholdCurve:
    """Thresholds of a lookup for each budget, measured on the document's last tokens.

    In a lookup in two levels, the coarse thresholds are the same for every budget below 1. A step does not read the
    keys that they drop, however large the budget: it reads at most the largest of `budgets`. A budget of 1 reads
    everything.

    Parameters
    ----------
    budgets : float64 array, shape (n,)
        Shares of the document's KV bytes that a step reads, including the lookup of all levels; rising.
    thresholds : float64 array, shape (n_heads, n)
        Thresholds of each KV head of the cache, falling. With the thresholds of one budget, all heads read the same
        share, unless all have the same threshold.
    coarse_thresholds : float64 array, shape (n_heads,), optional
        In a lookup in two levels, the importance above which coarse clusters are kept.
    """

    budgets: np.ndarray
    thresholds: np.ndarray
    coarse_thresholds: np.ndarray | None = None

    @property
    def least(self) -> float:
        """Return the smallest budget: the cost of the lookup and of the rows that are always exact."""
        return float(self.budgets[0])

    def at(self, own: np.ndarray, heads: np.ndarray) -> np.ndarray:
        """Return the thresholds with which heads read a share on average.

        Parameters
        ----------
        own : float64 array, shape (n,)
            Share of the document's KV bytes that a step reads of each head, at least `least`.

        Returns
        -------
        float64 array, shape (n,)
            The thresholds; -1 for a head that reads everything.
        """
        if (own == own[0]).all():  # the fast path of most steps
            of_heads: np.ndarray = self._at_one(float(own[0]))[heads]
            return of_heads
        right = np.clip(np.searchsorted(self.budgets, own), 1, len(self.budgets) - 1)
        low, high = self.budgets[right - 1], self.budgets[right]
        part = np.clip((own - low) / np.maximum(high - low, 1e-12), 0.0, 1.0)
        thresholds = self.thresholds[heads, right - 1] ** (1 - part) * self.thresholds[heads, right] ** part
        return np.where(own < 1, thresholds, -1.0)

    def _at_one(self, share: float) -> np.ndarray:
        """Return the thresholds with which all heads of the cache read the same share."""
        if share >= 1:
            return np.full(len(self.thresholds), -1.0)
        i = min(max(int(np.searchsorted(self.budgets, share)), 1), len(self.budgets) - 1)
        low, high = float(self.budgets[i - 1]), float(self.budgets[i])
        part = min(max((share - low) / max(high - low, 1e-12), 0.0), 1.0)
        thresholds: np.ndarray = self.thresholds[:, i - 1] ** (1 - part) * self.thresholds[:, i] ** part
        return thresholds


@dataclass(frozen=True, eq=False)  # `==` on arrays is ambiguous
class LastQueries:
    """The queries of a document's last tokens in one attention node.

    Parameters
    ----------
    softcap : float
        Soft cap of the node's scores; 0 for none.
    queries : float16 array, shape (n_kv_head, n_queries, group, head_dim)
        The queries, already scaled, of the KV heads in the layer's arrays.
    """

    layer: int
    softcap: float
    queries: np.ndarray


#: Extras of a document's rows, and the state that belongs to them, as a method derived them: for each layer the numbers
#: of the heads, their chunks' `extras`, (n_heads, n_chunks, bytes) uint8, and fields of their state, (n_heads, n).
KeptExtras = dict[int, dict[str, np.ndarray]]


def _in_memory() -> None:
    """Do nothing: arrays in memory cannot change."""


@dataclass(frozen=True)
class Index:
    """The index of a document, in memory or mapped from its files.

    Parameters
    ----------
    tokens : int32 array, shape (n_tokens,)
        The document's tokens, the prompt's head included.
    queries : sequence of LastQueries
        Queries of the last tokens in the layers with clusters, to measure thresholds on.
    curves : dict
        Thresholds measured so far. `measured_curve` (thresholds.py) adds others on demand.
    extras : dict
        Extras by `Method.kept_name`. Attaching adds others on demand (cache/document_rows.py).
    check : callable
        Raises OctavoError if the mapped files have changed since they were opened.
    n_prefix : int
        Number of tokens of the prompt's head.
    states : sequence of KeptState
        Recurrent states of a hybrid model, in rising order; the last one is that after all tokens.
    """

    tokens: np.ndarray
    layers: list[IndexLayer]
    queries: Sequence[LastQueries] = ()
    curves: dict[Calibration, ThresholdCurve] = field(default_factory=dict)
    extras: dict[str, KeptExtras] = field(default_factory=dict)
    check: Callable[[], None] = _in_memory
    n_prefix: int = 0
    states: Sequence[KeptState] = ()
    _converted: Index | None = field(default=None, init=False, repr=False)

    @cached_property
    def pages(self) -> MappedPages:
        """Return the pages of the files that hold the rows."""
        return MappedPages([layer.keys for layer in self.layers])

    @cached_property
    def n_exact(self) -> int:
        """Return the number of each head's rows outside clusters: all rows of an unclustered document."""
        starts = [layer.cluster_starts for layer in self.layers if layer.n_clusters]
        return len(self.tokens) - int(starts[0][0, -1] if starts else 0)

    @cached_property
    def n_clusters(self) -> int:
        """Return the number of clusters of each head that has clusters."""
        return max((layer.n_clusters for layer in self.layers), default=0)

    @cached_property
    def n_coarse(self) -> int:
        """Return the number of coarse clusters of each head that has them."""
        return max((layer.n_coarse for layer in self.layers), default=0)

    @property
    def kv_type(self) -> str:
        """Return the storage format of keys and values by llama.cpp's name: F16, Q8_0 or Q4_0."""
        return llama_cpp_name(kv_type_of(self.layers[0].keys))

    def stored_as(self, dtype: np.dtype) -> Index:
        """Return the document with rows of this type: itself, or, of q8_0 in its other format, with rows in memory.

        Raises
        ------
        OctavoError
            Memory does not suffice.
        """
        if all(layer.keys.dtype == dtype for layer in self.layers):
            return self
        if self._converted is None:
            check_free("A copy of the document's rows, as octavo before 0.4 stored them,", self.n_bytes)
            layers = [layer.stored_as(dtype) for layer in self.layers]
            object.__setattr__(self, "_converted", replace(self, layers=layers))
        assert self._converted is not None
        return self._converted

    @property
    def n_bytes(self) -> int:
        """Return the bytes of all keys and values."""
        streaming = [layer.streaming for layer in self.layers if layer.streaming]
        return sum(layer.n_bytes for layer in self.layers) + sum(s.keys.nbytes + s.values.nbytes for s in streaming)


def whole_layer(
    keys: np.ndarray, values: np.ndarray, window: int, n_tokens: int | None = None, split: int = 0
) -> IndexLayer:
    """Return a layer that is not clustered, with its rows in order.

    Parameters
    ----------
    keys, values : array, shape (n_kv_head, n_tokens, ...)
        Stored rows.
    window : int
        Tokens that a sliding window shows, 0 for no window. Rows that it has left behind are dropped.
    n_tokens : int, optional
        Length of the document, if these rows are only its end.
    split : int
        The split of the keys (see stored_rows.py).
    """
    n_rows = keys.shape[1]
    n_shown = min(n_rows, window) if window else n_rows
    first = (n_rows if n_tokens is None else n_tokens) - n_shown
    keys, values = (np.ascontiguousarray(array[:, n_rows - n_shown :]) for array in (keys, values))
    no_centroids, no_starts = as_floats(keys[:, :0], split).astype(np.float16), np.zeros((len(keys), 1), np.int32)
    no_order = np.zeros((len(keys), 0), np.int32)
    nothing = no_centroids, no_starts, no_centroids, no_starts, no_order
    return IndexLayer(keys, values, first, *nothing, no_mass(keys), split=split)


def no_mass(keys: np.ndarray) -> np.ndarray:
    """Return a mass of 0 for each row: not measured yet."""
    return np.zeros(keys.shape[:2], np.float32)
