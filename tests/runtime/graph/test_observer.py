"""The outputs of attentions, which models with gates give other names."""

import numpy as np
import pytest
from helpers import zoo

import octavo
from octavo.runtime.document.stored_rows import as_floats

TOKENS = np.random.default_rng(3).integers(0, 256, 12).tolist()


@pytest.fixture(params=["qwen35", "deepseek2", "gemma2", "hrm_text"])
def llama(request, tmp_path):
    path = zoo.write_model(tmp_path / "model.gguf", request.param, **zoo.RUN[request.param])
    return octavo.Llama(path, device="cpu", n_ctx=zoo.N_CTX, n_batch=64, n_threads=2)


@pytest.mark.parametrize("splits", [[12], [11, 1]])
def test_each_attention_is_observed_once(llama, splits):
    found = []
    with llama.context.observed_attention(found.append):
        llama.eval(TOKENS[: splits[0]])
        for token in TOKENS[splits[0] :]:
            llama.eval([token])
    nodes = llama.context.nodes
    assert [each.shape for each in found] == [
        (n_tokens, node.n_head * (node.value_dim or node.head_dim)) for n_tokens in splits for node in nodes
    ]


def test_the_first_token_attends_to_its_own_value(llama):
    outputs, context = [], llama.context
    with context.observed_attention(outputs.append):
        llama.eval(TOKENS[:1])
    for node, shape, output in zip(context.nodes, context.shapes, outputs, strict=True):
        keys, values = (as_floats(rows)[:, 0] for rows in context.cache.rows(node.kv_layer))
        expected = keys[:, : node.value_dim] if node.latent else values
        assert expected.any()
        np.testing.assert_allclose(output[0], np.repeat(expected, shape.group, axis=0).ravel(), rtol=1e-2, atol=1e-3)
