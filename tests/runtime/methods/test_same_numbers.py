"""What a step reads follows from the sequence and the settings alone, however the sequence came about."""

import numpy as np
import pytest
from helpers import tiny_models, zoo
from helpers.index_builds import build, library_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import octavo
from octavo.runtime.store.index_files import open_index

pytestmark = pytest.mark.sampled

SAME = 0.02  # the same numbers, added up in another order; logits have a standard deviation of about three
METHODS = [
    "dense",
    "h2o",
    "quest",
    "sketch",
    "sketch:quality=0.8",
    "sparq",
    "squeezed",
    "squeezed2",
    "streaming",
    "streaming:tokens=400",
    "window",
    "window:tokens=400",
]
SELECTING = [
    "quest",
    "quest:select=head",
    "sketch",
    "sparq",
    "sparq:layout=one",
    "sparq:k=40,r=8,select=head",
    "squeezed",
    "squeezed2",
    "h2o",
]
#: Over a document some of these have measured thresholds.
OVER_A_DOCUMENT = [
    *SELECTING,
    "squeezed:threshold=head",
    "squeezed:threshold=global,queries=mean,select=head,rest=off",
    "squeezed2:threshold=head",
    "squeezed:tokens=100",
]
#: A prompt is kept whole until the first step.
WHOLE_PROMPTS = ["h2o:prefill=full", "streaming:prefill=full", "window:prefill=full"]
TOKENS = np.random.default_rng(5).integers(32, 127, 1700).tolist()


@pytest.fixture(scope="module")
def gqa(tmp_path_factory):
    return tiny_models.write_model(tmp_path_factory.mktemp("tiny") / "gqa.gguf", "llama", n_layer=2)


@pytest.fixture(scope="module")
def document(gqa, tmp_path_factory):
    folder, reading = tmp_path_factory.mktemp("index"), octavo.Llama(gqa, n_ctx=4096, n_threads=2)
    return open_index(build(reading, folder), library_of(reading, folder).model_hash)[0]


def new_llama(model, attention, n_batch=512):
    return octavo.Llama(model, n_ctx=4096, n_batch=n_batch, n_threads=2, attention=attention, budget=0.3)


def answered(llama, prompt, answer):
    """The logits after a prompt and after each token of an answer."""
    llama.eval(prompt)
    rows = [llama.logits()]
    for token in answer:
        llama.eval([token])
        rows.append(llama.logits())
    return np.array(rows)


@pytest.mark.parametrize("attention", METHODS)
@pytest.mark.parametrize("n_batch", [37, 256, 1024])
def test_batches_of_any_size_give_the_same(gqa, attention, n_batch):
    expected = answered(new_llama(gqa, attention), TOKENS[:1300], TOKENS[1300:1310])
    actual = answered(new_llama(gqa, attention, n_batch), TOKENS[:1300], TOKENS[1300:1310])
    np.testing.assert_allclose(actual, expected, atol=SAME)


@pytest.mark.parametrize("attention", [*METHODS, *SELECTING, *WHOLE_PROMPTS])
@pytest.mark.parametrize(("n_prompt", "n_batch"), [(1026, 512), (1025, 512), (1300, 1), (1281, 256)])
def test_a_batch_of_one_token_attends_to_everything(gqa, attention, n_prompt, n_batch):
    """Whatever remains of a prompt for its last batch, and whichever token is read alone.

    Rows that differ by rounding may give `sketch` other codes, so it gets the rows that `dense` computes in the same
    batches.
    """
    prompt, answer = TOKENS[:n_prompt], TOKENS[1300:1310]
    llama = new_llama(gqa, attention, n_batch)
    if llama.context.cache.evicts:
        expected = answered(new_llama(gqa, attention, 1024), prompt, answer)
    else:
        dense, straight = new_llama(gqa, "dense", n_batch), new_llama(gqa, attention)
        dense.prefill(prompt[:-1])
        straight.extend(prompt[:-1], [dense.context.cache.rows(i) for i in range(2)])
        expected = answered(straight, prompt[-1:], answer)
    actual = answered(llama, prompt, answer)
    np.testing.assert_allclose(actual, expected, atol=SAME)


@pytest.mark.parametrize("attention", OVER_A_DOCUMENT)
def test_tokens_that_are_read_one_by_one_attend_to_all_of_a_document(gqa, document, attention):
    results = []
    for size in (60, 1):
        llama = new_llama(gqa, attention)
        llama.attach(document)
        for start in range(500, 560, size):
            llama.prefill(TOKENS[start : start + size])
        results.append(answered(llama, TOKENS[600:601], TOKENS[601:610]))
    np.testing.assert_allclose(results[1], results[0], atol=SAME)


def test_a_prompt_of_one_more_token_is_read_as_one(gqa):
    """As a server does whose last batch of a prompt is a single token."""
    for attention in WHOLE_PROMPTS:
        results = []
        for n_last in (100, 1):
            llama = new_llama(gqa, attention)
            llama.prefill(TOKENS[: 1300 - n_last])
            llama.eval_prompt(TOKENS[1300 - n_last : 1300])
            results.append([llama.logits(), *answered(llama, TOKENS[1300:1301], TOKENS[1301:1304])])
        np.testing.assert_allclose(results[1], results[0], atol=SAME)


@pytest.mark.parametrize("attention", ["dense", *SELECTING[:-1]])
@pytest.mark.parametrize("n_left", [320, 640, 1088])
def test_a_prompt_that_is_read_again_in_the_same_batches_gives_the_same_bits(gqa, attention, n_left):
    llama = octavo.Llama(gqa, n_ctx=4096, n_batch=64, n_threads=1, attention=attention, budget=0.3)
    expected = answered(llama, TOKENS[:1344], TOKENS[1344:1350])
    llama.rewind(n_left)
    np.testing.assert_array_equal(answered(llama, TOKENS[n_left:1344], TOKENS[1344:1350]), expected)


@pytest.mark.parametrize("attention", [*METHODS, *SELECTING, *WHOLE_PROMPTS])
@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(n_more=st.integers(0, 300), n_left=st.integers(0, 20))
def test_going_back_gives_the_same(gqa, attention, n_more, n_left):
    """Of an answer's tokens the first n_left are kept, and the others come again after others were in their place."""
    if attention in WHOLE_PROMPTS:
        n_left = max(n_left, 1)  # a single token ends the prompt
    answer = TOKENS[1300:1320]
    expected = answered(new_llama(gqa, attention), TOKENS[:1300], answer)
    llama = new_llama(gqa, attention)
    answered(llama, TOKENS[:1300], [*answer[:n_left], *TOKENS[:n_more]])
    llama.rewind(1299 + n_left)
    first = TOKENS[1299] if n_left == 0 else answer[n_left - 1]
    actual = answered(llama, [first], answer[n_left:])
    np.testing.assert_allclose(actual, expected[n_left:], atol=SAME)


@pytest.mark.parametrize("attention", ["quest", "sketch", "sparq", "squeezed", "squeezed2"])
def test_a_saved_state_gives_the_same(gqa, attention):
    llama = new_llama(gqa, attention)
    expected = answered(llama, TOKENS[:1300], TOKENS[1300:1310])
    llama.rewind(1299)
    state = llama.save_state()
    answered(llama, TOKENS[:700], TOKENS[:5])
    llama.load_state(state)
    np.testing.assert_allclose(answered(llama, TOKENS[1299:1300], TOKENS[1300:1310]), expected, atol=SAME)


@pytest.mark.parametrize("attention", ["quest", "sketch", "sparq", "squeezed", "squeezed2", "h2o"])
def test_over_a_document_the_same_question_gives_the_same(gqa, document, attention):
    llama = new_llama(gqa, attention)
    results = []
    for between in ([], TOKENS[:50], TOKENS[:400]):
        llama.reset()
        llama.attach(document)
        checkpoint = llama.context.cache.checkpoint()
        if between:
            answered(llama, between, TOKENS[:9])
        llama.context.cache.restore(checkpoint)
        llama.n_tokens = len(document.tokens)
        results.append(answered(llama, TOKENS[500:560], TOKENS[600:610]))
    for actual in results[1:]:
        np.testing.assert_allclose(actual, results[0], atol=SAME)


@pytest.mark.parametrize("attention", METHODS)
def test_one_prompt_asked_again_has_one_answer(gqa, attention):
    llama = new_llama(gqa, attention)
    answers = []
    for _ in range(4):
        completion = llama.create_completion(TOKENS[:1300], max_tokens=12, temperature=0)
        answers.append(completion["choices"][0]["text"])
    assert len(set(answers)) == 1


@pytest.fixture(scope="module", params=["lfm2", "falcon-h1"])
def hybrid(request, tmp_path_factory):
    more = zoo.HYBRID[request.param] | {"context_length": 8192}
    return zoo.write_model(tmp_path_factory.mktemp("hybrid") / "model.gguf", request.param, **more)


@pytest.mark.parametrize("attention", ["dense", *SELECTING])
@pytest.mark.parametrize("way", ["rewind", "generate", "state"])
def test_a_hybrid_model_repeats_steps_as_steps(hybrid, attention, way):
    """Its recurrent state cannot be cut, so it reads tokens of an answer again."""
    prompt, answer = TOKENS[:1300], TOKENS[1300:1330]
    expected = answered(new_llama(hybrid, attention), prompt, answer)
    llama = new_llama(hybrid, attention)
    llama.prefill(prompt[:-1])
    llama.context.keep_state()
    answered(llama, prompt[-1:], answer)
    if way == "state" and not llama.context.cache.evicts:
        state = llama.save_state()
        llama.reset()
        llama.load_state(state)
    if way == "generate":
        next(llama.generate([*prompt, *answer[:20]], temp=0))
        actual = answered(llama, answer[20:21], answer[21:])
        expected = expected[21:]
    else:
        llama.rewind(1320)
        actual = answered(llama, answer[20:21], answer[21:])
        expected = expected[21:]
    np.testing.assert_allclose(actual, expected, atol=SAME * expected.std() / 3)
