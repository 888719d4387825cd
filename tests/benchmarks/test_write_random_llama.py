"""benchmarks/write_random_llama.py: the file is a model, with the shape it should have."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import llama_cpp
import numpy as np
import pytest
from gguf import GGUFReader, dequantize

import octavo

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import write_random_llama

    return write_random_llama


@pytest.fixture
def model(script, tmp_path):
    """The same proportions, smaller."""
    sizes = replace(
        script.LLAMA_3_2_1B, n_layer=2, n_embd=256, n_ff=512, n_head=4, n_kv_head=2, n_vocab=300, n_ctx=2048
    )
    script.write_model(tmp_path / "random.gguf", sizes)
    return tmp_path / "random.gguf"


def test_octavo_decodes_it_as_llama_cpp_does(model):
    llama = octavo.Llama(model, n_threads=2)
    reference = llama_cpp.Llama(str(model), n_ctx=256, n_threads=2, verbose=False)
    for engine in (llama, reference):
        engine.eval([10, 20])
    row = llama_cpp.llama_get_logits_ith(reference.ctx, -1)
    expected = np.ctypeslib.as_array(row, (reference.n_vocab(),))
    logits = llama.logits()
    assert np.isfinite(logits).all()
    assert 2 < logits.std() < 4
    np.testing.assert_allclose(logits, expected, atol=0.3)  # Q4_0 matrices round their inputs to 8 bits
    assert llama.n_ctx() == 2048
    assert (len(llama.context.nodes), llama.context.nodes[0].n_kv_head) == (2, 2)


def test_matrices_give_unit_inputs_their_gain(script, model):
    """And the mean weight is 0: inputs with a mean are not blown up layer by layer."""
    tensors = {tensor.name: tensor for tensor in GGUFReader(model).tensors}
    for name, (rows, columns, gain) in script.matrix_shapes(
        replace(script.LLAMA_3_2_1B, n_layer=2, n_embd=256, n_ff=512, n_head=4, n_kv_head=2, n_vocab=300)
    ).items():
        weights = dequantize(tensors[name].data, tensors[name].tensor_type)
        assert weights.shape == (rows, columns)
        assert weights.std() * np.sqrt(columns) == pytest.approx(gain, rel=0.02)
        assert abs(weights.mean()) < 0.02 * weights.std()
    assert "output.weight" not in tensors


def test_any_text_has_tokens(model):
    llama = octavo.Llama(model, n_threads=2)
    text = "Emma, één"
    assert llama.detokenize(llama.tokenize(text.encode())).decode() == text


@pytest.mark.parametrize(("size", "n_weights"), [("1B", 1_235_814_400), ("3B", 3_212_749_824)])
def test_the_sizes_are_those_of_llama_3_2(script, size, n_weights):
    sizes = script.SIZES[size]
    norms = (2 * sizes.n_layer + 1) * sizes.n_embd
    assert sum(rows * columns for rows, columns, _ in script.matrix_shapes(sizes).values()) + norms == n_weights


def test_the_script_says_how_it_is_run():
    command = [sys.executable, FOLDER / "write_random_llama.py"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 2
    assert "the following arguments are required: out" in run.stderr
