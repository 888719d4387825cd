"""Compare octavo with llama.cpp on the models that scripts write."""

import llama_cpp
import numpy as np
import pytest

import octavo


@pytest.fixture
def logits_of_both():
    """Return what loads a model, evaluates two tokens, and returns octavo's model, and llama.cpp's logits."""

    def compute(model):
        llama = octavo.Llama(model, n_ctx=512, n_threads=2, device="cpu")
        reference = llama_cpp.Llama(str(model), n_ctx=512, n_threads=2, verbose=False)
        for engine in (llama, reference):
            engine.eval([10, 20])
        row = llama_cpp.llama_get_logits_ith(reference.ctx, -1)
        return llama, np.ctypeslib.as_array(row, (reference.n_vocab(),)).copy()

    return compute
