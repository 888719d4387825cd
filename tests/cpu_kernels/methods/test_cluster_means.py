"""The estimate of clusters that are not selected: their weights and mean values, and what that counts as read."""

from itertools import pairwise

import numpy as np
import pytest
from helpers import oracle
from helpers.clustered_heads import Clustered, between, kept_clusters
from helpers.estimates import estimated, merged
from helpers.kernel_heads import queries_of
from helpers.kernel_inputs import EACH, SHAPE, UNLIKE, address, before_a_hole, read_pair, shapes, split_of

from octavo.cpu_kernels.methods import squeezed, squeezed2
from octavo.cpu_kernels.numba_support.shape import F16, Q4_0, Q8_0
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS
from octavo.cpu_kernels.select.cluster_items import BY_HEAD, ESTIMATE, EXACT_TAIL, LOOKUP_APART, estimate_clusters
from octavo.cpu_kernels.select.tail_clusters import CHUNK_CLUSTERS, RECENT, lookup_extras_bytes
from octavo.runtime.document.index import cluster_means
from octavo.runtime.document.stored_rows import as_floats, row_format

pytestmark = pytest.mark.sampled

FEW = [(64, 3, F16), (72, 1, F16), (8, 16, Q8_0), (64, 3, Q8_0)]
SHAPES, WITH_Q4_0 = (shapes(few, groups=(1, 2, 4, 8, 16)) for few in (FEW, [*FEW, (64, 2, Q4_0)]))
SIZES, COARSE = [5, 1, 0, 30, 12, 2, 0, 9, 1, 17, 3, 0], [2, 0, 4, 1, 5]
ONE = squeezed.score_clusters, squeezed.select_clusters
TWO = squeezed2.score_coarse_clusters, squeezed2.select_clusters_of_clusters
of_levels = pytest.mark.parametrize("kernels", [ONE, TWO], ids=["one level", "two levels"])
N_TAIL = 2 * CHUNK_ROWS + RECENT + 30


class Estimated(Clustered):
    """A head with the means of its clusters. Without sizes its document has none."""

    def __init__(self, rng, shape, sizes=SIZES, n_exact=4, n_tail=N_TAIL, coarse=COARSE, **fields):
        rules = fields.pop("rules", 0) | ESTIMATE
        coarse = coarse if sizes else []
        super().__init__(rng, shape, sizes, n_exact, n_tail, coarse, rules=rules, **fields)
        for i, chunk in enumerate(self.chunks[: self.n_clustered]):  # clustering has sorted their rows
            own = slice(self.n_document + i * CHUNK_ROWS, self.n_document + (i + 1) * CHUNK_ROWS)
            at = self._value_offset
            keys = chunk.view(np.uint8, CHUNK_ROWS, shape.row_bytes)
            values = chunk.view(np.uint8, CHUNK_ROWS, shape.value_bytes, at=at)
            self.keys[own], self.values[own] = read_pair(shape, keys, values)
        keys, values = (self.stored(rows)[None] for rows in self.document)
        means = cluster_means(keys, values, self.starts[None], self.coarse_starts[None], split_of(shape))
        self.means = {name: before_a_hole(array[0]) for name, array in means._asdict().items()}
        self.set(**{name: address(array) for name, array in self.means.items()})

    def stored(self, rows):
        """Stored rows as the cache's arrays have them."""
        return rows.view(row_format(self.shape.head_dim, self.shape.kv_type)[0])

    def tail_means(self):
        """The mean values of the tail's clusters, and a spread for each."""
        values, spreads = np.zeros((0, self.shape.value_dim)), np.zeros((0, self.shape.head_dim))
        for extras in self._extras():
            own = extras[lookup_extras_bytes(self.shape) :]
            size = CHUNK_CLUSTERS * (self.shape.value_dim + 4)
            rows = as_floats(np.ascontiguousarray(own[:size].reshape(CHUNK_CLUSTERS, -1)))
            spread = np.ascontiguousarray(own[size : size + 4 * self.shape.head_dim]).view(np.float32)
            values, spreads = np.vstack([values, rows]), np.vstack([spreads, np.tile(spread, (CHUNK_CLUSTERS, 1))])
        return values, spreads

    def clusters(self):
        """Rows of all clusters, those of the document first: a list of ranges."""
        own = [range(a, b) for a, b in pairwise(self.starts)]
        for i, starts in enumerate(self.tail_starts()):
            first = self.n_document + i * CHUNK_ROWS
            own += [range(first + a, first + b) for a, b in pairwise(starts)]
        return own

    def attended(self):
        """Which rows each query head attends, by the spans of `selected`: (group, n_rows) bool."""
        rows = np.zeros((self.shape.group, len(self.keys)), bool)
        for g in range(self.shape.group):
            rows[g, self.rows([span for span in self.spans if span["heads"] == 0 or span["heads"] >> g & 1])] = True
        return rows

    def naive(self, query, attended, kept=None, softcap=0.0):
        """The output and the share that is covered, in float64; `kept` : which clusters of two levels are."""
        n_clusters = len(self.sizes)
        values, spreads = self.tail_means()
        values = np.vstack([as_floats(self.means["mean_values"]), values])
        spreads = np.vstack([np.tile(self.means["spread"], (n_clusters, 1)), spreads])
        centroids, rows = np.vstack([self.centroids, self.tail_centroids()]), self.clusters()
        left = [i for i in range(len(rows)) if len(rows[i]) and (kept is None or i >= n_clusters or kept[i])]
        items = [(centroids[i], len(rows[i]), values[i], spreads[i], rows[i]) for i in left]
        if kept is not None:
            coarse_values = as_floats(self.means["coarse_mean_values"])
            for i, (first, stop) in enumerate(pairwise(self.coarse_starts)):
                own = range(self.starts[first], self.starts[stop])
                if len(own) and not kept[first]:
                    spread = self.means["coarse_spread"]
                    items.append((self.coarse_centroids[i], len(own), coarse_values[i], spread, own))
        outputs, covered = [], []
        for g, q in enumerate(query.astype(np.float64)):
            weights = np.exp(oracle.capped(self.keys @ q, softcap)) * attended[g]
            above, exact, rest, true = weights @ self.values, weights.sum(), 0.0, 0.0
            for centroid, size, value, spread, own in items:
                if not attended[g, own[0]]:
                    weight = size * np.exp(oracle.capped(centroid.astype(np.float64) @ q, softcap))
                    variance = (q**2 * spread).sum()
                    above += weight * (1 + variance / 4) * value
                    rest += weight * (1 + variance / 4)
                    true += weight * (1 + variance / 2)
            outputs.append(above / (exact + rest))
            covered.append(exact / (exact + true))
        return np.array(outputs), np.mean(covered)

    def output(self, query, n_parts=1, softcap=0.0):
        """What the hook and the rows of the spans give."""
        return merged(self, query, self.attended(), estimated(self, estimate_clusters, n_parts), softcap)

    def covered(self, query, softcap=0.0):
        """The share that `rest_of` says is covered."""
        at = (16 + 4 * self.shape.group) * self.n_items + 8 * 40
        largest, left, above = self.scratch.view(np.float32, 3, self.shape.group, at=at).astype(np.float64)
        scores = oracle.capped(query.astype(np.float64) @ self.keys.T, softcap)
        exact = (np.exp(scores) * self.attended()).sum(axis=1)
        return (exact / (exact + left * np.exp(largest + above))).mean()


def assert_near(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=3e-4 * np.abs(expected).max())


# Means.


@pytest.mark.parametrize("shape", WITH_Q4_0 + UNLIKE)
def test_means_are_those_of_the_rows(shape):
    head = Estimated(np.random.default_rng(0), shape)
    tail_values, tail_spreads = head.tail_means()
    values, n = np.vstack([as_floats(head.means["mean_values"]), tail_values]), len(head.sizes)
    rows = head.clusters()
    for own, value in zip(rows, values, strict=True):
        mean = head.values[own].mean(axis=0) if len(own) else np.zeros(shape.value_dim)
        np.testing.assert_allclose(value, mean, atol=np.abs(mean).max() / 250 + 1e-6)
    for first, stop, spread in [(0, n, head.means["spread"]), (n, n + CHUNK_CLUSTERS, tail_spreads[0])]:
        apart = [head.keys[own] - head.keys[own].mean(axis=0) for own in rows[first:stop] if len(own)]
        np.testing.assert_allclose(spread, (np.vstack(apart) ** 2).mean(axis=0), rtol=2e-3, atol=1e-6)


def test_means_of_hostile_rows():
    keys, none = np.full((1, 4, 8), 1e4, np.float16), np.zeros((1, 0, 8), np.float16)
    starts = np.array([[0, 0, 2, 4]], np.int32)
    means = cluster_means(keys, np.zeros_like(keys), starts, np.array([[0, 3]], np.int32))
    assert all((as_floats(array) if array.dtype == np.uint8 else array).max() == 0 for array in means)
    empty = cluster_means(none, none, np.zeros((1, 1), np.int32), np.zeros((1, 1), np.int32))
    assert [array.shape for array in empty] == [(1, 0, 12), (1, 8), (1, 0, 12), (1, 8)]
    keys[0, 3, 2] = np.nan
    shown = as_floats(cluster_means(keys, keys, starts, np.array([[0, 3]], np.int32)).mean_values[0])
    assert np.isnan(shown).any(axis=1).tolist() == [False, False, True]


# What a step adds.


@pytest.mark.parametrize("shape", SHAPES + UNLIKE)
@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize("rules", [0, BY_HEAD, EXACT_TAIL])
@pytest.mark.parametrize("n_parts", [1, 3])
def test_clusters_that_are_not_selected_are_estimated(shape, softcap, rules, n_parts):
    rng = np.random.default_rng(1)
    head = Estimated(rng, shape, rules=rules, softcap=softcap)
    for keep in (0, 3, 12, 100):
        query = queries_of(rng, shape)
        head.set(threshold=between(head.all_importance(query, softcap=softcap), keep))
        head.selected(ONE, query)
        expected, covered = head.naive(query[0], head.attended(), softcap=softcap)
        assert_near(head.output(query[0], n_parts, softcap), expected)
        assert head.covered(query[0], softcap) == pytest.approx(covered, abs=1e-4)


@pytest.mark.parametrize("shape", SHAPES + UNLIKE)
@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_coarse_clusters_that_are_not_kept_are_estimated_as_a_whole(shape, softcap):
    rng = np.random.default_rng(2)
    head = Estimated(rng, shape, softcap=softcap)
    of_coarse = np.diff(head.starts[head.coarse_starts])
    for keep in (0, 1, 2, 5):
        query = queries_of(rng, shape)
        coarse = oracle.centroid_importance(query, head.coarse_centroids, of_coarse, softcap)
        coarse = np.where(of_coarse > 0, coarse, 0)
        least = between(coarse, keep)
        kept = kept_clusters(head, least, coarse)
        threshold = between(head.all_importance(query, kept, softcap), 4)
        head.set(coarse_threshold=least, threshold=threshold)
        head.selected(TWO, query)
        expected, covered = head.naive(query[0], head.attended(), kept, softcap)
        assert_near(head.output(query[0], 2, softcap), expected)
        assert head.covered(query[0], softcap) == pytest.approx(covered, abs=1e-4)


@of_levels
def test_a_coarse_cluster_far_above_what_was_kept(kernels):
    """One query head's best may be dropped, because the group selects together."""
    rng = np.random.default_rng(3)
    head = Estimated(rng, SHAPE, [9, 9, 9, 9], 4, 5, [2, 2])
    query = queries_of(rng, SHAPE)
    head.coarse_centroids[0], head.coarse_centroids[1] = 0, 0
    query[0, 0] *= 90
    head.set(coarse_threshold=1e30, threshold=1e30)
    head.selected(kernels, query)
    kept = None if kernels is ONE else np.zeros(4, bool)
    with np.errstate(over="ignore", invalid="ignore"):
        expected, _ = head.naive(query[0].astype(np.float64), head.attended(), kept)
    assert_near(head.output(query[0])[1:], expected[1:])
    assert np.isfinite(head.output(query[0])).all()


@of_levels
@pytest.mark.parametrize("shape", EACH)
def test_the_estimate_is_nearer_to_dense_than_dropping(kernels, shape):
    rng = np.random.default_rng(4)
    head = Estimated(rng, shape, coarse_threshold=0, n_bytes=0)
    with_rest, without = [], []
    for _ in range(10):
        query = queries_of(rng, shape, 1, 0.15)
        head.selected(kernels, query)
        attended = head.attended()
        dense = oracle.attention(query[0], head.keys, head.values)
        dropped = oracle.attention(query[0], head.keys, head.values, visible=attended)
        with_rest.append(np.abs(head.output(query[0]) - dense).mean())
        without.append(np.abs(dropped - dense).mean())
    assert np.mean(with_rest) < 0.7 * np.mean(without)


@of_levels
@pytest.mark.parametrize("n_tail", [1, N_TAIL])
@pytest.mark.parametrize("sizes", [[], [0, 0], SIZES], ids=["no document", "no rows", "clusters"])
def test_with_a_budget_for_all_rows_nothing_is_estimated(kernels, n_tail, sizes):
    rng = np.random.default_rng(5)
    head = Estimated(rng, SHAPE, sizes, 4, n_tail, COARSE if sizes is SIZES else [2], threshold=-1, coarse_threshold=-1)
    query = queries_of(rng, SHAPE)
    head.selected(kernels, query)
    assert head.attended().all()
    assert_near(head.output(query[0]), oracle.attention(query[0], head.keys, head.values))
    assert head.covered(query[0]) == 1


@of_levels
@pytest.mark.parametrize("where", ["query", "centroid", "mean value"])
def test_a_nan_reaches_the_output(kernels, where):
    rng = np.random.default_rng(6)
    head = Estimated(rng, SHAPE, [9, 0, 9, 9], 6, 300, [1, 3], coarse_threshold=-1, threshold=1e30)
    query = queries_of(rng, SHAPE)
    if where == "query":
        query[0, 1, 5] = np.nan
    elif where == "centroid":
        head.centroids[2, 3] = np.nan
    else:
        head.means["mean_values"][2, 64:] = np.full(1, np.nan, np.float32).view(np.uint8)
    head.selected(kernels, query)
    output = head.output(query[0])
    if where == "centroid":
        assert head.attended().all(), "exact attention says what the rows are"
    else:
        assert np.isnan(output).any()


@pytest.mark.parametrize("shape", EACH)
@pytest.mark.parametrize("rules", [0, LOOKUP_APART])
def test_what_is_read_is_counted(shape, rules):
    head = Estimated(np.random.default_rng(7), shape, rules=rules, threshold=1e30, coarse_threshold=1e30)
    query, n_tail = queries_of(np.random.default_rng(7), shape), head.n_clustered * CHUNK_CLUSTERS
    item, spread = 3 * shape.head_dim + 4, 4 * shape.head_dim
    head.selected(ONE, query)
    assert head.record["bytes_read"][0] == (len(SIZES) + n_tail) * item + (1 + head.n_clustered) * spread
    head.set(bytes_read=0)
    head.selected(TWO, query)
    assert head.record["bytes_read"][0] == (len(COARSE) + n_tail) * item + (2 + head.n_clustered) * spread


def test_a_batch_estimates_nothing():
    head = Estimated(np.random.default_rng(8), SHAPE, threshold=1e30)
    head.spans = head.score_and_select(*ONE, queries_of(np.random.default_rng(8), SHAPE, 2), head.most)
    assert head.attended().all()
    assert head.record["bytes_read"][0] == 0
