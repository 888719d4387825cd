"""`attention="dense"` gives llama.cpp's logits on a zoo of tiny architectures; octavo refuses the others in a sentence.

The shapes are those of llama.cpp's own test of architectures: tests/helpers/zoo.py. Tensors and graphs are llama.cpp's.
"""

import itertools

import llama_cpp
import numpy as np
import pytest
from helpers import zoo
from helpers.given_drafter import GivenDrafter

import octavo
from octavo.runtime.drafting import drafting
from octavo.runtime.models.find_model import describe

TOKENS = np.random.default_rng(2).integers(0, 256, 90).tolist()  # more than the models' window of 32
SPLITS = {"two batches": [64, 26], "other splits": [40, 1, 1, 7, 41], "one at a time": [1] * 90}
#: Largest difference, in standard deviations of the logits: it is .0015, and .010 between two modes of llama.cpp. In
#: some hybrid models those two modes differ by more than this.
SAME = 0.004
#: What `make test` runs: one of each kind, on shapes that other tests compile kernels for.
SHORT = {"llama", "gpt2", "cohere2", "gemma2", "gemma3n", "gemma4", "gpt-oss", "olmo2"}
SHORT |= {"deepseek2", "gemma4/heads of 512", "llama4", "mimo2/shorter values", "minicpm3"}
SHORT |= {"lfm2/one slides", "qwen35", "kimi-linear"}


def in_short_run(names, short):
    return [name if name in short else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.fixture(scope="module", params=in_short_run(zoo.RUN, SHORT))
def models(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("zoo") / "model.gguf"
    zoo.write_model(path, request.param.partition("/")[0], **zoo.RUN[request.param])
    options = {"n_ctx": zoo.N_CTX, "n_batch": 64, "n_threads": 2}
    theirs = [
        llama_cpp.Llama(str(path), swa_full=True, flash_attn=on, verbose=False, **options) for on in (True, False)
    ]
    yield octavo.Llama(path, device="cpu", **options), *theirs
    path.unlink()


def logits_after(model, pieces):
    model.reset()
    for piece in pieces:
        model.eval(piece)
    return last_logits(model)


def last_logits(model):
    return np.ctypeslib.as_array(model._ctx.get_logits_ith(-1), (model.n_vocab(),)).copy()


def assert_same(actual, expected):
    """The expected logits are those of llama.cpp's two modes."""
    most = max(SAME * expected[0].std(), 1.2 * np.abs(expected[0] - expected[1]).max())
    np.testing.assert_allclose(actual, expected[0], rtol=0, atol=most)


@pytest.fixture(scope="module")
def expected(models):
    return [logits_after(theirs, [TOKENS]) for theirs in models[1:]]


@pytest.mark.parametrize("sizes", SPLITS.values(), ids=SPLITS)
def test_logits_are_those_of_llama_cpp(models, expected, sizes):
    bounds = [0, *itertools.accumulate(sizes)]
    assert bounds[-1] == len(TOKENS)
    assert_same(logits_after(models[0], [TOKENS[a:b] for a, b in itertools.pairwise(bounds)]), expected)


def test_logits_are_those_of_llama_cpp_after_a_rewind(models, expected):
    ours = models[0]
    logits_after(ours, [TOKENS])
    ours.rewind(50)
    ours.eval([3, 4, 5])
    ours.rewind(50)
    ours.eval(TOKENS[50:])
    assert_same(last_logits(ours), expected)


def test_drafts_change_no_logits(models):
    """Hybrid models draft nothing."""
    ours, drafter, results = models[0], GivenDrafter(TOKENS), []
    for each in (None, drafter):
        logits_after(ours, [TOKENS[:60]])
        with drafting(ours, each):
            results.append([logits_after_one(ours, token) for token in TOKENS[60:]])
    np.testing.assert_allclose(results[1], results[0], rtol=0, atol=SAME * np.std(results[0]))
    assert (drafter.n_accepted > 0) == (not ours.context.is_hybrid)


def logits_after_one(model, token):
    model.eval([token])
    return last_logits(model)


def test_attention_matters_to_these_logits(models, expected):
    """So wrong attention would show: other tokens at the beginning change the logits at the end."""
    changed = logits_after(models[0], [[7] * 40 + TOKENS[40:]])
    assert np.abs(changed - expected[0]).max() > 10 * SAME * expected[0].std()


@pytest.mark.slow
def test_logits_are_those_of_llama_cpp_where_a_chunk_ends(tmp_path):
    """Llama 4's chunks have 8,192 tokens, whatever the file says."""
    path = zoo.write_model(tmp_path / "model.gguf", "llama4", **zoo.RUN["llama4"])
    options = {"n_ctx": 8448, "n_batch": 512, "n_threads": 2}
    tokens = np.random.default_rng(3).integers(0, 256, 8300).tolist()
    theirs = llama_cpp.Llama(str(path), swa_full=True, verbose=False, **options)
    ours = octavo.Llama(path, device="cpu", **options)
    assert {(node.window, node.chunked) for node in ours.context.nodes} == {(8192, True), (0, False)}
    for sizes in ([8300], [8190, 1, 1, 1, 1, 106]):
        bounds = [0, *itertools.accumulate(sizes)]
        logits = [logits_after(model, [tokens[a:b] for a, b in itertools.pairwise(bounds)]) for model in (ours, theirs)]
        assert_same(logits[0], [logits[1]] * 2)


REFUSED = [(name, reason) for reason, names in zoo.REFUSED.items() for name in names]


@pytest.mark.parametrize("name", zoo.RUN)
def test_the_list_of_models_says_that_octavo_runs_these(tmp_path, name):
    path = zoo.write_header(tmp_path / "model.gguf", name.partition("/")[0], **zoo.RUN[name])
    assert describe(path).problem == ""


@pytest.mark.parametrize(("architecture", "reason"), REFUSED)
def test_the_list_of_models_says_why_octavo_does_not_run_these(tmp_path, architecture, reason):
    path = zoo.write_header(tmp_path / "model.gguf", architecture, **zoo.REFUSED[reason][architecture])
    assert reason.replace("their state is all they keep", "a recurrent state is all it keeps") in describe(path).problem


@pytest.mark.parametrize(("architecture", "reason"), REFUSED)
def test_other_architectures_are_refused_for_the_true_reason(tmp_path, architecture, reason):
    path = zoo.write_model(tmp_path / "model.gguf", architecture, **zoo.REFUSED[reason][architecture])
    with pytest.raises(octavo.OctavoError) as refusal:
        octavo.Llama(path)
    assert f"'{architecture}' models" in str(refusal.value)
    assert reason in str(refusal.value)
    assert str(refusal.value).endswith("Llama(..., attention='llama.cpp') runs it on llama.cpp's own attention.")
    assert octavo.Llama(path, n_ctx=128, attention="llama.cpp").n_ctx() >= 128


def test_the_zoo_is_large_and_varied():
    groups = {options["n_head"] // options["n_kv_head"] for options in zoo.RUN.values()}
    assert len({name.partition("/")[0] for name in zoo.RUN}) >= 104
    assert len(REFUSED) >= 26
    assert {options["head_dim"] for options in zoo.RUN.values()} == {64, 80, 96, 128, 192, 256}
    assert groups == {1, 2, 3, 4, 5, 8, 12}
    assert zoo.RUN.keys() >= SHORT
