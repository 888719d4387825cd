"""Cluster a document's keys (Squeezed Attention, section 3.1), and sort its rows by cluster."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from octavo.cpu_kernels.compile import Q8_0
from octavo.cpu_kernels.spans import ANY_ORDER
from octavo.runtime.cache import KVCache
from octavo.runtime.document import DocumentLayer
from octavo.runtime.rows import as_floats


@dataclass(frozen=True)
class ClusterSettings:
    """How a document is clustered.

    Parameters
    ----------
    centroid_share : centroids per key; 5 % in the paper, section 5
    exact_last : newest tokens that are always attended; the threshold is calibrated on their queries
    exact_first : oldest tokens that are always attended, the attention sinks
    shortest : tokens of the shortest document that is clustered; below, the exact tokens alone would take up a
        budget of an eighth, and attention is cheap anyway
    max_iterations : of K-means
    seed : of K-means
    """

    centroid_share: float = 0.05
    exact_last: int = 100
    exact_first: int = 4
    shortest: int = 1280
    max_iterations: int = 30
    seed: int = 0

    def n_clustered(self, n_tokens: int) -> int:
        """Keys that are clustered; none of a short document, which stays exact."""
        return n_tokens - self.exact_first - self.exact_last if n_tokens >= self.shortest else 0

    def n_clusters(self, n_tokens: int) -> int:
        """Centroids of each KV head."""
        return round(self.centroid_share * self.n_clustered(n_tokens))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def settings_for(kv_type: str) -> ClusterSettings:
    """How documents are clustered whose keys and values are stored so.

    Centroids are f16, so of q8_0 rows their lookup takes twice the share, and a document must be longer to leave room
    in a budget of an eighth.
    """
    return ClusterSettings(shortest=1408) if kv_type == Q8_0 else ClusterSettings()


def cluster_keys(keys: np.ndarray, n_clusters: int, settings: ClusterSettings) -> tuple[np.ndarray, np.ndarray]:
    """K-means over the directions of one head's keys.

    keys : (n_keys, ...) stored rows. Returns the order that sorts the keys by cluster, (n_keys,) int64, and where
    clusters start and stop in it, (n_clusters + 1,) int32.
    """
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    rows = as_floats(keys)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    with threadpool_limits(1):
        means = KMeans(
            n_clusters, init="random", n_init=1, max_iter=settings.max_iterations, random_state=settings.seed
        ).fit(rows)
    order = np.argsort(means.labels_, kind="stable")
    sizes = np.bincount(means.labels_, minlength=n_clusters)
    return order, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)


def document_layers(
    cache: KVCache, layers: Sequence[int], settings: ClusterSettings, n_jobs: int
) -> Iterator[DocumentLayer]:
    """These layers of a document that lies in the cache's tail, in this order, each as soon as it is clustered.

    Heads are clustered in parallel. Layers whose window slides, and those of a short document, are kept whole.
    """
    from joblib import Parallel, delayed

    n_tokens = cache.n_tail
    n_clusters = settings.n_clusters(n_tokens)
    keys_clustered = slice(settings.exact_first, n_tokens - settings.exact_last)
    clustered = [i for i in layers if n_clusters and not cache.layers[i].window]
    tasks = (
        delayed(cluster_keys)(head[keys_clustered], n_clusters, settings)
        for i in clustered
        for head in cache.rows(i)[0]
    )
    results = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(tasks) if clustered else iter(())
    try:
        for i in layers:
            keys, values = cache.rows(i)
            if i in clustered:
                yield sort_layer(keys, values, [next(results) for _ in keys], settings)
            else:
                yield whole_layer(keys, values, cache.layers[i].window)
    finally:
        if clustered:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # joblib's, that an interruption wastes work
                results.close()


def sort_layer(
    keys: np.ndarray, values: np.ndarray, clusters: list[tuple[np.ndarray, np.ndarray]], settings: ClusterSettings
) -> DocumentLayer:
    """Rows of one layer, sorted by cluster with the exact ones last, and the mean key of each cluster."""
    n_tokens = keys.shape[1]
    last = n_tokens - settings.exact_last
    exact = np.concatenate([np.arange(settings.exact_first), np.arange(last, n_tokens)])
    sorted_keys, sorted_values = np.empty_like(keys), np.empty_like(values)
    centroids = []
    for head, (order, starts) in enumerate(clusters):
        rows = np.concatenate([order + settings.exact_first, exact])
        sorted_keys[head], sorted_values[head] = keys[head, rows], values[head, rows]
        centroids.append(mean_keys(sorted_keys[head], starts))
    starts = np.stack([starts for _, starts in clusters])
    return DocumentLayer(sorted_keys, sorted_values, ANY_ORDER, np.stack(centroids), starts)


def mean_keys(keys: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The mean of each cluster's keys, 0 where it has none: (n_clusters, head_dim) f16.

    keys : (n_rows, ...) stored rows, sorted by cluster    starts : (n_clusters + 1,) int32
    """
    sizes = np.diff(starts)
    filled = sizes > 0  # fewer distinct keys than clusters leave some empty
    rows = as_floats(keys[: starts[-1]])
    means = np.zeros((len(sizes), rows.shape[1]), np.float16)
    sums = np.add.reduceat(rows, starts[:-1][filled], axis=0)
    means[filled] = sums / sizes[filled, None]
    return means


def whole_layer(keys: np.ndarray, values: np.ndarray, window: int) -> DocumentLayer:
    """A layer that is not clustered: rows in order, and of a sliding-window layer only those that are still seen."""
    first = max(0, keys.shape[1] - window) if window else 0
    no_centroids = as_floats(keys[:, :0]).astype(np.float16)
    return DocumentLayer(
        np.ascontiguousarray(keys[:, first:]),
        np.ascontiguousarray(values[:, first:]),
        first,
        no_centroids,
        np.zeros((keys.shape[0], 1), np.int32),
    )
