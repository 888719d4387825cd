"""Test that octavo computes llama.cpp's products of quantised weights, inside its graph."""

import llama_cpp
import numpy as np
import pytest
from helpers import tiny_models, zoo

import octavo
from octavo.cpu_kernels.numba_support.machine_features import HAS_AMX, MULTIPLIES_FEW, MULTIPLIES_WEIGHTS
from octavo.cpu_kernels.products.weights import KERNELS
from octavo.runtime.embedder import MEAN, Embedder

pytestmark = pytest.mark.skipif(not MULTIPLIES_WEIGHTS, reason="these products are llama.cpp's on this CPU")

#: How far octavo's logits may be from llama.cpp's, in what those of its two modes differ by. With AMX octavo does not
#: round to bytes, so that their whole rounding counts, and not the difference of two.
NEAR = 1.5 if MULTIPLIES_FEW else 3.0

TOKENS = np.random.default_rng(4).integers(0, 256, 70).tolist()
OPTIONS = {"n_ctx": 256, "n_batch": 128, "n_threads": 2, "verbose": False}

#: Types of files, and ggml's numbers of the types of weights in them that octavo multiplies.
FILES = {"Q4_0": {2}, "Q4_1": {3}, "Q5_0": {6}, "Q5_1": {7}, "Q8_0": {8}, "Q4_K_M": {12, 14}, "Q5_K_M": {13, 14}}
FILES |= {"IQ4_XS": {23}, "IQ4_NL": {20}}

#: What `make test` runs; each type's kernel has tests of its own.
SHORT = {"Q4_0", "Q4_1", "Q8_0", "Q4_K_M"}
CASES = [each if each in SHORT else pytest.param(each, marks=pytest.mark.slow) for each in FILES]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    path = tmp_path_factory.mktemp("products") / "plain.gguf"
    return tiny_models.write_model(path, "llama", n_layer=2, n_embd=256, pooling=MEAN)


def logits_after(model, pieces):
    model.reset()
    for piece in pieces:
        model.eval(piece)
    return np.ctypeslib.as_array(model._ctx.get_logits_ith(-1), (model.n_vocab(),)).copy()


def multiplied(products):
    """Return ggml's numbers of the types that octavo has multiplied."""
    records = products._records
    return {number for number in KERNELS if records["multiply"][number]}


def difference(a, b):
    return np.sqrt(np.mean((a - b) ** 2))


@pytest.mark.parametrize(
    "kind", [each if each in SHORT else pytest.param(each, marks=pytest.mark.slow) for each in FILES]
)
def test_logits_are_those_of_llama_cpp(plain, kind):
    """Compare with llama.cpp's two modes: sums in another order round inputs to another of 255 numbers."""
    path = tiny_models.quantised(plain, kind)
    theirs = [llama_cpp.Llama(str(path), flash_attn=on, **OPTIONS) for on in (True, False)]
    expected, other = (logits_after(model, [TOKENS]) for model in theirs)
    llama = octavo.Llama(path, device="cpu", **OPTIONS)
    assert difference(logits_after(llama, [TOKENS]), expected) <= NEAR * difference(other, expected)
    assert multiplied(llama.context._executor._products) >= FILES[kind]


def assert_same_in_any_batches(path):
    """Check that a token's products do not depend on its batch: steps of one token are octavo's, too.

    With AMX they are llama.cpp's, and round inputs to bytes of 8 bits, where tiles of bf16 have 8 bits of each.
    """
    llama = octavo.Llama(path, device="cpu", **OPTIONS)
    n = len(TOKENS)
    expected = logits_after(llama, [TOKENS])
    alike = 0.004 if MULTIPLIES_FEW else 0.1
    for pieces in ([TOKENS[:40], TOKENS[40:]], [TOKENS[: n - 3], TOKENS[n - 3 :]], [TOKENS[:-1], TOKENS[-1:]]):
        np.testing.assert_allclose(logits_after(llama, pieces), expected, rtol=0, atol=alike * expected.std())


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "Q4_K_M"])
def test_the_same_sequence_gives_the_same_logits(plain, kind):
    assert_same_in_any_batches(tiny_models.quantised(plain, kind))


def test_embeddings_are_multiplied_by_octavo(plain, monkeypatch):
    """Compare with those of the weights before quantisation: octavo's are as near as llama.cpp's."""
    found, rounded = {}, tiny_models.quantised(plain, "Q4_0")
    for path, multiplies in ((plain, False), (rounded, False), (rounded, True)):
        monkeypatch.setattr("octavo.runtime.embedder.MULTIPLIES_WEIGHTS", multiplies)
        embedder = Embedder(octavo.Llama(path, device="cpu", **OPTIONS))
        embedder.start(len(TOKENS))
        for piece in (TOKENS[:40], TOKENS[40:-1], TOKENS[-1:]):
            embedder.read(piece)
        found[path, multiplies] = embedder.embedding()
        assert (2 in multiplied(embedder._products)) == (multiplies and MULTIPLIES_FEW)
    exact, theirs, own = found.values()
    assert 0 < difference(own, exact) <= 1.1 * difference(theirs, exact)


def test_weights_are_in_memory_once(plain):
    llama = octavo.Llama(tiny_models.quantised(plain, "Q4_0"), device="cpu", **OPTIONS)
    assert llama.model_params.use_extra_bufts == HAS_AMX  # whose layout llama.cpp multiplies few tokens by


def test_llama_cpp_may_lay_out_what_it_multiplies(plain):
    """With its own attention, all products are llama.cpp's."""
    llama = octavo.Llama(tiny_models.quantised(plain, "Q4_0"), device="cpu", attention="llama.cpp", **OPTIONS)
    assert llama.model_params.use_extra_bufts
    llama.eval(TOKENS)


#: Mixtures with two of four experts for a token, what they are quantised to, and which types octavo then multiplies.
MIXTURES = {"gpt-oss": ("MXFP4_MOE", {8, 39}), "qwen3moe": ("Q4_K_M", {12, 14}), "olmoe": ("Q4_0", {2})}
EXPERTS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 512}


@pytest.mark.parametrize("architecture", MIXTURES)
def test_experts_are_multiplied_by_octavo(tmp_path, architecture):
    kind, multiplied_types = MIXTURES[architecture]
    shape = {"n_head": 4, "n_kv_head": 4, "head_dim": 64, "experts": True, **EXPERTS}
    path = tiny_models.quantised(zoo.write_model(tmp_path / "plain.gguf", architecture, **shape), kind)
    theirs = [llama_cpp.Llama(str(path), flash_attn=on, **OPTIONS) for on in (True, False)]
    expected, other = (logits_after(model, [TOKENS]) for model in theirs)
    llama = octavo.Llama(path, device="cpu", **OPTIONS)
    assert difference(logits_after(llama, [TOKENS]), expected) <= NEAR * difference(other, expected)
    assert multiplied(llama.context._executor._products) >= multiplied_types
    assert llama.model_params.use_extra_bufts == HAS_AMX
    assert_same_in_any_batches(path)
