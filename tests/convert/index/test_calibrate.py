"""What is measured on the last tokens: thresholds of the lookup in two levels, and the rows' mass."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import oracle, tiny_models
from helpers.index_builds import SETTINGS, build, evaluate_directly, library_of, new_llama, text_of, thresholds_of
from helpers.kernel_heads import Head
from helpers.kernel_inputs import KV_TYPES, address, halves, normal, store_rows

from octavo.convert.clusters import ClusterSettings, settings_for
from octavo.convert.pipeline import attention_mass, calibrate
from octavo.cpu_kernels.layout.head import ANY_ORDER
from octavo.cpu_kernels.layout.scores import COARSE_KEPT
from octavo.cpu_kernels.methods import squeezed2
from octavo.cpu_kernels.methods.squeezed2 import score_coarse_clusters, select_clusters_of_clusters
from octavo.cpu_kernels.numba_support.shape import Shape
from octavo.evaluation.synthetic import random_layer
from octavo.runtime.document.cache_layer import CacheLayer
from octavo.runtime.document.index import Calibration, whole_layer
from octavo.runtime.document.stored_rows import as_floats, row_format
from octavo.runtime.document.thresholds import (
    NodeQueries,
    measured_curve,
    one_level_curve,
    query_head_importance,
    two_level_curve,
)
from octavo.runtime.models.llama_arguments import GGML_TYPES
from octavo.runtime.store.index_files import open_index

HEAD_DIM, GROUP = 64, 3
TWO_LEVELS = Calibration(levels=2)


def last_queries(llama, tokens):
    """The queries of the tokens that stay exact, for each node."""
    n_last = SETTINGS.exact_last
    evaluate_directly(llama, tokens[:-n_last])
    with llama.context.captured_queries(n_last) as queries:
        llama.eval(tokens[-n_last:])
    return queries


# Thresholds in two levels.


def test_a_case_that_can_be_computed_by_hand():
    """Coarse clusters with half of the keys each, and shares of 3:1 for a key. In the first, clusters of 4:1."""
    settings = ClusterSettings(exact_first=0, exact_last=4, shortest=1)
    layer = random_layer(CacheLayer(1, 8, 0), 16, settings, np.random.default_rng(0))
    weights, coarse_weights = np.array([4, 1, 7, 9]), np.array([3, 1])
    centroids, coarse_centroids = np.zeros((1, 4, 8), np.float16), np.zeros((1, 2, 8), np.float16)
    centroids[0, :, 0], coarse_centroids[0, :, 0] = np.log(weights), np.log(coarse_weights)
    layer = replace(
        layer,
        centroids=centroids,
        cluster_starts=np.array([[0, 2, 6, 7, 12]], np.int32),
        coarse_centroids=coarse_centroids,
        coarse_starts=np.array([[0, 2, 4]], np.int32),
    )
    nodes = [NodeQueries(layer, 0, np.eye(8, dtype=np.float32)[None, :1, None], 0.0)]
    two_level = two_level_curve(nodes, 1, TWO_LEVELS)
    assert two_level.coarse_thresholds == pytest.approx([3 / (6 * 3 + 6 * 1)], rel=1e-3)
    lookup = (2 + 2) / (2 * 16)  # keys and values of 16 rows
    assert two_level.budgets[[0, -1]] == pytest.approx(np.array([4, 4 + 2 + 4]) / 16 + lookup)
    for n_rows, share in [(2, 4 / 12), (4, 2 / 12), (6, 1 / 12)]:  # the second is half way, of logarithms
        assert thresholds_of(two_level, (4 + n_rows) / 16 + lookup) == pytest.approx([share], rel=0.01)


def test_the_coarse_level_keeps_its_share_and_the_budget_counts_what_both_read(llama, index, model_hash, tokens):
    document, _ = open_index(index, model_hash)
    two_level, queries = measured_curve(document, TWO_LEVELS), last_queries(llama, tokens)
    for budget in (0.15, 0.3, 0.5):
        thresholds = thresholds_of(two_level, budget)
        n_rows, n_kept_rows, n_centroids = [], [], []
        for node, captured in zip(llama.context.nodes, queries, strict=True):
            layer = document.layers[node.kv_layer]
            for head in range(node.n_kv_head):
                number = node.kv_layer * node.n_kv_head + head
                coarse_threshold, threshold = two_level.coarse_thresholds[number], thresholds[number]
                starts, coarse_starts = layer.cluster_starts[head], layer.coarse_starts[head]
                clusters = (layer.coarse_centroids[head], coarse_starts, coarse_threshold, layer.centroids[head])
                for token in captured[head]:
                    importance = oracle.two_level_importance(token, *clusters, starts)
                    n_rows.append(len(oracle.selected_rows(importance, threshold, starts, len(tokens))))
                    n_kept_rows.append(np.diff(starts)[importance > 0].sum())
                    n_centroids.append(layer.n_coarse + (importance > 0).sum())
        read = (np.mean(n_rows) + np.mean(n_centroids) / 2) / len(tokens)
        assert read == pytest.approx(budget, abs=0.01)
        assert np.mean(n_kept_rows) / SETTINGS.n_clustered(len(tokens)) == pytest.approx(COARSE_KEPT, abs=0.02)


def read_share(layer, head, queries, thresholds, softcap):
    """Share of one head's bytes that the compiled lookup reads of the document, averaged over queries."""
    shape = Shape(HEAD_DIM, GROUP)
    keys, values = (np.vstack([rows[head], rows[head][:1]]) for rows in (layer.keys, layer.values))  # a tail of one row
    lookup = Head(
        shape,
        keys.astype(np.float32),
        values.astype(np.float32),
        n_document=layer.keys.shape[1],
        n_items=layer.n_clusters,
        method=squeezed2,
        centroids=address(layer.centroids[head]),
        cluster_starts=address(layer.cluster_starts[head]),
        n_clusters=layer.n_clusters,
        coarse_centroids=address(layer.coarse_centroids[head]),
        coarse_starts=address(layer.coarse_starts[head]),
        n_coarse=layer.n_coarse,
        coarse_threshold=thresholds[0],
        threshold=thresholds[1],
        n_bytes=-1,
        softcap=softcap,
    )
    most, n_bytes = layer.n_clusters + 3, 0
    for query in queries:
        lookup.set(bytes_read=0)
        spans = lookup.score_and_select(score_coarse_clusters, select_clusters_of_clusters, query[None], most)
        n_bytes += int(lookup.record["bytes_read"][0]) + 2 * shape.row_bytes * (int(spans["n_rows"].sum()) - 1)
    return n_bytes / len(queries) / (keys[:-1].nbytes + values[:-1].nbytes)


@pytest.mark.parametrize("softcap", [0.0, 4.0])
def test_the_compiled_lookup_reads_the_budget_for_queries_like_those_it_was_measured_on(softcap):
    rng = np.random.default_rng(1)
    settings, n_tokens = ClusterSettings(), 3000
    nodes, held_out = [], []
    for _ in range(2):
        layer = random_layer(CacheLayer(2, HEAD_DIM, 0), n_tokens, settings, rng)
        queries = normal(rng, 2, 150, GROUP, HEAD_DIM, spread=0.1)
        nodes.append(NodeQueries(layer, 2 * len(nodes), queries[:, :100], softcap))
        held_out.append(queries[:, 100:])
    two_level = two_level_curve(nodes, 4, TWO_LEVELS)
    for budget in (0.1, 0.2, 0.4):
        thresholds = zip(two_level.coarse_thresholds, thresholds_of(two_level, budget), strict=True)
        shares = [
            read_share(node.layer, head, queries[head], next(thresholds), softcap)
            for node, queries in zip(nodes, held_out, strict=True)
            for head in range(2)
        ]
        assert np.mean(shares) == pytest.approx(budget, rel=0.1)


def test_nodes_that_share_a_layer_are_measured_together():
    """Each alone would have thresholds of its own; the numbers of heads are those of the cache."""
    rng, settings, n_tokens = np.random.default_rng(4), ClusterSettings(), 2000
    layers = [random_layer(CacheLayer(2, HEAD_DIM, 0), n_tokens, settings, rng) for _ in range(2)]
    nodes = [
        NodeQueries(layers[0], 0, normal(rng, 2, 50, GROUP, HEAD_DIM, spread=0.05), 0.0),
        NodeQueries(layers[1], 3, normal(rng, 2, 50, GROUP, HEAD_DIM, spread=0.2), 0.0),
        NodeQueries(layers[0], 0, normal(rng, 2, 50, GROUP, HEAD_DIM, spread=0.4), 0.0),
    ]
    curve = one_level_curve(nodes, 5, Calibration())
    thresholds = thresholds_of(curve, 0.3)
    for number, layer, head, reading in [(0, 0, 0, (0, 2)), (1, 0, 1, (0, 2)), (3, 1, 0, (1,)), (4, 1, 1, (1,))]:
        starts = layers[layer].cluster_starts[head]
        rows = [
            len(oracle.selected_rows(importance, thresholds[number], starts, n_tokens))
            for i in reading
            for importance in query_head_importance(
                nodes[i].queries[head], layers[layer].centroids[head], np.diff(starts), 0
            ).mean(axis=1)
        ]
        assert np.mean(rows) / n_tokens + 0.025 == pytest.approx(0.3, abs=0.01)
    assert thresholds[2] == 1  # a head that no node reads


def test_a_node_that_is_measured_twice_changes_nothing():
    """Two nodes with one cache: bytes, and queries, count for both."""
    rng, settings, n_tokens = np.random.default_rng(5), ClusterSettings(), 2000
    layer = random_layer(CacheLayer(2, HEAD_DIM, 0), n_tokens, settings, rng)
    nodes = [NodeQueries(layer, 0, normal(rng, 2, 50, GROUP, HEAD_DIM, spread=0.2), 0.0)]
    once, twice = (two_level_curve(nodes * n, 2, TWO_LEVELS) for n in (1, 2))
    np.testing.assert_allclose(twice.budgets, once.budgets, rtol=1e-3)
    np.testing.assert_allclose(twice.coarse_thresholds, once.coarse_thresholds, rtol=0.01)
    np.testing.assert_allclose(thresholds_of(twice, 0.3), thresholds_of(once, 0.3), rtol=0.01)


def test_two_levels_look_up_less_than_one(index, model_hash):
    document, _ = open_index(index, model_hash)
    assert measured_curve(document, TWO_LEVELS).least < measured_curve(document, Calibration()).least


# The mass.


def naive_mass(keys, queries, softcap):
    """keys : (n_rows, head_dim) in the document's order    queries : (n_queries, group, head_dim), the last tokens'"""
    mass, first = np.zeros(len(keys)), len(keys) - len(queries)
    for i, query in enumerate(queries.astype(np.float64)):
        seen = first + i + 1
        mass[:seen] += oracle.shares(oracle.capped(query @ keys[:seen].T, softcap))
    return mass


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("softcap", [0.0, 3.0])
@pytest.mark.parametrize("n_queries", [1, 60, 99])
@pytest.mark.parametrize("sort", [True, False])
def test_mass_is_what_the_rows_get_from_the_queries_that_see_them(kv_type, softcap, n_queries, sort):
    rng, n_rows = np.random.default_rng(2), 99
    shape = Shape(HEAD_DIM, GROUP, kv_type)
    rows = np.stack([store_rows(shape, normal(rng, n_rows, HEAD_DIM)) for _ in range(2)])
    rows = rows.view(row_format(HEAD_DIM, kv_type)[0])
    queries = normal(rng, 2, n_queries, GROUP, HEAD_DIM, spread=0.4)
    expected = np.array([naive_mass(as_floats(rows[i]).astype(float), queries[i], softcap) for i in range(2)])
    layer = whole_layer(rows, rows, 0)
    if sort:
        order = np.stack([rng.permutation(n_rows).astype(np.int32) for _ in range(2)])
        rows, expected = np.take_along_axis(rows, order[..., None], 1), np.take_along_axis(expected, order, 1)
        layer = replace(layer, keys=rows, position=ANY_ORDER, order=order)
    mass = attention_mass(layer, queries, softcap)
    assert mass.dtype == np.float32
    np.testing.assert_allclose(mass, expected, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(mass.sum(axis=1), GROUP * n_queries, rtol=1e-4)


def test_nodes_that_share_a_cache_add_to_one_mass_and_windows_have_none():
    rng = np.random.default_rng(3)
    rows = halves(rng, 1, 50, HEAD_DIM)
    queries = [normal(rng, 1, 10, GROUP, HEAD_DIM, spread=0.4) for _ in range(3)]
    nodes = [SimpleNamespace(kv_layer=i, softcap=0.0) for i in (0, 1, 0)]
    caches = [CacheLayer(1, HEAD_DIM, window) for window in (0, 20)]
    context = SimpleNamespace(nodes=nodes, cache=SimpleNamespace(layers=caches), state=lambda: None)
    llama = SimpleNamespace(context=context)
    layers = [whole_layer(rows, rows, cache.window) for cache in caches]
    for _ in range(2):  # what was measured before does not count
        document = calibrate(llama, layers, queries, list(range(50)))
        expected = sum(naive_mass(rows[0].astype(float), queries[i][0], 0.0) for i in (0, 2))
        np.testing.assert_allclose(document.layers[0].mass[0], expected, rtol=1e-4, atol=1e-7)
        np.testing.assert_array_equal(document.layers[1].mass, np.zeros((1, 20)))
        assert list(document.queries) == []
        layers = document.layers


@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("n_characters", [300, 1600])
def test_an_index_holds_the_mass_of_its_rows(tmp_path, architecture, kv_type, n_characters):
    path = tiny_models.write_model(tmp_path / "tiny.gguf", architecture)
    llama = new_llama(path, **dict.fromkeys(("type_k", "type_v"), GGML_TYPES[kv_type]))
    index = build(llama, tmp_path, text_of(n_characters), settings=settings_for(kv_type))
    document, _ = open_index(index, library_of(llama, tmp_path).model_hash)
    queries = last_queries(llama, document.tokens.tolist())
    for node, captured in zip(llama.context.nodes, queries, strict=True):
        layer = document.layers[node.kv_layer]
        if node.window:
            assert layer.mass.shape == layer.keys.shape[:2]
            assert not layer.mass.any()
            continue
        keys = as_floats(llama.context.cache.rows(node.kv_layer)[0]).astype(float)
        for head in range(node.n_kv_head):
            expected = naive_mass(keys[head], captured[head], node.softcap)
            order = layer.order[head] if layer.n_clusters else np.arange(len(expected))
            np.testing.assert_allclose(layer.mass[head], expected[order], rtol=0.05, atol=1e-3)
