"""benchmarks/write_random_qwen35.py: the layers that attend, and the gain of their keys."""

from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("gain", [1.2, 2.0])
def test_every_fourth_layer_attends_with_the_gain(monkeypatch, gain):
    monkeypatch.syspath_prepend(FOLDER)
    import write_random_qwen35

    tensors = write_random_qwen35.other_tensors(8, gain, np.random.default_rng(0))
    norms = {name: set(tensor) for name, tensor in tensors.items() if name.endswith("attn_k_norm.weight")}
    assert norms == {f"blk.{i}.attn_k_norm.weight": {np.float32(gain)} for i in (3, 7)}
    assert {name.split(".")[1] for name in write_random_qwen35.matrix_shapes(8) if "attn_k." in name} == {"3", "7"}
