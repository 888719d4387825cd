"""The KV cache: a document and a tail that grows by chunks."""

import ctypes
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from helpers import oracle
from helpers.cache_rows import part, random_rows
from helpers.kernel_heads import moments_of_chunks
from helpers.kernel_inputs import KV_TYPES, normal, store_rows

from octavo.cpu_kernels.layout.head import ANY_ORDER
from octavo.cpu_kernels.numba_support.shape import F16, Q4_0, Q8_0, Shape
from octavo.cpu_kernels.numba_support.vector import CACHE_LINE
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS
from octavo.errors import OctavoError
from octavo.runtime.cache.kv_cache import KVCache
from octavo.runtime.document.cache_layer import CacheLayer
from octavo.runtime.document.index import Index, IndexLayer
from octavo.runtime.document.stored_rows import as_floats, kv_type_of, row_format, write_floats
from octavo.runtime.methods.assignment import assign
from octavo.runtime.methods.attention import Attention

SHAPES = [(2, 64, 0), (3, 8, 20), (1, 80, 0)]  # KV heads, head_dim, window
ELEMENTS = 2 * (2 * 64 + 3 * 8 + 1 * 80)  # of a token's keys and values
ROW_BYTES = {
    F16: 2 * ELEMENTS,
    Q8_0: ELEMENTS + 2 * (2 + 3 + 1) * 4,
    Q4_0: ELEMENTS // 2 + 2 * (2 * 2 + 3 * 1 + 1 * 3) * 2,
}


@pytest.fixture(params=KV_TYPES)
def cache(request):
    return new_cache(request.param)


def new_cache(kv_type, attention="dense"):
    layers = [CacheLayer(*shape, kv_type) for shape in SHAPES]
    return KVCache(layers, 1000, assign(Attention.parse(attention, budget=1.0), layers))


def row_bytes(cache):
    return ROW_BYTES[cache.layers[0].kv_type]


def random_document(cache, n_tokens=40, n_clusters=3):
    layers = []
    for shape, (keys, values) in zip(cache.layers, random_rows(cache, n_tokens, seed=9), strict=True):
        first = max(0, n_tokens - shape.window) if shape.window else 0
        n = 0 if shape.window else n_clusters
        centroids = np.zeros((shape.n_kv_head, n, shape.head_dim), np.float16)
        starts = np.zeros((shape.n_kv_head, n + 1), np.int32)
        position = first if shape.window else ANY_ORDER
        keys, values = (np.ascontiguousarray(array[:, first:]) for array in (keys, values))
        order = np.tile(np.arange(0 if shape.window else n_tokens, dtype=np.int32), (shape.n_kv_head, 1))
        mass = np.zeros(keys.shape[:2], np.float32)
        layers.append(IndexLayer(keys, values, position, centroids, starts, centroids, starts, order, mass))
    return Index(np.arange(n_tokens, dtype=np.int32), layers)


def assert_holds(cache, layers, start=0):
    for i, (keys, values) in enumerate(layers):
        stored_keys, stored_values = cache.rows(i, start)
        np.testing.assert_array_equal(stored_keys, keys[:, start:])
        np.testing.assert_array_equal(stored_values, values[:, start:])


def assert_at(address, array):
    """An address is where a kernel finds these numbers."""
    assert bytes((ctypes.c_char * array.nbytes).from_address(int(address))) == array.tobytes()


def test_new_cache_is_empty_and_takes_no_memory(cache):
    assert (cache.n_tokens, cache.n_tail, cache.n_document, cache.kv_bytes) == (0, 0, 0, 0)
    assert cache.row_bytes == row_bytes(cache)
    assert len(cache.table.heads) == 2 + 3 + 1


def test_layers_own_their_heads(cache):
    assert [len(cache.table.layer_heads[i]) for i in range(3)] == [2, 3, 1]
    cache.table.layer_heads[1]["n_dropped"] = 7
    assert cache.table.heads["n_dropped"].tolist() == [0, 0, 7, 7, 7, 0]
    assert cache.table.heads["window"].tolist() == [0, 0, 20, 20, 20, 0]


@pytest.mark.parametrize("n_rows", [1, CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 1, 3 * CHUNK_ROWS])
def test_memory_grows_by_chunks(cache, n_rows):
    cache.reserve(n_rows)
    assert cache.n_tokens == cache.n_tail == n_rows
    assert (cache.table.heads["n_tail"] == n_rows).all()
    assert cache.kv_bytes == -(-n_rows // CHUNK_ROWS) * CHUNK_ROWS * row_bytes(cache)


def test_growing_leaves_what_is_there_in_place(cache):
    rows = random_rows(cache, CHUNK_ROWS)
    cache.append_rows(rows)
    before = cache.table.tables[:, 0].copy()
    cache.reserve(2 * CHUNK_ROWS)
    assert (cache.table.tables[:, 0] == before).all()
    cache.truncate(CHUNK_ROWS)
    assert_holds(cache, rows)


@pytest.mark.parametrize("sizes", [[1], [700], [1, 1, 254, 1, 1], [255, 2], [256, 256], [300, 1, 300], [0, 5, 0]])
def test_appended_rows_come_back(cache, sizes):
    rows, at = random_rows(cache, sum(sizes)), 0
    for size in sizes:
        cache.append_rows(part(rows, at, at + size))
        at += size
    assert_holds(cache, rows)
    for start in {0, sum(sizes) // 2, sum(sizes) - 1, sum(sizes)}:
        assert_holds(cache, rows, start)


def test_rows_are_copies(cache):
    rows = random_rows(cache, 10)
    cache.append_rows(rows)
    cache.rows(0)[0][:] = 0
    assert_holds(cache, rows)


def test_head_records_lead_to_each_row(cache):
    """A kernel finds row r of a head in chunk r // CHUNK_ROWS."""
    rows = random_rows(cache, 600)
    cache.append_rows(rows)
    tables = iter(cache.table.tables)
    for i in range(len(cache.layers)):
        for h, head in enumerate(cache.table.layer_heads[i]):
            table = next(tables)
            assert head["tail_chunks"] == table.ctypes.data
            for row in (0, 255, 256, 511, 512, 599):
                keys, values = rows[i][0][h], rows[i][1][h]
                of_keys, of_values, _ = table[row // CHUNK_ROWS]
                assert_at(of_keys + row % CHUNK_ROWS * keys[0].nbytes, keys[row])
                assert_at(of_values + row % CHUNK_ROWS * values[0].nbytes, values[row])


@pytest.mark.parametrize("n_left", [0, 1, CHUNK_ROWS, CHUNK_ROWS + 1, 599, 600])
def test_truncate_keeps_the_first_rows_and_gives_memory_back(cache, n_left):
    rows = random_rows(cache, 600)
    cache.append_rows(rows)
    assert cache.truncate(n_left)
    assert cache.n_tokens == n_left
    assert (cache.table.heads["n_tail"] == n_left).all()
    assert_holds(cache, part(rows, 0, n_left))
    assert cache.kv_bytes == -(-n_left // CHUNK_ROWS) * CHUNK_ROWS * row_bytes(cache)
    cache.append_rows(part(rows, n_left, 600))
    assert_holds(cache, rows)


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("n_left", [1, 255, 256, 300])
def test_moments_are_those_of_the_rows_that_stay(kv_type, n_left):
    """Of all rows that came after a cut, in several appends, and of none that were cut."""
    rng, shape, layer = np.random.default_rng(0), Shape(64, 1, kv_type), CacheLayer(2, 64, 0, kv_type)
    cache = KVCache([layer], 1000, assign(Attention.parse("sparq", budget=0.5), [layer]))

    def append(n_rows, mean):
        rows = layer.new_rows(n_rows)
        for array in rows:
            stored = store_rows(shape, normal(rng, array[..., 0].size, 64) + mean)
            array[...] = stored.view(array.dtype).reshape(array.shape)
        cache.append_rows([rows])

    append(400, mean=50)
    cache.truncate(n_left)
    for n_rows in (1, 399 - n_left, 200):
        append(n_rows, mean=1)
    keys = as_floats(cache.rows(0)[0]).astype(np.float64)
    for tail, own in zip(cache.tails, keys, strict=True):
        moments = [tail.chunk(i).extras[: 8 * 64].view(np.float32).reshape(2, 64) for i in range(3)]
        np.testing.assert_allclose(moments, moments_of_chunks(own), rtol=1e-5, atol=1e-3)


def test_truncate_stops_at_the_document(cache):
    cache.attach(random_document(cache, 40))
    cache.append_rows(random_rows(cache, 10))
    assert not cache.truncate(39)
    assert cache.n_tokens == 50
    assert cache.truncate(45)
    assert_holds(cache, part(random_rows(cache, 10), 0, 5))
    assert cache.truncate(40)
    assert (cache.n_tokens, cache.n_tail, cache.n_document) == (40, 0, 40)


def test_truncate_to_nothing_detaches_the_document(cache):
    cache.attach(random_document(cache, 40))
    cache.append_rows(random_rows(cache, 10))
    assert cache.truncate(0)
    assert cache.document is None
    assert (cache.n_tokens, cache.kv_bytes) == (0, 0)
    assert (cache.table.heads["n_document"] == 0).all()
    assert (cache.table.heads["tail_position"] == 0).all()


def test_attach_starts_over_with_the_document(cache):
    document = random_document(cache, 40, n_clusters=3)
    cache.append_rows(random_rows(cache, 300))
    cache.attach(document)
    assert (cache.n_tokens, cache.n_tail, cache.n_document) == (40, 0, 40)
    assert (
        cache.kv_bytes
        == document.n_bytes
        == sum(a.nbytes for each in document.layers for a in (each.keys, each.values))
    )
    assert cache.table.heads["tail_position"].tolist() == [40] * 6
    assert cache.table.heads["n_document"].tolist() == [40, 40, 20, 20, 20, 40]
    assert cache.table.heads["document_position"].tolist() == [ANY_ORDER, ANY_ORDER, 20, 20, 20, ANY_ORDER]
    for i in range(len(cache.layers)):
        layer = document.layers[i]
        for h, head in enumerate(cache.table.layer_heads[i]):
            for name, array in {"document_keys": layer.keys, "document_values": layer.values}.items():
                assert_at(head[name], array[h])


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_a_method_takes_in_the_arrays_of_a_document_that_it_declares(kv_type):
    cache = new_cache(kv_type, "squeezed")
    document = random_document(cache, 40, n_clusters=3)
    cache.attach(document)
    for number, (i, h) in {0: (0, 0), 1: (0, 1), 5: (2, 0)}.items():
        state, layer = cache.tails[number].state, document.layers[i]
        assert cache.table.heads["state"][number] == state.__array_interface__["data"][0]
        assert state["n_clusters"] == 3
        assert_at(state["centroids"], layer.centroids[h])
        assert state["cluster_starts"] == layer.cluster_starts[h].ctypes.data
    cache.attach(None)
    assert [cache.tails[number].state["n_clusters"] for number in (0, 1, 5)] == [0, 0, 0]


def test_detach_forgets_the_document(cache):
    cache.table.connect()
    fresh = cache.table.heads.copy()
    cache.attach(random_document(cache))
    cache.reserve(5)
    cache.attach(None)
    assert cache.document is None
    assert (cache.table.heads == fresh).all()
    assert cache.kv_bytes == 0


def test_rows_of_the_tail_leave_out_the_document(cache):
    cache.attach(random_document(cache, 40))
    rows = random_rows(cache, 300)
    cache.append_rows(rows)
    assert cache.n_tokens == 340
    assert_holds(cache, rows)
    assert cache.kv_bytes == cache.document.n_bytes + 2 * CHUNK_ROWS * row_bytes(cache)


def test_there_is_room_for_every_span(cache):
    """Each cluster apart, the exact rows, and each chunk of the tail."""
    cache.attach(random_document(cache, 40, n_clusters=7))
    cache.reserve(960)
    cache.table.make_room(cache.memory)
    assert cache.table.n_spans >= 7 + 1 + 4  # 960 tokens are 4 chunks


# How rows are stored.


def test_the_type_of_an_array_says_how_its_rows_are_stored():
    kept = {kv_type: [layer.new_rows(5) for layer in new_cache(kv_type).layers] for kv_type in (F16, Q8_0, Q4_0)}
    assert all(keys.shape == values.shape for of_type in kept.values() for keys, values in of_type)
    shapes = {kv_type: [keys for keys, _ in of_type] for kv_type, of_type in kept.items()}
    assert [rows.shape for rows in shapes[F16]] == [(2, 5, 64), (3, 5, 8), (1, 5, 80)]
    assert [rows.shape for rows in shapes[Q8_0]] == [(2, 5, 68), (3, 5, 12), (1, 5, 84)]
    assert [rows.shape for rows in shapes[Q4_0]] == [(2, 5, 18), (3, 5, 3), (1, 5, 23)]
    assert {rows.dtype for rows in shapes[F16]} == {np.dtype(np.float16)}
    assert {rows.dtype for rows in shapes[Q8_0]} == {np.dtype(np.int8)}
    assert {rows.dtype for rows in shapes[Q4_0]} == {np.dtype(np.uint16)}
    assert [kv_type_of(shapes[kv_type][0]) for kv_type in shapes] == [F16, Q8_0, Q4_0]


def test_rows_of_f16_as_floats():
    rows = np.random.default_rng(0).standard_normal((2, 3, 5, 8)).astype(np.float16)
    floats = as_floats(rows)
    assert floats.dtype == np.float32
    np.testing.assert_array_equal(floats, rows)
    floats[...] = 0
    assert rows.any()


@pytest.mark.parametrize("shape", [(1, 8), (5, 64), (2, 3, 5, 80), (2, 0, 8)])
def test_rows_of_q8_0_as_floats(shape):
    rng = np.random.default_rng(0)
    numbers = rng.integers(-127, 128, shape).astype(np.int8)
    scales = rng.standard_normal((*shape[:-1], 1)).astype(np.float32)
    rows = np.concatenate([numbers.view(np.uint8), scales.view(np.uint8)], axis=-1)
    floats = as_floats(rows)
    assert (floats.dtype, floats.shape) == (np.float32, shape)
    for place in np.ndindex(shape[:-1]):
        expected = [np.float32(int(number)) * scales[place][0] for number in numbers[place]]
        np.testing.assert_array_equal(floats[place], expected)
    np.testing.assert_array_equal(as_floats(rows[..., ::2, :]), floats[..., ::2, :])


@pytest.mark.parametrize("shape", [(1, 8), (5, 64), (2, 3, 5, 80), (2, 0, 8), (4, 24), (4, 120), (3, 256)])
def test_rows_of_q4_0_are_packed_and_read_as_their_oracle_says(shape):
    rng = np.random.default_rng(0)
    floats = normal(rng, *shape) * np.float32(10.0) ** rng.integers(-3, 4, (*shape[:-1], 1)).astype(np.float32)
    floats[..., :1, :] = 0
    dtype, n_elements = row_format(shape[-1], Q4_0)
    rows = np.zeros((*shape[:-1], n_elements), dtype)
    write_floats(rows, floats)
    expected = oracle.pack(floats.reshape(-1, shape[-1]).astype(np.float64))
    assert not rows.size or (rows.reshape(-1, n_elements).view(np.uint8) == expected).mean() > 0.99  # ties may differ
    read = as_floats(rows)
    assert (read.dtype, read.shape) == (np.float32, shape)
    stored = oracle.rotate(oracle.unpack(rows.reshape(-1, n_elements).view(np.uint8), shape[-1]))
    np.testing.assert_allclose(read, stored.reshape(shape), rtol=1e-5, atol=1e-5 * np.abs(floats).max(initial=0))
    np.testing.assert_array_equal(as_floats(rows[..., ::2, :]), read[..., ::2, :])


# Memory.


def free_memory(monkeypatch, n_bytes):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=n_bytes))


def test_a_cache_that_does_not_fit_is_refused_with_the_figures(monkeypatch):
    layers = [CacheLayer(8, 128, 0)] * 32  # 128 KiB a token
    cache = KVCache(layers, 1 << 17, assign(Attention.parse("dense", budget=1.0), layers))
    cache.attach(None)
    free_memory(monkeypatch, 5 << 30)
    with pytest.raises(OctavoError) as refusal:
        cache.check_memory(40_960)
    assert str(refusal.value) == (
        "The KV cache of 40,960 tokens needs 5.00 GiB more, besides the rest 0.25 GiB, but only 5.00 GiB of memory are "
        "free: close other programs, or give a shorter text."
    )


def test_a_cache_that_fits_beside_what_the_machine_needs_is_not_refused(cache, monkeypatch):
    needed = 2 * CHUNK_ROWS * row_bytes(cache)
    free_memory(monkeypatch, needed + (256 << 20))
    cache.check_memory(CHUNK_ROWS + 1)
    free_memory(monkeypatch, needed + (256 << 20) - 1)
    with pytest.raises(OctavoError, match="The KV cache of 257 tokens"):
        cache.check_memory(CHUNK_ROWS + 1)


def test_a_document_whose_rows_must_be_copied_is_refused_if_they_do_not_fit(monkeypatch):
    layers = [CacheLayer(2, 64, 0)]
    cache = KVCache(layers, 2000, assign(Attention.parse("quest", budget=0.5), layers))
    document = random_document(cache, 600, n_clusters=3)
    free_memory(monkeypatch, 256 << 20)
    with pytest.raises(OctavoError, match="A copy of the document's rows, which `--attention squeezed` reads where"):
        cache.attach(document)
    assert cache.n_tokens == 0
    free_memory(monkeypatch, (256 << 20) + (1 << 20))
    cache.attach(document)
    assert cache.n_tokens == 600


def test_memory_that_is_there_already_is_not_asked_for(cache, monkeypatch):
    cache.reserve(10)
    free_memory(monkeypatch, 0)
    cache.check_memory(CHUNK_ROWS)
    cache.reserve(CHUNK_ROWS - 10)
    assert cache.n_tail == CHUNK_ROWS


def test_a_refused_reserve_changes_nothing(cache, monkeypatch):
    rows = random_rows(cache, CHUNK_ROWS)
    cache.append_rows(rows)
    free_memory(monkeypatch, 0)
    with pytest.raises(OctavoError, match="257 tokens"):
        cache.reserve(1)
    assert cache.n_tokens == CHUNK_ROWS
    assert (cache.table.heads["n_tail"] == CHUNK_ROWS).all()
    assert_holds(cache, rows)


def test_the_refusal_counts_the_document_in(cache, monkeypatch):
    cache.attach(random_document(cache, 40))
    free_memory(monkeypatch, 0)
    with pytest.raises(OctavoError, match="The KV cache of 41 tokens"):
        cache.reserve(1)


def test_chunks_begin_on_a_cache_line(cache):
    """By which SparQ counts what it reads of one copy."""
    cache.append_rows(random_rows(cache, 600))
    assert all(
        address % CACHE_LINE == 0 for tail in cache.tails for chunk in tail.chunks for address in chunk.addresses
    )


def sketched(n_rows, at_once=700):
    """A cache that has read so many rows in batches."""
    layers = [CacheLayer(3, 64, 0, F16)] * 2
    cache = KVCache(layers, 2000, assign(Attention.parse("sketch", budget=0.5), layers))
    rows = random_rows(cache, 1400, seed=3)
    for start in range(0, n_rows, at_once):
        cache.append_rows(part(rows, start, min(start + at_once, n_rows)))
    return cache


def state_of(cache):
    return cache.table.groups[0].heads.state


def has_codes(cache, n_rows):
    """Whether a cache has the codes that so many rows have if they come at once."""
    one = sketched(n_rows, n_rows)
    one.end_prompt()
    return all((state_of(one)[name] == state_of(cache)[name]).all() for name in ("n_coded", "trained", "codebooks"))


def test_codes_wait_for_the_first_step_after_batches():
    cache = sketched(1400)
    assert (state_of(cache)["n_coded"] == 0).all()
    cache.reserve(1)
    assert (state_of(cache)["n_coded"] == (1400 - 32) // 64).all()
    assert has_codes(cache, 1400)


def test_a_prompt_that_is_cut_has_the_codes_of_what_is_left():
    cache = sketched(1400)
    assert cache.truncate(900)
    cache.reserve(1)
    assert has_codes(cache, 900)


def test_a_checkpoint_has_codes():
    cache = sketched(1400)
    checkpoint = cache.checkpoint()
    assert cache.truncate(600)
    cache.restore(checkpoint)
    assert has_codes(cache, 1400)


def test_a_fork_shares_codes_with_what_it_forks():
    cache, fork = sketched(1400), sketched(0)
    fork.fork(cache, 1400)
    for each in (cache, fork):
        assert has_codes(each, 1400)
        each.reserve(1)
        assert (each.n_shared == 1400 // CHUNK_ROWS).all(), "full chunks stay shared"


def test_what_methods_keep_does_not_depend_on_the_number_of_threads():
    layers = [CacheLayer(3, 64, 0, F16)] * 2
    one, several = (KVCache(layers, 1000, assign(Attention.parse("sketch", budget=0.5), layers)) for _ in range(2))
    rows = random_rows(one, 700, seed=3)
    for cache, n_threads in ((one, 1), (several, 3)):
        cache.reserve(700)
        for layer, (keys, values) in enumerate(rows):
            for head, tail in enumerate(cache._layer_tails(layer)):
                tail.write(0, keys[head], values[head])
        cache.finish_step(n_threads)
        cache.end_prompt(n_threads)
    states = [cache.table.groups[0].heads.state for cache in (one, several)]
    assert (states[0]["n_coded"] > 0).all()
    for name in states[0].dtype.names:
        np.testing.assert_array_equal(states[0][name], states[1][name])
