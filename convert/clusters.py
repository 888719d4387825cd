"""Cluster a document's keys in two levels, and sort its rows by cluster.

The method is Squeezed Attention's (Hooper et al. 2024, sections 3.1 and 3.3).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ..cpu_kernels.layout.head import ANY_ORDER
from ..cpu_kernels.numba_support.shape import F16, Q4_0, Q8_0
from ..cpu_kernels.select.kmeans import improve_centroids
from ..runtime.cache.kv_cache import KVCache
from ..runtime.document.cache_layer import Rows
from ..runtime.document.index import IndexLayer, no_mass, whole_layer
from ..runtime.document.stored_rows import as_floats, mean_rows

#: Keys in a segment that is clustered alone, because the time of K-means grows with their square; and iterations, after
#: which more find no better clusters (docs/methods.md).
_SEGMENT, _ITERATIONS = 8192, 10


@dataclass(frozen=True)
class ClusterSettings:
    """How to cluster a document.

    Parameters
    ----------
    centroid_share : float
        Centroids per key; 5 % in the paper.
    coarse_share : float
        Coarse centroids per key; 1 % in the paper.
    keys : str
        "raw": run K-means over keys as they are, segment by segment; "normalised": over keys of length 1, all of them
        at once, as in the paper. Centroids are always means of the keys as they are.
    coarse_of : str
        Whether coarse centroids are means of "keys", or of "centroids", as in the paper.
    exact_last : int
        Number of last tokens that are always attended; thresholds are measured on their queries.
    exact_first : int
        Number of first tokens that are always attended: the sink tokens.
    shortest : int
        Length in tokens of the shortest document that is clustered. In a shorter one the tokens that are always
        attended would use up a budget of an eighth, and attending to everything is cheap.
    max_iterations : int
        Most iterations of K-means over all keys at once.
    seed : int
        Seed of K-means.
    """

    centroid_share: float = 0.05
    coarse_share: float = 0.01
    exact_last: int = 100
    exact_first: int = 4
    shortest: int = 1280
    max_iterations: int = 30
    seed: int = 0
    keys: str = "raw"
    coarse_of: str = "keys"

    def n_clustered(self, n_tokens: int) -> int:
        """Return how many keys are clustered; 0 for a short document, which stays exact."""
        is_clustered = self.centroid_share > 0 and n_tokens >= self.shortest
        return n_tokens - self.exact_first - self.exact_last if is_clustered else 0

    def n_clusters(self, n_tokens: int) -> int:
        """Return the number of centroids of each KV head."""
        n_keys = self.n_clustered(n_tokens)
        return max(1, round(self.centroid_share * n_keys)) if n_keys else 0

    def n_coarse(self, n_tokens: int) -> int:
        """Return the number of coarse centroids of each KV head."""
        return min(max(1, round(self.coarse_share * self.n_clustered(n_tokens))), self.n_clusters(n_tokens))

    def n_queries(self, n_tokens: int) -> int:
        """Return the number of last tokens whose queries measure thresholds and mass."""
        return max(1, min(self.exact_last, n_tokens - 1))

    def n_segments(self, n_keys: int) -> int:
        """Return the number of segments, of nearly equal length, that a head's keys are split into."""
        return max(1, -(-n_keys // _SEGMENT)) if self.keys == "raw" else 1

    def as_json(self) -> dict[str, Any]:
        """Return the settings as a JSON object, without defaults that came later, so that earlier indexes are found."""
        later = {"keys": "raw", "coarse_of": "keys"}
        return {name: value for name, value in asdict(self).items() if later.get(name) != value}


#: Settings of an index without clusters.
UNCLUSTERED = ClusterSettings(centroid_share=0.0, coarse_share=0.0, shortest=0)

#: Lengths of the shortest documents that are clustered: a budget of an eighth has room for the lookup and for the
#: tokens that are always attended.
_SHORTEST = {F16: ClusterSettings.shortest, Q8_0: 1408, Q4_0: 3072}


def settings_for(kv_type: str, clustering: Mapping[str, Any] | None = None) -> ClusterSettings:
    """Return the settings for a storage format.

    Centroids are f16: looking them up costs twice the share of q8_0 rows, and nearly four times that of q4_0 rows. So a
    document must be longer before a budget of an eighth has room for it.

    Parameters
    ----------
    clustering : mapping, optional
        Settings that the attention overrides, by name (`Method.clustering`).
    """
    usual = ClusterSettings(shortest=_SHORTEST[kv_type])
    return replace(usual, **(clustering or {}))


@dataclass(frozen=True)
class HeadClusters:
    """The clusters of one head's keys, sorted by coarse cluster.

    Parameters
    ----------
    order : int64 array, shape (n_keys,)
        The keys sorted by cluster.
    starts : int32 array, shape (n_clusters + 1,)
        Where clusters start and stop in that order.
    coarse_starts : int32 array, shape (n_coarse + 1,)
        The clusters where coarse clusters start and stop.
    """

    order: np.ndarray
    starts: np.ndarray
    coarse_starts: np.ndarray


def cluster_keys(
    keys: np.ndarray, n_clusters: int, n_coarse: int, settings: ClusterSettings, split: int = 0
) -> HeadClusters:
    """Cluster one head's keys by K-means, and then the clusters' mean keys.

    Each segment of the document is clustered alone, with its share of the clusters, so that the time grows linearly
    with the document. As in the authors' code, each cluster counts once in the second step, whatever its size.

    Parameters
    ----------
    keys : array, shape (n_keys, ...)
        Stored rows with this split.
    """
    floats, n_segments = as_floats(keys, split), min(settings.n_segments(len(keys)), n_coarse)
    totals = np.array([len(keys), n_clusters, n_coarse])
    bounds = totals * np.arange(n_segments + 1)[:, None] // n_segments
    n_keys, fine, coarse = np.diff(bounds, axis=0).T
    fine = _fitted(fine, n_keys)
    coarse = _fitted(coarse, fine)
    orders, starts, coarse_starts = [], [0], [0]
    for i, (first, end) in enumerate(pairwise(bounds[:, 0])):
        segment = _cluster_segment(floats[first:end], int(fine[i]), int(coarse[i]), settings)
        orders.append(segment.order + first)
        starts.extend(segment.starts[1:] + first)
        coarse_starts.extend(segment.coarse_starts[1:] + coarse_starts[-1])
    return HeadClusters(np.concatenate(orders), np.array(starts, np.int32), np.array(coarse_starts, np.int32))


def _fitted(counts: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Return counts of segments that rounding may have made larger than they can be, with the excess in others."""
    fitted: np.ndarray = np.minimum(counts, most)
    room = np.repeat(np.arange(len(counts)), most - fitted)
    np.add.at(fitted, room[: counts.sum() - fitted.sum()], 1)
    return fitted


def _cluster_segment(keys: np.ndarray, n_clusters: int, n_coarse: int, settings: ClusterSettings) -> HeadClusters:
    """Cluster the keys of a segment, (n_keys, head_dim) f32, in both levels."""
    labels = _kmeans(keys, n_clusters, settings)
    order, starts = _sorted_by(labels, n_clusters)
    means = mean_rows(keys[order], starts)
    by_coarse, coarse_starts = _sorted_by(_kmeans(means, n_coarse, settings), n_coarse)
    order, starts = _sorted_by(np.argsort(by_coarse)[labels], n_clusters)
    return HeadClusters(order, starts, coarse_starts)


def _kmeans(vectors: np.ndarray, n_clusters: int, settings: ClusterSettings) -> np.ndarray:
    """Assign each vector to a cluster, (n,) int32. A kernel iterates; scikit-learn fills empty clusters."""
    from sklearn.cluster import KMeans

    if settings.keys == "normalised":
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    n_iterations = _ITERATIONS if settings.keys == "raw" else settings.max_iterations
    centred = vectors - vectors.mean(axis=0)
    first = np.random.default_rng(settings.seed).choice(len(vectors), n_clusters, replace=False)
    centroids = centred[first]
    improve_centroids(centred, centroids, n_iterations - 1)
    last = KMeans(n_clusters, init=centroids, n_init=1, max_iter=1, tol=0, copy_x=False)
    labels: np.ndarray = last.fit(centred).labels_
    return labels


def _sorted_by(labels: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the order that sorts items by label, (n_items,) int64, and the start of each label, (n + 1,) int32."""
    sizes = np.bincount(labels, minlength=n)
    return np.argsort(labels, kind="stable"), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)


def cluster_layers(
    cache: KVCache,
    layers: Sequence[int],
    settings: ClusterSettings,
    n_jobs: int,
    rows: Callable[[int], Rows] | None = None,
    n_tokens: int | None = None,
) -> Iterator[IndexLayer]:
    """Cluster layers of a document, heads in parallel. Keep sliding-window layers and short documents whole.

    Parameters
    ----------
    rows : callable, optional
        Takes the number of a layer and returns its keys and values, at least those that a sliding window shows. The
        default is the content of the cache, which must be exactly the document.
    n_tokens : int, optional
        Length of the document. The default is that of the cache.

    Yields
    ------
    IndexLayer
        Each layer in this order, as soon as it is clustered; `calibrate` measures its mass later.
    """
    rows = rows or cache.rows
    n_tokens = cache.n_tail if n_tokens is None else n_tokens
    n_clusters = settings.n_clusters(n_tokens)
    clustered = [i for i in layers if n_clusters and not cache.layers[i].window and len(rows(i)[0])]
    heads = ((*head, cache.layers[i].split) for i in clustered for head in zip(*rows(i), strict=True))
    results = _sort_heads(heads, n_clusters, settings.n_coarse(n_tokens), settings, n_jobs)
    try:
        for i in layers:
            keys, values = rows(i)
            if i in clustered:
                yield _layer_of([next(results) for _ in keys], cache.layers[i].split)
            else:
                yield whole_layer(keys, values, cache.layers[i].window, n_tokens, cache.layers[i].split)
    finally:
        results.close()


def _sort_heads(
    heads: Iterable[tuple[np.ndarray, np.ndarray, int]],
    n_clusters: int,
    n_coarse: int,
    settings: ClusterSettings,
    n_jobs: int,
) -> Generator[SortedHead, None, None]:
    """Cluster heads and sort their rows, n_jobs at a time, each on its own thread; yield them in order.

    A head is its keys, its values, and the split of its keys (see stored_rows.py).
    """
    import sklearn.cluster  # only the threads of loaded libraries can be limited
    from joblib import Parallel, delayed
    from threadpoolctl import ThreadpoolController

    libraries = ThreadpoolController()
    openmp, blas = (libraries.select(user_api=api) for api in ("openmp", "blas"))

    def cluster_and_sort(keys: np.ndarray, values: np.ndarray, split: int) -> SortedHead:
        clustered = keys[settings.exact_first : len(keys) - settings.exact_last]
        unchecked = sklearn.config_context(assume_finite=True, skip_parameter_validation=True)  # checks take a third
        with openmp.limit(limits=1), unchecked:  # both apply to the calling thread only
            clusters = cluster_keys(clustered, n_clusters, n_coarse, settings, split)
            return sort_head(keys, values, clusters, settings, split)

    with blas.limit(limits=1):
        tasks = (delayed(cluster_and_sort)(*head) for head in heads)
        results = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(tasks)
        try:
            for head in results:  # noqa: UP028, as `yield from` would close them before `finally`
                yield head
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # joblib warns that an interruption wastes work
                results.close()


def compute_means(layers: Sequence[IndexLayer], n_jobs: int) -> None:
    """Compute the layers' `means` on n_jobs threads; the layers cache them."""
    with ThreadPoolExecutor(n_jobs) as pool:
        for means in [pool.submit(lambda clustered: clustered.means, layer) for layer in layers if layer.n_clusters]:
            means.result()


class SortedHead(NamedTuple):
    """One KV head of an `IndexLayer`: arrays of its fields, without their first axis."""

    keys: np.ndarray
    values: np.ndarray
    centroids: np.ndarray
    cluster_starts: np.ndarray
    coarse_centroids: np.ndarray
    coarse_starts: np.ndarray
    order: np.ndarray


def sort_head(
    keys: np.ndarray, values: np.ndarray, clusters: HeadClusters, settings: ClusterSettings, split: int = 0
) -> SortedHead:
    """Sort one head's rows, in document order, by cluster, with the rows that are always exact last."""
    n_tokens = len(keys)
    exact = np.concatenate([np.arange(settings.exact_first), np.arange(n_tokens - settings.exact_last, n_tokens)])
    order = np.concatenate([clusters.order + settings.exact_first, exact]).astype(np.int32)
    keys, values = keys[order], values[order]
    centroids = mean_keys(keys, clusters.starts, split)
    if settings.coarse_of == "centroids":
        coarse_centroids = mean_keys(centroids, clusters.coarse_starts)
    else:
        coarse_centroids = mean_keys(keys, clusters.starts[clusters.coarse_starts], split)
    return SortedHead(
        keys,
        values,
        centroids,
        clusters.starts,
        coarse_centroids,
        clusters.coarse_starts,
        order,
    )


def _layer_of(heads: list[SortedHead], split: int) -> IndexLayer:
    """Stack heads to a layer whose mass is not measured yet."""
    arrays = SortedHead(*(np.stack(arrays_of_heads) for arrays_of_heads in zip(*heads, strict=True)))
    return IndexLayer(position=ANY_ORDER, mass=no_mass(arrays.keys), split=split, **arrays._asdict())


def mean_keys(keys: np.ndarray, starts: np.ndarray, split: int = 0) -> np.ndarray:
    """Compute the mean of each cluster's keys.

    Parameters
    ----------
    keys : array, shape (n_rows, ...)
        Stored rows, sorted by cluster.
    starts : int32 array, shape (n_clusters + 1,)
        Where clusters start and stop.

    Returns
    -------
    float16 array, shape (n_clusters, head_dim)
        The means; 0 for a cluster without keys.
    """
    return mean_rows(keys, starts, split).astype(np.float16)
