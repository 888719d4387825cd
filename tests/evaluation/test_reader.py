"""A model at the end of a text: what its steps count as read."""

import numpy as np
import pytest
from helpers import tiny_models
from helpers.index_builds import Recorded
from helpers.slow_compiling import SECONDS, compile_slowly

import octavo
from octavo.evaluation.reader import Reader
from octavo.evaluation.samples import Sample
from octavo.runtime.methods.attention import DENSE_ATTENTION

TEXT = np.random.default_rng(3).integers(32, 127, 300).tolist()


def bytes_read(llama, in_batches):
    """Of each step of a question of 20 tokens and two tokens after it."""
    reader = Reader(llama, Recorded(), 1)
    [document] = reader.read(TEXT, [])
    reader.attend(document, DENSE_ATTENTION)
    outcome = reader.answer(Sample(TEXT[:20], continuation=TEXT[20:22]), in_batches=in_batches)
    llama.reset()
    return outcome.bytes_read


def test_the_batch_of_a_question_is_counted(llama):
    row = llama.context.cache.row_bytes
    assert bytes_read(llama, in_batches=True) == [320 * row, 321 * row]
    assert bytes_read(llama, in_batches=False) == [n * row for n in range(301, 322)]


@pytest.mark.parametrize("in_batches", [False, True])
def test_layers_whose_window_slides_are_not_counted(tmp_path, in_batches):
    path = tiny_models.write_model(tmp_path / "gemma3.gguf", "gemma3", n_layer=6, window=64)
    llama = octavo.Llama(path, n_ctx=512, n_threads=1)
    layers = llama.context.cache.layers
    row = sum(layer.row_bytes for layer in layers if not layer.window)
    assert 0 < row < llama.context.cache.row_bytes
    assert bytes_read(llama, in_batches)[-1] == 321 * row


def test_compiling_is_not_timed(llama, monkeypatch):
    reader = Reader(llama, Recorded(), 1)
    [document] = reader.read(TEXT, [])
    reader.attend(document, DENSE_ATTENTION)
    compile_slowly(monkeypatch)
    outcome = reader.answer(Sample(TEXT[:20], n_predict=2), in_batches=True)
    llama.reset()
    assert 0 < outcome.first_token_s <= outcome.seconds < SECONDS / 2
