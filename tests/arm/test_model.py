"""A tiny model on octavo's attention, compiled for ARM, against llama.cpp's logits there."""

import llama_cpp
import numpy as np
import pytest
from helpers import tiny_models

import octavo

TOKENS = np.random.default_rng(2).integers(0, 256, 90).tolist()


def logits(model):
    return np.ctypeslib.as_array(model._ctx.get_logits_ith(-1), (model.n_vocab(),)).copy()


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["dense", "squeezed"])
def test_logits_are_those_of_llama_cpp(tmp_path, attention):
    path = tiny_models.write_model(tmp_path / "model.gguf", "llama")
    options = {"n_ctx": 256, "n_batch": 64, "n_threads": 1}
    theirs = llama_cpp.Llama(str(path), verbose=False, flash_attn=True, **options)
    theirs.eval(TOKENS)
    ours = octavo.Llama(path, attention=attention, budget=1.0, **options)
    for piece in (TOKENS[:50], TOKENS[50:51], TOKENS[51:]):
        ours.eval(piece)
    np.testing.assert_allclose(logits(ours), logits(theirs), atol=0.02)
