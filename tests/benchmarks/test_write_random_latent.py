"""benchmarks/write_random_latent.py: the file is a model, with the shape it should have."""

from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def model(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(FOLDER)
    import write_random_latent

    write_random_latent.write_model(tmp_path / "random.gguf", 1)
    return tmp_path / "random.gguf"


def test_octavo_decodes_it_as_llama_cpp_does(model, logits_of_both):
    llama, expected = logits_of_both(model)
    assert expected.std() > 1
    np.testing.assert_allclose(llama.logits(), expected, atol=0.02 * expected.std())
    (node,) = llama.context.nodes
    assert (node.n_head, node.n_kv_head, node.head_dim, node.value_dim, node.latent) == (20, 1, 576, 512, True)
