"""Indexes of keys and values in q4_0, whose rows are rotated: what they hold and give."""

import json
from dataclasses import replace
from itertools import pairwise

import llama_cpp
import numpy as np
import pytest
from helpers import tiny_models
from helpers.index_builds import (
    KEPT,
    SAME,
    Recorded,
    arrays_of,
    attached_logits,
    build,
    evaluate_directly,
    library_of,
    logits_after,
    new_llama,
    share_read,
)

from octavo import OctavoError
from octavo.convert.clusters import settings_for
from octavo.runtime.document.stored_rows import as_floats
from octavo.runtime.store.index_files import open_index
from octavo.runtime.store.manifest import MANIFEST

Q4_0 = {"type_k": llama_cpp.GGML_TYPE_Q4_0, "type_v": llama_cpp.GGML_TYPE_Q4_0}
SETTINGS = replace(settings_for("q4_0"), shortest=1408)  # as of q8_0: TEXT has no more
LAYERS, KV_HEADS, HEAD_DIM, ROW_BYTES = 3, 2, 64, 36
ROUNDED = 0.3  # where a token alone has its queries rounded to 8 bits, and a batch has not


@pytest.fixture(scope="module")
def llama(tiny_model):
    return new_llama(tiny_model, **Q4_0)


@pytest.fixture(scope="module")
def index(llama, tmp_path_factory):
    """The index of TEXT: not to be changed."""
    return build(llama, tmp_path_factory.mktemp("index"), settings=SETTINGS)


@pytest.fixture(scope="module")
def opened(index, model_hash):
    return open_index(index, model_hash)[0]


@pytest.fixture(scope="module")
def expected(llama, tokens):
    """The logits after the document without an index."""
    evaluate_directly(llama, tokens)
    return logits_after(llama)


def test_rows_take_little_more_than_half_of_the_bytes_of_q8_0_and_the_manifest_says_so(index, tokens):
    assert json.loads((index / MANIFEST).read_text())["dtype"] == "q4_0"
    for name, arrays in arrays_of(index).items():
        if name.startswith("layer"):
            for kind in ("keys", "values"):
                assert (arrays[kind].dtype, arrays[kind].shape) == (np.uint16, (KV_HEADS, len(tokens), ROW_BYTES // 2))
    assert ROW_BYTES / (HEAD_DIM + 4) < 0.53


def test_centroids_are_the_means_of_keys_that_are_rotated_back(opened):
    for layer in opened.layers:
        for keys, centroids, starts in zip(as_floats(layer.keys), layer.centroids, layer.cluster_starts, strict=True):
            means = [keys[a:b].astype(float).mean(axis=0) for a, b in pairwise(starts)]
            np.testing.assert_allclose(centroids, means, atol=2e-3, rtol=2e-3)


def test_mean_values_are_those_of_values_that_are_rotated_back(opened):
    for layer in opened.layers:
        assert layer.known_means is not None, "they are read from the index"
        means = as_floats(layer.known_means.mean_values)
        for values, each, starts in zip(as_floats(layer.values), means, layer.cluster_starts, strict=True):
            expected = np.array([values[a:b].astype(float).mean(axis=0) for a, b in pairwise(starts)])
            step = np.abs(expected).max(axis=1, keepdims=True) / 127
            assert (np.abs(each - expected) <= 0.51 * step + 1e-6).all()


def test_dense_over_the_index_gives_the_logits_of_the_document(llama, opened, expected):
    np.testing.assert_allclose(attached_logits(llama, opened, "dense"), expected, atol=SAME)


def slow(*words):
    """Cases for the slow tests: their kernels take long to compile."""
    return [pytest.param(word, marks=pytest.mark.slow) for word in words]


@pytest.mark.parametrize("attention", ["squeezed", *slow("sketch", "squeezed2", "quest", "sparq")])
def test_a_method_that_reads_everything_gives_them_too(llama, opened, expected, attention):
    np.testing.assert_allclose(attached_logits(llama, opened, attention, 1.0), expected, atol=ROUNDED)


@pytest.mark.parametrize("attention", ["squeezed", *slow("quest", "sparq")])
def test_a_larger_budget_is_closer_to_dense(llama, opened, expected, attention):
    errors = [np.abs(attached_logits(llama, opened, attention, each) - expected).mean() for each in (0.3, 0.6, 0.9)]
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("budget", [0.3, 0.5, 0.8])
def test_a_step_reads_about_its_budget(llama, opened, budget):
    assert llama.context.cache.row_bytes == LAYERS * 2 * KV_HEADS * ROW_BYTES
    assert 0.6 * budget < share_read(llama, opened, budget) < 1.5 * budget


def test_the_index_of_another_type_is_refused(opened, tiny_model):
    with pytest.raises(OctavoError, match=r"stored as q4_0, and this model was loaded to store them as q8_0: "):
        new_llama(tiny_model, type_k=8, type_v=8).attach(opened)


def test_an_interrupted_build_goes_on_to_the_same_index(llama, index, tmp_path):
    """Rows are stored again as they were: they are not rotated and rounded once more."""
    with pytest.raises(KeyboardInterrupt):
        build(llama, tmp_path, progress=Recorded(5), settings=SETTINGS)
    again = arrays_of(build(llama, tmp_path, settings=SETTINGS))
    for file, arrays in arrays_of(index).items():
        for name, array in ({} if file.startswith(KEPT) else arrays).items():
            slack = 1e-5 if name.startswith("mass") else 0  # the order of a sum
            np.testing.assert_allclose(again[file][name], array, rtol=slack, err_msg=name)


@pytest.mark.parametrize("head_dim", slow(80, 96, 256))
def test_other_heads(tmp_path, head_dim):
    path = tiny_models.write_model(tmp_path / "tiny.gguf", "llama", n_layer=1, head_dim=head_dim)
    llama = new_llama(path, **Q4_0)
    document, _ = open_index(build(llama, tmp_path, settings=SETTINGS), library_of(llama, tmp_path).model_hash)
    evaluate_directly(llama, document.tokens.tolist())
    expected = logits_after(llama)
    np.testing.assert_allclose(attached_logits(llama, document, "dense"), expected, atol=SAME)
    np.testing.assert_allclose(attached_logits(llama, document, "squeezed", 1.0), expected, atol=ROUNDED)


@pytest.mark.parametrize("n_tokens", [-1, 0])
def test_the_shortest_document_that_is_clustered_leaves_room_in_the_usual_budget(n_tokens):
    """Rows that are always read, and centroids of 2 * head_dim bytes, are less than an eighth of the rows."""
    settings = settings_for("q4_0")
    n_tokens += settings.shortest
    assert bool(settings.n_clusters(n_tokens)) == (n_tokens == settings.shortest)
    always = settings.exact_first + settings.exact_last
    lookup = settings.n_clusters(n_tokens) * 2 * HEAD_DIM / (2 * ROW_BYTES)
    assert (always + lookup) / n_tokens < 0.125


def test_components_are_not_read_from_rotated_rows(tiny_model):
    with pytest.raises(OctavoError, match="keys of q4_0 are rotated: use sparq:layout=two, or"):
        new_llama(tiny_model, attention="sparq:layout=one", **Q4_0)
