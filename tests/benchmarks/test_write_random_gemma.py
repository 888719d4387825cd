"""benchmarks/write_random_gemma.py: the file is a model, with the shape it should have."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import write_random_gemma

    return write_random_gemma


def test_octavo_decodes_it_as_llama_cpp_does(script, logits_of_both, tmp_path):
    sizes = replace(script.GEMMA_3_270M, n_layer=6, n_embd=256, n_ff=256, n_vocab=300, n_ctx=2048)
    script.write_model(tmp_path / "random.gguf", sizes)
    llama, expected = logits_of_both(tmp_path / "random.gguf")
    assert [node.window for node in llama.context.nodes] == [512] * 5 + [0]
    assert 2 < expected.std() < 4
    np.testing.assert_allclose(llama.logits(), expected, atol=0.1 * expected.std())


def test_the_size_is_that_of_gemma_3(script):
    sizes = script.GEMMA_3_270M
    matrices = sum(rows * columns for rows, columns, _ in script.matrix_shapes(sizes).values())
    norms = sizes.n_embd + sizes.n_layer * (4 * sizes.n_embd + 2 * sizes.head_dim)
    assert matrices + norms == 268_098_176
