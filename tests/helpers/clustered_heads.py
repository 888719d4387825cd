"""A KV head whose document lies in clusters, and whose tail may: with thresholds well away from any cluster."""

import numpy as np
from helpers import oracle
from helpers.kernel_heads import Head
from helpers.kernel_inputs import address, before_a_hole, normal

from octavo.cpu_kernels.layout.head import ANY_ORDER
from octavo.cpu_kernels.layout.scores import ITEMS_STEP, padded
from octavo.cpu_kernels.methods import squeezed2
from octavo.cpu_kernels.methods.squeezed import cluster_tail
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS
from octavo.cpu_kernels.select.tail_clusters import CHUNK_CLUSTERS


class Clustered(Head):
    """A head whose document is clusters of these sizes and exact rows; `coarse`: clusters in each coarse cluster.

    Keys of a cluster lie around its centroid, which is their mean; an empty cluster's is 0. So are coarse centroids
    the means of their clusters' keys. The tail's chunks that are due are clustered. Thresholds select, not a budget,
    unless `fields` have n_bytes.
    """

    def __init__(self, rng, shape, sizes, n_exact=0, n_tail=1, coarse=(), **fields):
        self.starts = np.cumsum([0, *sizes]).astype(np.int32)
        self.coarse_starts = np.cumsum([0, *coarse]).astype(np.int32)
        self.sizes, n_clusters = np.array(sizes), len(sizes)
        keys = normal(rng, self.starts[-1] + n_exact + n_tail, shape.head_dim)
        for start, stop in zip(self.starts, self.starts[1:], strict=False):
            keys[start:stop] += normal(rng, shape.head_dim)
        n_document = len(keys) - n_tail
        n_chunks = -(-n_tail // CHUNK_ROWS)
        n_items = padded(n_clusters) + padded(len(coarse)) + ITEMS_STEP * n_chunks
        values = normal(rng, len(keys), shape.value_dim)
        super().__init__(shape, keys, values, n_document, n_items, method=squeezed2, **fields)
        self.centroids = before_a_hole(self._means(self.starts))
        self.coarse_centroids = before_a_hole(self._means(self.starts[self.coarse_starts]))
        self.set(
            centroids=address(self.centroids),
            cluster_starts=address(self.starts),
            n_clusters=n_clusters,
            coarse_centroids=address(self.coarse_centroids),
            coarse_starts=address(self.coarse_starts),
            n_coarse=len(coarse),
            n_bytes=fields.get("n_bytes", -1),
        )
        self.most = n_clusters + 2 + (CHUNK_CLUSTERS + 3) * n_chunks  # spans
        cluster_tail(shape, self.address, 1)
        self.first_ordered = n_document + CHUNK_ROWS * self.n_clustered

    def _means(self, starts):
        means = np.zeros((len(starts) - 1, self.shape.head_dim), np.float16)
        for i in np.flatnonzero(np.diff(starts)):
            means[i] = self.keys[starts[i] : starts[i + 1]].mean(axis=0)
        return means

    def selected(self, kernels, queries):
        """The rows that are selected; checks that those of the tail in no cluster, and only those, have positions."""
        self.spans = self.score_and_select(*kernels, queries, self.most)
        rows = np.array(self.rows(self.spans), int)
        firsts = rows[np.cumsum([0, *self.spans["n_rows"][:-1]])]
        assert ((self.spans["position"] != ANY_ORDER) == (firsts >= self.first_ordered)).all()
        return rows.tolist()

    def importance(self):
        """What the last selection on one level left, averaged over the group."""
        return self.scratch.floats(len(self.sizes)) / self.shape.group

    def expected(self, importance, threshold):
        """`importance` : of the document's clusters, and then of the tail's"""
        n_clusters, after = len(self.sizes), self.n_document
        rows = oracle.selected_rows(importance[:n_clusters], threshold, self.starts, self.n_document).tolist()
        for i, starts in enumerate(self.tail_starts()):
            first = after + i * CHUNK_ROWS
            own = importance[n_clusters + i * CHUNK_CLUSTERS :]
            rows += range(first, first + starts[0])
            for j in np.flatnonzero(own[:CHUNK_CLUSTERS] > threshold):
                rows += range(first + starts[j], first + starts[j + 1])
        return [*rows, *range(self.first_ordered, after + self.n_tail)]

    def _extras(self):
        return [chunk.bytes[self._extras_offset :] for chunk in self.chunks[: self.n_clustered]]

    @property
    def n_clustered(self):
        return int(self.state["n_clustered_chunks"][0])

    def tail_centroids(self):
        """(n_clustered * CHUNK_CLUSTERS, head_dim)"""
        size = CHUNK_CLUSTERS * self.shape.head_dim
        parts = [part[: 2 * size].view(np.float16).reshape(CHUNK_CLUSTERS, -1) for part in self._extras()]
        return np.concatenate([np.zeros((0, self.shape.head_dim), np.float16), *parts])

    def tail_starts(self):
        """(n_clustered, CHUNK_CLUSTERS + 1), rows of the chunk"""
        size = CHUNK_CLUSTERS * self.shape.head_dim * 2
        parts = [part[size : size + 4 * (CHUNK_CLUSTERS + 1)].view(np.int32) for part in self._extras()]
        return np.reshape(parts, (-1, CHUNK_CLUSTERS + 1)).astype(int)

    def all_importance(self, queries, kept=None, softcap=0.0):
        """That of the document's clusters and the tail's together; `kept` : which of the document's take part."""
        kept = np.ones(len(self.sizes), bool) if kept is None else kept
        sizes = np.concatenate([np.where(kept, self.sizes, 0), np.diff(self.tail_starts()).ravel()])
        centroids = np.concatenate([self.centroids, self.tail_centroids()])
        return np.where(sizes > 0, oracle.centroid_importance(queries, centroids, sizes, softcap), 0)


def best(importance, sizes, wanted):
    """Which clusters the n most important are whose rows come nearest to what is wanted; the fewer of two."""
    order = np.argsort(-importance)
    sums = np.concatenate([[0], np.cumsum(np.asarray(sizes)[order])])
    chosen = np.zeros(len(order), bool)
    chosen[order[: np.abs(sums - max(wanted, 0)).argmin()]] = True
    return chosen


def between(importance, n):
    """A threshold that the n most important clusters exceed, well away from any of them."""
    falling = np.sort(importance[importance > 0])[::-1]
    n = min(n, len(falling))
    if len(falling) == 0:
        return 1.0
    if n == len(falling):
        return falling[-1] / 2
    while n and falling[n] > falling[n - 1] * 0.999:
        n -= 1
    return np.sqrt(falling[n] * falling[n - 1]) if n else falling[0] * 2


def kept_clusters(head, coarse_threshold, importance):
    return np.repeat(importance > coarse_threshold, np.diff(head.coarse_starts))
