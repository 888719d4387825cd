"""The cache under Squeezed Attention: chunks are clustered behind its back, and nobody can tell by the rows."""

import numpy as np
import pytest
from helpers.cache_rows import part, random_rows
from helpers.kernel_inputs import KV_TYPES

from octavo.cpu_kernels.numba_support.shape import F16
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS
from octavo.cpu_kernels.select.tail_clusters import CHUNK_CLUSTERS, RECENT
from octavo.runtime.cache.kv_cache import KVCache
from octavo.runtime.document.cache_layer import CacheLayer
from octavo.runtime.document.index import Index, IndexLayer
from octavo.runtime.methods.assignment import assign
from octavo.runtime.methods.attention import Attention

SHAPES = [(2, 64, 0), (1, 8, 20)]  # KV heads, head_dim, window
N_ROWS = 3 * CHUNK_ROWS + RECENT + 20
CUTS = [1, 200, CHUNK_ROWS, CHUNK_ROWS + RECENT, 2 * CHUNK_ROWS - 1, 2 * CHUNK_ROWS, 700, 3 * CHUNK_ROWS, N_ROWS - 1]


@pytest.fixture(params=KV_TYPES)
def kv_type(request):
    return request.param


def new_cache(kv_type, method="squeezed", n_ctx=2000):
    layers = [CacheLayer(*shape, kv_type) for shape in SHAPES]
    return KVCache(layers, n_ctx, assign(Attention.parse(method, budget=0.25), layers))


def assert_holds(cache, layers, start=0):
    for i, stored in enumerate(layers):
        for actual, expected in zip(cache.rows(i, start), stored, strict=True):
            assert actual.tobytes() == np.ascontiguousarray(expected[:, start:]).tobytes()


def n_clustered(cache):
    """Of each layer's first head."""
    firsts = [cache.tails[number] for number in cache.table.first_heads]
    return [count_clustered(tail) for tail in firsts]


def count_clustered(tail):
    """Chunks of a tail that are clustered; a method without clusters has none."""
    return int(tail.state["n_clustered_chunks"]) if "n_clustered_chunks" in (tail.state.dtype.names or ()) else 0


def contents(cache):
    """The bytes of all clustered chunks."""
    parts = []
    for tail in cache.tails:
        parts += [part.tobytes() for chunk in tail.chunks[: count_clustered(tail)] for part in chunk]
    return parts


@pytest.mark.parametrize("piece", [1, 60, N_ROWS])
def test_rows_come_back_in_order_and_stay_clustered(kv_type, piece):
    cache = new_cache(kv_type)
    layers = random_rows(cache, N_ROWS)
    for start in range(0, N_ROWS, piece):
        cache.append_rows(part(layers, start, min(start + piece, N_ROWS)))
    before = contents(cache)
    assert n_clustered(cache) == [3, 0], "a window is attended whole"
    for start in (0, 5, CHUNK_ROWS, 300, 3 * CHUNK_ROWS + 9, N_ROWS):
        assert_holds(cache, layers, start)
    assert contents(cache) == before


@pytest.mark.parametrize("n_rows", CUTS)
def test_truncating_restores_the_order_and_what_is_appended_again_is_clustered_again(kv_type, n_rows):
    cache = new_cache(kv_type)
    layers = random_rows(cache, N_ROWS)
    cache.append_rows(layers)
    before = contents(cache)
    assert cache.truncate(n_rows)
    never_longer = new_cache(kv_type)
    never_longer.append_rows(part(layers, 0, n_rows))
    assert n_clustered(cache) == n_clustered(never_longer) == [max(n_rows - RECENT, 0) // CHUNK_ROWS, 0]
    assert contents(cache) == contents(never_longer)
    assert_holds(cache, part(layers, 0, n_rows))
    cache.append_rows(part(layers, n_rows, N_ROWS))
    assert_holds(cache, layers)
    assert contents(cache) == before


def test_other_rows_after_a_cut(kv_type):
    cache = new_cache(kv_type)
    layers, others = random_rows(cache, N_ROWS), random_rows(cache, 900, seed=1)
    cache.append_rows(layers)
    cache.truncate(300)
    cache.append_rows(others)
    joined = [
        tuple(np.concatenate([old[:, :300], new], axis=1) for old, new in zip(*pair, strict=True))
        for pair in zip(layers, others, strict=True)
    ]
    assert_holds(cache, joined)
    never_cut = new_cache(kv_type)
    never_cut.append_rows(joined)
    assert contents(cache) == contents(never_cut)


def test_rows_after_a_cut_lie_in_the_order_in_which_they_came():
    """Attention gives them positions by where they lie."""
    cache = new_cache(F16)
    layers = random_rows(cache, N_ROWS)
    cache.append_rows(layers)
    cache.truncate(2 * CHUNK_ROWS + 100)
    [(keys, values)] = cache.tails[0].rows(2 * CHUNK_ROWS, 2 * CHUNK_ROWS + 100)
    assert np.array_equal(keys, layers[0][0][0, 2 * CHUNK_ROWS :][:100])
    assert np.array_equal(values, layers[0][1][0, 2 * CHUNK_ROWS :][:100])


@pytest.mark.parametrize("method", ["squeezed", "squeezed2"])
def test_there_is_room_for_all_clusters(method):
    cache = new_cache(F16, method)
    cache.append_rows(random_rows(cache, N_ROWS))
    cache.reserve(1)
    cache.table.make_room(cache.memory)
    assert (cache.table.heads["scratch_items"] >= 16 * 3).all()
    assert cache.table.n_spans >= (CHUNK_CLUSTERS + 1) * 3 + 2


def test_starting_over_forgets_the_clusters():
    cache = new_cache(F16)
    cache.append_rows(random_rows(cache, N_ROWS))
    cache.truncate(0)
    assert n_clustered(cache) == [0, 0]
    others = random_rows(cache, N_ROWS, seed=1)
    cache.append_rows(others)
    assert_holds(cache, others)


def test_a_tail_after_a_document_is_clustered(kv_type):
    """Of a short document there are no clusters."""
    cache = new_cache(kv_type)
    document = []
    for shape, (keys, values) in zip(cache.layers, random_rows(cache, 40, seed=2), strict=True):
        none, starts = (
            np.zeros((shape.n_kv_head, 0, shape.head_dim), np.float16),
            np.zeros((shape.n_kv_head, 1), np.int32),
        )
        order, mass = np.zeros((shape.n_kv_head, 0), np.int32), np.zeros((shape.n_kv_head, 40), np.float32)
        document.append(IndexLayer(keys, values, 0, none, starts, none, starts, order, mass))
    cache.attach(Index(np.arange(40, dtype=np.int32), document))
    layers = random_rows(cache, N_ROWS)
    cache.append_rows(layers)
    assert n_clustered(cache) == [3, 0]
    assert_holds(cache, layers)
    assert cache.truncate(40 + 500)
    assert_holds(cache, part(layers, 0, 500))
