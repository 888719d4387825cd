"""The tiny models are fit for comparing attention: llama.cpp runs them, and wrong attention would show."""

import llama_cpp
import numpy as np
import pytest
from helpers import tiny_models

TOKENS = np.random.default_rng(1).integers(0, 256, 40).tolist()
SAME = 0.05  # flash attention sums in f16; logits have a standard deviation of about three

MODELS = {name: (name, {"n_layer": 6 if name == "gemma3" else 3}) for name in tiny_models.RUN}
MODELS["llama-mha"] = ("llama", {"n_kv_head": 4})
MODELS["llama-head-dim-32"] = ("llama", {"head_dim": 32, "n_embd": 192})
MODELS["gemma3-no-window"] = ("gemma3", {"n_layer": 6, "window": 0})


@pytest.fixture(scope="module", params=MODELS)
def model_path(request, tmp_path_factory):
    architecture, options = MODELS[request.param]
    path = tmp_path_factory.mktemp("tiny") / f"{request.param}.gguf"
    return tiny_models.write_model(path, architecture, **options)


def load(path, **options):
    return llama_cpp.Llama(str(path), n_ctx=256, n_threads=2, verbose=False, **options)


def last_logits(path, tokens, flash_attn=False):
    """The logits after the last of `tokens`."""
    model = load(path, flash_attn=flash_attn)
    model.eval(tokens)
    logits = llama_cpp.llama_get_logits_ith(model.ctx, -1)
    copied = np.ctypeslib.as_array(logits, (model.n_vocab(),)).copy()
    model.close()
    return copied


def test_logits_are_finite_and_spread(model_path):
    logits = last_logits(model_path, TOKENS)
    assert np.isfinite(logits).all()
    assert 1 < logits.std() < 5


def test_flash_attention_gives_the_same_logits(model_path):
    plain, flash = (last_logits(model_path, TOKENS, flash_attn) for flash_attn in (False, True))
    np.testing.assert_allclose(flash, plain, atol=SAME)


def test_an_early_token_changes_the_last_logits(model_path):
    changed = TOKENS.copy()
    changed[2] = tiny_models.END_OF_TEXT
    difference = last_logits(model_path, changed) - last_logits(model_path, TOKENS)
    assert abs(difference).max() > 5 * SAME


@pytest.mark.parametrize("architecture", ["gemma2", "gemma3", "gpt-oss"])
def test_the_window_changes_the_logits(tmp_path, architecture):
    wide, narrow = (
        last_logits(tiny_models.write_model(tmp_path / f"{window}.gguf", architecture, window=window), TOKENS)
        for window in (64, 16)
    )
    assert abs(wide - narrow).max() > 5 * SAME


def test_same_arguments_same_file(tmp_path):
    first, again, other = (
        tiny_models.write_model(tmp_path / f"{i}.gguf", "llama", seed=seed).read_bytes()
        for i, seed in enumerate([0, 0, 1])
    )
    assert first == again
    assert first != other


def test_any_text_makes_the_round_trip_through_tokens(tmp_path):
    model = load(tiny_models.write_model(tmp_path / "llama.gguf", "llama"))
    text = "the cat and the hat\n\tnaïve 東京 🙂\x00".encode()
    tokens = model.tokenize(text, add_bos=False)
    assert model.detokenize(tokens) == text
    assert len(tokens) < len(text)  # merges were used


def test_special_tokens_and_chat_template(tmp_path):
    template = "{{ messages[0]['content'] }}<|im_end|>"
    path = tmp_path / "llama.gguf"
    model = load(tiny_models.write_model(path, "llama", chat_template=template, add_bos=True))
    tokens = model.tokenize(b"<|im_start|>x<|im_end|>", special=True)
    assert tokens[:2] == [tiny_models.END_OF_TEXT, tiny_models.IM_START]
    assert tokens[-1] == tiny_models.IM_END == model.token_eos()
    assert model.metadata["tokenizer.chat_template"] == template


@pytest.mark.parametrize("architecture", tiny_models.REFUSED)
def test_llama_cpp_loads_what_octavo_refuses(tmp_path, architecture):
    model = load(tiny_models.write_model(tmp_path / "refused.gguf", architecture))
    assert llama_cpp.llama_model_is_recurrent(model.model) == (architecture == "mamba")
    assert llama_cpp.llama_model_has_encoder(model.model) == (architecture == "t5")  # false for bert too
