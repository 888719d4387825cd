"""Answers of a session are the same with drafts and without, and so is what they leave behind."""

import numpy as np
import pytest
from helpers import story_model

import octavo
from octavo.ask.session import Session
from octavo.runtime.drafting import new_drafter
from octavo.runtime.query_recorder import QueryHead
from octavo.settings import Sampling

SAMPLINGS = {
    "greedy": Sampling(temperature=0),
    "seed": Sampling(temperature=1.5, top_k=0, min_p=0.0, top_p=1.0, seed=4),
    "penalty": Sampling(temperature=0.7, repeat_penalty=1.2, seed=2),
}


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    path = story_model.write_model(tmp_path_factory.mktemp("story") / "story.gguf")
    return octavo.Llama(path, n_threads=2, device="cpu", attention="quest")


def told(llama, sampling, draft, **more):
    """A conversation of two questions: its answers, and what the model holds then."""
    llama.reset()
    llama.eval(llama.prompt().head())
    how = Sampling(**{**vars(sampling), "max_tokens": 40, "draft": draft, **more})
    session = Session(llama, how, heads=[QueryHead(0, 0, 0)])
    answers = [session.ask("Tell me."), session.ask("And then?")]
    recorded = len(session._recorder.steps)
    llama.context.record(None)
    return answers, llama.sequence.tokens.tolist(), list(llama.sequence.steps), recorded


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_answers_are_the_same(llama, sampling):
    expected, *state = told(llama, sampling, 0)
    answers, *state_after = told(llama, sampling, 6)
    assert [answer.text for answer in answers] == [answer.text for answer in expected]
    assert [answer.finish_reason for answer in answers] == [answer.finish_reason for answer in expected]
    assert [answer.kv_share for answer in answers] == pytest.approx([answer.kv_share for answer in expected])
    assert state_after == state
    assert not any(answer.timing.drafted_tokens for answer in expected)
    assert sum(answer.timing.accepted_tokens for answer in answers) > 0
    assert llama.sequence.drafter is None


def test_tokens_of_a_step_are_those_that_were_drawn(llama):
    [first, _], *_ = told(llama, SAMPLINGS["greedy"], 6)
    timing = first.timing
    assert 0 < timing.accepted_tokens <= timing.drafted_tokens
    n_steps = timing.answer_tokens - 1 - timing.accepted_tokens
    assert timing.tokens_per_step == pytest.approx((timing.answer_tokens - 1) / n_steps)
    assert timing.tokens_per_step > 2


def test_an_answer_that_its_reader_leaves_has_the_tokens_that_were_drawn(llama):
    """Those that were only drafted are not in the conversation."""
    left = []
    for draft in (0, 6):
        llama.reset()
        llama.eval(llama.prompt().head())
        session = Session(llama, Sampling(max_tokens=60, temperature=0, draft=draft))
        pieces = session.stream("Tell me.")
        told = "".join(next(pieces) for _ in range(45))
        pieces.close()
        left.append((told, llama.sequence.tokens.tolist(), session.ask("Go on.").text))
    assert left[1] == left[0]


def test_nothing_is_drafted_where_drafts_cannot_pay(llama):
    """The weights of this model are of f32, which llama.cpp multiplies."""
    text = np.array(list(range(20)) * 2, np.intc)
    assert new_drafter(llama, None).draft(text, 9) == []
    assert new_drafter(llama, 0).draft(text, 9) == []
    assert new_drafter(llama, 5).draft(text, 9) == [0, 1, 2, 3, 4]
    llama.reset()
    llama.set_attention("h2o")
    assert new_drafter(llama, 5).draft(text, 9) == []
    llama.set_attention("quest")


@pytest.mark.parametrize(("attention", "draft", "warns"), [("h2o", 5, True), ("h2o", None, False), ("quest", 5, False)])
def test_drafts_that_cannot_be_had_are_noted_once(llama, attention, draft, warns):
    said = []
    llama.reset()
    llama.set_attention(attention)
    session = Session(llama, Sampling(max_tokens=3, draft=draft), notice=said.append)
    assert [session.ask("Tell me.").timing.drafted_tokens for _ in range(2)] == [0, 0] or attention != "h2o"
    assert said == ["Note: Nothing is drafted: each step of this attention changes which rows are kept."] * warns
    llama.reset()
    llama.set_attention("quest")
