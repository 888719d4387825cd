"""Sketches over a document: its rows are in order, its codes are kept, and steps read as much as they should."""

import shutil

import numpy as np
import pytest
from helpers import tiny_models
from helpers.index_builds import build, library_of, text_of

import octavo
from octavo.convert.clusters import ClusterSettings
from octavo.runtime.cache import document_rows
from octavo.runtime.store.index_files import open_index
from octavo.runtime.store.manifest import describe, read_manifest, save_manifest
from octavo.system.files import map_arrays, write_arrays

CODES = "extras-codes-4-1.safetensors"

SAME = 0.02  # the same numbers, added up in another order; logits have a standard deviation of about three
TOKENS = np.random.default_rng(5).integers(32, 127, 40).tolist()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.write_model(tmp_path_factory.mktemp("tiny") / "gqa.gguf", "llama", n_layer=2)


@pytest.fixture(scope="module")
def reading(model):
    return octavo.Llama(model, n_ctx=8192, n_threads=2)


def indexed(reading, folder, **settings):
    path = build(reading, folder, text_of(3000), settings=ClusterSettings(**settings))
    return path, library_of(reading, folder).model_hash


@pytest.fixture(scope="module")
def document(reading, tmp_path_factory):
    return open_index(*indexed(reading, tmp_path_factory.mktemp("index")))[0]


@pytest.fixture(scope="module")
def index_in_order(reading, tmp_path_factory):
    """The folder of an index without clusters, and the model's hash."""
    return indexed(reading, tmp_path_factory.mktemp("index"), shortest=10_000)


@pytest.fixture
def copied_index(index_in_order, tmp_path):
    path, model_hash = index_in_order
    copy = tmp_path / "indexes" / path.name
    shutil.copytree(path, copy)
    return copy, model_hash


def attached(model, document, attention, budget):
    llama = octavo.Llama(model, n_ctx=8192, n_threads=2, attention=attention, budget=budget)
    llama.attach(document)
    return llama


def steps(llama):
    rows = []
    for token in TOKENS:
        llama.eval([token])
        rows.append(llama.logits())
    return np.array(rows)


def keys_of_document(llama, document):
    """The keys that the first KV head copied, (n_rows, head_dim)."""
    return np.concatenate([keys for keys, _ in llama.context.cache.tails[0].rows(0, len(document.tokens))])


def test_with_all_of_the_budget_a_document_is_dense(model, document):
    dense = steps(attached(model, document, "dense", 1.0))
    np.testing.assert_allclose(steps(attached(model, document, "sketch", 1.0)), dense, atol=SAME)


@pytest.mark.parametrize("attention", ["sketch:budget=0.25", "sketch:quality=0.9,most=0.3"])
def test_a_document_is_near_to_dense(model, document, attention):
    dense = steps(attached(model, document, "dense", 1.0))
    llama = attached(model, document, attention, 1.0)
    llama.context.bytes_read = 0
    sketched = steps(llama)
    whole = len(document.tokens) * llama.context.cache.layers[0].row_bytes * len(llama.context.cache.layers)
    assert llama.context.cache.table.counters[0] < 0.35 * whole * len(TOKENS)
    assert np.corrcoef(sketched.ravel(), dense.ravel())[0, 1] > 0.9


def test_what_follows_a_document_can_be_taken_back(model, document):
    llama = attached(model, document, "sketch", 0.25)
    first = steps(llama)
    llama.rewind(len(document.tokens))
    np.testing.assert_array_equal(steps(llama), first)
    assert not llama.context.cache.truncate(len(document.tokens) - 1), "the document itself stays whole"


@pytest.mark.parametrize("attention", ["sketch", "auto"])
def test_a_document_stays_in_order(model, document, attention):
    llama = attached(model, document, attention, 0.25)
    in_order = document.layers[0].keys[0][document.layers[0].positions(0).argsort()]
    assert (keys_of_document(llama, document) == in_order).all()


@pytest.mark.parametrize("n_more", [0, 1300])  # the second makes new codebooks due
def test_rows_that_are_stored_in_order_stay_in_the_index(model, document, index_in_order, n_more):
    in_order = open_index(*index_in_order)[0]
    logits = []
    for each in (document, in_order):
        llama = attached(model, each, "sketch", 0.25)
        tails = llama.context.cache.tails
        assert all(chunk.is_mapped == (each is in_order) for tail in tails for chunk in tail.chunks[:-1])
        if n_more:
            llama.eval([TOKENS[i % 40] for i in range(n_more)])
        logits.append(steps(llama))
        if each is in_order:
            own = sum(chunk.n_own_bytes for tail in tails for chunk in tail.chunks[:11])
            assert own < 0.2 * 11 * 256 * llama.context.cache.row_bytes
    np.testing.assert_array_equal(*logits)


def test_an_index_keeps_codes_once_they_are_made(model, copied_index, monkeypatch):
    path, model_hash = copied_index
    derived = steps(attached(model, open_index(path, model_hash)[0], "sketch", 0.25))
    assert CODES in read_manifest(path)["files"]
    monkeypatch.setattr(document_rows, "_derive", lambda tail: pytest.fail("they were made again"))
    np.testing.assert_array_equal(steps(attached(model, open_index(path, model_hash)[0], "sketch", 0.25)), derived)
    np.testing.assert_array_equal(steps(attached(model, open_index(path, model_hash)[0], "sketch", 0.25)), derived)


def test_codes_of_other_columns_are_kept_apart(model, copied_index):
    path, model_hash = copied_index
    for columns in (2, 8):
        attached(model, open_index(path, model_hash)[0], f"sketch:columns={columns}", 0.25)
    kept = {name for name in read_manifest(path)["files"] if name.startswith("extras-")}
    assert kept >= {"extras-codes-2-1.safetensors", "extras-codes-8-1.safetensors"}


def cut(arrays):
    return {name: array[:1] for name, array in arrays.items()}


def with_fewer_extras(arrays):
    return arrays | {"extras.1": arrays["extras.1"][:1]}


def without_heads(arrays):
    return {name: array for name, array in arrays.items() if not name.startswith("heads")}


def with_wrong_columns(arrays):
    return arrays | {"order.0": np.full_like(arrays["order.0"], 1 << 20)}


def with_too_many_blocks(arrays):
    return arrays | {"n_coded.1": np.full_like(arrays["n_coded.1"], 1 << 20)}


def with_no_block(arrays):
    return arrays | {"n_coded.1": np.zeros_like(arrays["n_coded.1"])}


def with_one_block(arrays):
    return arrays | {"n_coded.0": np.ones_like(arrays["n_coded.0"])}


def as_not_trained(arrays):
    return arrays | {"trained.1": np.zeros_like(arrays["trained.1"]), "n_coded.1": np.zeros_like(arrays["n_coded.1"])}


def as_trained_on_fewer(arrays):
    return arrays | {"trained.0": arrays["trained.0"] // 2}


def without_a_layer(arrays):
    return {name: array for name, array in arrays.items() if not name.endswith(".1")}


def without_a_field(arrays):
    return {name: array for name, array in arrays.items() if not name.startswith("values")}


IMPOSSIBLE = [cut, with_fewer_extras, without_heads, with_wrong_columns, with_too_many_blocks, without_a_layer]
IMPOSSIBLE += [with_no_block, with_one_block, as_not_trained, as_trained_on_fewer]


@pytest.mark.parametrize("change", [None, *IMPOSSIBLE, without_a_field])
def test_codes_that_cannot_be_are_made_again(model, copied_index, change):
    path, model_hash = copied_index
    expected = steps(attached(model, open_index(path, model_hash)[0], "sketch", 0.25))
    if change is None:  # a damaged file
        content = bytearray((path / CODES).read_bytes())
        content[len(content) // 2] ^= 1
        (path / CODES).write_bytes(content)
    else:
        write_arrays(path / CODES, change({name: np.array(array) for name, array in map_arrays(path / CODES).items()}))
        manifest = read_manifest(path)
        manifest["files"][CODES] = describe(path / CODES)
        save_manifest(path, manifest)
    np.testing.assert_array_equal(steps(attached(model, open_index(path, model_hash)[0], "sketch", 0.25)), expected)
    assert {"order.1", "values.0"} <= map_arrays(path / CODES).keys()
    assert map_arrays(path / CODES)["order.0"].max() < 64


@pytest.mark.parametrize("numbers", [np.array(0, np.int32), np.zeros((1, 1), np.int32), np.zeros(0, np.int32)])
def test_numbers_of_heads_that_are_no_list_are_not_taken(numbers):
    kept = {0: {"heads": numbers, "extras": np.zeros(numbers.shape, np.uint8)}}
    assert not document_rows._take(kept, [document_rows.HeadWithDocument(0, 0, None)])


def test_codes_that_cannot_be_written_are_made_each_time(model, copied_index, monkeypatch):
    path, model_hash = copied_index

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("octavo.runtime.store.index_files.write_arrays", full)
    steps(attached(model, open_index(path, model_hash)[0], "sketch:columns=8", 0.25))
    assert not (path / CODES.replace("4", "8")).exists()
