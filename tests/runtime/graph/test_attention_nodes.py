"""A model whose attention octavo cannot compute is refused with the true reason: more of them are in test_zoo.py."""

import pytest
from helpers import tiny_models

import octavo


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [
        ("bloom", "it adds a bias to scores that grows with the distance (ALiBi)"),
        ("mamba", "models have none: their state is all they keep"),
        ("bert", "it has no KV cache, as in encoders"),
        ("t5", "models have an encoder"),
    ],
)
def test_a_refusal_names_the_true_reason(tmp_path, architecture, reason):
    path = tiny_models.write_model(tmp_path / "model.gguf", architecture)
    with pytest.raises(octavo.OctavoError) as refusal:
        octavo.Llama(path)
    assert f"'{architecture}' models" in str(refusal.value)
    assert reason in str(refusal.value)
