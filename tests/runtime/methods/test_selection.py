"""Selection in whole steps of a model: what is selected, what that counts as read, and how thresholds are measured.

What each method's kernels select is tested in tests/cpu_kernels/methods/.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from helpers import oracle

import octavo
from octavo.cpu_kernels.layout.head import ANY_ORDER
from octavo.runtime.document.index import Calibration, Index, IndexLayer, ThresholdCurve
from octavo.runtime.document.thresholds import query_head_importance

HEAD_DIM, N_KV_HEAD = 64, 2
CURVE = ThresholdCurve(np.array([0.1, 1.0]), np.full((16, 2), [0.5, 1e-9]))


def random_layer(rng, sizes, n_exact):
    """A document's layer: clusters of these sizes, then exact rows. The second head's clusters come in reverse order.

    Keys of a cluster lie around its centroid, which is their mean; an empty cluster's is 0.
    """
    starts = np.stack([np.cumsum([0, *sizes[:: 1 if head % 2 == 0 else -1]]) for head in range(N_KV_HEAD)])
    keys, values = rng.standard_normal((2, N_KV_HEAD, starts[0, -1] + n_exact, HEAD_DIM)).astype(np.float16)
    centroids = np.zeros((N_KV_HEAD, len(sizes), HEAD_DIM), np.float16)
    for head in range(N_KV_HEAD):
        for i, (start, stop) in enumerate(pairwise(starts[head])):
            if start < stop:
                keys[head, start:stop] += rng.standard_normal(HEAD_DIM).astype(np.float16)
                centroids[head, i] = keys[head, start:stop].mean(axis=0, dtype=np.float32)
    starts = starts.astype(np.int32)
    order = np.tile(np.arange(keys.shape[1], dtype=np.int32), (N_KV_HEAD, 1))
    mass = np.zeros(keys.shape[:2], np.float32)
    coarse_starts = np.tile(np.arange(len(sizes) + 1, dtype=np.int32), (N_KV_HEAD, 1))
    return IndexLayer(keys, values, ANY_ORDER, centroids, starts, centroids, coarse_starts, order, mass)


@pytest.fixture(scope="module")
def llama(tiny_model):
    return octavo.Llama(tiny_model, n_ctx=2048, n_batch=64, n_threads=2)


@pytest.fixture
def squeezed(llama):
    """The model with a document of 100 tokens: clusters of 40, 0 and 50 rows, and 10 exact rows."""
    rng = np.random.default_rng(10)
    layers = [random_layer(rng, [40, 0, 50], 10) for _ in llama.context.cache.layers]
    llama.set_attention("squeezed:threshold=head,batch=union", 0.5)
    llama.attach(Index(np.zeros(100, np.int32), layers, curves={Calibration(): CURVE}))
    yield llama
    llama.set_attention("dense")
    llama.context.attach(None)


def rows_read(llama, n_tokens, n_centroids=0):
    """Rows that a step of n_tokens tokens reads, in each layer and head."""
    llama.context.bytes_read = 0
    (llama.eval if n_tokens == 1 else llama.prefill)([1] * n_tokens)
    cache = llama.context.cache
    of_centroids = len(cache.table.heads) * n_centroids * HEAD_DIM * 2
    rows, rest = divmod(llama.context.bytes_read - of_centroids, cache.row_bytes)
    assert rest == 0
    return rows


def test_dense_step_reads_each_row_once_for_its_group(llama):
    llama.reset()
    assert rows_read(llama, 50) == 50
    assert rows_read(llama, 1) == 51


@pytest.mark.parametrize("n_tokens", [1, 5])
@pytest.mark.parametrize(("threshold", "n_selected"), [(1e30, 0), (1e-30, 90)])
def test_squeezed_step_reads_its_rows_and_all_centroids(squeezed, threshold, n_selected, n_tokens):
    curve = ThresholdCurve(np.array([0.1, 1.0]), np.full((16, 2), threshold))
    squeezed.attach(replace(squeezed.context.cache.document, curves={Calibration(): curve}))
    assert rows_read(squeezed, n_tokens, n_centroids=3) == n_selected + 10 + n_tokens


@pytest.mark.parametrize("n_tokens", [1, 5])
def test_a_budget_of_1_reads_every_row(squeezed, n_tokens):
    squeezed.set_attention("squeezed:rest=off", 1.0)
    assert rows_read(squeezed, n_tokens, n_centroids=3 if n_tokens == 1 else 0) == 100 + n_tokens


def test_a_batch_reads_every_row_and_looks_nothing_up(squeezed):
    squeezed.set_attention("squeezed", 0.2)
    assert rows_read(squeezed, 5) == 105


# Calibration: what the thresholds are measured with.


def queries_of(rng, n_tokens, group):
    return (rng.standard_normal((n_tokens, group, HEAD_DIM)) * 0.3).astype(np.float32)


@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_calibration_measures_the_importance_that_the_kernel_computes(softcap):
    rng = np.random.default_rng(11)
    sizes = np.array([5, 0, 30, 1])
    queries, centroids = queries_of(rng, 6, 3), rng.standard_normal((4, HEAD_DIM)).astype(np.float16)
    centroids[1] = 0
    actual = query_head_importance(queries, centroids, sizes, softcap).mean(axis=1)
    expected = [oracle.centroid_importance(token, centroids, sizes, softcap) for token in queries]
    np.testing.assert_allclose(actual, expected, rtol=1e-4)


def test_calibration_passes_over_empty_clusters():
    queries = np.zeros((1, 1, HEAD_DIM), np.float32)
    queries[..., 0] = 1
    centroids = np.zeros((3, HEAD_DIM), np.float16)
    centroids[[0, 2], 0] = [-150, -151]
    sizes = np.array([4, 0, 8])
    expected = oracle.centroid_importance(queries, centroids, sizes)
    actual = query_head_importance(queries, centroids, sizes, 0.0)[0, 0]
    np.testing.assert_allclose(actual, expected, rtol=1e-4)


def test_calibration_takes_sizes_of_each_query_and_gives_nothing_where_all_are_0():
    rng = np.random.default_rng(12)
    queries, centroids = queries_of(rng, 3, 2), rng.standard_normal((4, HEAD_DIM)).astype(np.float16)
    sizes = np.array([[5, 1, 30, 2], [0, 0, 0, 0], [0, 1, 0, 2]])
    expected = [oracle.centroid_importance(queries[i], centroids, sizes[i]) for i in (0, 2)]
    actual = query_head_importance(queries, centroids, sizes, 0.0).mean(axis=1)
    np.testing.assert_allclose(actual[[0, 2]], expected, rtol=1e-4)
    assert (actual[1] == 0).all()
