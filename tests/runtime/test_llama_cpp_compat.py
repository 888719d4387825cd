"""`octavo.Llama` in the place of `llama_cpp.Llama`: what code that was written for that relies on."""

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import llama_cpp
import numpy as np
import pytest
from helpers import tiny_models
from llama_cpp.llama_cache import LlamaRAMCache
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

import octavo
from octavo import OctavoError

TEXT = b"the keeper wrote the name of the ship and the keeper wrote the name of the sea and the keeper wrote " * 3
EVICT = ["h2o", "streaming", "window"]
SELECT = ["quest", "sparq", "squeezed"]


def test_words_alone(tiny_model):
    ours, theirs = (kind(str(tiny_model), vocab_only=True, verbose=False) for kind in (octavo.Llama, llama_cpp.Llama))
    tokens = ours.tokenize(TEXT)
    assert tokens == theirs.tokenize(TEXT)
    assert ours.detokenize(tokens) == theirs.detokenize(tokens)
    with pytest.raises(OctavoError, match="loaded with"):
        ours.context  # noqa: B018 - raises
    for use in (lambda: ours.eval(tokens), lambda: ours(TEXT.decode(), max_tokens=1)):
        with pytest.raises(OctavoError, match="vocab_only=True, without its weights: leave that out"):
            use()
    ours.close()


def completion(llama, **options):
    return llama.create_completion(llama.tokenize(TEXT), max_tokens=40, temperature=0, **options)["choices"][0]["text"]


@pytest.mark.parametrize("attention", ["dense", *SELECT, *EVICT])
def test_a_draft_changes_no_text(tiny_model, attention):
    options = {"attention": attention, "budget": 0.25, "n_ctx": 1024, "n_batch": 128, "n_threads": 2}
    expected = completion(octavo.Llama(tiny_model, **options))
    drafted = octavo.Llama(tiny_model, draft_model=LlamaPromptLookupDecoding(num_pred_tokens=4), **options)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert completion(drafted) == expected
    told = [str(each.message) for each in said if "draft" in str(each.message)]
    one_by_one = f"{attention} reads tokens one by one, so the draft model is not used."
    assert told == ([] if attention == "dense" else [one_by_one])
    assert drafted.draft_model is not None


def test_a_draft_is_used_where_many_tokens_are_read_at_once(tiny_model):
    drafted, sizes = [], []

    class Draft(LlamaPromptLookupDecoding):
        def __call__(self, input_ids, /, **options):
            found = super().__call__(input_ids, **options)
            drafted.append(len(found))
            return found

    llama = octavo.Llama(tiny_model, n_ctx=1024, n_threads=2, draft_model=Draft(num_pred_tokens=4))
    decode = llama._ctx.decode
    llama._ctx.decode = lambda batch, *more: (sizes.append(batch.n_tokens()), decode(batch, *more))
    completion(llama)
    assert sum(drafted) > 0
    assert max(sizes[1:]) > 1


def test_a_draft_longer_than_a_batch_is_cut(tiny_model):
    options = {"n_ctx": 1024, "n_batch": 8, "n_threads": 2}
    expected = completion(octavo.Llama(tiny_model, **options))
    draft = LlamaPromptLookupDecoding(num_pred_tokens=30)
    assert completion(octavo.Llama(tiny_model, draft_model=draft, **options)) == expected


def test_a_text_that_is_too_long_is_told_with_the_length_of_the_context(tiny_model):
    llama = octavo.Llama(tiny_model, n_ctx=1024, n_threads=2)
    told = r"^Requested tokens \(2000\) exceed context window of 1024: give a larger context \(n_ctx\), or a shorter"
    for kind in (ValueError, OctavoError):
        with pytest.raises(kind, match=told):
            llama.create_completion([65] * 2000)
    with pytest.raises(ValueError, match="exceed context window of 1024"):
        list(llama.create_completion([65] * 2000, stream=True))


@pytest.mark.parametrize(
    "options",
    [
        {"attention": "quest", "budget": 0.3, "n_ctx": 700, "n_batch": 64},
        {"type_k": 8, "type_v": 8, "rope_scaling": "yarn", "rope_scale": 2.0},
        {"logits_all": True, "seed": 7, "device": "cpu"},
        {"attention": "llama.cpp", "n_ctx": 300},
    ],
)
def test_a_pickle_is_the_same_model(tiny_model, options):
    llama = octavo.Llama(tiny_model, n_threads=2, **options)
    again = pickle.loads(pickle.dumps(llama))
    for name in ("attention", "n_batch", "_rope_scale", "_logits_all"):
        assert getattr(again, name) == getattr(llama, name)
    assert again.n_ctx() == llama.n_ctx()
    assert again.context_params.n_threads == 2
    if options.get("attention") != "llama.cpp":
        assert again.context.kv_type == llama.context.kv_type
        assert [node.rope.frequencies.tolist() for node in again.context.nodes] == [
            node.rope.frequencies.tolist() for node in llama.context.nodes
        ]
    for model in (llama, again):
        model.eval(list(range(60)))
    np.testing.assert_array_equal(again.logits(), llama.logits())


def test_a_pickle_attends_as_the_model_did_last(tiny_model):
    llama = octavo.Llama(tiny_model, n_ctx=700, n_threads=2)
    llama.set_attention("sparq", 0.4)
    llama.set_seed(5)
    llama.draft_model = LlamaPromptLookupDecoding(num_pred_tokens=3)
    again = pickle.loads(pickle.dumps(llama))
    assert (str(again.attention), again.attention.budget, again._seed) == ("sparq", 0.4, 5)
    assert again.draft_model.num_pred_tokens == 3


@pytest.mark.parametrize("attention", ["dense", "quest", *EVICT])
def test_a_cache_of_states_is_used_where_states_can_be_kept(tiny_model, attention):
    llama = octavo.Llama(tiny_model, attention=attention, budget=0.25, n_ctx=1024, n_threads=2)
    cache, forgets = LlamaRAMCache(), attention in EVICT
    if forgets:
        with pytest.warns(UserWarning, match=f"{attention} forgets what it read, so the cache is not used"):
            llama.set_cache(cache)
    else:
        llama.set_cache(cache)
    first = completion(llama)
    assert bool(cache.cache_state) != forgets
    assert completion(llama) == first
    assert llama.cache is cache


@pytest.mark.parametrize("n_gpu_layers", [-1, 99, 0])
def test_layers_for_a_gpu_stay_on_the_cpu(tiny_model, n_gpu_layers):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        llama = octavo.Llama(tiny_model, n_gpu_layers=n_gpu_layers, device="cpu", n_ctx=128)
    assert llama.model_params.n_gpu_layers == 0


@pytest.mark.parametrize("architecture", ["llama", "deepseek2"])
@pytest.mark.parametrize("has_amx", [False, True])
@pytest.mark.parametrize("attention", ["dense", "llama.cpp"])
def test_no_buffers_for_amx_hold_latent_attention(tmp_path, monkeypatch, architecture, has_amx, attention):
    """llama.cpp's AMX buffers take weights of latent attention, and abort when they are multiplied."""
    monkeypatch.setattr("octavo.runtime.llama.HAS_AMX", has_amx)
    monkeypatch.setattr("octavo.runtime.llama.MULTIPLIES_WEIGHTS", False)
    model = tiny_models.write_model(tmp_path / "model.gguf", architecture, n_layer=1)
    llama = octavo.Llama(model, device="cpu", n_ctx=128, attention=attention)
    assert llama.model_params.use_extra_bufts == (not has_amx or architecture == "llama")
    llama.eval([1, 2, 3])


def test_what_a_gpu_would_have_computed_is_said(tiny_model, monkeypatch):
    monkeypatch.setattr(llama_cpp, "llama_supports_gpu_offload", lambda: True)
    with pytest.warns(UserWarning, match="n_gpu_layers is not used"):
        octavo.Llama(tiny_model, n_gpu_layers=-1, device="cpu", n_ctx=128)


@pytest.mark.parametrize("name", ["type_k", "type_v"])
def test_a_type_that_is_given_alone_holds_for_both(tiny_model, name):
    assert octavo.Llama(tiny_model, n_ctx=128, **{name: llama_cpp.GGML_TYPE_Q8_0}).context.kv_type == "q8_0"
    assert octavo.Llama(tiny_model, n_ctx=128, **{name: llama_cpp.GGML_TYPE_F16}).context.kv_type == "f16"


# Texts.


@pytest.fixture(scope="module")
def of_long_tokens(tmp_path_factory):
    """A model with tokens of 2, 4, ... 512 blanks, as models of code have some of line breaks and blanks."""
    merges = tiny_models.MERGES + [f"{'Ġ' * n} {'Ġ' * n}" for n in (1, 2, 4, 8, 16, 32, 64, 128, 256)]
    path = tmp_path_factory.mktemp("long") / "long.gguf"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_models, "N_VOCAB", 256 + len(merges) + len(tiny_models.SPECIALS))
        size = tiny_models.Size(2, 4, 2, 64, 128, 256, 4096, 32)
        recipe, rng = tiny_models.llama(size), np.random.default_rng(0)
        tensors = {name: draw(rng).astype(np.float32) for name, draw in tiny_models.all_tensors(recipe, 2).items()}
        metadata = tiny_models.common_metadata(size) | recipe.metadata
        return tiny_models.write_gguf(path, "llama", metadata, tensors, merges=merges)


def test_no_text_is_lost_however_long_its_tokens_are(of_long_tokens):
    llama = octavo.Llama(of_long_tokens, n_ctx=512, n_threads=2)
    text = b"if x:\n" + b" " * 513 + b"y = 1\n" + b" " * 65 + b"z"
    tokens = llama.tokenize(text, add_bos=False)
    assert len(tokens) < 40
    assert llama.detokenize(tokens) == llama.tokenizer().detokenize(tokens) == text
    assert b"".join(map(llama.piece, tokens)) == text
    longest = max(tokens, key=lambda token: len(llama.piece(token)))
    assert len(llama.piece(longest)) == 512
    completion = llama.create_completion([1], max_tokens=3, temperature=0, logit_bias={str(longest): 1e4})
    assert completion["choices"][0]["text"] == " " * 3 * 512
    parts = llama.create_completion([1], max_tokens=3, temperature=0, logit_bias={str(longest): 1e4}, stream=True)
    assert "".join(part["choices"][0]["text"] for part in parts) == " " * 3 * 512


@pytest.mark.parametrize("stop", [["nd", "an"], ["an", "nd"], "an", ["q", "nd", " a"]])
@pytest.mark.parametrize("echo", [False, True])
def test_the_first_of_several_stops_ends_a_text(tiny_model, stop, echo):
    """All are there once " and" is, which is one token."""
    llama = octavo.Llama(tiny_model, n_ctx=512, n_threads=2)
    coming = llama.tokenize(b"x and so on", add_bos=False)
    assert b" and" in map(llama.piece, coming)

    def force(_, logits):
        logits[coming.pop(0)] = 1e4
        return logits

    forced = llama_cpp.LogitsProcessorList([force])
    expected = "x" if " a" in stop else "x "
    choice = llama.create_completion("Once ", stop=stop, echo=echo, logits_processor=forced)["choices"][0]
    assert choice["text"] == "Once " * echo + expected
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("adds_bos", [False, True])
@pytest.mark.parametrize("n_top", [0, 2])
def test_log_probabilities_of_a_whole_text_are_in_their_places(tmp_path, adds_bos, n_top):
    path = tiny_models.write_model(tmp_path / "model.gguf", "llama", n_layer=1, add_bos=adds_bos)
    llama = octavo.Llama(path, n_ctx=256, n_threads=2, logits_all=True)
    completion = llama.create_completion("What is it?", max_tokens=4, temperature=0, echo=True, logprobs=n_top)
    found = completion["choices"][0]["logprobs"]
    tokens = llama.input_ids[: llama.n_tokens].tolist()
    text = [*tokens[adds_bos:], None]
    pieces = [llama.piece(token).decode(errors="ignore") for token in text[:-1]]
    assert found["tokens"][: len(pieces)] == pieces
    fresh = octavo.Llama(path, n_ctx=256, n_threads=2)
    expected = octavo.Llama.logits_to_logprobs(fresh.eval_all(tokens))
    assert found["token_logprobs"][0] is None
    shown = found["token_logprobs"][1 : len(pieces)]
    of_tokens = [expected[adds_bos + i, token] for i, token in enumerate(text[1:-1])]
    np.testing.assert_allclose(shown, of_tokens, atol=0.02)
    echoed = completion["choices"][0]["text"]
    assert echoed.startswith("What is it?")


def test_tokens_can_be_echoed_too(tiny_model):
    llama = octavo.Llama(tiny_model, n_ctx=256, n_threads=2)
    tokens = llama.tokenize(b"What is it?", add_bos=False)
    options = {"max_tokens": 4, "temperature": 0, "echo": True}
    texts = [llama.create_completion(prompt, **options)["choices"][0]["text"] for prompt in (tokens, "What is it?")]
    assert texts[0] == texts[1]


def test_a_text_before_a_suffix_is_refused_without_marks_for_it(tiny_model):
    llama = octavo.Llama(tiny_model, n_ctx=256, n_threads=2)
    with pytest.raises(OctavoError, match="This model cannot complete a text before a suffix: leave out `suffix`"):
        llama.create_completion("def f(x):", suffix="return y", max_tokens=3)


def test_a_text_before_a_suffix_gets_the_models_marks(tiny_model, monkeypatch):
    llama = octavo.Llama(tiny_model, n_ctx=256, n_threads=2)
    for name, token in (("prefix", 7), ("suffix", 8), ("middle", 9)):
        monkeypatch.setattr(llama._model, f"token_{name}", lambda token=token: token)
    llama.create_completion("ab", suffix="cd", max_tokens=1)
    a, b, c, d = (llama.tokenize(letter, add_bos=False)[0] for letter in (b"a", b"b", b"c", b"d"))
    assert llama.input_ids[:7].tolist() == [7, a, b, 8, c, d, 9]


# Threads.


def test_threads_take_turns(tiny_model):
    llama = octavo.Llama(tiny_model, n_ctx=512, n_threads=2)
    prompts = ["One day", "The sea", "A house", "Why not"]
    expected = [llama.create_completion(prompt, max_tokens=12, temperature=0) for prompt in prompts]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda p: llama.create_completion(p, max_tokens=12, temperature=0), prompts * 3))
    texts = [each["choices"][0]["text"] for each in found]
    assert texts == [each["choices"][0]["text"] for each in expected] * 3


def test_a_stream_that_another_answer_interrupts_ends_with_a_sentence(tiny_model):
    llama = octavo.Llama(tiny_model, n_ctx=512, n_threads=2)
    stream = llama.create_completion("One day", max_tokens=30, temperature=0, stream=True)
    first = next(stream)["choices"][0]["text"]
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(llama.create_completion, "The sea", max_tokens=5, temperature=0).result()
    with pytest.raises(OctavoError, match="Another answer has begun on this model, which holds one at a time"):
        list(stream)
    assert first
    again = llama.create_completion("The sea", max_tokens=5, temperature=0)
    assert again["choices"][0]["text"] == other["choices"][0]["text"]
