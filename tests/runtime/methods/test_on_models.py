"""Every attention on whole models: in prefill and decode, over a document and over nothing, with what it keeps."""

from dataclasses import replace

import llama_cpp
import numpy as np
import pytest
from helpers import tiny_models
from helpers.index_builds import build, library_of

import octavo
from octavo.errors import OctavoError
from octavo.runtime.store.index_files import open_index
from octavo.runtime.store.plan import Plan

pytestmark = pytest.mark.sampled

SAME = 0.02  # the same numbers, added up in another order; logits have a standard deviation of about three
METHODS = ["streaming", "window", "h2o", "quest", "sparq", "squeezed", "squeezed2", "sketch", "topk"]
COMPOSED = ["duo", "duo+quest", "duo+squeezed", "plan+h2o", "plan+duo+sparq", "plan"]
MODELS = {
    "gqa": ("llama", {"n_layer": 4}),
    "mha": ("llama", {"n_layer": 4, "n_kv_head": 4}),
    "windows": ("gemma3", {"n_layer": 6, "window": 64}),
}
TOKENS = np.random.default_rng(5).integers(32, 127, 1700).tolist()


@pytest.fixture(scope="module", params=MODELS)
def model(request, tmp_path_factory):
    architecture, options = MODELS[request.param]
    return tiny_models.write_model(tmp_path_factory.mktemp("tiny") / f"{request.param}.gguf", architecture, **options)


@pytest.fixture(scope="module")
def gqa(tmp_path_factory):
    return tiny_models.write_model(tmp_path_factory.mktemp("tiny") / "gqa.gguf", "llama", n_layer=4)


def plan_of(llama, n_recent=100):
    """A plan by which every other head streams, and early layers get more."""
    layers = llama.context.cache.layers
    heads = [(i, head) for i, layer in enumerate(layers) if not layer.window for head in range(layer.n_kv_head)]
    full = [i for i, layer in enumerate(layers) if not layer.window]
    scale = [1.0] * len(layers)
    if len(full) > 1:
        scale[full[0]], scale[full[-1]] = 1.5, 0.5
    scales = dict.fromkeys(METHODS, tuple(scale))
    return Plan("-", "duo+squeezed", 0.5, 4, n_recent, scales, tuple(heads[::2] + heads[1::2]), (None,) * len(layers))


def new_llama(model, attention="dense", budget=0.3, **options):
    llama = octavo.Llama(model, n_ctx=4096, n_batch=256, n_threads=2, **options)
    llama.sequence.attention = llama.attention.with_plan(plan_of(llama))
    llama.set_attention(attention, budget)
    return llama


def logits_after(llama, tokens):
    """Logits after some tokens in one batch, and after each of eight more."""
    llama.eval(tokens[:-8])
    rows = [llama.logits()]
    for token in tokens[-8:]:
        llama.eval([token])
        rows.append(llama.logits())
    return np.array(rows)


@pytest.fixture(scope="module")
def dense(model):
    llama = new_llama(model)
    llama.eval(TOKENS[:800])
    return logits_after(llama, TOKENS[800:900])


@pytest.mark.parametrize("attention", [*METHODS, "duo", "duo+quest", "duo+squeezed2", "plan+h2o"])
def test_with_all_of_the_budget_it_is_dense(model, attention, dense):
    llama = new_llama(model)
    llama.sequence.attention = llama.attention.with_plan(replace(llama.attention.plan, n_recent=4096, layer_scale={}))
    llama.set_attention(attention, 1.0)
    llama.eval(TOKENS[:800])
    np.testing.assert_allclose(logits_after(llama, TOKENS[800:900]), dense, atol=SAME)


@pytest.mark.parametrize("attention", [*METHODS, *COMPOSED])
def test_with_less_it_reads_less_and_says_something_else(model, attention, dense):
    full, llama = new_llama(model), new_llama(model, attention)
    for each in (full, llama):
        each.eval(TOKENS[:800])
        each.eval(TOKENS[800:892])
        each.context.bytes_read = 0
    rows = []
    for token in TOKENS[892:900]:
        full.eval([token])
        llama.eval([token])
        rows.append(llama.logits())
    assert llama.context.bytes_read < 0.95 * full.context.bytes_read
    difference = np.abs(np.array(rows) - dense[1:]).max()
    assert SAME < difference < 30


@pytest.fixture(scope="module")
def document(model, tmp_path_factory):
    llama = new_llama(model)
    path = build(llama, tmp_path_factory.mktemp("index"))
    found, _ = open_index(path, library_of(llama, path.parent.parent).model_hash)
    return found


@pytest.mark.parametrize("attention", ["dense", *METHODS, "duo", "duo+quest"])
def test_over_an_index_with_all_of_the_budget_it_is_dense(model, attention, document):
    reference = new_llama(model)
    reference.eval(document.tokens.tolist())
    expected = logits_after(reference, TOKENS[:60])
    llama = new_llama(model)
    llama.sequence.attention = llama.attention.with_plan(replace(llama.attention.plan, n_recent=4096))
    llama.set_attention(attention, 1.0)
    llama.attach(document)
    np.testing.assert_allclose(logits_after(llama, TOKENS[:60]), expected, atol=2 * SAME)


@pytest.mark.parametrize("attention", ["streaming", "quest", "sparq", "duo", "duo+quest"])
def test_an_index_gives_what_reading_gives(tmp_path, attention):
    """Those that choose by keys and positions alone cannot tell a copied document from one that they read densely."""
    one_layer = tiny_models.write_model(tmp_path / "one.gguf", "llama", n_layer=1)  # keys depend on tokens alone
    reading = new_llama(one_layer)
    path = build(reading, tmp_path)
    document, _ = open_index(path, library_of(reading, tmp_path).model_hash)
    reading.reset()
    reading.set_attention(attention, 0.3)
    reading.eval(document.tokens.tolist())
    attached = new_llama(one_layer, attention)
    attached.attach(document)
    expected = logits_after(reading, TOKENS[:60])
    np.testing.assert_allclose(logits_after(attached, TOKENS[:60]), expected, atol=2 * SAME)


@pytest.mark.parametrize("attention", ["duo", "duo+quest"])
def test_batches_and_single_tokens_give_the_same(gqa, attention):
    """A streaming head's window is each token's own; Quest attends all in a batch, so its tokens come one by one."""
    tokens = TOKENS[:400]
    in_batches, one_by_one = new_llama(gqa, attention), new_llama(gqa, attention)
    in_batches.eval(tokens[:300])
    one_by_one.eval(tokens[:300])
    if attention == "duo":
        in_batches.eval(tokens[300:400])
    else:
        for token in tokens[300:400]:
            in_batches.eval([token])
    for token in tokens[300:400]:
        one_by_one.eval([token])
    np.testing.assert_allclose(in_batches.logits(), one_by_one.logits(), atol=SAME)


# Memory.


def kv_share(model, attention, budget, n_tokens=1700, n_recent=100):
    dense, llama = new_llama(model), new_llama(model)
    llama.sequence.attention = llama.attention.with_plan(plan_of(llama, n_recent))
    llama.set_attention(attention, budget)
    for each in (dense, llama):
        each.eval(TOKENS[:n_tokens])
        each.eval([5])
    return llama.context.cache.kv_bytes / dense.context.cache.kv_bytes


@pytest.mark.parametrize("attention", ["streaming", "h2o", "plan+h2o", "plan+streaming"])
def test_eviction_frees_memory(gqa, attention):
    """Whole chunks of 256 rows: a budget of a fifth of 1700 is 340 of them, and streaming keeps a chunk of sinks."""
    assert kv_share(gqa, attention, 0.2) <= (4 / 7 if "streaming" in attention else 3 / 7)


def test_half_the_heads_streaming_take_little(gqa):
    assert kv_share(gqa, "duo", 1.0) <= 0.5 + 0.5 * 3 / 7


def test_sliding_windows_beside_eviction_are_freed(tmp_path):
    model = tiny_models.write_model(tmp_path / "gemma3.gguf", "gemma3", n_layer=6, window=64)
    assert kv_share(model, "h2o", 0.2) <= 2.2 / 7


# Going back.


@pytest.mark.parametrize("attention", ["streaming", "h2o", "duo", "quest", "sparq", "squeezed", "sketch"])
@pytest.mark.parametrize("n_left", [1, 700, 1199])
def test_rewinding_is_as_if_the_rest_had_not_come(gqa, attention, n_left):
    llama, fresh = new_llama(gqa, attention), new_llama(gqa, attention)
    llama.prefill(TOKENS[:1200])
    llama.rewind(n_left)
    fresh.prefill(TOKENS[:n_left])
    assert (llama.n_tokens, llama.context.cache.n_tokens) == (n_left, n_left)
    more = [9, 8, 7]
    llama.eval(more)
    fresh.eval(more)
    tolerance = 0.2 if attention == "streaming" else SAME  # a window that grows has a history
    np.testing.assert_allclose(llama.logits(), fresh.logits(), atol=tolerance)


@pytest.mark.parametrize("attention", ["streaming", "h2o", "duo", "plan+h2o", "quest", "squeezed", "sketch"])
def test_a_checkpoint_is_gone_back_to(model, attention):
    """The same numbers each time, however much was read in between."""
    llama, more = new_llama(model, attention), TOKENS[700:760]
    llama.eval(TOKENS[:700])
    checkpoint, kv_bytes = llama.context.cache.checkpoint(), llama.context.cache.kv_bytes
    expected = logits_after(llama, more)
    for between in ([], TOKENS[760:770], TOKENS[:900], []):
        llama.eval(between)
        restore(llama, checkpoint, 700)
        assert llama.context.cache.n_tokens == 700
        assert llama.context.cache.kv_bytes == kv_bytes
        np.testing.assert_array_equal(logits_after(llama, more), expected)


@pytest.mark.parametrize("attention", ["streaming", "h2o"])
def test_a_checkpoint_is_gone_back_to_after_many_steps(gqa, attention):
    """One token at a time: chunks are forgotten and made as in decoding."""
    llama, more = new_llama(gqa, attention), TOKENS[500:520]
    llama.eval(TOKENS[:500])
    checkpoint = llama.context.cache.checkpoint()
    expected = logits_after(llama, more)
    for token in TOKENS[520:1100]:
        llama.eval([token])
    restore(llama, checkpoint, 500)
    np.testing.assert_array_equal(logits_after(llama, more), expected)


@pytest.mark.parametrize("attention", ["streaming", "h2o"])
def test_a_checkpoint_holds_copies(gqa, attention):
    """What is read after going back, and after the checkpoint was taken, does not change it."""
    llama = new_llama(gqa, attention)
    llama.eval(TOKENS[:700])
    checkpoint = llama.context.cache.checkpoint()
    stored = [part for chunks in checkpoint.chunks for chunk in chunks if chunk is not None for part in chunk]
    before = [part.copy() for part in stored]
    heads = checkpoint.heads.copy()
    for _ in range(2):
        llama.eval(TOKENS[700:1300])
        restore(llama, checkpoint, 700)
    for part, copy in zip(stored, before, strict=True):
        np.testing.assert_array_equal(part, copy)
    assert (checkpoint.heads == heads).all()


def restore(llama, checkpoint, n_tokens):
    llama.context.cache.restore(checkpoint)
    llama.n_tokens = n_tokens


@pytest.mark.parametrize("attention", ["streaming", "h2o", "quest", "sparq", "squeezed", "sketch"])
def test_an_interrupted_batch_leaves_what_was_there(gqa, attention, monkeypatch):
    llama, other = new_llama(gqa, attention), new_llama(gqa, attention)
    for each in (llama, other):
        each.eval(TOKENS[:1000])
    decode = llama_cpp.llama_decode

    def interrupted(context, batch):
        decode(context, batch)
        raise KeyboardInterrupt

    monkeypatch.setattr(llama_cpp, "llama_decode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llama.eval(TOKENS[1000:1200])
    monkeypatch.undo()
    assert llama.context.cache.n_tokens == llama.n_tokens == 1000
    for each in (llama, other):
        each.eval(TOKENS[1000:1200])
        each.eval([7])
    np.testing.assert_allclose(llama.logits(), other.logits(), atol=SAME)


@pytest.mark.parametrize("attention", ["quest", "sparq", "squeezed", "squeezed2", "sketch"])
def test_state_is_saved_where_nothing_is_forgotten(gqa, attention):
    llama, other = new_llama(gqa, attention, 1.0), new_llama(gqa)
    llama.eval(TOKENS[:900])
    other.load_state(llama.save_state())
    for each in (llama, other):
        each.eval([7])
    np.testing.assert_allclose(llama.logits(), other.logits(), atol=SAME)


@pytest.mark.parametrize("attention", ["streaming", "h2o", "duo"])
def test_state_is_refused_where_rows_are_forgotten(gqa, attention):
    llama = new_llama(gqa, attention)
    llama.eval(TOKENS[:900])
    with pytest.raises(OctavoError, match="forgets rows"):
        llama.save_state()


def test_attention_changes_over_a_tail(gqa):
    llama, fresh = new_llama(gqa), new_llama(gqa, "quest")
    for each in (llama, fresh):
        each.eval(TOKENS[:900])
    llama.set_attention("quest", 0.3)
    for each in (llama, fresh):
        each.eval([7])
    np.testing.assert_allclose(llama.logits(), fresh.logits(), atol=SAME)


@pytest.mark.parametrize(("before", "after"), [("h2o", "dense"), ("dense", "streaming")])
def test_attention_that_forgets_does_not_change_over_a_tail(gqa, before, after):
    llama = new_llama(gqa, before)
    llama.eval(TOKENS[:900])
    with pytest.raises(OctavoError, match="reset it first"):
        llama.set_attention(after)
    llama.eval([7])
    llama.reset()
    llama.set_attention(after)
    llama.eval([7])
