"""Hybrid models: the recurrent state belongs to its sequence, and goes wherever the keys and values go."""

import itertools
import pickle

import llama_cpp
import numpy as np
import pytest
from helpers import tiny_models, zoo
from helpers.index_builds import Recorded, assert_same_index, build, library_of, text_of

import octavo
from octavo.ask.session import Session
from octavo.runtime.document.kept_state import KeptState
from octavo.runtime.llama import Llama
from octavo.runtime.sequence_pool import SequencePool
from octavo.runtime.store.index_files import open_index
from octavo.settings import Sampling

pytestmark = pytest.mark.sampled

TOKENS = np.random.default_rng(4).integers(0, 256, 200).tolist()
GREEDY = Sampling(max_tokens=8, temperature=0)
#: In standard deviations of the logits: the same tokens in other batches, or beside other sequences.
SAME = 0.01


@pytest.fixture(scope="module", params=["qwen35", "granitehybrid"])
def model(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("hybrid") / "model.gguf"
    more = zoo.HYBRID[request.param] | {"context_length": 8192}
    return zoo.write_model(path, request.param, chat_template=tiny_models.CHAT_TEMPLATE, **more)


def new_llama(path, **options):
    return octavo.Llama(path, **{"n_ctx": 4096, "n_threads": 2, "device": "cpu", **options})


@pytest.fixture(scope="module")
def llama(model):
    return new_llama(model)


def logits_after(llama, tokens):
    llama.reset()
    llama.eval(tokens)
    return llama.logits()


def assert_near(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=SAME * expected.std())


@pytest.fixture
def counted(monkeypatch):
    """Count the tokens that are computed."""
    computed = []
    decode = octavo.runtime.context.Context.decode

    def count(self, batch, *more):
        computed.append(batch.n_tokens())
        decode(self, batch, *more)

    monkeypatch.setattr("octavo.runtime.context.Context.decode", count)
    return computed


# One sequence.


def test_a_kept_state_is_returned_to_to_the_last_bit(llama, counted):
    llama.reset()
    llama.eval(TOKENS[:100])
    llama.context.keep_state()
    llama.eval(TOKENS[100:])
    expected = llama.logits()
    counted.clear()
    llama.rewind(100)
    llama.eval(TOKENS[100:])
    assert sum(counted) == 100
    np.testing.assert_array_equal(llama.logits(), expected)


def test_what_was_not_kept_is_read_again_from_the_last_state_before_it(llama, counted):
    expected = logits_after(llama, [*TOKENS[:150], 5])
    llama.reset()
    llama.eval(TOKENS[:100])
    llama.context.keep_state()
    llama.eval(TOKENS[100:])
    counted.clear()
    llama.rewind(150)
    assert (llama.n_tokens, sum(counted)) == (150, 50)
    llama.eval([5])
    assert_near(llama.logits(), expected)


def test_the_state_matters(llama):
    """So a lost state would show: without it, the logits differ by far more than rounding."""
    expected = logits_after(llama, TOKENS[:101])
    llama.reset()
    llama.eval(TOKENS[:100])
    rows = [llama.context.cache.rows(i) for i in range(len(llama.context.cache.layers))]
    llama.reset()
    llama.extend(TOKENS[:100], rows, [KeptState(100, {})])
    llama.eval(TOKENS[100:101])
    assert np.abs(llama.logits() - expected).max() > 10 * SAME * expected.std()


def test_rows_without_their_state_are_refused(llama):
    llama.reset()
    llama.eval(TOKENS[:50])
    rows = [llama.context.cache.rows(i) for i in range(len(llama.context.cache.layers))]
    llama.reset()
    llama.extend(TOKENS[:50], rows)
    with pytest.raises(octavo.OctavoError, match="state was lost"):
        llama.eval([1])
    llama.rewind(50)  # reads them again
    llama.eval([1])
    assert_near(llama.logits(), logits_after(llama, [*TOKENS[:50], 1]))


def test_an_interrupted_batch_leaves_the_state_as_it_was(llama, monkeypatch):
    """llama.cpp is stopped in the middle of a graph, as by Ctrl-C, where some layers have advanced."""
    expected = logits_after(llama, TOKENS)
    calls, decode = itertools.count(), llama_cpp.llama_decode
    abort = llama_cpp.ggml_abort_callback(lambda _: next(calls) > 30)

    def interrupted(context, batch):
        llama_cpp.llama_set_abort_callback(context, abort, None)
        return decode(context, batch)

    llama.reset()
    llama.eval(TOKENS[:100])
    before = llama.context.state_blob()
    monkeypatch.setattr(llama_cpp, "llama_decode", interrupted)
    with pytest.raises(octavo.OctavoError, match="returned 2"):
        llama.eval(TOKENS[100:])
    monkeypatch.undo()
    assert next(calls) > 31
    assert llama.context.cache.n_tokens == llama.n_tokens == 100
    np.testing.assert_array_equal(llama.context.state_blob(), before)
    llama.eval(TOKENS[100:])
    assert_near(llama.logits(), expected)


def test_the_attention_may_change_in_the_middle(llama):
    expected = logits_after(llama, TOKENS)
    llama.reset()
    llama.eval(TOKENS[:100])
    llama.set_attention("quest", 0.5)
    llama.set_attention("dense")
    llama.eval(TOKENS[100:])
    assert_near(llama.logits(), expected)


def test_a_state_is_saved_and_loaded(model, llama):
    llama.reset()
    llama.eval(TOKENS[:100])
    saved = pickle.loads(pickle.dumps(llama.save_state()))
    llama.eval(TOKENS[100:])
    expected = llama.logits()
    other = new_llama(model)
    other.eval([1, 2, 3])
    other.load_state(saved)
    other.eval(TOKENS[100:])
    np.testing.assert_array_equal(other.logits(), expected)
    saved.llama_state = saved.llama_state[: 100 * llama.context.cache.row_bytes]
    with pytest.raises(octavo.OctavoError, match="not saved by octavo with this model"):
        other.load_state(saved)


def test_a_pickled_model_answers_alike(llama):
    other = pickle.loads(pickle.dumps(llama))
    np.testing.assert_array_equal(logits_after(other, TOKENS), logits_after(llama, TOKENS))


def test_a_prompt_that_goes_on_is_not_computed_again(model, counted):
    """By llama-cpp-python's own calls: a second prompt that differs only in its last tokens, and the same again."""
    llama = new_llama(model)
    first = llama.create_completion(TOKENS, max_tokens=4, temperature=0)
    counted.clear()
    again = llama.create_completion(TOKENS, max_tokens=4, temperature=0)
    assert sum(counted) < 40
    assert again["choices"] == first["choices"]
    counted.clear()
    changed = [*TOKENS[:180], 1, 2, 3, 4]
    other = llama.create_completion(changed, max_tokens=4, temperature=0)
    assert sum(counted) < 40
    llama.reset()
    assert llama.create_completion(changed, max_tokens=4, temperature=0)["choices"] == other["choices"]


# Several sequences.


def test_sequences_compute_together_and_in_turns(model):
    llama = new_llama(model, n_parallel=3)
    alone = [logits_after(llama, TOKENS[i : 60 + i]) for i in range(5)]
    llama.reset()
    pool = SequencePool(llama)
    sequences = [pool.current, *(pool.new() for _ in range(4))]
    for i, sequence in enumerate(sequences):  # five share three places in llama.cpp
        pool.take(sequence)
        llama.eval(TOKENS[i : 58 + i])
    for n in (58, 59):
        for together in (sequences[:3], sequences[3:]):
            numbers = [sequences.index(sequence) for sequence in together]
            pool.step(together, [TOKENS[number + n] for number in numbers])
            if n == 59:
                for place, number in enumerate(numbers):
                    row = np.ctypeslib.as_array(llama._ctx.get_logits_ith(place), (llama.n_vocab(),))
                    assert_near(row, alone[number])


def test_a_step_of_several_sequences_that_fails_is_recovered_from(model, monkeypatch):
    llama = new_llama(model, n_parallel=2)
    expected = logits_after(llama, [*TOKENS[:60], 9])
    llama.reset()
    pool = SequencePool(llama)
    both = [pool.current, pool.new()]
    for sequence in both:
        pool.take(sequence)
        llama.eval(TOKENS[:60])
    monkeypatch.setattr(llama_cpp, "llama_decode", lambda *_: 1)
    with pytest.raises(octavo.OctavoError, match="returned 1"):
        pool.step(both, [9, 9])
    monkeypatch.undo()
    for sequence in both:
        pool.take(sequence)
        with pytest.raises(octavo.OctavoError, match="state was lost"):
            llama.eval([9])
        assert sequence.usable(60) == 0
        llama.rewind(60)
        llama.eval([9])
        assert_near(llama.logits(), expected)


@pytest.mark.parametrize("attention", ["dense", "quest", "squeezed"])
def test_an_empty_state_is_restored(model, attention):
    llama = new_llama(model, attention=attention, budget=0.3)
    state = llama.save_state()
    expected = logits_after(llama, TOKENS)
    llama.load_state(state)
    assert llama.n_tokens == 0
    llama.eval(TOKENS)
    assert_near(llama.logits(), expected)


def test_a_fork_of_no_tokens_begins_anew(model):
    llama = new_llama(model, n_parallel=2)
    expected = logits_after(llama, TOKENS[:40])
    llama.reset()
    pool = SequencePool(llama)
    other = pool.current
    llama.eval(TOKENS[50:90])
    fork = pool.fork(other, 0)
    pool.step([fork, other], TOKENS[:2])
    pool.take(fork)
    llama.eval(TOKENS[1:40])
    assert_near(llama.logits(), expected)


def test_a_fork_goes_its_own_way(model):
    llama = new_llama(model, n_parallel=2)
    expected = [logits_after(llama, [*TOKENS[:100], *end]) for end in (TOKENS[100:], TOKENS[150:])]
    llama.reset()
    pool = SequencePool(llama)
    first = pool.current
    llama.eval(TOKENS[:100])
    second = pool.fork(first, 100)
    llama.eval(TOKENS[150:])
    assert_near(llama.logits(), expected[1])
    pool.take(first)
    llama.eval(TOKENS[100:])
    assert_near(llama.logits(), expected[0])
    assert second.usable(100) == 100


def test_freed_sequences_free_their_states(model):
    llama = new_llama(model, n_parallel=2)
    pool = SequencePool(llama)
    for _ in range(6):
        pool.new()
        llama.eval(TOKENS[:20])
    assert_near(llama.logits(), logits_after(llama, TOKENS[:20]))


# Conversations.


@pytest.fixture
def session(llama):
    llama.reset()
    return Session(llama, GREEDY)


def test_an_answer_is_given_again(session, counted):
    session.ask("One?")
    first = session.ask("And a second question, which is a little longer?").text
    counted.clear()
    assert "".join(session.regenerate()) == first
    assert sum(counted) < 80  # the question and the answer, not the conversation
    session.clear()
    assert session.n_tokens == 0


def test_a_conversation_is_saved_and_resumed(session, tmp_path, counted):
    session.ask("One?")
    before = session.conversation()
    expected = session.ask("Two?").text
    session.resume(before)
    assert session.ask("Two?").text == expected
    session.resume(before)
    path = str(tmp_path / "conversation.safetensors")
    session.save(path)
    session.clear()
    counted.clear()
    session.load(path)
    assert counted == []
    assert session.ask("Two?").text == expected
    assert "".join(session.regenerate()) == expected


def test_many_turns_keep_few_states(session):
    for number in range(12):
        session.ask(f"Question {number}?")
    kept = session.llama.sequence.recurrent.kept
    assert 4 <= len(kept) <= 9
    assert session.llama.sequence.usable(session._last.start) == session._last.start


# Indexes.


@pytest.fixture(scope="module")
def text():
    return text_of(5200)


def states_of(path):
    return sorted(int(file.stem.removeprefix("state-")) for file in path.glob("state-*"))


def opened(llama, path):
    return open_index(path, library_of(llama, path.parent.parent).model_hash)[0]


@pytest.fixture(scope="module")
def long_llama(model):
    return new_llama(model, n_ctx=8192)


@pytest.fixture(scope="module")
def index(long_llama, text, tmp_path_factory):
    return build(long_llama, tmp_path_factory.mktemp("index"), text)


def test_an_index_is_asked_without_computing_its_tokens(long_llama, index, counted):
    document = opened(long_llama, index)
    tokens = document.tokens.tolist()
    assert states_of(index) == [4096, len(tokens)]
    expected = logits_after(long_llama, [*tokens, 1, 2, 3])
    counted.clear()
    long_llama.reset()
    long_llama.attach(document)
    long_llama.eval([1, 2, 3])
    assert sum(counted) == 3
    assert_near(long_llama.logits(), expected)
    long_llama.eval([4])
    long_llama.rewind(len(tokens))
    counted.clear()
    long_llama.eval([1, 2, 3])
    assert sum(counted) == 3
    assert_near(long_llama.logits(), expected)


@pytest.mark.parametrize(("at", "known"), [(1, 0), (3, 1024), (5, 2048), (9, 4096), (11, 5067)])
def test_a_killed_build_goes_on_to_the_same_index(long_llama, index, text, tmp_path, at, known):
    """Batches are half a piece long; what comes after the last whole piece is lost. The last 100 tokens are apart."""
    with pytest.raises(KeyboardInterrupt):
        build(long_llama, tmp_path, text, Recorded(at))
    progress = Recorded()
    assert_same_index(build(long_llama, tmp_path, text, progress), index)
    assert progress.done_before[0] == known


def test_a_changed_text_is_read_on_from_the_last_state_before_the_change(long_llama, index, text, tmp_path):
    build(long_llama, tmp_path / "both", text)
    changed, progress = text[:4900] + "?" + text[4901:], Recorded()
    grown = build(long_llama, tmp_path / "both", changed, progress)
    assert progress.done_before[0] == 4096
    assert_same_index(grown, build(long_llama, tmp_path / "fresh", changed))


def test_a_damaged_state_is_computed_again(long_llama, index, text, tmp_path):
    path = build(long_llama, tmp_path, text)
    [*_, last] = sorted(path.glob("state-*"))
    content = bytearray(last.read_bytes())
    content[-1] ^= 1
    last.write_bytes(content)
    assert_same_index(build(long_llama, tmp_path, text), index)


def test_an_index_of_another_kind_of_model_is_refused(long_llama, index, tiny_model):
    with pytest.raises(octavo.OctavoError, match="made with another model"):
        Llama(tiny_model, n_ctx=8192).attach(opened(long_llama, index))


def test_states_of_one_sequence_are_kept_unless_more_are_wanted(model, tiny_model):
    assert new_llama(model, n_parallel=3).context.most_together == 3
    assert new_llama(model, n_parallel=3, parallel_states=False).context.most_together == 1
    assert new_llama(tiny_model, n_parallel=3, parallel_states=False).context.most_together == 3
