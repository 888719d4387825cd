"""A document beyond the GPU's working set goes to the CPU, with the model and a sentence."""

import os

import numpy as np
import pytest
from helpers.index_builds import QUESTION, attach_document, build, library_of, new_llama, text_of

import octavo
from octavo.progress import Silent
from octavo.runtime.load_model import load_model
from octavo.runtime.sequence_pool import SequencePool
from octavo.runtime.store.index_files import open_index

SENTENCE = "The model and 1,630 tokens take 0.0 GiB, and this GPU works with 0.0, so that attention runs on the CPU."


@pytest.fixture
def mac(metal, monkeypatch):
    """Install a GPU that "auto" takes."""
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    return metal


@pytest.fixture(scope="module")
def index(tiny_model, tmp_path_factory):
    llama = new_llama(tiny_model, device="cpu")
    path = build(llama, tmp_path_factory.mktemp("index"))
    return open_index(path, library_of(llama, path.parent.parent).model_hash)[0]


def loaded(model, said, **settings):
    return load_model(octavo.ModelSettings(model=model, n_ctx=4096, n_threads=2, **settings), said.append)


def logits_after(llama, document):
    llama.attach(document)
    llama.eval(QUESTION)
    return llama.logits()


def test_an_index_beyond_the_working_set_goes_to_the_cpu(mac, tiny_model, index):
    said = []
    llama = loaded(tiny_model, said)
    llama.set_seed(7)
    needed = os.path.getsize(tiny_model) + index.n_bytes
    mac.working_set = needed
    llama.attach(index)
    assert llama.context.device.name == "metal"
    assert said == []
    mac.working_set = needed - 1
    logits = logits_after(llama, index)
    assert (llama.context.device.name, llama.on_metal, llama._seed) == ("cpu", False, 7)
    assert said == [f"Note: {SENTENCE}"]
    assert llama.device_note == SENTENCE
    np.testing.assert_array_equal(logits, logits_after(new_llama(tiny_model, device="cpu"), index))
    llama.attach(index)
    assert len(said) == 1


def test_a_device_that_was_chosen_stays(mac, tiny_model, index):
    mac.working_set, said = 1, []
    llama = loaded(tiny_model, said, device="metal")
    llama.attach(index)
    assert llama.context.device.name == "metal"
    assert said == []


def test_a_model_of_several_sequences_stays_on_its_device(mac, tiny_model, index):
    mac.working_set, said = 1, []
    llama = loaded(tiny_model, said)
    first, pool = llama.sequence, SequencePool(llama)
    pool.new()
    llama.attach(index)
    pool.take(first)
    assert llama.context.device.name == "metal"
    assert said == []


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")  # the kernels of this GPU write no rows
@pytest.mark.parametrize(("working_set", "device"), [(1 << 34, "metal"), (0, "cpu")])
def test_a_document_is_read_on_the_cpu_if_its_rows_will_not_fit(mac, tiny_model, tmp_path, working_set, device):
    """Its index is the one that the device needs: with Metal, "auto" needs clusters."""
    (tmp_path / "document.txt").write_text(text_of(2400))
    said, notices = [], []
    llama = loaded(tiny_model, said, index_dir=tmp_path)
    llama.set_attention("auto")
    mac.working_set = working_set
    attach_document(llama, library_of(llama, tmp_path), tmp_path / "document.txt", Silent(), notices.append)
    assert llama.context.device.name == device
    assert len(said) == (device == "cpu")
    assert (llama.context.cache.document.layers[0].n_clusters > 0) == (device == "metal")
    assert sum(sentence.startswith("Indexing document.txt, once") for sentence in notices) == 1
