"""The share of dense attention's weight on the rows that a step attends, beside the oracle's."""

import numpy as np
import pytest
from helpers import oracle, tiny_models

import octavo
from octavo.errors import OctavoError
from octavo.evaluation.coverage import covered_steps
from octavo.runtime.document.stored_rows import as_floats

TEXT = np.random.default_rng(5).integers(32, 127, 900).tolist()


def measured(llama, attention):
    """The coverage of one token after the text, the best that as many rows cover, and the queries of the token."""
    llama.reset()
    llama.set_attention(attention)
    llama.eval(TEXT)
    llama.context.bytes_read = 0
    with llama.context.captured_queries(1) as queries, covered_steps(llama) as steps:
        llama.eval(TEXT[:1])
    [step] = steps
    return step, [best(llama, i, node, queries[i]) for i, node in enumerate(llama.context.nodes) if not node.window]


def best(llama, number, node, queries):
    """The largest coverage by the newest row and as many others as each KV head's bytes are."""
    cache = llama.context.cache
    keys = as_floats(cache.rows(node.kv_layer)[0]).astype(np.float64)
    heads, found = cache.table.layer_heads[node.kv_layer], []
    for i, head in enumerate(heads):
        scores = oracle.capped(queries[i, 0].astype(np.float64) @ keys[i].T, node.softcap)
        n_rows = head["bytes_read"] // llama.context.shapes[number].token_bytes
        *others, newest = oracle.shares(scores)
        found.append((newest + np.sort(others)[::-1][: n_rows - 1].sum()) / len(scores))
    return found


@pytest.fixture(scope="module", params=["f16", "q8_0"])
def llama(request, tiny_model):
    return octavo.Llama(tiny_model, n_ctx=1024, n_threads=2, kv_type=request.param)


def test_dense_attention_covers_everything(llama):
    step, _ = measured(llama, "dense")
    assert step.true.shape == step.estimated.shape == (len(llama.context.nodes), llama.context.nodes[0].n_kv_head)
    np.testing.assert_allclose(step.true, 1, rtol=1e-6)
    assert np.isnan(step.estimated).all()


def test_the_best_rows_cover_what_the_oracle_says(llama):
    step, expected = measured(llama, "topk:budget=0.25")
    assert step.true.min() > 0.2
    assert step.true.max() < 0.98
    np.testing.assert_allclose(step.true, expected, rtol=1e-4)


def test_an_estimate_is_near_to_what_is_covered(llama):
    step, most = measured(llama, "sketch:quality=0.8")
    assert (step.true < most).all()
    assert 0.3 < step.true.min() < step.true.max() < 1
    np.testing.assert_allclose(step.estimated, step.true, atol=0.15)
    assert not np.allclose(step.estimated, step.true, atol=1e-6)


def test_layers_whose_window_slides_are_left_out(tmp_path):
    path = tiny_models.write_model(tmp_path / "gemma3.gguf", "gemma3", n_layer=6, window=64)
    llama = octavo.Llama(path, n_ctx=1024, n_threads=1)
    step, expected = measured(llama, "topk:budget=0.25")
    assert len(step.true) == len(expected) < 6
    np.testing.assert_allclose(step.true, expected, rtol=1e-4)


def test_what_is_forgotten_cannot_be_covered(llama):
    llama.reset()
    llama.set_attention("streaming")
    with pytest.raises(OctavoError, match="streaming forgets rows"), covered_steps(llama):
        pass
