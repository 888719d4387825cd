"""Selectors, through the HEAD records that they read: which rows they select, and what that counts as read."""

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import octavo
from octavo.convert.calibrate import cluster_importance
from octavo.cpu_kernels.compile import Shape
from octavo.cpu_kernels.select import (
    native_select_all,
    native_select_clusters,
    padded_clusters,
    select_all,
    select_clusters,
)
from octavo.cpu_kernels.spans import ANY_ORDER, CHUNK_ROWS, SPAN
from octavo.runtime.cache import CacheLayer, KVCache
from octavo.runtime.document import Document, DocumentLayer, ThresholdCurve
from octavo.runtime.selectors.squeezed import Squeezed

NATIVE = {select_all: native_select_all, select_clusters: native_select_clusters}
HEAD_DIM, N_KV_HEAD = 64, 2
GROUPS = [1, 3, 4, 8]
GUARD = -12345.0
NO_CLUSTERS = [0]


def random_layer(rng, sizes, n_exact, position=ANY_ORDER, n_kv_head=N_KV_HEAD, head_dim=HEAD_DIM):
    """A document's layer: clusters of these sizes, then exact rows. The second head's clusters come in reverse order.

    Keys of a cluster lie around its centroid, which is their mean; an empty cluster's is 0.
    """
    starts = np.stack([np.cumsum([0, *sizes[:: 1 if head % 2 == 0 else -1]]) for head in range(n_kv_head)])
    n_rows = starts[0, -1] + n_exact
    keys, values = rng.standard_normal((2, n_kv_head, n_rows, head_dim)).astype(np.float16)
    centroids = np.zeros((n_kv_head, len(sizes), head_dim), np.float16)
    for head in range(n_kv_head):
        for i in np.flatnonzero(np.diff(starts[head])):
            rows = keys[head, starts[head, i] : starts[head, i + 1]]
            rows += rng.standard_normal(head_dim).astype(np.float16)
            centroids[head, i] = rows.mean(axis=0, dtype=np.float32)
    return DocumentLayer(keys, values, position, centroids, starts.astype(np.int32))


class OneLayer:
    """The cache of one layer, a selector on its heads, and room for what that writes."""

    def __init__(self, select, group=1, document=None, n_tail=1, window=0, n_ctx=4096, softcap=0.0):
        self.group, self.layer = group, document
        self.cache = KVCache([CacheLayer(N_KV_HEAD, HEAD_DIM, window)], n_ctx)
        if document is not None:
            n_tokens = document.keys.shape[1]
            if document.position != ANY_ORDER:
                n_tokens += document.position
            self.cache.attach(Document(np.zeros(n_tokens, np.int32), [document], None))
        self.cache.reserve(n_tail)
        self.heads = self.cache.layer_heads(0)
        self.heads["softcap"] = softcap
        n_clusters = document.n_clusters if document is not None else 0
        room = n_clusters + group * padded_clusters(n_clusters)
        self.scratch = np.full((N_KV_HEAD, room + 1), np.nan, np.float32)
        self.scratch[:, -1] = GUARD
        self.heads["scratch"] = self.scratch.ctypes.data + np.arange(N_KV_HEAD) * self.scratch.strides[0]
        self.call = NATIVE[select](Shape(HEAD_DIM, group)).ctypes

    def select(self, head, queries):
        """The spans of a head for (n_tokens, group, head_dim) queries."""
        spans = np.zeros(self.cache.max_spans + 1, SPAN)
        spans[-1]["n_rows"] = GUARD
        record = self.heads[head : head + 1].ctypes.data
        n_spans = self.call(record, queries.ctypes.data, len(queries), spans.ctypes.data)
        assert n_spans < len(spans)
        assert spans[-1]["n_rows"] == GUARD, "more spans than there was room for"
        assert (self.scratch[:, -1] == GUARD).all(), "written behind the scratch"
        return spans[:n_spans]

    def importance(self, head, n_tokens):
        """What the last selection left in its scratch, averaged."""
        return self.scratch[head, : self.layer.n_clusters] / (self.group * n_tokens)

    def rows(self, head, spans):
        """Rows that spans cover: those of the document, and those of the tail; checks that their values belong to them.

        Both in the order of the spans, so a row that is read twice is there twice.
        """
        of_document, of_tail = [], []
        row_bytes = HEAD_DIM * 2
        for span in spans:
            assert span["n_rows"] > 0
            if self.layer is not None:
                first, rest = divmod(int(span["keys"]) - self.layer.keys[head].ctypes.data, row_bytes)
                if rest == 0 and 0 <= first < self.layer.keys.shape[1]:
                    assert span["values"] == self.layer.values[head, first:].ctypes.data
                    expected = ANY_ORDER if self.layer.position == ANY_ORDER else self.layer.position + first
                    assert span["position"] == expected
                    of_document += range(first, first + span["n_rows"])
                    continue
            i, first = self._row_of_chunk(head, int(span["keys"]), int(span["values"]))
            assert first + span["n_rows"] <= CHUNK_ROWS
            row = i * CHUNK_ROWS + first
            assert span["position"] == self.cache.n_document + row
            of_tail += range(row, row + span["n_rows"])
        return of_document, of_tail

    def _row_of_chunk(self, head, keys, values):
        for i, (chunk,) in enumerate(self.cache._chunks):
            first, rest = divmod(keys - chunk[0, head].ctypes.data, HEAD_DIM * 2)
            if rest == 0 and 0 <= first < CHUNK_ROWS:
                assert values == chunk[1, head, first:].ctypes.data
                return i, first
        raise AssertionError("a span lies nowhere in the cache")


def queries_of(rng, n_tokens, group, spread=0.3):
    return (rng.standard_normal((n_tokens, group, HEAD_DIM)) * spread).astype(np.float32)


# Everything.


@settings(max_examples=60, deadline=None)
@given(
    n_tail=st.integers(1, 3 * CHUNK_ROWS + 10),
    n_tokens=st.integers(1, 300),
    window=st.sampled_from([0, 1, 2, 100, 255, 256, 257, 600]),
)
def test_dense_selects_the_tail_that_the_first_token_may_see(n_tail, n_tokens, window):
    n_tokens = min(n_tokens, n_tail)
    one = OneLayer(select_all, n_tail=n_tail, window=window)
    for head in range(N_KV_HEAD):
        spans = one.select(head, queries_of(np.random.default_rng(0), n_tokens, 1))
        first_token = n_tail - n_tokens
        first = max(0, first_token - window + 1) if window else 0
        assert one.rows(head, spans) == ([], list(range(first, n_tail)))


@pytest.mark.parametrize("n_tail", [1, CHUNK_ROWS, CHUNK_ROWS + 1, 3 * CHUNK_ROWS - 1])
def test_dense_selects_a_clustered_document_as_one_span(n_tail):
    rng = np.random.default_rng(1)
    document = random_layer(rng, [5, 0, 7], 4)
    one = OneLayer(select_all, document=document, n_tail=n_tail)
    for head in range(N_KV_HEAD):
        spans = one.select(head, queries_of(rng, 1, 1))
        assert one.rows(head, spans) == (list(range(16)), list(range(n_tail)))
        assert len(spans) == 1 + -(-n_tail // CHUNK_ROWS)


@pytest.mark.parametrize(("n_tail", "n_tokens"), [(1, 1), (3, 1), (3, 3), (49, 1), (50, 1), (51, 1), (300, 280)])
def test_dense_selects_what_a_window_still_shows_of_a_document(n_tail, n_tokens):
    """The document had 100 tokens and keeps the newest 50 in this layer, whose window is 50."""
    rng = np.random.default_rng(2)
    document = random_layer(rng, [], 50, position=50)
    one = OneLayer(select_all, document=document, n_tail=n_tail, window=50)
    spans = one.select(1, queries_of(rng, n_tokens, 1))
    oldest = max(0, 100 + n_tail - n_tokens - 49)  # of the first token, which sees itself and 49 more
    assert one.rows(1, spans) == (
        list(range(min(oldest - 50, 50), 50)),
        list(range(max(0, oldest - 100), n_tail)),
    )


# Clusters.


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("n_tokens", [1, 2, 7])
@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_importance_is_that_of_the_paper(group, n_tokens, softcap):
    rng = np.random.default_rng(3)
    sizes = [5, 1, 0, 30, 12, 2, 0, 9, 1, 17, 3]
    one = OneLayer(select_clusters, group, random_layer(rng, sizes, 4), n_tail=n_tokens, softcap=softcap)
    for head in range(N_KV_HEAD):
        queries = queries_of(rng, n_tokens, group)
        one.select(head, queries)
        own_sizes = np.diff(one.layer.cluster_starts[head])
        expected = oracle.centroid_importance(queries, one.layer.centroids[head], own_sizes, softcap)
        np.testing.assert_allclose(one.importance(head, n_tokens) * own_sizes, expected * own_sizes, rtol=1e-4)
        assert (expected * own_sizes).sum() == pytest.approx(1)


@settings(max_examples=80, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 0, 1, 2, 3, 20]), min_size=1, max_size=40),
    n_exact=st.integers(0, 9),
    n_tail=st.integers(1, 600),
    group=st.sampled_from(GROUPS),
    n_tokens=st.sampled_from([1, 1, 3]),
    keep=st.integers(0, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_clusters_above_the_threshold_are_selected(sizes, n_exact, n_tail, group, n_tokens, keep, seed):
    rng = np.random.default_rng(seed)
    one = OneLayer(select_clusters, group, random_layer(rng, sizes, n_exact), n_tail=max(n_tail, n_tokens))
    for head in range(N_KV_HEAD):
        starts, centroids = one.layer.cluster_starts[head], one.layer.centroids[head]
        queries = queries_of(rng, n_tokens, group)
        if sum(sizes) == 0:  # importance is a share of nothing
            spans = one.select(head, queries)
            assert one.rows(head, spans) == (list(range(n_exact)), list(range(one.cache.n_tail)))
            continue
        importance = oracle.centroid_importance(queries, centroids, np.diff(starts))
        threshold = between(importance, keep)
        one.heads["threshold"] = threshold
        spans = one.select(head, queries)
        of_document, of_tail = one.rows(head, spans)
        expected = oracle.selected_rows(importance, threshold, starts, one.layer.keys.shape[1])
        assert of_document == expected.tolist()
        assert of_tail == list(range(one.cache.n_tail))
        runs = np.count_nonzero(np.diff(expected, prepend=-2) > 1)
        assert len(spans) == runs + -(-one.cache.n_tail // CHUNK_ROWS), "neighbours are one span"


def between(importance, n):
    """A threshold that the n most important clusters exceed, well away from any of them."""
    falling = np.sort(importance[importance > 0])[::-1]
    n = min(n, len(falling))
    if n == len(falling):
        return falling[-1] / 2
    if n == 0:
        return falling[0] * 2
    while n and falling[n] > falling[n - 1] * 0.999:
        n -= 1
    return np.sqrt(falling[n] * falling[n - 1]) if n else falling[0] * 2


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("threshold", [1e30, 2.0])
def test_exact_rows_and_the_tail_are_always_selected(group, threshold):
    rng = np.random.default_rng(5)
    one = OneLayer(select_clusters, group, random_layer(rng, [9, 9, 9], 6), n_tail=300)
    one.heads["threshold"] = threshold
    assert one.rows(0, one.select(0, queries_of(rng, 1, group))) == (list(range(27, 33)), list(range(300)))


@pytest.mark.parametrize("spread", [0.3, 30.0])
@pytest.mark.parametrize("group", GROUPS)
def test_a_budget_of_1_selects_every_row(group, spread):
    rng = np.random.default_rng(6)
    one = OneLayer(select_clusters, group, random_layer(rng, [3, 0, 200, 0, 0, 1, 40], 5), n_tail=2)
    curve = ThresholdCurve(np.array([0.1, 1.1]), np.array([0.5, 1e-9]))
    tokens = np.zeros(249, np.int32)
    Squeezed(1.0).configure(one.heads, Document(tokens, [one.layer], curve))
    for head in range(N_KV_HEAD):
        of_document, _ = one.rows(head, one.select(head, queries_of(rng, 1, group, spread)))
        assert of_document == list(range(249))


def test_an_empty_cluster_takes_no_part_however_low_the_others_score():
    """Its centroid is 0, so it scores 0: far above scores that are all below -87, where exp gives 0."""
    rng = np.random.default_rng(7)
    document = random_layer(rng, [4, 0, 8], 2)
    one = OneLayer(select_clusters, document=document)
    queries = np.zeros((1, 1, HEAD_DIM), np.float32)
    queries[..., 0] = 1
    document.centroids[0, [0, 2], 0] = [-150, -151]
    one.heads["threshold"] = 0
    assert one.rows(0, one.select(0, queries))[0] == list(range(14))
    expected = oracle.centroid_importance(queries, document.centroids[0], np.array([4, 0, 8]))
    np.testing.assert_allclose(one.importance(0, 1)[[0, 2]], expected[[0, 2]], rtol=1e-4)


def test_hostile_centroid_scores_select_the_best_cluster():
    rng = np.random.default_rng(8)
    document = random_layer(rng, [4, 4, 4], 0)
    queries = np.zeros((1, 1, HEAD_DIM), np.float32)
    queries[..., 0] = 1
    one = OneLayer(select_clusters, document=document)
    one.heads["threshold"] = 0.2
    for scores, rows in [([1e4, -1e4, 0], range(4)), ([-1e4, -1e4, -9992], range(8, 12)), ([5, 5, 5], ())]:
        document.centroids[0, :, 0] = scores
        assert one.rows(0, one.select(0, queries))[0] == list(rows)


def test_lookup_counts_the_centroids_that_it_reads():
    rng = np.random.default_rng(9)
    one = OneLayer(select_clusters, document=random_layer(rng, [3, 0, 5], 2))
    one.select(0, queries_of(rng, 1, 1))
    assert one.heads["bytes_read"].tolist() == [3 * HEAD_DIM * 2, 0]
    one.select(0, queries_of(rng, 1, 1))
    assert one.heads["bytes_read"].tolist() == [2 * 3 * HEAD_DIM * 2, 0]


# What a whole step counts.


@pytest.fixture(scope="module")
def llama(tiny_model):
    return octavo.Llama(tiny_model, n_ctx=2048, n_batch=64, n_threads=2)


def test_dense_step_reads_each_row_once_for_its_group(llama):
    llama.reset()
    llama.context.bytes_read = 0
    llama.eval([1] * 50)
    assert llama.context.bytes_read == 50 * llama.context.cache.row_bytes
    llama.context.bytes_read = 0
    llama.eval([2])
    assert llama.context.bytes_read == 51 * llama.context.cache.row_bytes


@pytest.mark.parametrize("n_tokens", [1, 5])
@pytest.mark.parametrize(("threshold", "n_selected"), [(1e30, 0), (-1.0, 90)])
def test_squeezed_step_reads_its_rows_and_all_centroids(llama, threshold, n_selected, n_tokens):
    rng = np.random.default_rng(10)
    layers = [random_layer(rng, [40, 0, 50], 10) for _ in llama.context.cache.layers]
    curve = ThresholdCurve(np.array([0.1, 1.0]), np.array([0.5, 1e-9]))
    llama.set_attention("squeezed", 0.5)
    llama.attach(Document(np.zeros(100, np.int32), layers, curve))
    try:
        llama.context.cache.heads["threshold"] = threshold
        llama.context.bytes_read = 0
        llama.eval([1] * n_tokens)
        n_heads = len(llama.context.cache.heads)
        centroids = n_heads * 3 * HEAD_DIM * 2
        rows = n_selected + 10 + n_tokens
        assert llama.context.bytes_read == rows * llama.context.cache.row_bytes + centroids
    finally:
        llama.set_attention("dense")
        llama.context.attach(None)


# Calibration: what the thresholds are measured with.


@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_calibration_measures_the_importance_that_the_kernel_computes(softcap):
    rng = np.random.default_rng(11)
    sizes = np.array([5, 0, 30, 1])
    queries, centroids = queries_of(rng, 6, 3), rng.standard_normal((4, HEAD_DIM)).astype(np.float16)
    centroids[1] = 0
    actual = cluster_importance(queries, centroids, sizes, softcap)
    expected = [oracle.centroid_importance(token, centroids, sizes, softcap) for token in queries]
    np.testing.assert_allclose(actual, expected, rtol=1e-4)


def test_calibration_passes_over_empty_clusters():
    queries = np.zeros((1, 1, HEAD_DIM), np.float32)
    queries[..., 0] = 1
    centroids = np.zeros((3, HEAD_DIM), np.float16)
    centroids[[0, 2], 0] = [-150, -151]
    sizes = np.array([4, 0, 8])
    expected = oracle.centroid_importance(queries, centroids, sizes)
    np.testing.assert_allclose(cluster_importance(queries, centroids, sizes, 0.0)[0], expected, rtol=1e-4)
