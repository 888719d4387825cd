"""Several sequences of one model: each computes what it would compute alone."""

import gc
import weakref

import numpy as np
import pytest

import octavo
from octavo import OctavoError
from octavo.runtime.query_recorder import QueryHead, Recorder
from octavo.runtime.sequence_pool import SequencePool

pytestmark = pytest.mark.sampled

LENGTHS = [3, 300, 70, 500]
STEPS = [[5 + 7 * step + number for step in range(6)] for number in range(len(LENGTHS))]


def load(model, attention="dense", **settings):
    settings = {"n_ctx": 1024, "n_batch": 128, "n_threads": 2, "n_parallel": 4, **settings}
    return octavo.Llama(model, attention=attention, **settings)


def logits(llama, number):
    return np.ctypeslib.as_array(llama._ctx.get_logits_ith(number), (llama._n_vocab,)).copy()


def begin(llama):
    """Sequences of different lengths."""
    pool = SequencePool(llama)
    sequences = [pool.current] + [pool.new() for _ in LENGTHS[1:]]
    for sequence, length in zip(sequences, LENGTHS, strict=True):
        pool.take(sequence)
        llama.eval([(3 * i + length) % 200 + 1 for i in range(length)])
    return pool, sequences


def in_turns(llama, pool, sequences):
    results = []
    for sequence, tokens in zip(sequences, STEPS, strict=False):
        pool.take(sequence)
        results.append([])
        for token in tokens:
            llama.eval([token])
            results[-1].append(logits(llama, -1))
    return np.array(results)


def together(llama, pool, sequences):
    results = []
    for tokens in zip(*STEPS, strict=True):
        pool.step(sequences, tokens[: len(sequences)])
        results.append([logits(llama, number) for number in range(len(sequences))])
    return np.array(results).swapaxes(0, 1)


@pytest.mark.parametrize("settings", [{"n_batch": 3}, {"n_ctx": 3}])
def test_a_batch_may_hold_less_than_a_token_of_each_sequence(tiny_model, settings):
    results = []
    for llama in (load(tiny_model, **settings), load(tiny_model)):
        pool = SequencePool(llama)
        sequences = [pool.current] + [pool.new() for _ in LENGTHS[1:]]
        pool.step(sequences, [1] * len(sequences))
        results.append([logits(llama, number) for number in range(len(sequences))])
    np.testing.assert_allclose(*results, atol=1e-5)


@pytest.mark.parametrize("attention", ["dense", "auto", "quest", "sparq", "streaming:recent=64", "h2o:budget=.5"])
def test_steps_together_are_steps_in_turns(tiny_model, attention):
    llama = load(tiny_model, attention)
    expected = in_turns(llama, *begin(llama))
    llama = load(tiny_model, attention)
    pool, sequences = begin(llama)
    np.testing.assert_allclose(together(llama, pool, sequences), expected, atol=2e-3)
    assert [sequence.n_tokens for sequence in sequences] == [length + 6 for length in LENGTHS]
    assert sequences[0].tokens[-6:].tolist() == STEPS[0]
    llama.close()


def test_a_sequence_goes_on_alone_after_steps_together(tiny_model):
    llama = load(tiny_model)
    pool, sequences = begin(llama)
    together(llama, pool, sequences[:2])
    pool.take(sequences[1])
    llama.eval([9, 8, 7])
    after = llama.logits()
    own = llama.input_ids[: llama.n_tokens].tolist()
    llama.reset()
    llama.eval(own)
    np.testing.assert_allclose(llama.logits(), after, atol=1e-3)
    llama.close()


def test_a_step_of_one_sequence_is_its_own_whichever_is_current(tiny_model):
    llama = load(tiny_model)
    expected = in_turns(llama, *begin(llama))[1]
    pool, sequences = begin(llama)
    for token, logits_of_step in zip(STEPS[1], expected, strict=True):
        pool.take(sequences[2])
        pool.step([sequences[1]], [token])
        np.testing.assert_allclose(logits(llama, 0), logits_of_step, atol=2e-3)
    llama.close()


def test_each_sequence_attends_in_its_own_way(tiny_model):
    llama = load(tiny_model)
    pool, sequences = begin(llama)
    pool.take(sequences[1])
    llama.set_attention("quest", 0.25)
    pool.take(sequences[3])
    assert str(llama.attention) == "dense"
    pool.take(sequences[1])
    assert (str(llama.attention), llama.attention.budget) == ("quest", 0.25)
    llama.context.bytes_read = 0
    expected = in_turns(llama, pool, sequences)[1]
    read = sequences[1].cache.table.heads["bytes_read"].sum()
    pool.take(sequences[1])
    llama.rewind(LENGTHS[1])
    llama.context.bytes_read = 0
    alone = [pool.step([sequences[1]], [token]) or logits(llama, 0) for token in STEPS[1]]
    np.testing.assert_allclose(alone, expected, atol=2e-3)
    assert sequences[1].cache.table.heads["bytes_read"].sum() == read
    llama.close()


def test_a_sequence_without_end_has_none_when_it_comes_back(tiny_model):
    llama = load(tiny_model, "streaming:recent=64")
    pool = SequencePool(llama)
    first, longest = pool.current, llama.longest
    pool.new()
    pool.take(first)
    assert llama.longest == longest > llama.n_ctx()
    llama.close()


def test_a_sequence_without_room_leaves_the_others_as_they_are(tiny_model):
    llama = load(tiny_model)
    pool, sequences = begin(llama)
    pool.take(sequences[3])
    llama.eval([1] * (1024 - LENGTHS[3]))
    with pytest.raises(OctavoError, match="do not fit the context"):
        pool.step(sequences, [1, 2, 3, 4])
    assert [sequence.n_tokens for sequence in sequences] == [*LENGTHS[:3], 1024]
    expected = in_turns(llama, pool, sequences[:3])
    for sequence, length in zip(sequences[:3], LENGTHS[:3], strict=True):
        pool.take(sequence)
        llama.rewind(length)
    np.testing.assert_allclose(together(llama, pool, sequences[:3]), expected, atol=2e-3)
    llama.close()


def test_recorders_get_the_queries_of_their_own_sequence(tiny_model):
    llama = load(tiny_model)
    context, heads = llama.context, [QueryHead(1, 1, 0), QueryHead(2, 0, 1)]

    def recorded(run):
        pool, sequences = begin(llama)
        recorders = [Recorder(context.nodes, context.shapes, heads) for _ in sequences]
        for sequence, recorder in zip(sequences, [*recorders[:2], None, recorders[3]], strict=True):
            sequence.recorder = recorder
        run(llama, pool, sequences)
        sequences[0].recorder = None
        pool.take(sequences[0])
        return [recorder.steps for recorder in recorders]

    apart = recorded(in_turns)
    llama.reset()
    joined = recorded(together)
    assert [len(steps) for steps in joined] == [6, 6, 0, 6]
    for number in (0, 1, 3):
        np.testing.assert_allclose(joined[number], apart[number], atol=2e-3)
    llama.close()


def test_a_sequence_that_nobody_holds_is_freed(tiny_model):
    llama = load(tiny_model)
    pool, sequences = begin(llama)
    cache = weakref.ref(sequences[1].cache)
    pool.step(sequences, [1] * 4)
    pool.take(sequences[0])
    sequences.clear()
    gc.collect()
    assert cache() is None
    llama.close()


@pytest.mark.parametrize("attention", ["dense", "auto", "sketch:dense=0", "quest", "sparq:layout=two", "squeezed"])
@pytest.mark.parametrize("n_tokens", [700, 600, 513, 40])
def test_forks_share_memory_and_change_nothing_of_each_other(tiny_model, attention, n_tokens):
    """Also where codebooks are found anew (at 512 and 1,024 rows), and where a fork holds less."""
    llama = octavo.Llama(tiny_model, attention=attention, n_ctx=2048, n_batch=128, n_threads=2, n_parallel=4)
    pool = SequencePool(llama)
    tokens = [(3 * i + i // 7) % 200 + 1 for i in range(1300)]
    llama.eval(tokens[:700])
    base = pool.current
    branches = {"first": pool.fork(base, n_tokens), "second": pool.fork(base, n_tokens), "base": base}
    goes_on = {"first": tokens[n_tokens:1200], "second": tokens[:300], "base": tokens[700:760]}
    results = {name: [] for name in branches}
    for start in range(0, 600, 50):
        for name, sequence in branches.items():
            if piece := goes_on[name][start : start + 50]:
                pool.take(sequence)
                llama.eval(piece)
                results[name].append(llama.logits())
    for name, sequence in branches.items():
        pool.take(sequence)
        llama.eval([5])
        after = llama.logits()
        llama.reset()
        llama.eval(tokens[:700])
        llama.rewind(700 if name == "base" else n_tokens)
        for number, start in enumerate(range(0, 600, 50)):
            if piece := goes_on[name][start : start + 50]:
                llama.eval(piece)
                np.testing.assert_allclose(llama.logits(), results[name][number], atol=5e-3)
        llama.eval([5])
        np.testing.assert_allclose(llama.logits(), after, atol=5e-3)
    llama.close()


def test_a_fork_takes_little_memory(tiny_model):
    llama = load(tiny_model)
    pool, sequences = begin(llama)
    forked = pool.fork(sequences[3], 500)
    forked_chunks = {id(chunk) for tail in forked.cache.tails for chunk in tail.chunks}
    base_chunks = {id(chunk) for tail in sequences[3].cache.tails for chunk in tail.chunks}
    assert len(forked_chunks & base_chunks) == len(forked.cache.tails)
    llama.close()


def test_a_fork_of_a_sequence_before_its_first_step_computes_as_any(tiny_model):
    llama = load(tiny_model)
    pool = SequencePool(llama)
    llama.eval([4, 5, 6])
    expected = llama.logits()
    before = pool.new()
    pool.fork(before, 0)
    llama.eval([4, 5, 6])
    np.testing.assert_allclose(llama.logits(), expected, atol=2e-3)
    llama.close()
