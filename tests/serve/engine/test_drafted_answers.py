"""Drafts in the server: the same answers, in fewer steps, and only of an answer that runs alone."""

import asyncio
from contextlib import contextmanager
from dataclasses import replace

import pytest
from helpers import story_model
from helpers.served import SAMPLING, serving

from octavo.runtime.sequences import drafter
from octavo.serve.engine.request import Generation, Request
from octavo.settings import Sampling

MESSAGES = [{"role": "user", "content": "Tell me."}]
STORY = story_model.STORY


@pytest.fixture(scope="module")
def telling(tmp_path_factory):
    """A server whose answers draft up to five tokens."""
    folder = tmp_path_factory.mktemp("telling")
    model = story_model.write_model(folder / "story.gguf")
    with serving(model, folder, sampling=replace(SAMPLING, draft=5)) as server:
        yield server


@contextmanager
def without_drafts(served):
    object.__setattr__(served.server, "sampling", SAMPLING)
    try:
        yield
    finally:
        object.__setattr__(served.server, "sampling", replace(SAMPLING, draft=5))


def drafts(answer):
    details = answer["usage"]["completion_tokens_details"]
    return details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"temperature": 1.5, "seed": 3, "top_k": 0, "min_p": 0, "top_p": 1},
        {"temperature": 0.8, "seed": 5, "repeat_penalty": 1.3, "frequency_penalty": 0.5},
        {"logprobs": True, "top_logprobs": 3, "logit_bias": {"90": 4}},
        {"stop": ["Jack little"], "prediction": {"type": "content", "content": STORY}},
        {"grammar": 'root ::= (" going" | " Suddenly" | " small" | " Dad" | " Jack" | " little" | " said")+'},
        {"attention": "quest"},
        {"attention": "h2o"},
    ],
)
def test_answers_are_the_same(telling, how):
    body = {"messages": MESSAGES, "max_tokens": 60, **how}
    with without_drafts(telling):
        expected = telling.post("/v1/chat/completions", **body)
    answer = telling.post("/v1/chat/completions", **body)
    assert drafts(expected) == (0, 0)
    for choice in expected["choices"][0], answer["choices"][0]:
        choice["logprobs"] = rounded(choice.get("logprobs"))
    assert answer["choices"] == expected["choices"]
    assert (sum(drafts(answer)) > 0) == (how.get("attention") != "h2o")
    assert any("Nothing is drafted" in said for said in answer.get("notices", [])) == (how.get("attention") == "h2o")
    if not how:
        n_accepted, n_rejected = drafts(answer)
        assert n_accepted > 30
        assert answer["timings"]["draft_n"] == n_accepted + n_rejected
        assert answer["timings"]["draft_n_accepted"] == n_accepted


def rounded(value):
    """Return values whose numbers have few digits: llama.cpp rounds products of f32 by batches in another way."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return round(value, 2) if isinstance(value, float) else value


@pytest.mark.parametrize("content", [STORY, [{"type": "text", "text": STORY}]])
def test_a_prediction_is_drafted(telling, content):
    body = {"messages": MESSAGES, "max_tokens": 8}
    answer = telling.post("/v1/chat/completions", **body)
    predicted = telling.post("/v1/chat/completions", **body, prediction={"type": "content", "content": content})
    assert predicted["choices"] == answer["choices"]
    assert drafts(predicted)[0] > drafts(answer)[0]


def test_a_prediction_of_another_kind_is_refused(telling):
    status, error = telling.refused("/v1/chat/completions", messages=MESSAGES, prediction={"content": 7})
    assert status == 400
    assert "prediction" in error["message"]


def test_answers_beside_others_draft_nothing_and_look_for_nothing(telling, monkeypatch):
    """Two answers begin together, and end together: no step of them is one of a single answer."""
    n_sought, find = [0], drafter.longest_match

    def count(tokens):
        n_sought[0] += 1
        return find(tokens)

    monkeypatch.setattr(drafter, "longest_match", count)
    engine = telling.server.engine
    tokens = [max(engine.llama.token_bos(), 0), *engine.llama.tokenize(STORY.encode(), add_bos=False)]
    request = Request(tokens=tokens, generation=Generation(sampling=Sampling(max_tokens=12, temperature=0, draft=5)))

    async def answer():
        return [event async for event in engine.stream(request)][-1]

    async def both():
        return await asyncio.gather(answer(), answer())

    with telling.paused():
        pending = asyncio.new_event_loop()
        task = pending.create_task(both())
        pending.run_until_complete(asyncio.sleep(0))
        pending.run_until_complete(asyncio.sleep(0))
        assert engine.n_waiting == 2
    ends = pending.run_until_complete(task)
    pending.close()
    assert n_sought == [0]
    alone = asyncio.run(answer())
    assert alone.usage.accepted_tokens > 0
    assert 0 < n_sought[0] <= 12 - alone.usage.accepted_tokens  # once a step, not once a token
    assert [end.usage.answer_tokens for end in ends] == [12, 12]
    assert sum(end.usage.drafted_tokens for end in ends) == 0
