"""Recurrent states in arrays of ours: what llama.cpp wrote, it reads again, and nothing else."""

import numpy as np
import pytest
import safetensors.numpy
from helpers import tiny_models, zoo
from helpers.index_builds import build, library_of, text_of

import octavo
from octavo.ask.chats.chat_file import Conversation, read_conversation, write_conversation
from octavo.convert.identity import RowSource
from octavo.errors import OctavoError
from octavo.runtime.document import kept_state as states
from octavo.runtime.store.index_files import open_index, state_path
from octavo.runtime.store.manifest import describe, save_manifest
from octavo.system.files import map_arrays, write_arrays

TOKENS = np.random.default_rng(4).integers(0, 256, 60).tolist()
MODELS = ["falcon-h1", "lfm2", "lfm2/one slides", "qwen3next", "granitehybrid"]


def new_llama(path, name, **more):
    more = zoo.RUN[name] | {"context_length": 8192} | more
    path = zoo.write_model(path, name.partition("/")[0], chat_template=tiny_models.CHAT_TEMPLATE, **more)
    return octavo.Llama(path, n_ctx=4096, n_threads=2, device="cpu")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return new_llama(tmp_path_factory.mktemp("kept") / "model.gguf", "falcon-h1")


@pytest.fixture(scope="module")
def blob(llama):
    llama.reset()
    llama.eval(TOKENS)
    return llama.context.state_blob()


@pytest.mark.parametrize("name", MODELS)
def test_a_state_is_kept_in_arrays_and_returned_to(tmp_path, name):
    llama = new_llama(tmp_path / "model.gguf", name)
    llama.eval(TOKENS)
    state = llama.context.state()
    n = (len(state.arrays) - 1) // 2
    assert n > 0
    assert list(state.arrays) == ["position", *(f"r.{i}" for i in range(n)), *(f"s.{i}" for i in range(n))]
    assert state.arrays["position"].tolist() == [len(TOKENS) - 1]
    assert {array.dtype for kind, array in state.arrays.items() if kind != "position"} == {np.dtype(np.float32)}
    again = states.arrays_of(llama.context.state_blob())
    assert again.keys() == state.arrays.keys()
    assert all(np.array_equal(again[kind], array) for kind, array in state.arrays.items())
    llama.context.keep_state()
    llama.eval(TOKENS[:5])
    expected = llama.logits()
    llama.rewind(len(TOKENS))
    llama.eval(TOKENS[:5])
    assert np.array_equal(llama.logits(), expected)


def test_nothing_is_saved_and_loaded_before_the_first_token(llama):
    llama.reset()
    saved = llama.save_state()
    llama.eval(TOKENS[:7])
    expected = llama.logits()
    llama.load_state(saved)
    assert llama.n_tokens == 0
    llama.eval(TOKENS[:7])
    assert np.array_equal(llama.logits(), expected)


def test_a_file_keeps_a_state(llama, blob, tmp_path):
    write_arrays(tmp_path / "state", states.arrays_of(blob))
    kept = states.kept_state(len(TOKENS), map_arrays(tmp_path / "state"))
    assert kept.n_tokens == len(TOKENS)
    assert np.array_equal(states.form_of(blob).blob(kept.arrays), blob)
    assert kept.n_bytes == sum(array.nbytes for array in states.arrays_of(blob).values())


def test_a_blob_of_an_older_file_becomes_arrays(blob, tmp_path):
    write_arrays(tmp_path / "state", {states.BLOB: blob})
    kept = states.kept_state(len(TOKENS), map_arrays(tmp_path / "state"))
    expected = states.arrays_of(blob)
    assert kept.arrays.keys() == expected.keys()
    assert all(np.array_equal(kept.arrays[name], array) for name, array in expected.items())


def test_what_is_cut_or_longer_has_no_known_form(blob):
    """A blob of another version is kept as it is."""
    ends = [*range(1, 120), *np.linspace(120, len(blob) - 1, 200).astype(int).tolist()]
    for end in ends:
        cut = blob[:end]
        assert states.form_of(cut) is None
        assert list(states.arrays_of(cut)) == [states.BLOB]
    assert states.form_of(np.append(blob, np.uint8(1))) is None


@pytest.mark.parametrize("at", [8, 16, 20], ids=["states", "sequences", "transposed"])
def test_another_form_is_told(blob, at):
    other = blob.copy()
    other[at : at + 4].view(np.uint32)[0] = 2
    assert states.form_of(other) is None


def test_the_state_of_another_model_is_refused(llama, blob, tmp_path):
    other = new_llama(tmp_path / "model.gguf", "qwen3next")
    other.eval(TOKENS)
    state = other.context.state()
    with pytest.raises(OctavoError, match="another model"):
        llama.context._states.blob(state.arrays)
    fewer = dict(list(states.arrays_of(blob).items())[:-1])
    with pytest.raises(OctavoError, match="another model"):
        llama.context._states.blob(fewer)


@pytest.mark.parametrize(
    "change",
    [
        {"position": np.zeros(2, np.int32)},
        {"position": np.zeros(1, np.int64)},
        {"r.0": np.zeros((2, 2), np.float32)},
        {"r.0": np.zeros(2, np.int32)},
        {"other": np.zeros(2, np.float32)},
        {states.BLOB: np.zeros(2, np.uint8)},
    ],
    ids=lambda change: "-".join(change),
)
def test_arrays_that_are_no_state_are_refused(blob, change):
    with pytest.raises(ValueError, match="hold no recurrent state"):
        states.kept_state(1, states.arrays_of(blob) | change)


def test_an_older_index_is_opened(llama, tmp_path):
    """Its states are blobs of llama.cpp."""
    path, model = build(llama, tmp_path, text_of(1500)), library_of(llama, tmp_path).model_hash
    index, manifest = open_index(path, model)
    assert index.states
    llama.attach(index)
    llama.eval(TOKENS[:3])
    expected = llama.logits()
    for state in index.states:
        file = state_path(path, state.n_tokens)
        write_arrays(file, {states.BLOB: llama.context._states.blob(state.arrays)})
        manifest["files"][file.name] = describe(file)
    save_manifest(path, manifest)
    llama.reset()
    llama.attach(open_index(path, model)[0])
    llama.eval(TOKENS[:3])
    assert np.array_equal(llama.logits(), expected)


def test_an_older_chat_resumes(llama, blob, tmp_path):
    """Its states are blobs of llama.cpp."""
    llama.reset()
    llama.eval(TOKENS)
    saved, source = Conversation.of(llama, 0, [], None), RowSource.of(llama, library_of(llama, tmp_path))
    new, old = tmp_path / "new.safetensors", tmp_path / "old.safetensors"
    write_conversation(new, saved, source)
    arrays = {name: array for name, array in map_arrays(new).items() if not name.startswith("state.")}
    blobs = {f"state.{state.n_tokens}": llama.context._states.blob(state.arrays) for state in saved.states}
    assert blobs
    write_arrays(old, arrays | blobs)
    llama.eval(TOKENS[:3])
    expected = llama.logits()
    for path in (new, old):
        llama.reset()
        read_conversation(path, source, checked=False).resume(llama, 0)
        llama.eval(TOKENS[:3])
        assert np.array_equal(llama.logits(), expected)


@pytest.mark.parametrize("view", [np.transpose, lambda array: array[:, ::2], lambda array: array[::-1]])
def test_files_keep_arrays_in_the_order_of_their_elements(tmp_path, view):
    """safetensors itself writes such views in the order of memory."""
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    write_arrays(tmp_path / "arrays", {"view": view(array)})
    for read in (map_arrays(tmp_path / "arrays"), safetensors.numpy.load_file(tmp_path / "arrays")):
        assert np.array_equal(read["view"], view(array))
