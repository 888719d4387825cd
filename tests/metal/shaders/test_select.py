"""Test selection by the shaders: what each method selects, and its attention, against the oracle."""

import numpy as np
import pytest
from helpers import oracle
from helpers.clustered_heads import Clustered, best
from helpers.kernel_heads import (
    Head,
    as_copied,
    assert_largest,
    head_of_unlike_chunks,
    head_with_constant_components,
    partial_scores,
    random_head,
)
from helpers.kernel_inputs import normal, read_rows, relative_error, rows_with_scores
from helpers.shader_layers import Layer
from metal_simulator import simulator

from octavo.cpu_kernels.layout.head import ANY_ORDER
from octavo.cpu_kernels.layout.scores import COARSE_KEPT
from octavo.cpu_kernels.methods import dense, quest, sparq, squeezed, squeezed2, streaming
from octavo.cpu_kernels.methods.quest import PAGE_ROWS
from octavo.cpu_kernels.methods.sparq import score_rows, select_rows
from octavo.cpu_kernels.numba_support.shape import F16, Q8_0, Shape
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS
from octavo.cpu_kernels.select.cluster_items import LOOKUP_APART
from octavo.cpu_kernels.select.tail_clusters import CHUNK_CLUSTERS, RECENT, SINKS
from octavo.metal.shader_library import method_names

pytestmark = pytest.mark.sampled

simulator.require()

SHAPES = [Shape(head_dim, 3, kv_type) for head_dim in (64, 256) for kv_type in (F16, Q8_0)]
SHAPES += [Shape(64, 1), Shape(8, 16)]
#: Keys and values of different lengths, long heads, and latent keys.
UNLIKE = [Shape(40, 5, F16, 72), Shape(72, 2, Q8_0, 40), Shape(512, 5)]
UNLIKE += [Shape(96, 17, F16, 64, latent=True), Shape(72, 3, Q8_0, 40, latent=True)]
SHAPES += [*UNLIKE, Shape(576, 20, F16, 512, latent=True)]
#: Each shape takes half a minute to compile for the CPU: those between others wait for `make test-all`.
SHAPES += [pytest.param(Shape(n, 3, kv), marks=pytest.mark.slow) for n in (80, 96, 128) for kv in (F16, Q8_0)]
of_shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
of_both = pytest.mark.parametrize("shape", [Shape(64, 3), Shape(64, 3, Q8_0)], ids=["f16", "q8_0"])
of_levels = pytest.mark.parametrize("method", ["squeezed", "squeezed2"])
SIZES, COARSE = [5, 1, 0, 30, 12, 2, 0, 9, 1, 17, 3, 0], [2, 0, 4, 1, 5]
ONE_HEAD = Shape(72, 1)
ON_CPU = {
    "dense": dense.HOOKS,
    "streaming": streaming.HOOKS,
    "quest": quest.HOOKS,
    "sparq": sparq.HOOKS,
    "squeezed": squeezed.HOOKS,
    "squeezed2": squeezed2.HOOKS,
    "window": streaming.HOOKS,
}


def test_each_method_of_metal_is_compared_with_the_cpus():
    assert tuple(sorted(ON_CPU)) == method_names()


def queries_of(rng, shape, n_tokens=1, spread=0.3):
    return normal(rng, n_tokens, shape.group, shape.head_dim, spread=spread)


def selected(head, method, queries, **options):
    """Return the rows that one head selects, rising, and the bytes that selection read."""
    layer = Layer([head], [method], **options)
    rows = head.rows(layer.select(queries[None])[0])
    assert len(rows) == len(set(rows)) == layer.selected[0, 1]
    n_bytes = int(layer.records["bytes_read"][0]) - len(rows) * head.shape.token_bytes
    return sorted(rows), n_bytes


# Sinks and windows.


@of_both
@pytest.mark.parametrize("n_tail", [1, 31, 33, 300, 1100])
@pytest.mark.parametrize(("n_sinks", "n_recent"), [(4, 40), (0, 40), (4, 2000), (64, 1)])
@pytest.mark.parametrize("n_tokens", [1, 9])
def test_streaming_attends_sinks_and_the_newest_rows(shape, n_tail, n_sinks, n_recent, n_tokens):
    rng = np.random.default_rng(0)
    n_tokens = min(n_tokens, n_tail)
    head = random_head(rng, shape, 0, n_tail, method=streaming, n_sinks=n_sinks, n_recent=n_recent)
    queries = queries_of(rng, shape, n_tokens)
    out = Layer([head], ["streaming"]).attend(queries[None])[:, 0]
    positions = np.arange(n_tail)
    seen = oracle.visible(positions[n_tail - n_tokens :], positions, n_recent)
    seen |= oracle.visible(positions[n_tail - n_tokens :], positions) & (positions < n_sinks)
    for g in range(shape.group):
        expected = oracle.attention(queries[:, g], head.keys, head.values, visible=seen)
        assert relative_error(out[:, g], expected) < 1e-4


def test_rows_that_are_gone_are_not_attended():
    """A window that grows may reach farther back than what is still there."""
    rng = np.random.default_rng(16)
    head = random_head(rng, Shape(64, 3), 0, 700, method=streaming, n_sinks=4, n_recent=600, n_dropped=256)
    assert selected(head, "streaming", queries_of(rng, head.shape))[0] == [*range(4), *range(256, 700)]


def test_a_window_is_streaming_without_sinks():
    rng = np.random.default_rng(17)
    head = random_head(rng, Shape(64, 3), 0, 700, method=streaming, n_recent=600, n_dropped=0)
    assert selected(head, "window", queries_of(rng, head.shape))[0] == [*range(100, 700)]


@of_both
@pytest.mark.parametrize("window", [1, 30, 500, -1, -30, -64, -389, -500])
@pytest.mark.parametrize("n_tokens", [1, 40, 150])
@pytest.mark.parametrize("n_document", [0, 100])
def test_a_window_shows_what_it_shows(shape, window, n_tokens, n_document):
    """It slides, or it is a chunk: below 0."""
    rng = np.random.default_rng(1)
    n_tail, sinks = 290, normal(rng, shape.group)
    position = 7 if n_document else ANY_ORDER  # the document's older rows are gone
    fields = {"window": abs(window), "chunked": window < 0, "document_position": position}
    head = random_head(rng, shape, n_document, n_tail, **fields)
    queries = queries_of(rng, shape, n_tokens)
    layer = Layer([head], ["dense"], softcap=2.0, sinks=sinks)
    out = layer.attend(queries[None])[:, 0]
    positions = np.arange(n_document + n_tail) + (position if n_document else 0)
    seen = oracle.visible(positions[len(positions) - n_tokens :], positions, window)
    for g in range(shape.group):
        options = {"softcap": 2.0, "sinks": np.full(n_tokens, sinks[g]), "visible": seen}
        expected = oracle.attention(queries[:, g], head.keys, head.values, **options)
        assert relative_error(out[:, g], expected) < 1e-4


# Pages.


@of_shapes
@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_the_best_pages_are_selected(shape, softcap):
    rng = np.random.default_rng(2)
    for i, n_tail in enumerate((1, PAGE_ROWS, 33, 1100)):
        head = random_head(rng, shape, 0, n_tail, method=quest, softcap=softcap)
        queries, n_pages = queries_of(rng, shape), len(head.pages())
        bounds = oracle.page_bounds(head.keys, PAGE_ROWS).astype(np.float16)
        importance = oracle.shares(oracle.capped(oracle.page_scores(queries[0], bounds), softcap))
        importance[-1] = np.inf
        for n_selected in (1, 2, 7, 68, 69, 70):
            head.set(n_selected=n_selected)
            rows, n_bytes = selected(head, "quest", queries, schedule=i)
            chosen = sorted({row // PAGE_ROWS for row in rows})
            assert rows == [row for page in chosen for row in head.pages()[page]]
            assert_largest(np.array(chosen), importance, n_selected)
            assert n_bytes == n_pages * 4 * shape.head_dim


# Rows by some components.


@of_shapes
@pytest.mark.parametrize("softcap", [0.0, 1.0])
def test_the_best_rows_are_selected(shape, softcap):
    rng = np.random.default_rng(3)
    n_components = shape.head_dim // 4
    for i, n_tail in enumerate((1, 31, 33, 1000)):
        fields = {"n_components": n_components, "n_recent": 3, "softcap": softcap}
        head = random_head(rng, shape, 0, n_tail, method=sparq, **fields)
        queries = queries_of(rng, shape, spread=1 / np.sqrt(shape.head_dim))
        importance = oracle.shares(oracle.capped(partial_scores(head, queries[0], n_components), softcap))
        importance[max(0, n_tail - 3) :] = np.inf
        for n_selected in (3, 4, 20, 500, 1001):
            head.set(n_rows=n_selected)
            rows, n_bytes = selected(head, "sparq", queries, schedule=i)
            assert_largest(np.array(rows), importance, n_selected)
            of_moments = max(1, n_tail // CHUNK_ROWS) * 8 * shape.head_dim
            of_scores = n_components + 2 if shape.kv_type == Q8_0 else 2 * n_components
            assert n_bytes == (n_tail * of_scores + of_moments if n_selected < n_tail else 0)


@pytest.mark.parametrize("shape", [Shape(64, 3), Shape(64, 3, Q8_0), *UNLIKE], ids=str)
def test_what_is_left_out_goes_to_the_mean_value(shape):
    rng = np.random.default_rng(4)
    for n_tail, n_selected in ((600, 50), (33, 33)):
        keys, values = normal(rng, n_tail, shape.head_dim), normal(rng, n_tail, shape.value_dim) + 3
        fields = {"n_components": 9, "n_recent": 3, "n_rows": n_selected, "reallocates": 1}
        head = Head(shape, keys, values, method=sparq, **fields)
        layer = Layer([head], ["sparq"])
        queries = queries_of(rng, shape)
        out = layer.attend(queries[None])[0, 0]
        rows = sorted(head.rows(layer._spans_of(0)))
        scores = partial_scores(head, queries[0], 9)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        kept = (weights[:, rows].sum(axis=1) / weights.sum(axis=1))[:, None]
        attended = oracle.attention(queries[0], head.keys[rows], head.values[rows])
        assert relative_error(out, kept * attended + (1 - kept) * head.values.mean(axis=0)) < 1e-4


@pytest.mark.parametrize("method", ["quest", "sparq"])
def test_of_equal_ones_the_first_are_selected(method):
    """A hundred rows or pages of a zero query score the same."""
    n_tail = 1600 if method == "quest" else 100
    fields = {"n_selected": 9} if method == "quest" else {"n_components": 4, "n_recent": 2, "n_rows": 9}
    kernels = {"quest": quest, "sparq": sparq}[method]
    head = random_head(np.random.default_rng(5), Shape(64, 3), 0, n_tail, method=kernels, **fields)
    rows, _ = selected(head, method, np.zeros((1, 3, 64), np.float32))
    if method == "quest":
        assert rows == [*range(8 * PAGE_ROWS), *range(1600 - PAGE_ROWS, 1600)]
    else:
        assert rows == [*range(7), 98, 99]


def test_of_equal_components_the_first_are_chosen():
    signs = np.random.default_rng(15).permuted(np.repeat([[-1.0], [1.0]], 128, axis=0) * np.ones(64), axis=0)
    head = Head(Shape(64, 3), signs, method=sparq, n_components=12, n_rows=20)  # of each component, half are 1
    queries = np.full((1, 3, 64), 0.1, np.float32)
    importance = oracle.shares(partial_scores(head, queries[0], 12))
    assert_largest(np.array(selected(head, "sparq", queries)[0]), importance, 20)


of_chunks = pytest.mark.parametrize("n_chunks", [0.004, 0.1, 1, 2.5, 8, 9.1, 20])


@of_chunks
def test_components_that_are_the_same_in_all_keys_choose_nothing(n_chunks):
    """As on the CPU. Rounding leaves none in rows of q8_0."""
    rng, n_tail, shape = np.random.default_rng(24), int(n_chunks * CHUNK_ROWS), Shape(64, 3)
    head, queries = head_with_constant_components(rng, shape, n_tail)
    head.set(n_rows=20)
    importance = oracle.shares(queries[0].astype(np.float64) @ as_copied(shape, head.keys).T)
    assert_largest(np.array(selected(head, "sparq", queries)[0]), importance, 20)


@of_both
@of_chunks
def test_components_are_chosen_by_what_varies(shape, n_chunks):
    """As on the CPU, and over the same chunks."""
    rng, n_tail = np.random.default_rng(24), int(n_chunks * CHUNK_ROWS)
    head = head_of_unlike_chunks(rng, shape, n_tail, n_components=5)
    head.set(n_rows=20)
    queries = queries_of(rng, shape)
    rows, n_bytes = selected(head, "sparq", queries)
    assert_largest(np.array(rows), oracle.shares(partial_scores(head, queries[0], 5)), 20)
    assert rows == sorted(head.rows(head.score_and_select(score_rows, select_rows, queries, len(head.chunks))))
    of_moments = max(1, min(n_tail // CHUNK_ROWS, 8)) * 8 * 64
    of_scores = 5 + 2 if shape.kv_type == Q8_0 else 2 * 5
    assert n_bytes == (n_tail * of_scores + of_moments if n_tail > 20 else 0)


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("n_tail", [60, 400])
def test_one_component_of_one_key_that_is_not_finite_attends_everything(bad, n_tail):
    """However small that component of the query is."""
    rng, shape = np.random.default_rng(25), Shape(64, 3)
    keys, queries = normal(rng, n_tail, 64), queries_of(rng, shape)
    for weight in (0.0, 0.1):
        keys[50, 30], queries[..., 30] = bad, weight
        head = Head(shape, keys, method=sparq, n_components=1, n_recent=2, n_rows=5)
        assert selected(head, "sparq", queries)[0] == list(range(n_tail))


@pytest.mark.parametrize("high", [[0], [255], [256], [599], [0, 255, 256, 511, 512, 599]], ids=str)
def test_rows_on_both_sides_of_a_border_are_found(high):
    query, keys = rows_with_scores(np.isin(np.arange(600), high) * 1e4, 72)
    head = Head(ONE_HEAD, keys, method=sparq, n_components=72, n_rows=len(high))
    assert selected(head, "sparq", query[None, None])[0] == high


@of_both
@pytest.mark.parametrize("method", ["quest", "sparq", "squeezed", "squeezed2"])
def test_a_nan_attends_everything(shape, method):
    rng = np.random.default_rng(6)
    if method == "quest":
        head = random_head(rng, shape, 0, 700, method=quest, n_selected=3)
    elif method == "sparq":
        head = random_head(rng, shape, 0, 700, method=sparq, n_components=5, n_recent=2, n_rows=3)
    else:
        head = Clustered(rng, shape, [9, 0, 9, 9], 6, 700, coarse=[1, 3], coarse_threshold=-1, threshold=1e30)
    queries = queries_of(rng, shape)
    queries[-1, 1, 5] = np.nan
    assert selected(head, method, queries)[0] == list(range(head.n_document + head.n_tail))


# Clusters, on one level and on two.


TAILS = (1, 33, CHUNK_ROWS + RECENT + 1, 3 * CHUNK_ROWS + RECENT + 5)


@of_shapes
@of_levels
def test_the_best_clusters_fill_the_budget(shape, method):
    rng = np.random.default_rng(7)
    for i, n_tail in enumerate(TAILS):
        softcap, queries = (2.0 if i % 2 else 0.0), queries_of(rng, shape)
        head = Clustered(rng, shape, SIZES, 4, n_tail, COARSE, softcap=softcap)
        kept, n_lookup = np.ones(len(SIZES), bool), len(SIZES)
        if method == "squeezed2":
            of_coarse = np.diff(head.starts[head.coarse_starts])
            among_coarse = oracle.centroid_importance(queries, head.coarse_centroids, of_coarse, softcap)
            among_coarse = np.where(of_coarse > 0, among_coarse, 0)
            kept = np.repeat(best(among_coarse, of_coarse, COARSE_KEPT * of_coarse.sum()), COARSE)
            n_lookup = len(COARSE) + kept.sum()
        n_lookup += CHUNK_CLUSTERS * head.n_clustered
        importance = head.all_importance(queries, kept, softcap)
        sizes = np.concatenate([head.sizes, np.diff(head.tail_starts()).ravel()]).astype(int)
        n_exact = head.n_document + n_tail - sizes.sum()
        sizes[: len(SIZES)] *= kept
        for n_rows, rules in ((0, 0), (30, 0), (200, LOOKUP_APART), (9000, 0)):
            n_bytes = (n_exact + n_rows) * shape.token_bytes + (0 if rules else n_lookup * 2 * shape.head_dim)
            head.set(n_bytes=n_bytes, rules=rules)
            rows, n_read = selected(head, method, queries, schedule=i)
            chosen = best(importance, sizes, n_rows) & (sizes > 0)
            assert rows == sorted(head.expected(chosen.astype(float), 0.5)), (n_tail, n_rows)
            assert n_read == n_lookup * 2 * shape.head_dim


@of_both
@of_levels
def test_clusters_get_their_least_share(shape, method):
    rng = np.random.default_rng(9)
    head = Clustered(rng, shape, [], 0, TAILS[3], n_bytes=0, least_share=0.25)
    queries, sizes = queries_of(rng, shape), np.diff(head.tail_starts()).ravel()
    chosen = best(head.all_importance(queries), sizes, 0.25 * sizes.sum())
    assert selected(head, method, queries)[0] == sorted(head.expected(chosen.astype(float), 0.5))


@of_both
@of_levels
def test_a_batch_attends_to_everything(shape, method):
    rng = np.random.default_rng(26)
    head = Clustered(rng, shape, SIZES, 4, TAILS[3], COARSE, n_bytes=0)
    assert selected(head, method, queries_of(rng, shape, 5)) == (list(range(head.n_document + head.n_tail)), 0)


@of_levels
def test_a_clustered_chunk_that_is_not_due_is_attended(method):
    rng, n_tail = np.random.default_rng(27), 2 * CHUNK_ROWS + RECENT
    head = Clustered(rng, Shape(64, 3), SIZES, 4, n_tail, COARSE, n_bytes=0)
    rows, _ = selected(head, method, queries_of(rng, head.shape))
    assert head.n_clustered == 2
    assert set(range(head.n_document + CHUNK_ROWS, head.n_document + n_tail)) <= set(rows)


@of_both
@of_levels
def test_exact_rows_and_sinks_are_always_selected(shape, method):
    rng = np.random.default_rng(8)
    head = Clustered(rng, shape, [9, 9, 9], 6, 300, coarse=[1, 2], threshold=1e30, coarse_threshold=1e30)
    assert selected(head, method, queries_of(rng, shape))[0] == list(range(27, 333))
    head = Clustered(rng, shape, [], 0, TAILS[3], threshold=1e30)
    assert selected(head, method, queries_of(rng, shape))[0] == [*range(SINKS), *range(3 * CHUNK_ROWS, TAILS[3])]


# All of it together.


def stored_rows(head):
    """Return keys and values as they lie in memory, where clustering has sorted them."""
    shape, kinds = head.shape, []
    parts = [(shape, 0)] if shape.latent else [(shape, 0), (shape.of_values, CHUNK_ROWS * shape.row_bytes)]
    for document, (own, at) in zip(head.document, parts, strict=False):
        rows = [read_rows(own, document.reshape(-1, own.row_bytes))]
        for i, chunk in enumerate(head.chunks):
            n_rows = min(CHUNK_ROWS, head.n_tail - i * CHUNK_ROWS)
            rows.append(read_rows(own, chunk.view(np.uint8, n_rows, own.row_bytes, at=at)))
        kinds.append(np.concatenate(rows))
    return [*kinds, kinds[0][:, : shape.value_dim]] if shape.latent else kinds


def heads_of_all_methods(rng, shape):
    """Return one head for each method, and the methods."""
    heads = [
        random_head(rng, shape, 40, 300),
        random_head(rng, shape, 0, 270, method=streaming, n_sinks=4, n_recent=33),
        random_head(rng, shape, 0, 500, method=quest, n_selected=5),
        random_head(rng, shape, 0, 333, method=sparq, n_rows=31, n_recent=5, n_components=7),
        Clustered(rng, shape, SIZES, 4, CHUNK_ROWS + RECENT + 1, COARSE, n_bytes=280 * shape.token_bytes),
        Clustered(rng, shape, SIZES, 0, 1, COARSE, n_bytes=30 * shape.token_bytes),
        random_head(rng, shape, 0, 290, method=streaming, n_recent=33),
    ]
    return heads, list(ON_CPU)


@of_shapes
def test_a_layer_of_all_methods_attends_what_each_selects(shape):
    """However the rows are shared out; and whatever the schedule, bit for bit the same."""
    rng = np.random.default_rng(10)
    heads, methods = heads_of_all_methods(rng, shape)
    queries, sinks = (
        normal(rng, len(heads), 1, shape.group, shape.head_dim, spread=0.3),
        normal(rng, len(heads) * shape.group),
    )
    for n_shares in (1, 7, 40):
        outs = []
        for schedule in range(3):
            layer = Layer(heads, methods, softcap=3.0, sinks=sinks, n_shares=n_shares, schedule=schedule)
            outs.append(layer.attend(queries)[0])
            assert np.array_equal(outs[-1], outs[0])
        for i, head in enumerate(heads):
            rows, own = head.rows(layer._spans_of(i)), slice(i * shape.group, (i + 1) * shape.group)
            options = {"softcap": 3.0, "sinks": sinks[own]}
            keys, values = stored_rows(head)
            expected = oracle.attention(queries[i, 0], keys[rows], values[rows], **options)
            assert relative_error(outs[0][i], expected) < 1e-4, methods[i]


@of_shapes
@pytest.mark.parametrize("n_tokens", [1, 5])
def test_heads_select_what_they_select_on_the_cpu(shape, n_tokens):
    rng = np.random.default_rng(14)
    heads, methods = heads_of_all_methods(rng, shape)
    heads[5] = Clustered(rng, shape, SIZES, 0, n_tokens, COARSE, n_bytes=30 * shape.token_bytes)
    queries = normal(rng, len(heads), n_tokens, shape.group, shape.head_dim, spread=0.3)
    layer = Layer(heads, methods)  # which holds the lists of its spans
    on_gpu = layer.select(queries)
    for head, method, query, spans in zip(heads, methods, queries, on_gpu, strict=True):
        hooks = ON_CPU[method]
        if hooks.score:
            on_cpu = head.score_and_select(hooks.score, hooks.select, query, 200)
        else:
            on_cpu = head.select(hooks.select, query, 200)
        assert sorted(head.rows(spans)) == sorted(head.rows(on_cpu)), method


@of_both
def test_a_batch_on_all_methods(shape):
    rng = np.random.default_rng(11)
    heads, methods = heads_of_all_methods(rng, shape)
    n_tokens = 9
    heads[5] = Clustered(rng, shape, SIZES, 0, n_tokens, COARSE, n_bytes=30 * shape.token_bytes)
    queries = normal(rng, len(heads), n_tokens, shape.group, shape.head_dim, spread=0.3)
    layer = Layer(heads, methods, schedule=2)
    out = layer.attend(queries)
    for i, head in enumerate(heads):
        seen = np.zeros((n_tokens, head.n_document + head.n_tail), bool)
        spans = layer._spans_of(i)
        newest = head.n_document + head.n_tail - n_tokens + np.arange(n_tokens)
        for span in spans:
            rows = np.array(head.rows([span]))
            ordered = span["position"] != ANY_ORDER
            seen[:, rows] |= oracle.visible(newest, rows, int(span["window"])) if ordered else True
        keys, values = stored_rows(head)
        for g in range(shape.group):
            expected = oracle.attention(queries[i, :, g], keys, values, visible=seen)
            assert relative_error(out[:, i, g], expected) < 1e-4, methods[i]


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
@pytest.mark.parametrize("shape", [Shape(64, 2), Shape(80, 1, Q8_0), *UNLIKE], ids=str)
@pytest.mark.parametrize("n_tokens", [1, 3])
def test_sanitizers_find_nothing(shape, sanitizer, n_tokens):
    rng = np.random.default_rng(12)
    heads, methods = heads_of_all_methods(rng, shape)
    queries = normal(rng, len(heads), n_tokens, shape.group, shape.head_dim, spread=0.3)
    if n_tokens > 1:
        heads[5] = Clustered(rng, shape, SIZES, 0, n_tokens, COARSE, n_bytes=30 * shape.token_bytes)
    heads[3].set(reallocates=1)
    layer = Layer(heads, methods, sanitizer=sanitizer)
    assert np.isfinite(layer.attend(queries)).all()
    lengths = shape.head_dim, shape.value_dim
    layer.append(*(normal(rng, len(heads), 1, length, dtype=np.float16) for length in lengths))


@pytest.mark.parametrize("shape", [Shape(64, 1), Shape(64, 3), *UNLIKE], ids=str)
def test_hostile_scores_do_not_overflow(shape):
    rng = np.random.default_rng(13)
    for scores in ([1e4] * 300, [-1e4] * 300, [1e4, *[-1e4] * 299], [*[-1e4] * 299, 1e4], range(-1192, 1200, 8)):
        query, keys = rows_with_scores(np.array(scores), shape.head_dim)
        head = Head(shape, keys, normal(rng, len(keys), shape.value_dim))
        queries = np.repeat(query[None, None], shape.group, axis=1)
        out = Layer([head], ["dense"], n_shares=40).attend(queries[None])[0, 0]
        assert relative_error(out, oracle.attention(queries[0], head.keys, head.values)) < 1e-4
