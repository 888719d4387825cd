"""The tokens that fit in some memory, against the bytes that real caches allocate."""

import pytest
from helpers import tiny_models

from octavo import Llama
from octavo.cpu_kernels.numba_support.shape import F16, Q4_0, Q8_0
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS
from octavo.runtime.cache.capacity import Holding, capacities
from octavo.runtime.cache.tail import chunk_bytes
from octavo.runtime.document.cache_layer import CacheLayer
from octavo.runtime.methods import METHODS, method_class
from octavo.settings import CACHE_TYPES, LONGEST

LAYERS = [CacheLayer(2, 64, 0), CacheLayer(3, 64, 20), CacheLayer(1, 128, 0)]
N_TOKENS = 1100


@pytest.mark.parametrize(("architecture", "n_layer"), [("llama", 2), ("gemma3", 6), ("gemma3", 2)])
@pytest.mark.parametrize(("words", "evicts"), [("dense", False), ("sketch", False), ("sparq", False), ("h2o", True)])
def test_real_caches_take_the_counted_bytes(tmp_path, architecture, n_layer, words, evicts):
    """The last model has sliding layers only. Where rows are forgotten, a head may use a chunk less than is counted."""
    model = tiny_models.write_model(tmp_path / "model.gguf", architecture, n_layer=n_layer)
    llama = Llama(str(model), n_ctx=2048, attention=words, n_threads=1)
    llama.eval(list(range(1, 100)) * 11 + [1] * 11)
    cache = llama.context.cache
    assert cache.n_tokens == N_TOKENS
    counted = Holding(llama.attention.new_method()).n_bytes(cache.layers, N_TOKENS)
    chunks = sum(tail.chunk_bytes for tail in cache.tails) if evicts else 0
    assert counted - chunks <= cache.kv_bytes <= counted


def test_streaming_heads_hold_sinks_and_recent_rows():
    """The streaming half of the heads holds 640 rows of any number: three chunks, and the one that fills."""
    layers, many = [CacheLayer(4, 64, 0)], 1000 * CHUNK_ROWS
    chunk = chunk_bytes(layers[0].shape, 0)
    assert Holding(method_class("dense")(), 0.5).n_bytes(layers, many) == 2 * (1000 + 4) * chunk


@pytest.mark.parametrize("kv_type", [F16, Q8_0, Q4_0])
@pytest.mark.parametrize("name", METHODS)
def test_the_most_tokens_fit_and_one_more_does_not(name, kv_type):
    layers = [CacheLayer(layer.n_kv_head, layer.head_dim, layer.window, kv_type) for layer in LAYERS]
    holding, room = Holding(method_class(name)()), 10_000_000
    tokens = holding.fitting_tokens(layers, room)
    assert holding.n_bytes(layers, tokens) <= room < holding.n_bytes(layers, tokens + 1)


def test_nothing_fits_in_nothing_and_a_sequence_has_an_end():
    dense = Holding(method_class("dense")())
    assert dense.fitting_tokens(LAYERS, -1) == 0
    assert dense.fitting_tokens(LAYERS, 1e15) == LONGEST


def test_fewer_bits_and_fewer_rows_hold_more_tokens():
    def layers_of(kv_type):
        return [CacheLayer(2, 64, 0, kv_type)]

    found = {(each["attention"], each["share"]): each["tokens"] for each in capacities(layers_of, 1 << 30)}
    for tokens in found.values():
        assert [tokens[kv_type] for kv_type in CACHE_TYPES] == sorted(tokens.values())
    assert found["dense", 1]["f16"] == (1 << 30) // (2 * 2 * 2 * 64)
    for name in ("duo", "h2o", "streaming"):
        assert found["dense", 1]["f16"] < found[name, 0.5]["f16"] < found[name, 0.125]["f16"]
