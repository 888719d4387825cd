"""A layer's attention from queries to output, in real threads: score, select, attend, merge."""

from itertools import pairwise

import numpy as np
import pytest
from helpers import oracle, papers
from helpers.kernel_heads import queries_of, random_head
from helpers.kernel_inputs import (
    QUANTISED,
    SAME,
    SHAPE,
    THREADS,
    LoadedQuery,
    Room,
    address,
    in_threads,
    normal,
    relative_error,
)
from helpers.sketched_heads import SKETCH, attended, before_the_newest

from octavo.cpu_kernels.attend.decode import partial_size
from octavo.cpu_kernels.layer import SHORT, WORK, after_step, attend_layer, part_of_head, scratch_bytes, threads_for
from octavo.cpu_kernels.layout.spans import SPAN
from octavo.cpu_kernels.methods import dense, h2o, quest, sparq, squeezed, squeezed2, streaming
from octavo.cpu_kernels.methods.sparq import MEASURED_CHUNKS
from octavo.cpu_kernels.numba_support.compile import native
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS

pytestmark = pytest.mark.sampled

N_KV_HEAD, CAPACITY = 3, 40

#: The methods, and what their heads' state says.
METHODS = {
    dense: {},
    squeezed: {},
    squeezed2: {},
    # These know no document: all rows are in the tail.
    quest: {"n_selected": 30},
    sparq: {"n_rows": 30, "n_recent": 5, "n_components": 16},
    streaming: {"n_sinks": 3, "n_recent": 5},
    h2o: {"n_rows": 30, "n_recent": 5},
}
WITHOUT_DOCUMENT = (quest, sparq, streaming, h2o)
ATTENDS_ALL = (dense, h2o)


def cases():
    """Every method with both types of keys; those that compile long are slow."""
    for method in METHODS:
        for shape in (SHAPE, QUANTISED):
            quick = shape == SHAPE and method not in (squeezed2, quest)
            marks = [] if quick else [pytest.mark.slow]
            yield pytest.param(method, shape, id=f"{method.__name__.split('.')[-1]}-{shape.kv_type}", marks=marks)


class Layer:
    """KV heads that a method serves, and what threads share. fields : of the HEAD records and of the state"""

    def __init__(self, rng, shape, method, n_document=0, n_tail=1, softcap=0.0, sinks=None, **fields):
        self.shape, self.softcap, self.sinks = shape, np.float32(softcap), sinks
        self.work, self._kept = np.zeros(1, WORK), []
        self.hooks = method.HOOKS
        options = {"method": method, "softcap": softcap, **METHODS.get(method, {}), **fields}
        self.heads = [random_head(rng, shape, n_document, n_tail, **options) for _ in range(N_KV_HEAD)]
        for head in self.heads:
            if n_document and method in (squeezed, squeezed2):
                self._cluster(head)
            head.connect(self.hooks)

    def _cluster(self, head):
        """20 clusters, in coarse clusters of four, and five exact rows."""
        starts, coarse = (np.linspace(0, head.n_document - 5, n).astype(np.int32) for n in (21, 6))
        means, coarse_means = (
            np.array([head.keys[a:b].mean(axis=0) for a, b in pairwise(bounds)], np.float16)
            for bounds in (starts, coarse)
        )
        clusters_of_coarse = np.arange(0, 21, 4, dtype=np.int32)
        self._kept += [starts, clusters_of_coarse, means, coarse_means]
        head.set(n_clusters=20, cluster_starts=address(starts), centroids=address(means), threshold=0.002, n_bytes=-1)
        if head.method is squeezed2:
            head.set(n_coarse=5, coarse_starts=address(clusters_of_coarse), coarse_centroids=address(coarse_means))
            head.set(coarse_threshold=0.002)

    def run(self, queries, n_threads):
        """queries : (n_kv_head, n_tokens, group, head_dim); returns (n_tokens, n_kv_head * group, head_dim)."""
        shape, n_tokens = self.shape, queries.shape[1]
        n_heads, head_dim = N_KV_HEAD * shape.group, shape.head_dim
        self.records = np.concatenate([head.record for head in self.heads])
        self.records["bytes_read"] = 0
        size = -(-scratch_bytes(shape) // 64) * 64
        spans, counts = Room(N_KV_HEAD * CAPACITY * SPAN.itemsize), [Room(8 * N_KV_HEAD) for _ in range(2)]
        partials, scratch = Room(4 * n_threads * N_KV_HEAD * partial_size(shape)), Room(n_threads * size)
        out = Room(4 * n_tokens * (n_heads + 1) * (head_dim + 3))
        with_gaps = out.floats(n_tokens, n_heads + 1, head_dim + 3)
        work = self.work
        work["queries"], work["spans"], work["span_capacity"] = address(queries), spans.address, CAPACITY
        work["n_spans"], work["n_rows"] = (room.address for room in counts)
        work["partials"], work["scratch"], work["scratch_bytes"] = partials.address, scratch.address, size
        sinks = address(self.sinks) if self.sinks is not None else 0

        def attend(ith):
            token_step, head_step = with_gaps.strides[:2]
            attend_layer(
                shape,
                address(self.records),
                N_KV_HEAD,
                n_tokens,
                self.softcap,
                address(work),
                sinks,
                out.address,
                token_step,
                head_step,
                ith,
                n_threads,
            )

        in_threads(n_threads, attend)
        for room in (spans, *counts, partials, scratch, out, *(head.scratch for head in self.heads)):
            room.check()
        assert np.isnan(with_gaps[:, n_heads]).all(), "written between the tokens"
        assert np.isnan(with_gaps[:, :, head_dim:]).all(), "written between the heads"
        return with_gaps[:, :n_heads, :head_dim]

    def expected(self, queries):
        """The oracle's attention over the rows that each head's method selects."""
        results, self.n_rows = [], []
        for head, own in zip(self.heads, queries, strict=True):
            n_tokens = len(own)
            if self.hooks.score and n_tokens == 1:
                head.score(self.hooks.score, own)
            spans = head.select(self.hooks.select, own, CAPACITY)
            rows = np.array(head.rows(spans))
            self.n_rows.append(len(rows))
            newest = head.n_document + head.n_tail - n_tokens + np.arange(n_tokens)
            windows = [oracle.visible(newest, np.array(head.rows([span])), span["window"]) for span in spans]
            seen = np.hstack(windows) | (rows < head.n_document)
            loaded = own.astype(np.float64)
            if n_tokens == 1 and self.shape == QUANTISED:
                loaded = LoadedQuery(self.shape, own[0]).floats[None]
            for g in range(self.shape.group):
                sink = None
                if self.sinks is not None:
                    sink = np.full(n_tokens, self.sinks[len(results)])
                keys, values = head.keys[rows], head.values[rows]
                options = {"softcap": float(self.softcap), "sinks": sink, "visible": seen}
                results.append(oracle.attention(loaded[:, g], keys, values, **options))
        return np.stack(results, axis=1)


def random_queries(rng, shape, n_tokens):
    return np.stack([queries_of(rng, shape, n_tokens, 0.1) for _ in range(N_KV_HEAD)])


@pytest.mark.parametrize(("method", "shape"), list(cases()))
@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("n_tokens", [1, 70])
def test_a_layer_attends_what_its_method_selects(method, shape, n_threads, n_tokens):
    rng = np.random.default_rng(0)
    n_document = 0 if method in WITHOUT_DOCUMENT else 300
    layer = Layer(rng, shape, method, n_document=n_document, n_tail=600 - n_document)
    queries = random_queries(rng, shape, n_tokens)
    expected = layer.expected(queries)
    of_selection = [int(head.record["bytes_read"][0]) for head in layer.heads]
    assert relative_error(layer.run(queries, n_threads), expected) < 5 * SAME
    of_rows = [n_rows * 2 * shape.row_bytes for n_rows in layer.n_rows]
    assert layer.records["bytes_read"].tolist() == [a + b for a, b in zip(of_selection, of_rows, strict=True)]
    if method not in ATTENDS_ALL and n_tokens == 1:
        assert max(layer.n_rows) < 600, "this leaves something out"


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("n_tokens", [1, 70])
def test_a_layer_with_a_window_a_soft_cap_and_sinks(n_threads, n_tokens):
    rng = np.random.default_rng(1)
    sinks = normal(rng, N_KV_HEAD * SHAPE.group, spread=3)
    layer = Layer(rng, SHAPE, dense, n_tail=500, window=90, softcap=2.0, sinks=sinks)
    queries = random_queries(rng, SHAPE, n_tokens)
    assert relative_error(layer.run(queries, n_threads), layer.expected(queries)) < 5 * SAME


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("n_tokens", [1, 70])
def test_rows_that_are_left_out_count_by_the_mean_value(n_threads, n_tokens):
    """In the heads that ask for it, where a token is decoded; a batch leaves nothing out."""
    rng = np.random.default_rng(6)
    layer = Layer(rng, SHAPE, sparq, n_tail=600)
    for i in (0, 2):
        layer.heads[i].set(reallocates=True)
    queries = random_queries(rng, SHAPE, n_tokens)
    expected = layer.expected(queries)
    actual = layer.run(queries, n_threads)
    for i in (0, 2) if n_tokens == 1 else ():
        query, head = queries[i, 0] * 8, layer.heads[i]  # algorithm 1 scales it, by the square root of 64
        spread = oracle.spread(head.keys, CHUNK_ROWS, MEASURED_CHUNKS)
        output = papers.sparq(query, head.keys, head.values, 16, 30, 5, True, spread, spread)[1]
        expected[0, i * 3 : i * 3 + 3] = output
    assert relative_error(actual, expected) < 5 * SAME


@pytest.mark.parametrize("n_threads", THREADS)
def test_rows_that_are_left_out_are_estimated(n_threads):
    rng = np.random.default_rng(7)
    layer = Layer(rng, SHAPE, SKETCH, n_tail=900, n_codes=16, n_rows=60)
    queries = random_queries(rng, SHAPE, 1)
    for head in layer.heads:
        before_the_newest(head)
    results = [attended(head, query) for head, query in zip(layer.heads, queries, strict=True)]
    assert max(len(rows) for rows, _, _ in results) < 200, "this leaves something out"
    expected = np.concatenate([output for _, _, output in results])[None]
    assert relative_error(layer.run(queries, n_threads), expected) < 5 * SAME
    for i, (rows, _, _) in enumerate(results):
        head, record = layer.heads[i], layer.records[i]
        shares = oracle.shares(queries[i, 0].astype(np.float64) @ head.keys.T.astype(np.float64)) / SHAPE.group
        assert record["n_covered"] == 1
        assert record["covered"] / 1e6 == pytest.approx(shares[rows].sum(), abs=0.01), "that of dense attention"


@pytest.mark.parametrize("n_threads", THREADS)
def test_work_is_shared_out_step_after_step(n_threads):
    """With one WORK record, whose counter of threads goes on."""
    rng = np.random.default_rng(2)
    layer = Layer(rng, SHAPE, dense, n_tail=100)
    for n_tokens in (1, 30, 1, 70):
        queries = random_queries(rng, SHAPE, n_tokens)
        assert relative_error(layer.run(queries, n_threads), layer.expected(queries)) < 5 * SAME


@pytest.mark.parametrize("n_tokens", [1, 70])
def test_a_layer_does_not_hide_a_nan(n_tokens):
    rng = np.random.default_rng(3)
    layer = Layer(rng, SHAPE, squeezed, n_document=300, n_tail=300)
    queries = random_queries(rng, SHAPE, n_tokens)
    queries[1, -1, 2, 5] = np.nan
    shows = np.isnan(layer.run(queries, 2)).any(axis=2)
    assert shows[-1].tolist() == [i == 5 for i in range(9)]
    assert not shows[:-1].any()


@pytest.mark.parametrize(
    ("n_document", "n_tails", "expected"),
    [
        (0, [1, 1, 1], 1),
        (0, [1, 1, SHORT - 3], 1),
        (0, [1, SHORT - 2, 1], 4),
        (SHORT // 3, [1, 1, 1], 4),
    ],
    ids=str,
)
def test_a_token_over_little_is_left_to_one_thread(n_document, n_tails, expected):
    """Little in all heads together, which may hold unlike numbers of rows."""
    heads = [random_head(np.random.default_rng(4), SHAPE, n_document, n_tail) for n_tail in n_tails]
    records = np.concatenate([head.record for head in heads])
    assert threads_for(address(records), N_KV_HEAD, 4) == expected
    assert threads_for(address(records), N_KV_HEAD, 1) == 1


def test_each_head_is_tended_by_its_own_method():
    """After a step; heads whose method has nothing to do then are passed over."""
    rng = np.random.default_rng(5)
    heads = [random_head(rng, SHAPE, 0, 50, method=h2o, n_rows=20, n_recent=20) for _ in range(3)]
    for head in (heads[0], heads[2]):
        head.set(after_step=native(h2o.evict).address)
        head.slots(0)[0][:], head.slots(0)[1][:] = np.arange(CHUNK_ROWS), 1
    records = np.concatenate([head.record for head in heads])
    after_step(address(records), 3, 1)
    assert records["n_tail"].tolist() == [20, 50, 20]


@pytest.mark.parametrize("n_threads", range(1, 20))
@pytest.mark.parametrize("n_heads", [1, 2, 3, 5, 8, 16])
def test_threads_share_out_the_parts_of_all_heads(n_heads, n_threads):
    of_threads = [[part_of_head(i, n_heads, ith, n_threads) for i in range(n_heads)] for ith in range(n_threads)]
    for i in range(n_heads):
        parts = [own[i] for own in of_threads if own[i][1] > 0]
        assert sorted(parts) == [(part, len(parts)) for part in range(len(parts))]
    work = [sum(1 / n_parts for _, n_parts in own if n_parts > 0) for own in of_threads]
    assert max(work) <= n_heads // n_threads + 1 / max(n_threads // max(n_heads % n_threads, 1), 1)
