"""The rules of convert/state.py, against the states that llama.cpp writes itself, and contexts that got a copy."""

import ctypes
import struct

import llama_cpp
import numpy as np
import pytest
from helpers import tiny_models, zoo

import octavo
from octavo import OctavoError
from octavo.evaluation.llama_state import MAGIC, copy_sequence, refuse_windows, sequence_state

pytestmark = pytest.mark.sampled

SAME = 0.05  # flash attention sums in f16; logits have a standard deviation of about three
TOKENS = np.random.default_rng(2).integers(0, 256, 300).tolist()
MORE = [65, 66, 67, 68]
N_LAYER, N_KV_HEAD, HEAD_DIM = 3, 2, 64

flash_attention = pytest.mark.parametrize("flash", [True, False], ids=["flash-on", "flash-off"])


def llama_cpp_context(model, flash, tokens=(), n_ctx=512):
    """llama.cpp's own context, which reads the tokens itself."""
    llama = llama_cpp.Llama(str(model), n_ctx=n_ctx, n_threads=2, flash_attn=flash, verbose=False)
    llama.eval(list(tokens))
    return llama


def own_state(llama):
    """What llama.cpp says its state is: bytes."""
    size = llama_cpp.llama_state_seq_get_size(llama.ctx, 0)
    buffer = (ctypes.c_uint8 * size)()
    assert llama_cpp.llama_state_seq_get_data(llama.ctx, buffer, size, 0) == size
    return bytes(buffer)


def parse(state):
    """A state by the rules: the parts that are equal in all states of the same tokens, and the keys and values."""
    at = 0

    def take(form):
        nonlocal at
        at += struct.calcsize(form)
        return struct.unpack_from(form, state, at - struct.calcsize(form))

    def take_rows(*shape):
        nonlocal at
        at += 2 * np.prod(shape)
        return np.frombuffer(state[at - 2 * np.prod(shape) : at], np.float16).reshape(shape)

    parts = {"header": take("=Ii"), "counts": take("=II")}
    n_cells = parts["counts"][1]
    parts["cells"] = [take("=iIi") for _ in range(n_cells)]
    parts["data"] = transposed, n_layer = take("=II")
    keys, values = [], []
    for i in range(n_layer):
        parts[f"keys {i}"] = take("=iQ")
        keys.append(take_rows(n_cells, N_KV_HEAD, HEAD_DIM).transpose(1, 0, 2))
    for i in range(n_layer):
        parts[f"values {i}"] = take("=iII" if transposed else "=iQ")
        if transposed:
            values.append(take_rows(N_KV_HEAD, HEAD_DIM, n_cells).transpose(0, 2, 1))
        else:
            values.append(take_rows(n_cells, N_KV_HEAD, HEAD_DIM).transpose(1, 0, 2))
    assert at == len(state)
    return parts, keys, values


def logits(llama):
    row = llama_cpp.llama_get_logits_ith(llama.ctx, -1)
    return np.ctypeslib.as_array(row, (llama.n_vocab(),)).copy()


def logits_of(llama, tokens):
    """Logits after each of the tokens, decoded one by one."""
    rows = []
    for token in tokens:
        llama.eval([token])
        rows.append(logits(llama))
    return np.array(rows)


@pytest.fixture(scope="module")
def source(tiny_model):
    llama = octavo.Llama(tiny_model, n_threads=2)
    llama.eval(TOKENS)
    return llama


@pytest.fixture(scope="module")
def states(tiny_model, source):
    """For each way to keep values: our state, and llama.cpp's of a context that read the same tokens."""
    return {
        flash: (
            parse(sequence_state(source.context.cache, transposed=not flash).tobytes()),
            parse(own_state(llama_cpp_context(tiny_model, flash, TOKENS))),
        )
        for flash in (True, False)
    }


@flash_attention
def test_rules_1_to_7_the_state_has_the_parts_that_llama_cpp_writes(states, flash):
    (ours, *_), (theirs, *_) = states[flash]
    assert ours == theirs


def test_rule_1_the_header(states):
    assert states[True][0][0]["header"] == (MAGIC, 0)


def test_rules_2_and_3_a_cell_for_each_token(states):
    parts, _, _ = states[True][0]
    assert parts["counts"] == (1, len(TOKENS))
    assert parts["cells"] == [(position, 1, 0) for position in range(len(TOKENS))]


@flash_attention
def test_rule_4_values_are_transposed_without_flash_attention(states, flash):
    assert states[flash][0][0]["data"] == (not flash, N_LAYER)


@flash_attention
def test_rules_5_to_7_the_rows_are_those_of_our_cache(source, states, flash):
    (_, keys, values), (_, their_keys, their_values) = states[flash]
    for i in range(N_LAYER):
        expected_keys, expected_values = source.context.cache.rows(i)
        np.testing.assert_array_equal(keys[i], expected_keys)
        np.testing.assert_array_equal(values[i], expected_values)
        np.testing.assert_allclose(keys[i], their_keys[i], atol=SAME)
        np.testing.assert_allclose(values[i], their_values[i], atol=SAME)


@pytest.mark.parametrize("architecture", ["qwen35", "granitehybrid"])
@flash_attention
def test_rule_8_a_hybrid_model_goes_on_with_its_recurrent_state(tmp_path, architecture, flash):
    """The first has positions in several dimensions, too (rule 3)."""
    model = zoo.write_model(tmp_path / "model.gguf", architecture, **zoo.HYBRID[architecture], context_length=1024)
    source, target = octavo.Llama(model, n_threads=2), llama_cpp_context(model, flash)
    source.eval(TOKENS)
    copy_sequence(source, target)
    expected = logits_of(llama_cpp_context(model, flash, TOKENS), MORE)
    np.testing.assert_allclose(logits_of(target, MORE), expected, atol=SAME)


@pytest.mark.parametrize("architecture", ["gemma2", "gemma3", "gpt-oss"])
def test_rule_9_sliding_windows_are_refused(tmp_path, architecture):
    llama = octavo.Llama(tiny_models.write_model(tmp_path / "window.gguf", architecture), n_threads=2)
    with pytest.raises(OctavoError, match="sliding window"):
        refuse_windows(llama)


@flash_attention
def test_llama_cpp_holds_the_copy_to_the_bit(tiny_model, source, flash):
    target = llama_cpp_context(tiny_model, flash)
    copy_sequence(source, target)
    assert own_state(target) == sequence_state(source.context.cache, transposed=not flash).tobytes()


@flash_attention
def test_llama_cpp_goes_on_as_if_it_had_read_the_tokens(tiny_model, source, flash):
    target = llama_cpp_context(tiny_model, flash)
    copy_sequence(source, target)
    assert target.n_tokens == len(TOKENS)
    assert list(target.eval_tokens) == TOKENS
    expected = logits_of(llama_cpp_context(tiny_model, flash, TOKENS), MORE)
    np.testing.assert_allclose(logits_of(target, MORE), expected, atol=SAME)
    assert list(target.eval_tokens) == TOKENS + MORE


@flash_attention
def test_a_copy_replaces_what_was_there(tiny_model, flash):
    """First a longer sequence, then a shorter one of other tokens."""
    source = octavo.Llama(tiny_model, n_threads=2)
    target = llama_cpp_context(tiny_model, flash)
    for tokens in (TOKENS, TOKENS[100:250]):
        source.reset()
        source.context.kv_cache_clear()
        source.eval(tokens)
        copy_sequence(source, target)
        expected = logits_of(llama_cpp_context(tiny_model, flash, tokens), MORE)
        np.testing.assert_allclose(logits_of(target, MORE), expected, atol=SAME)


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
@flash_attention
def test_other_architectures(tmp_path, architecture, flash):
    path = tiny_models.write_model(tmp_path / "other.gguf", architecture)
    source = octavo.Llama(path, n_threads=2)
    source.eval(TOKENS)
    target = llama_cpp_context(path, flash)
    copy_sequence(source, target)
    expected = logits_of(llama_cpp_context(path, flash, TOKENS), MORE)
    np.testing.assert_allclose(logits_of(target, MORE), expected, atol=SAME)


def test_a_context_that_is_too_small_is_an_error_with_llama_cpps_reason(tiny_model, source):
    target = llama_cpp_context(tiny_model, flash=True, n_ctx=256)
    with pytest.raises(OctavoError, match=r"does not take a copy .* use --fill prefill\. It says: .*cells"):
        copy_sequence(source, target)
