"""Indexes of keys and values in q8_0: what they hold and give, and how they live beside those in f16."""

import json
import shutil
from itertools import pairwise
from types import SimpleNamespace

import llama_cpp
import numpy as np
import pytest
from helpers import oracle, tiny_models
from helpers.index_builds import (
    NAME,
    SAME,
    TEXT,
    Recorded,
    arrays_of,
    assert_same_index,
    attach_document,
    attached_logits,
    build,
    evaluate_directly,
    index_document,
    library_of,
    logits_after,
    new_llama,
    said,
    share_read,
    text_of,
    thresholds_of,
)
from safetensors.numpy import load_file

from octavo import OctavoError
from octavo.convert.clusters import cluster_keys, settings_for
from octavo.convert.identity import identity
from octavo.convert.pipeline import document_tokens
from octavo.progress import Silent
from octavo.runtime.document.index import Calibration
from octavo.runtime.document.stored_rows import as_floats, rotated
from octavo.runtime.document.thresholds import measured_curve
from octavo.runtime.store.index_files import open_index, write_layer
from octavo.runtime.store.manifest import MANIFEST
from octavo.system.free_memory import FreeMemory

Q8_0 = {"type_k": llama_cpp.GGML_TYPE_Q8_0, "type_v": llama_cpp.GGML_TYPE_Q8_0}
SETTINGS = settings_for("q8_0")
LAYERS, KV_HEADS, HEAD_DIM = 3, 2, 64
BUDGET = 0.125  # of the command line
ROUNDED = 0.1  # where a token alone has its queries rounded to 8 bits, and a batch has not


@pytest.fixture(scope="module")
def llama(tiny_model):
    return new_llama(tiny_model, **Q8_0)


@pytest.fixture(scope="module")
def index(llama, tmp_path_factory):
    """The index of TEXT: not to be changed."""
    return build(llama, tmp_path_factory.mktemp("index"), settings=SETTINGS)


@pytest.fixture(scope="module")
def opened(index, model_hash):
    return open_index(index, model_hash)[0]


@pytest.fixture(scope="module")
def of_f16(tiny_model):
    """The same model with f16 keys and values."""
    return new_llama(tiny_model)


@pytest.fixture
def document(tmp_path):
    path = tmp_path / NAME
    path.write_text(TEXT)
    return path


# What an index holds.


def test_rows_are_bytes_and_the_manifest_says_so(index, tokens):
    assert json.loads((index / MANIFEST).read_text())["dtype"] == "q8_0"
    for name, arrays in arrays_of(index).items():
        expected = load_file(index / name)  # to others, too
        for kind, array in arrays.items():
            assert array.dtype == expected[kind].dtype
            np.testing.assert_array_equal(array, expected[kind])
        if name.startswith("layer"):
            shape = (KV_HEADS, len(tokens), HEAD_DIM + 4)
            assert {arrays[kind].shape for kind in ("keys", "values")} == {shape}
            assert {arrays[kind].dtype for kind in ("keys", "values")} == {np.dtype(np.int8)}
            assert arrays["centroids"].dtype == np.float16
            assert arrays["centroids"].shape[2] == HEAD_DIM


def test_layers_hold_the_rows_of_the_document_and_the_means_of_their_clusters(llama, opened, tokens):
    evaluate_directly(llama, tokens)
    n_clustered = SETTINGS.n_clustered(len(tokens))
    for i, layer in enumerate(opened.layers):
        for stored, original in zip((layer.keys, layer.values), llama.context.cache.rows(i), strict=True):
            for head in range(KV_HEADS):
                assert sorted(map(bytes, stored[head])) == sorted(map(bytes, original[head]))
                np.testing.assert_array_equal(
                    stored[head, -SETTINGS.exact_last :], original[head, -SETTINGS.exact_last :]
                )
        for keys, centroids, starts in zip(as_floats(layer.keys), layer.centroids, layer.cluster_starts, strict=True):
            assert (starts[0], starts[-1], len(starts)) == (0, n_clustered, SETTINGS.n_clusters(len(tokens)) + 1)
            means = [keys[a:b].astype(float).mean(axis=0) for a, b in pairwise(starts)]
            np.testing.assert_allclose(centroids, means, atol=2e-3, rtol=2e-3)


def test_keys_are_clustered_with_their_scales():
    """Twenty keys of each of two scales, whose bytes are the same but for these."""
    numbers = (127 * np.eye(HEAD_DIM, dtype=np.int8)[:1]).view(np.uint8)[0]
    scales = np.geomspace(0.01, 0.011, 20, dtype=np.float32)[:, None] * np.array([1, 10], np.float32)
    keys = np.array([[*numbers, *scale.tobytes()] for scale in scales.ravel()], np.uint8)
    clusters = cluster_keys(keys, 2, 1, SETTINGS)
    assert clusters.starts.tolist() == [0, 20, 40]
    assert {tuple(sorted(set(part % 2))) for part in np.split(clusters.order, 2)} == {(0,), (1,)}


def test_an_index_takes_the_bytes_of_its_rows(index, of_f16, tmp_path, tokens):
    expected = build(of_f16, tmp_path, settings=SETTINGS)
    rows = {
        path: sum(
            arrays[kind].nbytes for arrays in arrays_of(path).values() for kind in ("keys", "values") if kind in arrays
        )
        for path in (index, expected)
    }
    assert rows[index] == len(tokens) * LAYERS * 2 * KV_HEADS * (HEAD_DIM + 4)
    assert rows[index] / rows[expected] == (HEAD_DIM + 4) / (2 * HEAD_DIM)


# What an index gives.


def test_dense_over_the_index_gives_the_logits_of_the_document(llama, opened, direct_logits):
    np.testing.assert_allclose(attached_logits(llama, opened, "dense"), direct_logits, atol=SAME)
    np.testing.assert_allclose(attached_logits(llama, opened, "squeezed", 1.0), direct_logits, atol=ROUNDED)


def test_a_larger_budget_is_closer_to_dense(llama, opened, direct_logits):
    errors = [
        np.abs(attached_logits(llama, opened, "squeezed", budget) - direct_logits).mean() for budget in (0.15, 0.4, 0.8)
    ]
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("budget", [BUDGET, 0.3, 0.5, 0.8])
def test_a_step_reads_about_its_budget(llama, opened, budget):
    """In bytes: rows of head_dim + 4, and centroids of 2 * head_dim."""
    assert llama.context.cache.row_bytes == LAYERS * 2 * KV_HEADS * (HEAD_DIM + 4)
    share = share_read(llama, opened, budget)
    assert 0.6 * budget < share < 1.5 * budget
    assert share < 1


def test_the_curve_counts_centroids_at_their_bytes(llama, opened, tokens):
    n_last = SETTINGS.exact_last
    evaluate_directly(llama, tokens[:-n_last])
    with llama.context.captured_queries(n_last) as queries:
        llama.eval(tokens[-n_last:])
    for budget in (0.15, 0.3, 0.6):
        thresholds, n_rows = iter(thresholds_of(measured_curve(opened, Calibration()), budget)), []
        for layer, captured in zip(opened.layers, queries, strict=True):
            for head, starts in enumerate(layer.cluster_starts):
                threshold = next(thresholds)
                for token in captured[head]:
                    importance = oracle.centroid_importance(token, layer.centroids[head], np.diff(starts))
                    n_rows.append(len(oracle.selected_rows(importance, threshold, starts, len(tokens))))
        lookup = layer.n_clusters * 2 * HEAD_DIM / (len(tokens) * 2 * (HEAD_DIM + 4))
        assert np.mean(n_rows) / len(tokens) + lookup == pytest.approx(budget, abs=0.01)


@pytest.mark.parametrize("n_tokens", [SETTINGS.shortest - 1, SETTINGS.shortest])
def test_the_shortest_document_that_is_clustered_leaves_room_in_the_usual_budget(tmp_path, n_tokens):
    """Worst where a row is long, so that its scale counts for least."""
    llama = new_llama(tiny_models.write_model(tmp_path / "long.gguf", "llama", n_layer=1, head_dim=128), **Q8_0)
    text = text_of(2 * n_tokens)
    while (excess := len(document_tokens(llama, NAME, text)) - n_tokens) > 0:
        text = text[:-excess]
    path = build(llama, tmp_path, text, settings=SETTINGS)
    document, manifest = open_index(path, library_of(llama, tmp_path).model_hash)
    assert manifest["document"]["tokens"] == n_tokens
    assert bool(document.queries) == (n_tokens >= SETTINGS.shortest)
    assert np.isfinite(attached_logits(llama, document, "squeezed", BUDGET)).all()


def test_sliding_windows(tmp_path):
    path = tiny_models.write_model(tmp_path / "gemma.gguf", "gemma3", n_layer=6, window=32)
    llama = new_llama(path, **Q8_0)
    document, _ = open_index(build(llama, tmp_path, settings=SETTINGS), library_of(llama, tmp_path).model_hash)
    n_tokens = len(document.tokens)
    assert [layer.keys.shape[1:] for layer in document.layers] == [(32, HEAD_DIM + 4)] * 5 + [(n_tokens, HEAD_DIM + 4)]
    evaluate_directly(llama, document.tokens.tolist())
    expected = logits_after(llama)
    # Where a number lies between two steps, f32 and the products of AMX may round it to either.
    np.testing.assert_allclose(attached_logits(llama, document, "dense"), expected, atol=2 * SAME)
    np.testing.assert_allclose(attached_logits(llama, document, "squeezed", 1.0), expected, atol=ROUNDED)


# Interruptions and the disk.


@pytest.mark.parametrize("at", [3, 5, 7])
def test_an_interrupted_build_goes_on_to_the_same_index(llama, index, tmp_path, at):
    with pytest.raises(KeyboardInterrupt):
        build(llama, tmp_path, progress=Recorded(at), settings=SETTINGS)
    again = Recorded()
    assert_same_index(build(llama, tmp_path, progress=again, settings=SETTINGS), index)
    assert sum(again.done_before) > 0


def test_a_disk_is_asked_for_the_bytes_of_q8_0(llama, tmp_path, monkeypatch, tokens):
    needed = 2 * len(tokens) * LAYERS * 2 * KV_HEADS * (HEAD_DIM + 4)
    library_of(llama, tmp_path).model_hash  # noqa: B018 - writes model.json
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=needed - 1))
    with pytest.raises(OctavoError, match=rf"takes {needed / 2**20:.0f} MiB on the disk"):
        build(llama, tmp_path, settings=SETTINGS)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=needed))
    build(llama, tmp_path, settings=SETTINGS)


# Both types, side by side.


def open_file(llama, folder, document, notices):
    attach_document(llama, library_of(llama, folder), document, Silent(), notices.append)
    return llama.context.cache.document


def test_a_document_has_an_index_of_each_type(llama, of_f16, tmp_path, document):
    notices = []
    stored = [open_file(each, tmp_path, document, notices).kv_type for each in (of_f16, llama, of_f16, llama)]
    assert stored == ["f16", "q8_0", "f16", "q8_0"]
    assert said(notices) == [f"Indexing {NAME}, once."] * 2
    found = library_of(llama, tmp_path).indexes()
    assert {manifest["dtype"] for _, manifest in found} == {"f16", "q8_0"}
    for each in (of_f16, llama):
        path = index_document(each, library_of(each, tmp_path), document, Silent(), notices.append)
        assert said(notices)[-1] == f"{NAME} is indexed already: {path}"


def test_only_another_text_has_changed(llama, of_f16, tmp_path, document):
    notices = []
    open_file(of_f16, tmp_path, document, notices)
    document.write_text(TEXT + " And one more sentence.")
    for each in (llama, of_f16):
        open_file(each, tmp_path, document, notices)
    document.write_text(TEXT)
    open_file(llama, tmp_path, document, notices)
    changed = f"{NAME} has changed since it was indexed, so it is indexed again."
    once = f"Indexing {NAME}, once."
    assert said(notices) == [once, changed, once, once]


def test_the_index_of_the_other_type_is_refused(llama, of_f16, opened, tmp_path):
    with pytest.raises(OctavoError, match=r"stored as q8_0, and this model was loaded to store them as f16: "):
        of_f16.attach(opened)
    path = build(of_f16, tmp_path)
    with pytest.raises(OctavoError, match=r"stored as f16, and this model was loaded to store them as q8_0: "):
        llama.attach(open_index(path, library_of(llama, tmp_path).model_hash)[0])


def test_an_index_of_f16_is_named_as_before_there_was_another_type(of_f16, llama):
    assert identity(of_f16, SETTINGS).keys() == {"format_version", "head", "clustering", "rope"}
    assert identity(llama, SETTINGS) == identity(of_f16, SETTINGS) | {"dtype": "q8_0"}


# Rows that are not rotated, as octavo stored them before 0.4.


@pytest.fixture
def flat(llama, tmp_path, monkeypatch):
    """The index of the text as octavo 0.3 made it."""

    def write_flat(folder, i, layer):
        write_layer(folder, i, layer.stored_as(np.dtype(np.uint8)))

    monkeypatch.setattr("octavo.convert.index_builder.write_layer", write_flat)
    path = build(llama, tmp_path, settings=SETTINGS)
    return open_index(path, library_of(llama, tmp_path).model_hash)[0]


@pytest.mark.parametrize("attention", ["dense", "squeezed", "sketch", "quest", "sparq"])
def test_an_index_of_flat_rows_is_attended_alike(llama, flat, opened, attention):
    assert {layer.keys.dtype for layer in flat.layers} == {np.dtype(np.uint8)}
    assert flat.kv_type == opened.kv_type == "q8_0"
    expected = attached_logits(llama, opened, attention, 1.0)
    np.testing.assert_allclose(attached_logits(llama, flat, attention, 1.0), expected, atol=ROUNDED)
    assert flat.stored_as(np.dtype(np.int8)) is flat.stored_as(np.dtype(np.int8)), "converted once"


def test_both_formats_have_the_same_name_and_size(flat, opened):
    for old, new in zip(flat.layers, opened.layers, strict=True):
        assert (old.keys.shape, old.values.shape) == (new.keys.shape, new.values.shape)
        floats = [as_floats(layer.keys[0])[layer.order[0].argsort()] for layer in (old, new)]
        steps = [np.abs(each).max() / 127 for each in (floats[0], rotated(floats[1]))]
        assert np.abs(floats[0] - floats[1]).max() <= HEAD_DIM**0.5 * sum(steps)


def test_flat_rows_of_a_conversation_are_taken_over(llama, flat):
    """As a chat or a kept prompt of octavo 0.3 holds them."""
    rows = [tuple(as_in_order(layer, array) for array in (layer.keys, layer.values)) for layer in flat.layers]
    evaluate_directly(llama, flat.tokens.tolist())
    expected = logits_after(llama)
    llama.reset()
    llama.context.attach(None)
    llama.extend(flat.tokens.tolist(), rows)
    np.testing.assert_allclose(logits_after(llama), expected, atol=ROUNDED)
    assert {keys.dtype for keys, _ in map(llama.context.cache.rows, range(LAYERS))} == {np.dtype(np.int8)}


def as_in_order(layer, rows):
    """Rows of a clustered layer as they arrived."""
    return np.stack([rows[head][layer.order[head].argsort()] for head in range(len(rows))])


def test_a_document_is_not_converted_without_memory(llama, flat, monkeypatch):
    monkeypatch.setattr("octavo.system.free_memory.free_memory", lambda: FreeMemory(1 << 10, "are free"))
    with pytest.raises(OctavoError, match=r"A copy of the document's rows, as octavo before 0\.4 stored them"):
        llama.attach(flat)
