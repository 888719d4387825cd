"""Streaming on whole models: positions in the cache, sequences of any length, and `window`.

In a model of one layer keys depend on tokens alone. So a token of a long sequence must get the logits that it gets in
a short context of just the tokens that are kept.
"""

import numpy as np
import pytest
from helpers import tiny_models

import octavo
from octavo.errors import OctavoError
from octavo.runtime.cache import kv_cache
from octavo.runtime.graph import attention_nodes as nodes
from octavo.settings import LONGEST

pytestmark = pytest.mark.sampled

SAME = 0.02  # as in test_on_models.py
TOKENS = np.random.default_rng(8).integers(32, 127, 2000).tolist()
Q8_0, Q4_0 = {"type_k": 8, "type_v": 8}, {"type_k": 2, "type_v": 2}
#: By the type of keys: they are rounded after RoPE at other positions. Rounding them to q4_0 takes logits up to
#: 1.6 away from those of f16, in models of this size.
APART = {0: SAME, 8: 0.5, 2: 2.0}
MODELS = {"norm": ("llama", {}), "neox": ("qwen2", {}), "yarn": ("llama", {"rope_scaling": "yarn", "rope_scale": 4.0})}


@pytest.fixture(scope="module")
def one_layer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    return {
        name: tiny_models.write_model(folder / f"{name}.gguf", name, n_layer=1) for name in ("llama", "qwen2", "gemma3")
    }


def new_llama(model, attention="dense", n_ctx=128, **options):
    return octavo.Llama(model, attention=attention, n_ctx=n_ctx, n_batch=100, n_threads=2, **options)


def kept(tokens, sinks, recent):
    return tokens[:sinks] + tokens[max(sinks, len(tokens) - recent) :]


def logits_of(llama, tokens):
    llama.reset()
    llama.eval(tokens)
    return llama.logits()


@pytest.fixture
def early_origin(monkeypatch):
    """The origin of positions moves on often."""
    monkeypatch.setattr(kv_cache, "_FARTHEST", 700)


@pytest.mark.parametrize(
    ("name", "rows"),
    [(name, rows) for name in MODELS for rows in ({}, Q8_0)] + [("norm", Q4_0)],
    ids=lambda each: each if isinstance(each, str) else {0: "f16", 8: "q8_0", 2: "q4_0"}[each.get("type_k", 0)],
)
def test_a_long_sequence_is_a_short_context_of_what_is_kept(one_layer, name, rows, early_origin):
    architecture, options = MODELS[name]
    llama = new_llama(one_layer[architecture], "streaming:sinks=4,recent=60", **options, **rows)
    short = new_llama(one_layer[architecture], **options, **rows)
    tolerance, done, origins = APART[rows.get("type_k", 0)], 0, set()
    for n_tokens in (64, 65, 70, 400, 401, 900, 901, 1900):
        llama.eval(TOKENS[done:n_tokens])
        expected = logits_of(short, kept(TOKENS[:n_tokens], 4, 60))
        np.testing.assert_allclose(llama.logits(), expected, atol=tolerance)
        done = n_tokens
        origins.add(llama.context.cache.origin)
    assert len(origins) > 2
    assert llama.context.cache.table.tables.shape[1] < 1900 // 256, "the tails have closed their gaps"


def test_positions_in_the_sequence_give_something_else(one_layer):
    in_cache, in_sequence = (
        new_llama(one_layer["llama"], f"streaming:sinks=4,recent=60,positions={positions}", n_ctx=1000)
        for positions in ("cache", "sequence")
    )
    np.testing.assert_array_equal(*(logits_of(llama, TOKENS[:64]) for llama in (in_cache, in_sequence)))
    assert np.abs(logits_of(in_cache, TOKENS[:500]) - logits_of(in_sequence, TOKENS[:500])).max() > 10 * SAME


def test_a_window_is_a_short_context(one_layer, early_origin):
    llama, short = new_llama(one_layer["llama"], "window:tokens=50"), new_llama(one_layer["llama"])
    expected = logits_of(short, TOKENS[1450:1500])
    np.testing.assert_allclose(logits_of(llama, TOKENS[:1500]), expected, atol=SAME)
    assert llama.context.cache.origin > 0


@pytest.mark.parametrize("sinks", [255, 256])
def test_sinks_may_fill_their_chunk(tiny_model, sinks, early_origin):
    llama = new_llama(tiny_model, f"streaming:sinks={sinks},recent=60", n_ctx=1024)
    tokens = (TOKENS * 3)[:2500]
    for start in range(0, 2500, 100):
        llama.prefill(tokens[start : start + 100])
    assert llama.context.cache.origin > 0
    llama.eval(tokens[:1])
    short = new_llama(tiny_model, f"streaming:sinks={sinks},recent=60", n_ctx=4096)
    short.eval([*tokens, *tokens[:1]])
    np.testing.assert_allclose(llama.logits(), short.logits(), atol=APART[0])


@pytest.mark.parametrize("attention", ["streaming:sinks=3,recent=40", "window:tokens=40"])
def test_batches_and_single_tokens_give_the_same(tiny_model, attention, early_origin):
    in_batches, one_by_one = new_llama(tiny_model, attention), new_llama(tiny_model, attention)
    in_batches.eval(TOKENS[:900])
    for token in TOKENS[:900]:
        one_by_one.eval([token])
    np.testing.assert_allclose(in_batches.logits(), one_by_one.logits(), atol=SAME)


def test_beside_sliding_windows(tmp_path, early_origin):
    """Layers that slide by themselves are turned with the others when the origin moves."""
    model = tiny_models.write_model(tmp_path / "gemma3.gguf", "gemma3", n_layer=6, window=32)
    moving, staying = (new_llama(model, "streaming:sinks=4,recent=60", n_ctx=n_ctx) for n_ctx in (128, 2000))
    np.testing.assert_allclose(logits_of(moving, TOKENS), logits_of(staying, TOKENS), atol=2 * SAME)
    assert (moving.context.cache.origin > 0, staying.context.cache.origin) == (True, 0)


def test_memory_does_not_grow(tiny_model, early_origin):
    llama = new_llama(tiny_model, "streaming:sinks=4,recent=60")
    sizes = []
    for n_tokens in (1000, 2000):
        llama.eval(TOKENS[llama.n_tokens : n_tokens])
        sizes.append(llama.context.cache.kv_bytes)
    assert sizes[1] <= sizes[0]


# Going back.


@pytest.mark.parametrize("n_left", [1895, 1500, 30])
def test_rewinding_is_as_if_the_rest_had_not_come(tiny_model, n_left, early_origin):
    llama, fresh = (new_llama(tiny_model, "streaming:sinks=4,recent=60") for _ in range(2))
    llama.eval(TOKENS[:1900])
    llama.rewind(n_left)
    assert llama.n_tokens == llama.context.cache.n_tokens == n_left
    fresh.eval(TOKENS[:n_left])
    for each in (llama, fresh):
        each.eval([7, 8, 9])
    np.testing.assert_allclose(llama.logits(), fresh.logits(), atol=SAME)


def test_a_checkpoint_is_gone_back_to_over_a_moved_origin(tiny_model, early_origin):
    llama = new_llama(tiny_model, "streaming:sinks=4,recent=60")
    llama.eval(TOKENS[:700])
    cache = llama.context.cache
    checkpoint = cache.checkpoint()
    llama.eval(TOKENS[700:760])
    expected = llama.logits()
    llama.eval(TOKENS[760:1700])
    assert cache.origin > checkpoint.origin
    cache.restore(checkpoint)
    llama.n_tokens = 700
    llama.eval(TOKENS[700:760])
    np.testing.assert_array_equal(llama.logits(), expected)


# The limit.


@pytest.mark.parametrize(
    ("attention", "longest"),
    [
        ("dense", 128),
        ("h2o", 128),
        ("quest", 128),
        ("streaming:positions=sequence", 128),
        ("streaming", LONGEST),
        ("streaming:sinks=0,positions=sequence", LONGEST),
        ("window", LONGEST),
    ],
)
def test_what_is_of_any_length(tiny_model, attention, longest):
    llama = new_llama(tiny_model)
    llama.set_attention(attention)
    assert (llama.n_ctx(), llama.longest) == (128, longest)
    llama.eval(TOKENS[:128])
    if longest == 128:
        with pytest.raises(OctavoError, match="129 tokens do not fit the context of 128"):
            llama.eval([7])
    else:
        llama.eval([7])
        assert llama.input_ids[:129].tolist() == [*TOKENS[:128], 7]


def test_a_window_does_not_outgrow_the_context(one_layer):
    """A quarter of 1,200 tokens is more than the context holds."""
    llama, short = new_llama(one_layer["llama"], "window", budget=0.25), new_llama(one_layer["llama"])
    np.testing.assert_allclose(logits_of(llama, TOKENS[:1200]), logits_of(short, TOKENS[1072:1200]), atol=SAME)


def test_completions_go_on_after_the_context(tiny_model):
    llama = new_llama(tiny_model, "streaming:sinks=4,recent=60")
    answer = llama.create_completion(
        TOKENS[:100], max_tokens=200, temperature=0.0, logit_bias={str(token): -100.0 for token in (268, 269, 270)}
    )
    assert answer["usage"]["completion_tokens"] > 28


@pytest.mark.parametrize("attention", ["streaming", "window"])
def test_a_model_whose_positions_are_unknown_keeps_its_limit(tiny_model, attention, monkeypatch):
    monkeypatch.setattr(nodes, "_rope_of", lambda queries: None)
    if attention == "streaming":
        with pytest.raises(OctavoError, match=r"use streaming:positions=sequence\.$"):
            new_llama(tiny_model, attention)
        attention += ":positions=sequence"
    assert new_llama(tiny_model, attention).longest == 128
