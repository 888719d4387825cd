"""Caches that are filled at random: the clusters are there, and everything else is as after a prefill."""

import itertools

import numpy as np
import pytest

import octavo
from octavo.convert.clusters import ClusterSettings
from octavo.cpu_kernels.layout.head import ANY_ORDER
from octavo.evaluation.synthetic import fill_at_random, random_layer
from octavo.progress import Silent
from octavo.runtime.document.cache_layer import CacheLayer

SETTINGS = ClusterSettings()
SHAPE = CacheLayer(n_kv_head=2, head_dim=64, window=0)
N_TOKENS = 2000


@pytest.fixture(scope="module")
def layer():
    return random_layer(SHAPE, N_TOKENS, SETTINGS, np.random.default_rng(0))


def test_the_arrays_are_those_of_a_document(layer):
    n_clusters = SETTINGS.n_clusters(N_TOKENS)
    assert layer.keys.shape == layer.values.shape == (2, N_TOKENS, 64)
    assert layer.centroids.shape == (2, n_clusters, 64)
    assert layer.cluster_starts.shape == (2, n_clusters + 1)
    assert layer.position == ANY_ORDER
    assert layer.keys.dtype == layer.values.dtype == layer.centroids.dtype == np.float16
    assert layer.cluster_starts.dtype == np.int32
    n_coarse = SETTINGS.n_coarse(N_TOKENS)
    assert layer.coarse_centroids.shape == (2, n_coarse, 64)
    assert layer.coarse_starts.shape == (2, n_coarse + 1)
    assert layer.mass.shape == (2, N_TOKENS)
    np.testing.assert_array_equal(layer.order, np.tile(np.arange(N_TOKENS), (2, 1)))
    assert layer.coarse_centroids.dtype == np.float16
    assert layer.coarse_starts.dtype == layer.order.dtype == np.int32
    assert layer.mass.dtype == np.float32
    for array in vars(layer).values():
        assert array is None or isinstance(array, int) or array.flags.c_contiguous


def test_clusters_cover_all_rows_but_the_exact_ones(layer):
    for starts in layer.cluster_starts:
        sizes = np.diff(starts)
        assert starts[0] == 0
        assert starts[-1] == SETTINGS.n_clustered(N_TOKENS)
        assert (sizes >= 0).all()
        assert sizes.mean() == pytest.approx(20, rel=0.01)


def test_centroids_are_the_means_of_their_keys_which_lie_close(layer):
    for keys, centroids, starts in zip(layer.keys, layer.centroids, layer.cluster_starts, strict=True):
        for i, (start, stop) in enumerate(itertools.pairwise(starts)):
            if start < stop:
                rows = keys[start:stop].astype(np.float32)
                np.testing.assert_allclose(centroids[i], rows.mean(axis=0), atol=5e-3)
                assert np.sqrt(np.square(rows - centroids[i]).mean()) < 0.3 * centroids.std()


def test_coarse_clusters_are_about_equally_many_clusters_and_their_centroids_means(layer):
    for head, coarse_starts in enumerate(layer.coarse_starts):
        assert (coarse_starts[0], coarse_starts[-1]) == (0, layer.n_clusters)
        assert set(np.diff(coarse_starts)) <= {4, 5, 6}
        rows = layer.cluster_starts[head][coarse_starts]
        means = [layer.keys[head, a:b].astype(float).mean(axis=0) for a, b in itertools.pairwise(rows)]
        np.testing.assert_allclose(layer.coarse_centroids[head], means, atol=5e-3)


def test_heads_and_values_differ(layer):
    assert not np.array_equal(layer.keys[0], layer.keys[1])
    assert not np.array_equal(layer.keys, layer.values)


@pytest.mark.parametrize("n_tokens", [1, 64, SETTINGS.shortest - 1])
def test_a_short_document_has_no_clusters(n_tokens):
    layer = random_layer(SHAPE, n_tokens, SETTINGS, np.random.default_rng(0))
    assert layer.keys.shape == (2, n_tokens, 64)
    assert layer.n_clusters == 0
    assert layer.cluster_starts.tolist() == [[0], [0]]
    assert layer.n_coarse == 0
    assert layer.coarse_starts.tolist() == [[0], [0]]


def test_a_filled_model_goes_on_after_the_rows(tiny_model):
    llama = octavo.Llama(tiny_model, n_threads=2)
    tokens = list(range(250)) * 6
    llama.eval(tokens[:700])  # what it held is replaced
    queries, layers = fill_at_random(llama, tokens, SETTINGS, np.random.default_rng(0), Silent())
    assert llama.n_tokens == llama.context.cache.n_tokens == len(tokens)
    assert list(llama.eval_tokens) == tokens
    assert [array.shape for array in queries] == [(2, SETTINGS.exact_last, 2, 64)] * 3
    assert all(array.any() for array in queries)
    for i, layer in enumerate(layers):
        keys, values = llama.context.cache.rows(i)
        np.testing.assert_array_equal(keys, layer.keys)
        np.testing.assert_array_equal(values, layer.values)
    llama.eval([7])
    assert np.isfinite(llama.logits()).all()


def test_the_queries_fit_a_context_that_is_nearly_full(tiny_model):
    llama = octavo.Llama(tiny_model, n_threads=2, n_ctx=320)
    queries, _ = fill_at_random(llama, [5] * 300, SETTINGS, np.random.default_rng(0), Silent())
    assert queries[0].shape[1] == 20
