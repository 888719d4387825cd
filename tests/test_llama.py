"""`octavo.Llama` is a drop-in for `llama_cpp.Llama`: the same calls give the same answers, on our attention."""

import json
import os
import signal
import threading

import llama_cpp
import numpy as np
import pytest

import octavo

MESSAGES = [{"role": "user", "content": "Name the three largest lakes."}]
SCHEMA = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}


@pytest.fixture(scope="module")
def both(real_model):
    options = {"n_ctx": 512, "n_threads": 2, "seed": 7, "logits_all": True}
    return octavo.Llama(real_model, **options), llama_cpp.Llama(str(real_model), verbose=False, **options)


def streamed(model, **options):
    chunks = model.create_chat_completion(MESSAGES, stream=True, temperature=0, max_tokens=12, **options)
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


def test_streamed_chat_is_the_same(both):
    ours, theirs = both
    assert streamed(ours) == streamed(theirs) != ""


def test_sampling_with_a_seed_repeats(both):
    ours, _ = both
    answers = []
    for _ in range(2):
        ours.set_seed(3)
        ours.reset()
        answers.append(ours.create_completion("The lake", max_tokens=12, temperature=0.9)["choices"][0]["text"])
    assert answers[0] == answers[1]


def test_json_schema_grammar_holds(both):
    ours, _ = both
    answer = ours.create_chat_completion(
        MESSAGES, response_format={"type": "json_object", "schema": SCHEMA}, temperature=0, max_tokens=30
    )
    assert isinstance(json.loads(answer["choices"][0]["message"]["content"])["size"], int)


def test_tools_are_called(both):
    ours, theirs = both
    tool = {"type": "function", "function": {"name": "find", "description": "Find a lake", "parameters": SCHEMA}}
    calls = [
        model.create_chat_completion(
            MESSAGES,
            tools=[tool],
            tool_choice={"type": "function", "function": {"name": "find"}},
            temperature=0,
            max_tokens=30,
        )["choices"][0]["message"]["tool_calls"][0]["function"]
        for model in (ours, theirs)
    ]
    assert calls[0] == calls[1]
    assert "size" in json.loads(calls[0]["arguments"])


def test_logprobs_are_close(both):
    top = [
        model.create_completion("Water boils at", max_tokens=1, temperature=0, logprobs=3)["choices"][0]["logprobs"]
        for model in both
    ]
    assert top[0]["tokens"] == top[1]["tokens"]
    assert top[0]["token_logprobs"][0] == pytest.approx(top[1]["token_logprobs"][0], abs=0.5)


def test_state_is_saved_and_restored(tiny_model):
    model = octavo.Llama(tiny_model, n_ctx=128)
    model.eval(list(range(50)))
    state = model.save_state()
    model.eval([7])
    expected = model.logits()
    model.reset()
    model.eval([1, 2, 3])
    model.load_state(state)
    assert model.n_tokens == 50
    model.eval([7])
    np.testing.assert_array_equal(model.logits(), expected)


def test_state_of_another_model_is_refused(tiny_model, real_model):
    model, other = octavo.Llama(tiny_model, n_ctx=128), octavo.Llama(real_model, n_ctx=128)
    other.eval([1, 2, 3])
    with pytest.raises(octavo.OctavoError, match="not saved by octavo with this model"):
        model.load_state(other.save_state())


def test_the_context_is_the_models_own_and_has_an_end(tiny_model):
    assert octavo.Llama(tiny_model).n_ctx() == 4096
    small = octavo.Llama(tiny_model, n_ctx=64)
    assert small.n_ctx() == 64
    with pytest.raises(octavo.OctavoError, match="70 tokens do not fit the context of 64"):
        small.eval(list(range(70)))
    assert small.context.cache.n_tokens == 0


def test_cutting_out_of_the_middle_is_refused_and_changes_nothing(tiny_model):
    model = octavo.Llama(tiny_model, n_ctx=128)
    model.eval(list(range(30)))
    assert not model.context.kv_cache_seq_rm(-1, 10, 20)
    assert model.context.cache.n_tokens == 30


@pytest.mark.parametrize(("attention", "budget"), [("magic", 0.1), ("squeezed", 0.0), ("squeezed", 1.5)])
def test_wrong_attention_is_refused(tiny_model, attention, budget):
    with pytest.raises(octavo.OctavoError, match=r"no attention named|share of the KV cache"):
        octavo.Llama(tiny_model, attention=attention, budget=budget)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 40, b"text, not a model"])
def test_files_that_are_no_models_are_refused(tmp_path, content, capfd):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(octavo.OctavoError, match=r"not a GGUF model|cannot be loaded"):
        octavo.Llama(path)
    assert capfd.readouterr().err == ""


def test_a_truncated_model_is_refused(tmp_path, tiny_model):
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_model.read_bytes()[:-100_000])
    with pytest.raises(octavo.OctavoError, match="incomplete"):
        octavo.Llama(path)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.default_int_handler])
def test_a_batch_leaves_the_handling_of_ctrl_c_as_it_was(tiny_model, handler):
    model = octavo.Llama(tiny_model, n_ctx=128)
    before = signal.signal(signal.SIGINT, handler)
    try:
        model.eval(list(range(50)))
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_ignored_ctrl_c_does_not_end_a_batch(tiny_model):
    model = octavo.Llama(tiny_model)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        model.eval(list(range(250)) * 12)
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert model.context.cache.n_tokens == 3000
