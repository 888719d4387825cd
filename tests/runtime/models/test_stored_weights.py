"""Test where the weights of a model are found in its files."""

import ctypes

import gguf
import numpy as np
from helpers import tiny_models

import octavo
from octavo.runtime.models.stored_weights import StoredWeights


def test_weights_are_where_the_file_has_them(tiny_model):
    path = tiny_models.quantised(tiny_model, "Q4_0")
    stored = StoredWeights(str(path))
    for tensor in gguf.GGUFReader(path).tensors:
        found = ctypes.string_at(stored.address(tensor.name.encode()), tensor.data.nbytes)
        assert found == np.ascontiguousarray(tensor.data).tobytes(), tensor.name


def test_what_no_file_holds_has_no_address(tiny_model, tmp_path):
    assert StoredWeights(str(tiny_model)).address(b"blk.99.attn_q.weight") == 0
    assert StoredWeights(str(tmp_path / "gone.gguf")).address(b"output.weight") == 0


def test_all_contexts_of_a_model_share_its_files(tiny_model):
    llama = octavo.Llama(tiny_model, device="cpu", n_ctx=64, verbose=False)
    assert StoredWeights.of(llama._model) is StoredWeights.of(llama._model)
