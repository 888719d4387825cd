"""What an index holds and gives, and the threshold curve."""

from itertools import pairwise

import numpy as np
import pytest
from helpers import oracle
from helpers.index_builds import (
    QUESTION,
    SAME,
    SETTINGS,
    TEXT,
    attached_logits,
    evaluate_directly,
    logits_after,
    new_llama,
    share_read,
    thresholds_of,
)

from octavo.convert.clusters import ClusterSettings, cluster_keys, sort_head
from octavo.cpu_kernels.layout.head import ANY_ORDER
from octavo.evaluation.synthetic import random_layer
from octavo.runtime.document.cache_layer import CacheLayer
from octavo.runtime.document.index import Calibration, ThresholdCurve
from octavo.runtime.document.thresholds import NodeQueries, measured_curve, one_level_curve
from octavo.runtime.store.index_files import open_index
from octavo.system.files import sha256_of

# What an index gives.


def test_dense_over_the_index_gives_the_logits_of_the_document(llama, index, model_hash, direct_logits):
    document, _ = open_index(index, model_hash)
    np.testing.assert_allclose(attached_logits(llama, document, "dense"), direct_logits, atol=SAME)


def test_squeezed_with_a_budget_of_1_gives_the_logits_of_the_document(llama, index, model_hash, direct_logits):
    document, _ = open_index(index, model_hash)
    np.testing.assert_allclose(attached_logits(llama, document, "squeezed", 1.0), direct_logits, atol=SAME)


def test_logits_depend_on_what_is_read_of_the_document(llama, index, model_hash, direct_logits):
    """The two tests above could not fail otherwise."""
    document, _ = open_index(index, model_hash)
    assert np.abs(attached_logits(llama, document, "squeezed", 0.12) - direct_logits).max() > 10 * SAME
    evaluate_directly(llama, document.tokens[:60].tolist())
    assert np.abs(logits_after(llama) - direct_logits).max() > 10 * SAME


def test_a_larger_budget_is_closer_to_dense(llama, index, model_hash, direct_logits):
    document, _ = open_index(index, model_hash)
    errors = [
        np.abs(attached_logits(llama, document, "squeezed", budget) - direct_logits).mean()
        for budget in (0.15, 0.4, 0.8)
    ]
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("budget", [0.15, 0.3, 0.5, 0.8])
def test_a_step_reads_about_its_budget(llama, index, model_hash, budget):
    share = share_read(llama, open_index(index, model_hash)[0], budget)
    assert 0.6 * budget < share < 1.5 * budget
    assert share < 1


@pytest.mark.parametrize("attention", ["squeezed", "squeezed2"])
def test_each_head_has_its_own_thresholds(llama, index, model_hash, attention):
    document, _ = open_index(index, model_hash)
    llama.set_attention(f"{attention}:threshold=head", 0.3)
    llama.attach(document)
    llama.eval(QUESTION)
    [served] = llama.context.cache.table.groups
    state, curve = served.heads.state, document.curves[Calibration(levels=1 if attention == "squeezed" else 2)]
    np.testing.assert_allclose(state["threshold"], thresholds_of(curve, 0.3), rtol=1e-6)
    assert len(set(state["threshold"])) == len(state) == len(llama.context.cache.table.heads)
    if attention == "squeezed2":
        np.testing.assert_allclose(state["coarse_threshold"], curve.coarse_thresholds, rtol=1e-6)


def test_an_index_opened_twice_serves_two_contexts(llama, index, model_hash, direct_logits):
    document, _ = open_index(index, model_hash)
    other = new_llama(llama.model_path)
    for each in (llama, other):
        each.attach(document)
    np.testing.assert_allclose(logits_after(llama), direct_logits, atol=SAME)
    np.testing.assert_allclose(logits_after(other), direct_logits, atol=SAME)


def test_a_document_is_not_written_to(llama, index, model_hash):
    document, _ = open_index(index, model_hash)
    for layer in document.layers:
        arrays = [value for value in vars(layer).values() if isinstance(value, np.ndarray)]
        assert len(arrays) >= 8
        for array in [*arrays, *layer.means]:
            assert not array.flags.writeable
    attached_logits(llama, document, "squeezed:threshold=head", 0.5)  # from now on the folder has its thresholds
    before = {file: sha256_of(file) for file in index.iterdir()}
    attached_logits(llama, document, "squeezed:threshold=head", 0.4)
    assert {file: sha256_of(file) for file in index.iterdir()} == before


def test_layers_hold_the_rows_of_the_document_sorted_by_cluster(llama, index, model_hash, tokens):
    document, _ = open_index(index, model_hash)
    np.testing.assert_array_equal(document.tokens, tokens)
    evaluate_directly(llama, tokens)
    n_clustered, first, last = SETTINGS.n_clustered(len(tokens)), SETTINGS.exact_first, SETTINGS.exact_last
    for i, layer in enumerate(document.layers):
        keys, values = llama.context.cache.rows(i)
        assert layer.position == ANY_ORDER
        assert layer.n_clusters == round(0.05 * n_clustered)
        for head in range(len(keys)):
            stored = np.hstack([layer.keys[head], layer.values[head]])
            original = np.hstack([keys[head], values[head]])
            exact = np.vstack([original[:first], original[-last:]])
            np.testing.assert_array_equal(stored[n_clustered:], exact)
            np.testing.assert_array_equal(in_one_order(stored), in_one_order(original))
            starts = layer.cluster_starts[head]
            assert (starts[0], starts[-1]) == (0, n_clustered)
            assert (np.diff(starts) > 0).all()
            means = [layer.keys[head, a:b].astype(float).mean(axis=0) for a, b in pairwise(starts)]
            np.testing.assert_allclose(layer.centroids[head], means, atol=2e-3, rtol=2e-3)


def test_the_order_restores_the_rows_of_the_document(llama, index, model_hash, tokens):
    document, _ = open_index(index, model_hash)
    evaluate_directly(llama, tokens)
    for i, layer in enumerate(document.layers):
        assert layer.order.dtype == np.int32
        for stored, original in zip((layer.keys, layer.values), llama.context.cache.rows(i), strict=True):
            for head, order in enumerate(layer.order):
                np.testing.assert_array_equal(np.sort(order), np.arange(len(tokens)))
                np.testing.assert_array_equal(stored[head], original[head, order])


def test_coarse_clusters_are_made_of_whole_clusters(index, model_hash, tokens):
    document, _ = open_index(index, model_hash)
    for layer in document.layers:
        assert layer.n_coarse == round(0.01 * SETTINGS.n_clustered(len(tokens)))
        for head, coarse_starts in enumerate(layer.coarse_starts):
            assert (coarse_starts[0], coarse_starts[-1]) == (0, layer.n_clusters)
            assert (np.diff(coarse_starts) > 0).all()
            rows = layer.cluster_starts[head][coarse_starts]
            means = [layer.keys[head, a:b].astype(float).mean(axis=0) for a, b in pairwise(rows)]
            np.testing.assert_allclose(layer.coarse_centroids[head], means, atol=2e-3, rtol=2e-3)


def test_coarse_clusters_hold_clusters_that_point_the_same_way(index, model_hash):
    document, _ = open_index(index, model_hash)
    for layer in document.layers:
        for centroids, starts in zip(layer.centroids.astype(float), layer.coarse_starts, strict=True):
            directions = centroids / np.linalg.norm(centroids, axis=1, keepdims=True)
            shuffled = np.random.default_rng(0).permutation(directions)
            coherence, by_chance = (
                np.mean([np.linalg.norm(each[a:b].mean(axis=0)) for a, b in pairwise(starts) if b > a + 1])
                for each in (directions, shuffled)
            )
            assert coherence > 1.1 * by_chance


def test_keys_of_a_coarse_cluster_lie_together():
    """Four directions in two pairs: a cluster each, a coarse cluster for each pair, however many keys there are."""
    pairs = np.repeat(np.eye(64, dtype=np.float32)[:2], 2, axis=0)
    directions = pairs + 0.3 * np.eye(64, dtype=np.float32)[[2, 3, 4, 5]]
    which = np.random.default_rng(0).permutation(np.repeat(np.arange(4), [40, 2, 5, 10]))
    clusters = cluster_keys(directions[which].astype(np.float16), 4, 2, SETTINGS)
    assert clusters.coarse_starts.tolist() == [0, 2, 4]
    of_clusters = [set(which[clusters.order[a:b]]) for a, b in pairwise(clusters.starts)]
    assert [len(each) for each in of_clusters] == [1] * 4
    assert {frozenset(a | b) for a, b in (of_clusters[:2], of_clusters[2:])} == {frozenset({0, 1}), frozenset({2, 3})}


def in_one_order(rows):
    return rows[np.lexsort(rows.T)]


def test_clusters_hold_keys_that_point_the_same_way(index, model_hash):
    document, _ = open_index(index, model_hash)
    for layer in document.layers:
        for head, starts in enumerate(layer.cluster_starts):
            keys = layer.keys[head].astype(float)
            keys /= np.linalg.norm(keys, axis=1, keepdims=True)
            coherence = [np.linalg.norm(keys[a:b].mean(axis=0)) for a, b in pairwise(starts) if b > a + 1]
            shuffled = np.random.default_rng(0).permutation(keys[: starts[-1]])
            by_chance = [np.linalg.norm(shuffled[a:b].mean(axis=0)) for a, b in pairwise(starts) if b > a + 1]
            assert np.mean(coherence) > 1.5 * np.mean(by_chance)


@pytest.mark.parametrize("other", [[0, 1], [10, 0]], ids=["direction", "length"])
def test_keys_are_clustered_by_their_direction_and_their_length(other):
    """Both say what a query makes of them."""
    rng, places = np.random.default_rng(0), np.zeros((40, 64), np.float32)
    which = rng.permutation(np.repeat([0, 1], 20))
    places[:, :2] = np.where(which[:, None], [1, 0], other)
    keys = places + 0.01 * rng.standard_normal(places.shape, np.float32)
    clusters = cluster_keys(keys.astype(np.float16), 2, 1, SETTINGS)
    assert clusters.starts.tolist() == [0, 20, 40]
    assert [len(set(part)) for part in np.split(which[clusters.order], 2)] == [1, 1]


def test_fewer_directions_than_clusters_leave_some_empty():
    keys = np.ones((30, 64), np.float16)
    with pytest.warns(UserWarning, match="distinct clusters"):
        clusters = cluster_keys(keys, 4, 3, SETTINGS)
    head = sort_head(keys, keys, clusters, ClusterSettings(exact_first=0, exact_last=0))
    sizes, coarse_sizes = np.diff(clusters.starts), np.diff(clusters.starts[clusters.coarse_starts])
    assert sorted(sizes) == [0, 0, 0, 30]
    assert sorted(coarse_sizes) == [0, 0, 30]
    np.testing.assert_array_equal(head.centroids, np.where(sizes[:, None] > 0, 1, 0) * np.ones(64))
    np.testing.assert_array_equal(head.coarse_centroids, np.where(coarse_sizes[:, None] > 0, 1, 0) * np.ones(64))


def test_coarse_centroids_are_means_of_keys_or_of_centroids():
    keys = np.random.default_rng(0).standard_normal((300, 64)).astype(np.float16)
    clusters = cluster_keys(keys, 30, 5, SETTINGS)
    for kind in ("keys", "centroids"):
        head = sort_head(keys, keys, clusters, ClusterSettings(exact_first=0, exact_last=0, coarse_of=kind))
        fine = [head.keys[a:b].astype(float) for a, b in pairwise(clusters.starts)]
        coarse = [fine[a:b] for a, b in pairwise(clusters.coarse_starts)]
        if kind == "centroids":
            coarse = [[rows.mean(axis=0, keepdims=True) for rows in members] for members in coarse]
        means = [np.concatenate(members).mean(axis=0) for members in coarse]
        np.testing.assert_allclose(head.coarse_centroids, means, atol=2e-3)


@pytest.mark.parametrize(
    ("n_keys", "n_clusters", "n_coarse"), [(331, 33, 33), (331, 34, 33), (331, 9, 8), (330, 329, 328), (331, 330, 326)]
)
def test_segments_never_have_more_clusters_than_there_are_to_cluster(monkeypatch, n_keys, n_clusters, n_coarse):
    """Each segment's share is rounded: of keys, of clusters, and of clusters of clusters."""
    monkeypatch.setattr("octavo.convert.clusters._SEGMENT", 48)
    keys = np.random.default_rng(0).standard_normal((n_keys, 8)).astype(np.float16)
    clusters = cluster_keys(keys, n_clusters, n_coarse, SETTINGS)
    assert sorted(clusters.order) == list(range(n_keys))
    assert (len(clusters.starts), len(clusters.coarse_starts)) == (n_clusters + 1, n_coarse + 1)
    assert (clusters.starts[-1], clusters.coarse_starts[-1]) == (n_keys, n_clusters)
    assert (np.diff(clusters.coarse_starts) > 0).all()


def test_the_prompt_head_is_a_part_of_the_index(llama, index, model_hash, tokens):
    text = llama.detokenize(tokens, special=True).decode()
    assert text.startswith("<|im_start|>user\n")
    assert text.endswith(TEXT)


# The threshold curve.


def test_each_head_spends_the_budget_on_the_queries_that_it_was_measured_on(llama, index, model_hash, tokens):
    document, _ = open_index(index, model_hash)
    n_tokens, n_last = len(tokens), SETTINGS.exact_last
    evaluate_directly(llama, tokens[:-n_last])
    with llama.context.captured_queries(n_last) as queries:
        llama.eval(tokens[-n_last:])
    for budget in (0.15, 0.3, 0.6):
        thresholds = thresholds_of(measured_curve(document, Calibration()), budget)
        for node, captured in zip(llama.context.nodes, queries, strict=True):
            layer = document.layers[node.kv_layer]
            lookup = layer.n_clusters / (2 * n_tokens)
            for head in range(node.n_kv_head):
                starts, threshold = layer.cluster_starts[head], thresholds[node.kv_layer * node.n_kv_head + head]
                n_rows = []
                for token in captured[head, n_last // 2 :]:  # what is nearest to these is always attended
                    importance = oracle.centroid_importance(token, layer.centroids[head], np.diff(starts))
                    n_rows.append(len(oracle.selected_rows(importance, threshold, starts, n_tokens)))
                assert np.mean(n_rows) / n_tokens + lookup == pytest.approx(budget, abs=0.01)


def test_the_curve_rises_as_thresholds_fall(index, model_hash):
    curve = measured_curve(open_index(index, model_hash)[0], Calibration())
    assert (np.diff(curve.budgets) > 0).all()
    assert (np.diff(curve.thresholds) <= 0).all()
    thresholds = [thresholds_of(curve, budget) for budget in np.linspace(curve.budgets[0], 1, 50)]
    assert (np.diff(thresholds, axis=0) <= 0).all()
    assert (thresholds[0] == 1).all()  # no cluster's share is above it
    assert (thresholds[-1] < 0).all()  # every share is


def test_the_least_budget_is_that_of_the_lookup_and_the_exact_rows(index, model_hash, tokens):
    curve, n = measured_curve(open_index(index, model_hash)[0], Calibration()), len(tokens)
    least = (SETTINGS.n_clusters(n) / 2 + SETTINGS.exact_first + SETTINGS.exact_last) / n
    assert curve.budgets[0] == pytest.approx(least, abs=0.01)


def test_thresholds_between_measured_budgets_are_interpolated():
    curve = ThresholdCurve(np.array([0.1, 0.2, 0.6]), np.array([[1e-1, 1e-2, 1e-6], [1.0, 1e-4, 1e-5]]))
    assert thresholds_of(curve, 0.1) == pytest.approx([1e-1, 1])
    assert thresholds_of(curve, 0.15) == pytest.approx([10**-1.5, 1e-2])
    assert thresholds_of(curve, 0.4) == pytest.approx([1e-4, 10**-4.5])
    assert thresholds_of(curve, 0.8) == pytest.approx([1e-6, 1e-5])
    assert thresholds_of(curve, 1) == pytest.approx([-1, -1])
    assert curve.at(np.array([0.2]), np.array([1])) == pytest.approx([1e-4])


def test_heads_have_budgets_of_their_own():
    curve = ThresholdCurve(np.array([0.1, 0.2, 0.6]), np.array([[1e-1, 1e-2, 1e-6]] * 4))
    assert curve.at(np.array([0.1, 0.2, 0.4, 1]), np.arange(4)) == pytest.approx([1e-1, 1e-2, 1e-4, -1])


def test_rows_that_get_the_same_are_read_rather_than_left_out():
    """Whatever the budget, if the exact rows leave anything: an average of some would not be that of all."""
    settings = ClusterSettings(exact_first=0, exact_last=4, shortest=1)
    layer = random_layer(CacheLayer(1, 8, 0), 44, settings, np.random.default_rng(0))
    layer.centroids[:] = 0
    nodes = [NodeQueries(layer, 0, np.ones((1, 4, 2, 8), np.float32), 0.0)]
    curve = one_level_curve(nodes, 1, Calibration())
    assert thresholds_of(curve, curve.least) == 1
    for budget in np.linspace(curve.least * 1.01, 0.99, 9):
        assert 0 < thresholds_of(curve, budget) < 0.99999 / 40  # beyond what rounding makes of it


def test_a_budget_below_the_lookup_reads_the_lookup_and_says_so(llama, index, model_hash):
    document = open_index(index, model_hash)[0]
    llama.reset()
    llama.set_attention("squeezed:rest=off", 0.01)
    llama.attach(document)
    cache, n_tokens = llama.context.cache, len(document.tokens)
    least = measured_curve(document, Calibration()).least
    least += 0.25 * 0.01 * (n_tokens - document.n_exact) / n_tokens
    assert cache.budget_warning(n_tokens) == (
        f"squeezed cannot read as little as 0.01 of {n_tokens:,} tokens here: what it always reads is "
        f"{least:.3f} of them."
    )
    llama.context.bytes_read = 0
    llama.eval(document.tokens[:1])
    assert llama.context.bytes_read / (cache.row_bytes * n_tokens) == pytest.approx(least, rel=0.05)
    llama.reset()
    llama.set_attention("dense")
