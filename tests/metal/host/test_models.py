"""Test whole models on the fake GPU, whose kernels the simulator computes: the logits are those of the CPU."""

import functools

import numpy as np
import pytest
from helpers import large_channels, tiny_models, zoo
from helpers.index_builds import build, library_of

import octavo
from octavo.convert.plan.heads import streaming
from octavo.runtime.graph import ggml
from octavo.runtime.models.llama_arguments import GGML_TYPES
from octavo.runtime.store.index_files import open_index
from octavo.runtime.store.plan import Plan

pytestmark = pytest.mark.sampled

SAME = 0.01  # the same numbers, added up in another order; logits have a standard deviation of about three
BUDGET = 0.3
TOKENS = np.random.default_rng(5).integers(32, 127, 700).tolist()
ATTENTIONS = [
    "dense",
    "streaming:positions=sequence",
    "window",
    "quest:dense_layers=2",
    "sparq",
    "squeezed:rest=off",
    "squeezed2:rest=off",
    "duo+quest:dense_layers=2",
]
#: The same, all but two of them among the slow tests.
QUICK = "sparq", "squeezed2:rest=off"
SOME = [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in ATTENTIONS]


def new_llama(model, device, attention="dense", kv_type="f16"):
    kv = GGML_TYPES[kv_type]
    llama = octavo.Llama(model, n_ctx=2048, n_batch=256, n_threads=2, device=device, type_k=kv, type_v=kv)
    heads = [(i, head) for i, layer in enumerate(llama.context.cache.layers) for head in range(layer.n_kv_head)]
    groups = (None,) * len(llama.context.cache.layers)
    plan = Plan("-", "duo+squeezed", 0.5, 4, 100, {}, tuple(heads[::2] + heads[1::2]), groups)
    llama.sequence.attention = llama.attention.with_plan(plan)
    llama.set_attention(attention, BUDGET)
    return llama


def logits_after(llama, tokens, n_steps=3):
    """Logits after some tokens in batches, and after each of n_steps more."""
    llama.eval(tokens[:-n_steps])
    rows = [llama.logits()]
    for token in tokens[-n_steps:]:
        llama.eval([token])
        rows.append(llama.logits())
    return np.array(rows)


def counts_of(cache):
    """Return the integers of the methods' states that are no addresses: what they are to select, and selected."""
    counts = [np.zeros(0, np.int64)]
    for each in cache.table.groups:
        state = each.heads.state
        names = [name for name in state.dtype.names or () if name not in each.method.document_arrays]
        counts += [state[name].copy() for name in names if state.dtype[name].kind == "i"]
    return np.concatenate(counts)


def results(model, device, attention="dense", kv_type="f16", tokens=TOKENS, documents=None):
    """Logits, bytes read and counts of some tokens, perhaps behind the document that `documents` has of a type."""
    llama = new_llama(model, device, attention, kv_type)
    if documents is not None:
        llama.attach(documents(kv_type))
    logits = logits_after(llama, tokens)
    assert llama.context.device.name == device
    return logits, llama.context.bytes_read, counts_of(llama.context.cache)


def assert_same(model, attention="dense", kv_type="f16", tokens=TOKENS[:400], documents=None):
    of = functools.partial(results, model, tokens=tokens, documents=documents)
    (expected, bytes_read, selected), actual = of("cpu", attention, kv_type), of("metal", attention, kv_type)
    if kv_type == "f16":
        np.testing.assert_allclose(actual[0], expected, atol=SAME)
    else:
        assert_rounded_alike(actual[0], expected, attention, of("cpu")[0], of("cpu", kv_type=kv_type)[0])
    assert actual[1] == pytest.approx(bytes_read, rel=0.02)
    np.testing.assert_allclose(actual[2], selected, atol=16)


def assert_rounded_alike(actual, expected, attention, exact, rounded):
    """Both devices round the same numbers, and one that lies between two steps to either.

    Each such number changes what later layers round. At worst the devices' errors have nothing to do with each other:
    then their difference is the root of two times the loss of one, which is that of `rounded` against `exact`, both
    dense. The CPU rounds queries, too, in a step. A method that attends to a share of the rows has the mean of fewer
    errors.
    """
    of_batch, of_step = root_mean_square((rounded - exact)[0]), root_mean_square((rounded - exact)[1:])
    difference = actual - expected
    if attention == "dense":
        assert root_mean_square(difference[0]) < np.sqrt(2) * of_batch
        assert root_mean_square(difference[1:]) < np.sqrt(2) * of_step
    else:  # the last token of a prompt is a step, too
        assert root_mean_square(difference) < np.sqrt(2 / BUDGET) * of_step


def root_mean_square(values):
    return np.sqrt(np.mean(np.square(values)))


@pytest.fixture(scope="module")
def one_layer(tmp_path_factory):
    return tiny_models.write_model(tmp_path_factory.mktemp("model") / "one.gguf", "llama", n_layer=1)


@pytest.fixture(scope="module")
def documents(tiny_model, one_layer, tmp_path_factory):
    """For each model and type, an index of it, opened."""

    @functools.cache
    def opened(model, kv_type):
        llama = new_llama(model, "cpu", kv_type=kv_type)
        path = build(llama, tmp_path_factory.mktemp("index"))
        return open_index(path, library_of(llama, path.parent.parent).model_hash)[0]

    return opened


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_text(simulated, tiny_model, attention):
    assert_same(tiny_model, attention)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_document(simulated, tiny_model, documents, attention):
    assert_same(tiny_model, attention, "f16", TOKENS[:24], functools.partial(documents, tiny_model))


def model_of_q8_0(attention, tiny_model, one_layer):
    """The CPU rounds a token's queries to 8 bits: in a second layer, another row may score highest for that.

    Quest's pages have bounds that hardly change, and its first layers select nothing.
    """
    return tiny_model if "quest" in attention else one_layer


@pytest.mark.parametrize("attention", SOME)
def test_a_text_in_q8_0(simulated, tiny_model, one_layer, attention):
    assert_same(model_of_q8_0(attention, tiny_model, one_layer), attention, "q8_0")


@pytest.mark.parametrize("attention", SOME)
def test_a_document_in_q8_0(simulated, tiny_model, one_layer, documents, attention):
    model = model_of_q8_0(attention, tiny_model, one_layer)
    assert_same(model, attention, "q8_0", TOKENS[:24], functools.partial(documents, model))


def test_a_document_in_q8_0_of_octavo_before_0_4(simulated, tiny_model, documents):
    """Its rows are not rotated."""
    old = documents(tiny_model, "q8_0").stored_as(np.dtype(np.uint8))
    assert {layer.keys.dtype for layer in old.layers} == {np.dtype(np.uint8)}
    of_type = {"f16": documents(tiny_model, "f16"), "q8_0": old}
    assert_same(tiny_model, "dense", "q8_0", TOKENS[:24], of_type.__getitem__)


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("bias", [0, 100])
def test_keys_with_a_large_channel_lose_no_more_in_q8_0_than_in_llama_cpp(simulated, tmp_path, head_dim, bias):
    path = large_channels.write_model(tmp_path / "model.gguf", head_dim, bias)
    ours, theirs = large_channels.losses_in_q8_0(path, TOKENS[:120], 100, "metal")
    assert ours < 2 * theirs + 1e-4


@pytest.mark.parametrize("attention", ["dense", "quest:dense_layers=0", *QUICK, "squeezed:rest=off"])
def test_latent_attention_over_a_document(simulated, tmp_path, documents, attention):
    model = zoo.write_model(tmp_path / "model.gguf", "mistral4", **zoo.RUN["mistral4"])
    assert_same(model, attention, "f16", TOKENS[:24], functools.partial(documents, model))


def test_windows_that_are_chunks(simulated, tmp_path):
    model = zoo.write_model(tmp_path / "model.gguf", "llama4", **zoo.RUN["llama4"])
    logits = []
    for device, window in (("cpu", 32), ("metal", 32), ("metal", 8192)):
        llama = new_llama(model, device)
        heads = llama.context.cache.table.heads
        assert set(heads["window"][heads["chunked"] != 0]) == {8192}  # of any llama4
        heads["window"][heads["chunked"] != 0] = window
        logits.append(logits_after(llama, TOKENS[:100]))
    np.testing.assert_allclose(logits[1], logits[0], atol=SAME)
    assert np.abs(logits[2] - logits[1]).max() > 10 * SAME


@pytest.mark.parametrize("architecture", ["gemma2", "gemma3", "gpt-oss", "qwen3"])
def test_other_models(simulated, tmp_path, architecture):
    """Windows, soft-caps, sinks."""
    model = tiny_models.write_model(tmp_path / "model.gguf", architecture, n_layer=6 if architecture == "gemma3" else 3)
    assert_same(model, tokens=TOKENS[:100])


#: Models of the zoo (see helpers/zoo.py) whose keys and values have different lengths, or many elements, or are latent.
UNLIKE = "mimo2/shorter values", "minicpm3", "gemma4/heads of 512", "deepseek2", "mistral4"


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
@pytest.mark.parametrize("name", UNLIKE)
def test_other_heads(simulated, tmp_path, name, kv_type):
    model = zoo.write_model(tmp_path / "model.gguf", name.partition("/")[0], **zoo.RUN[name])
    assert_same(model, kv_type=kv_type, tokens=TOKENS[:100])


def test_tensors_that_are_not_the_cpus_are_read_and_written(simulated, tiny_model, monkeypatch):
    monkeypatch.setattr(ggml, "_is_host", lambda tensor: False)
    assert_same(tiny_model, tokens=TOKENS[:60])


def test_a_conversation_that_goes_back(simulated, tiny_model):
    logits = []
    for device in ("cpu", "metal"):
        llama = new_llama(tiny_model, device, "quest")
        llama.eval(TOKENS[:300])
        llama.rewind(270)
        llama.eval(TOKENS[:5])
        llama.set_attention("dense")
        llama.eval([9])
        llama.reset()
        logits.append(logits_after(llama, TOKENS[100:160]))
    np.testing.assert_allclose(logits[1], logits[0], atol=SAME)


def test_queries_and_tensors_can_be_looked_at(simulated, tiny_model):
    seen = []
    for device in ("cpu", "metal"):
        llama = new_llama(tiny_model, device)
        llama.eval(TOKENS[:30])
        outputs = []

        def take(name, values, outputs=outputs):
            outputs.append(values)
            return True

        wants = [f"kqv_out-{i}" for i in range(3)]
        with llama.context.captured_queries(20) as queries, llama.context.observed(wants.__contains__, take):
            llama.eval(TOKENS[30:50])
        seen.append([*queries, *outputs])
    assert len(seen[0]) == len(seen[1]) == 6
    for expected, actual in zip(*seen, strict=True):
        np.testing.assert_allclose(actual, expected, atol=SAME)


def test_heads_can_stream_for_a_while(simulated, tiny_model):
    logits = []
    for device in ("cpu", "metal"):
        llama = new_llama(tiny_model, device)
        llama.eval(TOKENS[:300])
        with streaming(llama.context.cache, [(0, 1), (2, 0)], 4, 32):
            llama.eval(TOKENS[300:310])
            logits.append(llama.logits())
        llama.eval([7])
        logits.append(llama.logits())
    np.testing.assert_allclose(logits[2:], logits[:2], atol=SAME)
    assert np.abs(logits[0] - logits[1]).max() > SAME


def test_a_batch_in_several_command_buffers_has_the_same_numbers(simulated, one_layer, monkeypatch):
    whole, _, _ = results(one_layer, "metal", tokens=TOKENS[:200])
    before = len(simulated.runs)
    monkeypatch.setattr("octavo.metal.attention.LARGEST_COMMANDS", 1)  # each tile is one
    cut, _, _ = results(one_layer, "metal", tokens=TOKENS[:200])
    assert sum(len(run) == 1 for run in simulated.runs[before:]) > 2
    np.testing.assert_array_equal(cut, whole)
