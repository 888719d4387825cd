"""Several sequences of one model: what each one computes is what it would compute alone."""

import gc
import weakref

import numpy as np
import pytest

import octavo
from octavo import OctavoError
from octavo.runtime.query_recorder import QueryHead, Recorder
from octavo.runtime.sequences.pool import HeldSequences

LENGTHS = [3, 300, 70, 500]
STEPS = [[5 + 7 * step + number for step in range(6)] for number in range(len(LENGTHS))]


def load(model, attention="dense", **settings):
    return octavo.Llama(model, attention=attention, n_ctx=1024, n_batch=128, n_threads=2, n_parallel=4, **settings)


def logits(llama, number):
    return np.ctypeslib.as_array(llama._ctx.get_logits_ith(number), (llama._n_vocab,)).copy()


def begin(llama):
    """Sequences of different lengths."""
    sequences = HeldSequences(llama)
    held = [sequences.current] + [sequences.new() for _ in LENGTHS[1:]]
    for each, length in zip(held, LENGTHS, strict=True):
        sequences.take(each)
        llama.eval([(3 * i + length) % 200 + 1 for i in range(length)])
    return sequences, held


def in_turns(llama, sequences, held):
    results = []
    for each, tokens in zip(held, STEPS, strict=False):
        sequences.take(each)
        results.append([])
        for token in tokens:
            llama.eval([token])
            results[-1].append(logits(llama, -1))
    return np.array(results)


def together(llama, sequences, held):
    results = []
    for tokens in zip(*STEPS, strict=True):
        sequences.step(held, tokens[: len(held)])
        results.append([logits(llama, number) for number in range(len(held))])
    return np.array(results).swapaxes(0, 1)


@pytest.mark.parametrize("attention", ["dense", "auto", "quest", "sparq", "streaming:recent=64", "h2o:budget=.5"])
def test_steps_together_are_steps_in_turns(tiny_model, attention):
    llama = load(tiny_model, attention)
    expected = in_turns(llama, *begin(llama))
    llama = load(tiny_model, attention)
    sequences, held = begin(llama)
    np.testing.assert_allclose(together(llama, sequences, held), expected, atol=2e-3)
    assert [each.n_tokens for each in held] == [length + 6 for length in LENGTHS]
    assert held[0].tokens[-6:].tolist() == STEPS[0]
    llama.close()


def test_a_sequence_goes_on_alone_after_steps_together(tiny_model):
    llama = load(tiny_model)
    sequences, held = begin(llama)
    together(llama, sequences, held[:2])
    sequences.take(held[1])
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
    sequences, held = begin(llama)
    for token, logits_of_step in zip(STEPS[1], expected, strict=True):
        sequences.take(held[2])
        sequences.step([held[1]], [token])
        np.testing.assert_allclose(logits(llama, 0), logits_of_step, atol=2e-3)
    llama.close()


def test_each_sequence_attends_in_its_own_way(tiny_model):
    llama = load(tiny_model)
    sequences, held = begin(llama)
    sequences.take(held[1])
    llama.set_attention("quest", 0.25)
    sequences.take(held[3])
    assert str(llama.attention) == "dense"
    sequences.take(held[1])
    assert (str(llama.attention), llama.attention.budget) == ("quest", 0.25)
    llama.context.bytes_read = 0
    expected = in_turns(llama, sequences, held)[1]
    read = held[1].sequence.cache.heads["bytes_read"].sum()
    sequences.take(held[1])
    llama.rewind(LENGTHS[1])
    llama.context.bytes_read = 0
    alone = [sequences.step([held[1]], [token]) or logits(llama, 0) for token in STEPS[1]]
    np.testing.assert_allclose(alone, expected, atol=2e-3)
    assert held[1].sequence.cache.heads["bytes_read"].sum() == read
    llama.close()


def test_a_sequence_without_room_leaves_the_others_as_they_are(tiny_model):
    llama = load(tiny_model)
    sequences, held = begin(llama)
    sequences.take(held[3])
    llama.eval([1] * (1024 - LENGTHS[3]))
    with pytest.raises(OctavoError, match="do not fit the context"):
        sequences.step(held, [1, 2, 3, 4])
    assert [each.n_tokens for each in held] == [*LENGTHS[:3], 1024]
    expected = in_turns(llama, sequences, held[:3])
    for each, length in zip(held[:3], LENGTHS[:3], strict=True):
        sequences.take(each)
        llama.rewind(length)
    np.testing.assert_allclose(together(llama, sequences, held[:3]), expected, atol=2e-3)
    llama.close()


def test_recorders_get_the_queries_of_their_own_sequence(tiny_model):
    llama = load(tiny_model)
    context, heads = llama.context, [QueryHead(1, 1, 0), QueryHead(2, 0, 1)]

    def recorded(run):
        sequences, held = begin(llama)
        recorders = [Recorder(context.nodes, context.shapes, heads) for _ in held]
        for each, recorder in zip(held, [*recorders[:2], None, recorders[3]], strict=True):
            each.sequence.recorder = recorder
        run(llama, sequences, held)
        held[0].sequence.recorder = None
        sequences.take(held[0])
        return [recorder._recorded for recorder in recorders]

    apart = recorded(in_turns)
    llama.reset()
    joined = recorded(together)
    assert [len(steps) for steps in joined] == [6, 6, 0, 6]
    for number in (0, 1, 3):
        np.testing.assert_allclose(joined[number], apart[number], atol=2e-3)
    llama.close()


def test_a_sequence_that_nobody_holds_is_freed(tiny_model):
    llama = load(tiny_model)
    sequences, held = begin(llama)
    cache = weakref.ref(held[1].sequence.cache)
    sequences.step(held, [1] * 4)
    sequences.take(held[0])
    held.clear()
    gc.collect()
    assert cache() is None
    llama.close()


@pytest.mark.parametrize("attention", ["dense", "auto", "sketch:dense=0", "quest", "sparq:layout=two", "squeezed"])
@pytest.mark.parametrize("n_tokens", [700, 600, 513, 40])
def test_forks_share_memory_and_change_nothing_of_each_other(tiny_model, attention, n_tokens):
    """Also where codebooks are found anew (at 512 and 1,024 rows), and where a fork holds less."""
    llama = octavo.Llama(tiny_model, attention=attention, n_ctx=2048, n_batch=128, n_threads=2, n_parallel=4)
    sequences = HeldSequences(llama)
    tokens = [(3 * i + i // 7) % 200 + 1 for i in range(1300)]
    llama.eval(tokens[:700])
    base = sequences.current
    branches = {"first": sequences.fork(base, n_tokens), "second": sequences.fork(base, n_tokens), "base": base}
    goes_on = {"first": tokens[n_tokens:1200], "second": tokens[:300], "base": tokens[700:760]}
    results = {name: [] for name in branches}
    for start in range(0, 600, 50):
        for name, held in branches.items():
            if piece := goes_on[name][start : start + 50]:
                sequences.take(held)
                llama.eval(piece)
                results[name].append(llama.logits())
    for name, held in branches.items():
        sequences.take(held)
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
    sequences, held = begin(llama)
    forked = sequences.fork(held[3], 500)
    own = {id(chunk) for tail in forked.sequence.cache.tails for chunk in tail.chunks}
    its = {id(chunk) for tail in held[3].sequence.cache.tails for chunk in tail.chunks}
    assert len(own & its) == len(forked.sequence.cache.tails)
    llama.close()


def test_a_fork_of_a_sequence_before_its_first_step_computes_as_any(tiny_model):
    llama = load(tiny_model)
    sequences = HeldSequences(llama)
    llama.eval([4, 5, 6])
    expected = llama.logits()
    before = sequences.new()
    sequences.fork(before, 0)
    llama.eval([4, 5, 6])
    np.testing.assert_allclose(llama.logits(), expected, atol=2e-3)
    llama.close()
