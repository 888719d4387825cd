"""A step of a token and its draft gives what steps of these tokens give, whatever the draft gets wrong."""

import numpy as np
import pytest
from helpers import tiny_models, zoo
from helpers.given_drafter import GivenDrafter
from helpers.index_builds import build, library_of

import octavo
from octavo.cpu_kernels.numba_support import background_compile
from octavo.cpu_kernels.numba_support.machine_features import MULTIPLIES_FEW
from octavo.runtime.drafting import drafting, new_drafter
from octavo.runtime.graph import hook
from octavo.runtime.query_recorder import QueryHead, Recorder
from octavo.runtime.sequence_pool import SequencePool
from octavo.runtime.store.index_files import open_index

pytestmark = pytest.mark.sampled

#: Where llama.cpp multiplies, it rounds a token alone in its own way; logits have a standard deviation of three.
SAME = 0.0 if MULTIPLIES_FEW else 0.05
METHODS = [
    "dense",
    "auto",
    "quest",
    "quest:select=head",
    "sketch",
    "sparq",
    "sparq:layout=one",
    "squeezed",
    "squeezed2",
    "streaming",
    "topk",
    "streaming:tokens=100",
    "streaming:prefill=full",
    "window:tokens=400",
    "h2o",
]
OVER_A_DOCUMENT = ["dense", "quest", "sketch", "sparq", "squeezed", "squeezed:threshold=head", "squeezed2", "streaming"]
TOKENS = np.random.default_rng(5).integers(32, 127, 900).tolist()
#: Prompts after which codes and clusters of the tail, codebooks, chunks and the first codes come within 100 tokens.
N_PROMPTS = [250, 500, 610]


@pytest.fixture(scope="module")
def gqa(tmp_path_factory):
    plain = tiny_models.write_model(tmp_path_factory.mktemp("tiny") / "gqa.gguf", "llama", n_layer=2)
    return tiny_models.quantised(plain, "Q8_0") if MULTIPLIES_FEW else plain


@pytest.fixture(scope="module")
def document(gqa, tmp_path_factory):
    folder, reading = tmp_path_factory.mktemp("index"), octavo.Llama(gqa, n_ctx=4096, n_threads=2)
    return open_index(build(reading, folder), library_of(reading, folder).model_hash)[0]


def new_llama(model, attention, **settings):
    settings = {"n_ctx": 4096, "n_threads": 2, "budget": 0.3, **settings}
    llama = octavo.Llama(model, attention=attention, device="cpu", **settings)
    llama.context.cache.table.connect()  # heads count what they cover from then on
    return llama


def drawn(llama, tokens, drafter):
    """The logits after each token, and what was counted and recorded meanwhile."""
    heads = [QueryHead(0, 0, 0), QueryHead(1, 1, 1)]
    recorder = Recorder(llama.context.nodes, llama.context.shapes, heads)
    llama.context.record(recorder)
    before, logits = np.array(llama.context.cache.table.counters), []
    with drafting(llama, drafter):
        for token in tokens:
            llama.eval([token])
            logits.append(llama.logits())
    llama.context.record(None)
    counted = np.array(llama.context.cache.table.counters) - before
    return np.array(logits), counted, np.array(recorder.steps), list(llama.sequence.steps)


def assert_drafts_change_nothing(llama, prompt, tokens, begin):
    results = []
    drafter = GivenDrafter([*before_of(llama, begin, prompt), *tokens])
    for each in (None, drafter):
        before_of(llama, begin, prompt)
        results.append(drawn(llama, tokens, each))
    for expected, actual in zip(*results, strict=True):
        np.testing.assert_allclose(actual, expected, atol=SAME)
    if llama.context.draft_room > 1:
        assert drafter.n_drafted > drafter.n_accepted > len(tokens) / 2
    else:
        assert drafter.n_drafted == 0


def before_of(llama, begin, prompt):
    begin()
    llama.eval(prompt)
    return llama.sequence.tokens.tolist()


@pytest.mark.parametrize("attention", METHODS)
@pytest.mark.parametrize("n_prompt", N_PROMPTS)
def test_drafts_change_nothing(gqa, attention, n_prompt):
    llama = new_llama(gqa, attention)
    assert_drafts_change_nothing(llama, TOKENS[:n_prompt], TOKENS[n_prompt : n_prompt + 100], llama.reset)
    assert (llama.context.draft_room == 1) == (attention == "h2o")


@pytest.mark.parametrize("attention", OVER_A_DOCUMENT)
def test_drafts_change_nothing_over_a_document(gqa, document, attention):
    llama = new_llama(gqa, attention)
    assert_drafts_change_nothing(llama, TOKENS[:60], TOKENS[60:130], lambda: llama.attach(document))


@pytest.mark.parametrize("attention", ["dense", "quest", "sketch", "sparq", "squeezed"])
@pytest.mark.parametrize("type_k", [8, 2])
def test_drafts_change_nothing_with_quantised_rows(gqa, attention, type_k):
    llama = new_llama(gqa, attention, type_k=type_k)
    assert_drafts_change_nothing(llama, TOKENS[:610], TOKENS[610:680], llama.reset)


def test_drafts_change_nothing_with_codebooks_that_are_made_anew(gqa):
    llama = new_llama(gqa, "sketch")
    tokens = TOKENS + TOKENS[::-1]
    assert_drafts_change_nothing(llama, tokens[:1030], tokens[1030:1080], llama.reset)


def test_drafts_change_nothing_in_a_sequence_longer_than_the_context(gqa):
    """Chunks are dropped, and the places of dropped ones removed."""
    llama = new_llama(gqa, "streaming:tokens=60", n_ctx=256)
    assert_drafts_change_nothing(llama, TOKENS[:700], TOKENS[700:900], llama.reset)


def test_drafts_end_where_positions_are_counted_anew(gqa):
    """Thus a sequence may have any length: the origin moves between two steps, not inside one."""
    llama = new_llama(gqa, "streaming:tokens=60", n_ctx=256)
    llama.prefill(TOKENS[:300])
    cache = llama.context.cache
    for n_left in (5, 1, 0):
        cache.origin = cache.n_tokens + n_left - 256 - (1 << 16)
        assert llama.context.draft_room == max(n_left, 1)


def test_a_hybrid_model_does_not_draft_and_says_so(tmp_path):
    path = zoo.write_model(tmp_path / "hybrid.gguf", "lfm2", **zoo.HYBRID["lfm2/one slides"])
    llama = new_llama(path, "dense", n_ctx=zoo.N_CTX)
    assert llama.context.draft_room == 1
    assert llama.context.no_drafts == "the model keeps a state that cannot go back by a token"
    with drafting(llama, drafter := new_drafter(llama, 8)):
        for token in [*TOKENS[:30]] * 2:
            llama.eval([token])
    assert drafter.n_drafted == 0


@pytest.mark.parametrize("attention", ["dense", "quest", "sketch", "squeezed", "streaming"])
@pytest.mark.parametrize("way", ["rewind", "batch", "restore", "other"])
def test_a_draft_is_forgotten_if_something_else_happens(gqa, attention, way):
    """A step back, a longer batch, a state from before, or another sequence come between a draft and its tokens."""
    llama = new_llama(gqa, attention, n_parallel=2)
    pool, tokens, results = SequencePool(llama), [40, *TOKENS[:30]], []
    llama.eval(TOKENS[:590])
    saved, first = llama.context.cache.checkpoint(), pool.current
    for is_between in (False, True):
        llama.rewind(590)
        if is_between:
            with drafting(llama, GivenDrafter([*TOKENS[:590], *[40] * 50])):
                llama.eval([40])
                assert llama.context.take_ahead(41) is False
            if way == "batch":
                llama.prefill([50, 51])
            if way == "restore":
                llama.context.cache.restore(saved)
                llama.n_tokens = 590
            if way == "other":
                pool.new()
                llama.eval(TOKENS[:100])
                pool.take(first)
            llama.rewind(590)
        results.append(drawn(llama, tokens, GivenDrafter([*TOKENS[:590], *tokens]))[0])
    np.testing.assert_allclose(results[1], results[0], atol=SAME)


def test_what_a_draft_needs_is_compiled_ahead(gqa, monkeypatch):
    """Otherwise the first draft of all would stop an answer for seconds."""
    ahead, needed, compiled = [], [], background_compile.compiled
    monkeypatch.setattr(background_compile, "compile_ahead", ahead.extend)
    monkeypatch.setattr(background_compile, "compiled", lambda each: needed.append(each) or compiled(each))
    llama = new_llama(gqa, "auto")
    llama.compile_ahead(llama.attention, 4096)
    llama.eval(TOKENS[:40])
    in_a_prompt = len(needed)
    drawn(llama, TOKENS[40:60], GivenDrafter(TOKENS))
    assert hook.compiled_together in needed[in_a_prompt:]
    assert {*needed[in_a_prompt:]} <= {*ahead}


def test_rows_that_find_no_memory_leave_everything_as_it_was(gqa, monkeypatch):
    llama = new_llama(gqa, "dense")
    llama.eval(TOKENS[:253])
    expected = llama.context.cache.checkpoint().heads

    def refuse(*_arguments, **_options):
        raise octavo.OctavoError("There is no memory.")

    monkeypatch.setattr("octavo.runtime.cache.kv_cache.check_free", refuse)
    with drafting(llama, GivenDrafter(TOKENS)):
        llama.sequence.drafter.draft = lambda tokens, room: [1, 2, 3, 4, 5]
        with pytest.raises(octavo.OctavoError, match="There is no memory"):
            llama.eval([5])
    assert llama.n_tokens == llama.context.cache.n_tokens == 253
    assert (llama.context.cache.table.heads["n_tail"] == expected["n_tail"]).all()
