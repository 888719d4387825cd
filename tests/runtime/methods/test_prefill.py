"""Methods that forget rows, with a prompt that is read whole first (SqueezeAttention, algorithm 1, lines 12 to 18)."""

import numpy as np
import pytest
from helpers import papers, tiny_models

import octavo
from octavo.cpu_kernels.methods.h2o import positions_and_attention
from octavo.cpu_kernels.rows.tiles import CHUNK_ROWS
from octavo.runtime.document.stored_rows import as_floats

TOKENS = np.random.default_rng(8).integers(32, 127, 1500).tolist()
EVICTING = ["h2o:prefill=full", "streaming:prefill=full"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.write_model(tmp_path_factory.mktemp("tiny") / "gqa.gguf", "llama", n_layer=3)


def new_llama(model, attention="dense", budget=0.3):
    return octavo.Llama(model, n_ctx=4096, n_batch=256, n_threads=1, attention=attention, budget=budget)


def kept_positions(cache, number):
    tail = cache.tails[number]
    chunks = [positions_and_attention(tail.shape, chunk.extras)[0] for chunk in tail.chunks]
    return np.sort(np.concatenate(chunks)[: tail.n_rows])


def test_h2o_keeps_of_a_whole_prompt_what_the_paper_keeps(model):
    dense, n_prompt = new_llama(model), 900
    queries = []
    for start in range(0, n_prompt, 256):
        batch = TOKENS[start : min(start + 256, n_prompt)]
        with dense.context.captured_queries(len(batch)) as captured:
            dense.eval(batch)
        queries.append(captured)
    llama = new_llama(model, "h2o:prefill=full,recent=0.25")
    llama.eval(TOKENS[:n_prompt])
    cache = llama.context.cache
    assert cache.table.heads["n_tail"].tolist() == [n_prompt] * 6
    cache.reserve(1)  # a token comes, and so the prompt has ended
    n_kept = int(0.3 * (n_prompt + 1))
    assert cache.table.heads["n_tail"].tolist() == [n_kept + 1] * 6
    cache.table.heads["n_tail"] -= 1
    for layer in range(3):
        keys = as_floats(dense.context.cache.rows(layer)[0])
        of_layer = np.concatenate([batch[layer] for batch in queries], axis=1)
        for head in range(2):
            expected = papers.compressed_prompt(of_layer[head], keys[head], n_kept, int(0.25 * n_kept))
            found = kept_positions(cache, 2 * layer + head)
            assert len(np.setdiff1d(found, expected)) <= 1  # rows of nearly the same attention


@pytest.mark.parametrize("attention", EVICTING)
def test_a_prompt_is_read_densely_and_then_forgotten(model, attention):
    dense, llama = new_llama(model), new_llama(model, attention)
    for each in (dense, llama):
        each.eval(TOKENS[:1200])
    np.testing.assert_allclose(llama.logits(), dense.logits(), atol=0.02)
    whole = llama.context.cache.kv_bytes
    llama.eval([TOKENS[1200]])
    cache, kept = llama.context.cache, int(0.3 * 1201)
    assert cache.kv_bytes <= whole * (-(-kept // CHUNK_ROWS) + 1) / (-(-1200 // CHUNK_ROWS))
    for each in (dense, llama):
        each.context.bytes_read = 0
        each.eval([TOKENS[1201]])
    assert llama.context.bytes_read < 0.5 * dense.context.bytes_read


@pytest.mark.parametrize("attention", EVICTING)
def test_a_second_question_sees_what_is_left(model, attention):
    llama = new_llama(model, attention)
    llama.eval(TOKENS[:1200])
    llama.eval([TOKENS[1200]])
    cache = llama.context.cache
    before = cache.kv_bytes
    llama.eval(TOKENS[1201:1400])
    assert cache.kv_bytes <= before + 2 * 6 * cache.tails[0].chunk_bytes
    llama.eval([TOKENS[1400]])
    assert np.isfinite(llama.logits()).all()


def test_an_abandoned_question_is_forgotten_where_rows_were_dropped(model, monkeypatch):
    llama = new_llama(model, "streaming:prefill=full")
    llama.eval(TOKENS[:1200])
    llama.eval([TOKENS[1200]])
    cache = llama.context.cache
    monkeypatch.setattr("llama_cpp.llama_decode", lambda *_: 1)
    with pytest.raises(octavo.OctavoError):
        llama.eval(TOKENS[1201:1300])
    assert cache.n_tokens == 1201
