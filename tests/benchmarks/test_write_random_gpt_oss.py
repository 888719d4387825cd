"""benchmarks/write_random_gpt_oss.py: the file is a model, with the shape it should have."""

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, dequantize

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def model(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(FOLDER)
    import write_random_gpt_oss

    write_random_gpt_oss.write_model(tmp_path / "random.gguf", 1, n_embd=128, n_ff=192)
    return tmp_path / "random.gguf"


def test_octavo_decodes_it_as_llama_cpp_does(model, logits_of_both):
    llama, expected = logits_of_both(model)
    assert expected.std() > 1
    np.testing.assert_allclose(llama.logits(), expected, atol=0.1 * expected.std())


def test_experts_keep_the_size_of_their_inputs(model):
    experts = [each for each in GGUFReader(model).tensors if each.tensor_type == GGMLQuantizationType.MXFP4]
    assert len(experts) == 3
    for tensor in experts:
        weights = dequantize(tensor.data, tensor.tensor_type)
        assert 0.5 < weights.std() * np.sqrt(weights.shape[-1]) < 2
