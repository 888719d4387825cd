"""`octavo.Llama` is a drop-in for `llama_cpp.Llama`: the same calls give the same answers, on our attention."""

import gc
import json
import os
import signal
import threading
import weakref

import llama_cpp
import numpy as np
import pytest

import octavo
from octavo.runtime.document.index import Index, whole_layer
from octavo.runtime.document.stored_rows import as_floats, rotated

MESSAGES = [{"role": "user", "content": "Name the three largest lakes."}]
F16, Q8_0, Q4_0 = llama_cpp.GGML_TYPE_F16, llama_cpp.GGML_TYPE_Q8_0, llama_cpp.GGML_TYPE_Q4_0
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
    arguments = [json.loads(call["arguments"]) for call in calls]  # a blank may differ: its logits lie close together
    assert calls[0]["name"] == calls[1]["name"] == "find"
    assert arguments[0] == arguments[1]
    assert "size" in arguments[0]


def test_logprobs_are_close(both):
    top = [
        model.create_completion("Water boils at", max_tokens=1, temperature=0, logprobs=3)["choices"][0]["logprobs"]
        for model in both
    ]
    assert top[0]["tokens"] == top[1]["tokens"]
    assert top[0]["token_logprobs"][0] == pytest.approx(top[1]["token_logprobs"][0], abs=0.5)


@pytest.mark.parametrize("kv_type", [F16, Q8_0, Q4_0])
def test_state_is_saved_and_restored(tiny_model, kv_type):
    model = octavo.Llama(tiny_model, n_ctx=128, type_k=kv_type, type_v=kv_type)
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


def test_an_empty_state_is_restored(tiny_model):
    model = octavo.Llama(tiny_model, n_ctx=128)
    state = model.save_state()
    model.eval([1, 2, 3])
    model.load_state(state)
    assert model.n_tokens == model.context.cache.n_tokens == 0


@pytest.mark.parametrize(("saved", "loaded"), [(F16, Q8_0), (Q8_0, F16), (Q4_0, Q8_0)])
def test_state_of_another_type_of_keys_and_values_is_refused(tiny_model, saved, loaded):
    model, other = (octavo.Llama(tiny_model, n_ctx=128, type_k=each, type_v=each) for each in (loaded, saved))
    other.eval(list(range(50)))
    model.eval([1, 2, 3])
    with pytest.raises(octavo.OctavoError, match="these types of keys and values"):
        model.load_state(other.save_state())
    assert model.n_tokens == model.context.cache.n_tokens == 3


# How keys and values are stored.


@pytest.mark.parametrize(
    ("type_k", "type_v", "stored"),
    [
        (None, None, "f16"),
        (F16, F16, "f16"),
        (F16, None, "f16"),
        (None, F16, "f16"),
        (Q8_0, Q8_0, "q8_0"),
        (Q4_0, Q4_0, "q4_0"),
    ],
)
def test_keys_and_values_are_stored_as_asked(tiny_model, type_k, type_v, stored):
    model = octavo.Llama(tiny_model, n_ctx=128, type_k=type_k, type_v=type_v)
    assert model.context.kv_type == stored
    assert {layer.kv_type for layer in model.context.cache.layers} == {stored}


@pytest.mark.parametrize(
    ("type_k", "type_v"),
    [(F16, Q8_0), (Q8_0, Q4_0), (llama_cpp.GGML_TYPE_Q4_1,) * 2, (0, 0), (99, 99)],
)
def test_other_types_are_refused_in_a_sentence(tiny_model, type_k, type_v):
    with pytest.raises(octavo.OctavoError) as refusal:
        octavo.Llama(tiny_model, type_k=type_k, type_v=type_v)
    assert str(refusal.value) == (
        f"octavo's attention stores keys and values both as f16, both as q8_0 or both as q4_0, and not as "
        f"type_k={type_k} and type_v={type_v}: give GGML_TYPE_F16, GGML_TYPE_Q8_0 or GGML_TYPE_Q4_0 as both, or use "
        "attention='llama.cpp'."
    )


def test_llama_cpps_own_attention_gets_its_types_untouched(tiny_model):
    types = {"type_k": Q4_0, "type_v": F16}
    model = octavo.Llama(tiny_model, attention="llama.cpp", n_ctx=128, flash_attn=True, **types)
    assert (model.context_params.type_k, model.context_params.type_v) == tuple(types.values())
    model.eval([1, 2, 3])


def test_quantised_rows_take_less_memory_and_fewer_bytes_are_read(tiny_model):
    """Of 64 numbers q8_0 takes 64 bytes and a scale of 4, and q4_0 32 bytes and two scales of 2, in place of 128."""
    kv_bytes, bytes_read = [], []
    for kv_type in (F16, Q8_0, Q4_0):
        model = octavo.Llama(tiny_model, n_ctx=512, type_k=kv_type, type_v=kv_type)
        model.eval(list(range(250)) + [1] * 50)
        model.context.bytes_read = 0
        model.eval([7])
        kv_bytes.append(model.context.cache.kv_bytes)
        bytes_read.append(model.context.bytes_read)
    assert bytes_read == [301 * 3 * 2 * 2 * row for row in (128, 68, 36)]
    assert [n_bytes / kv_bytes[0] for n_bytes in kv_bytes] == [1, 68 / 128, 36 / 128]


def test_rows_of_q8_0_are_those_of_f16_to_half_a_step(tiny_model):
    """Of the first layer: those of the others hang on what attention gave before."""
    models = [octavo.Llama(tiny_model, n_ctx=512, type_k=each, type_v=each) for each in (F16, Q8_0)]
    for model in models:
        model.eval(list(range(250)) + [1] * 50)
    for exact, stored in zip(*(model.context.cache.rows(0) for model in models), strict=True):
        exact, stored = rotated(as_floats(exact)), rotated(as_floats(stored))
        step = np.abs(exact).max(axis=-1, keepdims=True) / 127
        assert (np.abs(stored - exact) <= 0.501 * step).all()
        assert np.abs(stored - exact).max() > 0


@pytest.mark.parametrize(
    ("stored", "asked", "names"),
    [(F16, Q8_0, ("f16", "q8_0")), (Q8_0, F16, ("q8_0", "f16")), (Q4_0, Q8_0, ("q4_0", "q8_0"))],
)
def test_a_document_of_another_type_is_refused(tiny_model, stored, asked, names):
    other, model = (octavo.Llama(tiny_model, n_ctx=128, type_k=each, type_v=each) for each in (stored, asked))
    other.eval(list(range(50)))
    layers = [whole_layer(*other.context.cache.rows(i), 0) for i in range(len(other.context.cache.layers))]
    document = Index(np.arange(50, dtype=np.int32), layers)
    model.eval([1, 2, 3])
    with pytest.raises(octavo.OctavoError) as refusal:
        model.attach(document)
    assert str(refusal.value) == (
        f"The document's keys and values are stored as {names[0]}, and this model was loaded to store them as "
        f"{names[1]}: load it with type_k and type_v for {names[0]}, or index the document with this one."
    )
    assert model.n_tokens == model.context.cache.n_tokens == 3
    other.eval([7])
    expected = other.logits()
    other.attach(document)
    other.eval([7])
    np.testing.assert_allclose(other.logits(), expected, atol=1e-4)


# What a model leaves behind.


@pytest.mark.parametrize("kv_type", [F16, Q8_0, Q4_0])
def test_a_dropped_model_frees_its_cache_at_once(tiny_model, kv_type):
    """Not when Python next looks for cycles: a cache may be most of the memory."""
    gc.collect()
    gc.disable()
    try:
        model = octavo.Llama(tiny_model, n_ctx=128, type_k=kv_type, type_v=kv_type)
        model.eval(list(range(50)))  # long enough to be interruptible
        left = [weakref.ref(each) for each in (model, model.context, model.context.cache)]
        del model
        assert [each() for each in left] == [None, None, None]
    finally:
        gc.enable()


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
    with pytest.raises(octavo.OctavoError, match=r"not a GGUF model|is damaged or incomplete"):
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
