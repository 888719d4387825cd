"""Latent attention from a model's graph to its answer: what is stored, what an index holds, and what methods read."""

from dataclasses import replace

import llama_cpp
import numpy as np
import pytest
from helpers import tiny_models
from helpers.index_builds import attached_logits, build, evaluate_directly, library_of, logits_after, new_llama

import octavo
from octavo import OctavoError
from octavo.convert.clusters import settings_for
from octavo.cpu_kernels.numba_support.shape import F16, Q4_0, Q8_0
from octavo.runtime.document.stored_rows import as_floats
from octavo.runtime.store.index_files import open_index

pytestmark = pytest.mark.sampled

TYPES = {F16: llama_cpp.GGML_TYPE_F16, Q8_0: llama_cpp.GGML_TYPE_Q8_0, Q4_0: llama_cpp.GGML_TYPE_Q4_0}
LATENT, ROTATED, LAYERS = 64, 32, 3
ROW_BYTES = {F16: 192, Q8_0: 104, Q4_0: 54}
#: Largest difference of logits, whose standard deviation is about three, from those of f16.
ROUNDED = {F16: 0.01, Q8_0: 0.1, Q4_0: 1.5}
#: The same between an index and the text: a token alone has its queries rounded to 8 bits, and a batch has not.
SAME = {F16: 0.01, Q8_0: 0.05, Q4_0: 0.3}
METHODS = ["dense", "squeezed", "squeezed2", "sketch", "quest", "sparq", "streaming", "h2o", "auto"]


def types_of(kv_type):
    return {"type_k": TYPES[kv_type], "type_v": TYPES[kv_type]}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.write_model(tmp_path_factory.mktemp("model") / "latent.gguf", "deepseek2")


@pytest.fixture(scope="module", params=TYPES)
def llama(model, request):
    return new_llama(model, **types_of(request.param))


@pytest.fixture(scope="module")
def opened(llama, tmp_path_factory):
    """The index of a text: not to be changed."""
    settings = replace(settings_for(llama.context.kv_type), shortest=1408)
    path = build(llama, tmp_path_factory.mktemp("index"), settings=settings)
    return open_index(path, library_of(llama, path.parent.parent).model_hash)[0]


def test_a_row_is_stored_once(llama):
    cache, kv_type = llama.context.cache, llama.context.kv_type
    assert [layer.shape.token_bytes for layer in cache.layers] == [ROW_BYTES[kv_type]] * LAYERS
    assert cache.row_bytes == LAYERS * ROW_BYTES[kv_type]
    llama.reset()
    llama.eval(list(range(100)))
    for layer in range(LAYERS):
        keys, values = cache.rows(layer)
        assert (keys.nbytes, values.nbytes) == (100 * ROW_BYTES[kv_type], 0)


def test_an_index_holds_a_row_once(opened, llama):
    kv_type = llama.context.kv_type
    for layer in opened.layers:
        assert layer.split == LATENT
        assert layer.n_clusters > 0
        assert layer.n_bytes == len(opened.tokens) * ROW_BYTES[kv_type]
        floats = as_floats(layer.keys[0], LATENT)
        assert floats.shape[1] == LATENT + ROTATED
        for cluster, (a, b) in enumerate(zip(layer.cluster_starts[0], layer.cluster_starts[0][1:], strict=False)):
            np.testing.assert_allclose(layer.centroids[0][cluster], floats[a:b].mean(axis=0), atol=2e-3)
            mean = floats[a:b, :LATENT].mean(axis=0)
            stored = as_floats(layer.means.mean_values[0][cluster])
            np.testing.assert_allclose(stored, mean, atol=np.abs(mean).max() / 200)


@pytest.fixture(scope="module")
def expected(llama, opened):
    """The logits after the document without an index, of a context of its own."""
    own = octavo.Llama(llama.model_path, n_ctx=4096, n_threads=2, device="cpu", **types_of(llama.context.kv_type))
    evaluate_directly(own, opened.tokens)
    return logits_after(own)


@pytest.fixture
def left_empty(llama):
    yield llama
    llama.reset()
    llama.context.attach(None)
    llama.set_attention("dense")


def test_types_round_the_logits_little(llama, opened, expected, model):
    exact = new_llama(model)
    evaluate_directly(exact, opened.tokens)
    assert np.abs(expected - logits_after(exact)).max() < ROUNDED[llama.context.kv_type]


@pytest.mark.parametrize("method", METHODS)
def test_a_method_that_reads_everything_gives_the_logits_of_the_text(left_empty, opened, expected, method):
    actual = attached_logits(left_empty, opened, method)
    np.testing.assert_allclose(actual, expected, atol=SAME[left_empty.context.kv_type])


@pytest.mark.parametrize("method", ["squeezed", "sketch", "quest", "streaming"])
def test_a_method_reads_its_budget(left_empty, opened, method):
    attached_logits(left_empty, opened, method, 0.5)
    left_empty.context.bytes_read = 0
    left_empty.eval([65])
    cache = left_empty.context.cache
    share = left_empty.context.bytes_read / (cache.n_tokens * cache.table.counted_row_bytes)
    assert share == pytest.approx(0.5, abs=0.1)


def test_a_saved_state_is_put_back(llama):
    llama.reset()
    llama.eval(list(range(60)))
    state = llama.save_state()
    llama.eval([1, 2])
    expected = llama.logits().copy()
    llama.reset()
    llama.load_state(state)
    llama.eval([1, 2])
    np.testing.assert_allclose(llama.logits(), expected, atol=1e-4)


@pytest.mark.parametrize("kv_type", [Q8_0, Q4_0])
def test_components_are_not_read_from_rotated_rows(model, kv_type):
    with pytest.raises(OctavoError, match=f"keys of {kv_type} are rotated: use sparq:layout=two, or"):
        new_llama(model, attention="sparq:layout=one", **types_of(kv_type))
