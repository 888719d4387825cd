"""Errors inside the engine: whatever fails, every request is told, and the others are answered."""

import asyncio
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.served import serving
from helpers.waiting import wait_until

from octavo.serve.engine import sequences as engine_sequences
from octavo.serve.engine.running_request import RunningRequest

LONG = [3 + (7 * i + i // 11) % 200 for i in range(1400)]


def complete(served, tokens, n=4, **more):
    return served.client.post("/v1/completions", json={"prompt": tokens, "max_tokens": n, **more}, timeout=60)


def fails(*_, **__):
    raise MemoryError("no memory for this")


@pytest.fixture
def apart(tiny_model, tmp_path):
    """A server of its own, as its engine fails."""
    with serving(tiny_model, tmp_path) as served:
        yield served


def test_a_conversation_that_cannot_be_kept_is_answered(apart, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(engine_sequences.Conversation, "of", fails)
        patched.setattr(apart.server.engine.sequences, "_idle_bytes", 0)
        with ThreadPoolExecutor(4) as clients:
            answers = list(clients.map(lambda n: complete(apart, [*LONG, n]), range(4, 12)))
        assert [answer.status_code for answer in answers] == [200] * 8
    assert complete(apart, LONG).status_code == 200
    assert apart.client.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize("part", ["end", "take", "read", "step"])
def test_an_error_among_the_conversations_harms_no_later_request(apart, monkeypatch, part):
    sequences, calls = apart.server.engine.sequences, []
    whole = getattr(sequences, part)

    def fails_once(*arguments, **named):
        calls.append(part)
        if len(calls) == 1:
            fails()
        return whole(*arguments, **named)

    monkeypatch.setattr(sequences, part, fails_once)
    first, later = complete(apart, LONG[:40]), [complete(apart, LONG[:50]) for _ in range(2)]
    assert (first.status_code, [answer.status_code for answer in later]) == (200 if part == "end" else 500, [200, 200])
    assert apart.client.get("/health").status_code == 200
    assert calls


def test_an_error_at_the_end_of_an_answer_is_told(apart, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(RunningRequest, "end", fails)
        answer = complete(apart, LONG[:40])
        assert (answer.status_code, "MemoryError" in answer.json()["error"]["message"]) == (500, True)
    assert complete(apart, LONG[:40]).status_code == 200


def test_an_abandoned_task_that_ends_badly_harms_no_other(apart):
    engine = apart.server.engine

    async def abandon():
        def steps():
            try:
                while True:
                    yield
            finally:
                fails()

        task = asyncio.create_task(engine.run_steps(steps()))
        await asyncio.sleep(0.05)
        task.cancel()

    asyncio.run(abandon())
    assert complete(apart, LONG[:40]).status_code == 200


def test_when_the_engine_dies_all_are_told(apart, monkeypatch):
    """Those that run, those that wait, and those that come later; /health says so, too."""
    engine, dies = apart.server.engine, threading.Event()

    class Dead(BaseException):
        pass

    turn = engine._turn

    def deadly():
        turn()
        if dies.is_set():
            raise Dead

    monkeypatch.setattr(engine, "_turn", deadly)
    never = {str(token): -100 for token in range(250, engine.llama.n_vocab())}
    with ThreadPoolExecutor(6) as clients:
        waiting = [clients.submit(complete, apart, LONG[:40], 1000, logit_bias=never) for _ in range(6)]
        while engine.n_running < 4:
            assert not any(each.done() for each in waiting)
        dies.set()
        answers = [each.result() for each in waiting]
    assert [answer.status_code for answer in answers] == [503] * 6
    assert "start the server again" in answers[0].json()["error"]["message"]
    assert complete(apart, LONG[:40]).status_code == 503
    health = apart.client.get("/health")
    assert (health.status_code, health.json()["status"]) == (503, "error")
    assert apart.client.get("/").status_code == 200


@pytest.mark.parametrize("how", ["overwritten", "touched", "shorter", "replaced", "a part of a split model"])
def test_a_model_whose_file_changes_answers_no_more(tiny_model, tmp_path, how):
    """Weights are mapped: an answer that is being written ends, too."""
    model = tmp_path / "model-00001-of-00002.gguf"
    shutil.copy(tiny_model, model)
    part = shutil.copy(tiny_model, tmp_path / "model-00002-of-00002.gguf")
    changed = part if how == "a part of a split model" else model
    with serving(model, tmp_path) as served, ThreadPoolExecutor(1) as client:
        never = {str(token): -100 for token in range(250, served.server.engine.llama.n_vocab())}
        running = client.submit(complete, served, LONG[:40], 1500, logit_bias=never)
        wait_until(lambda: served.server.engine.n_running)
        if how == "overwritten":
            with open(changed, "r+b") as file:
                file.seek(-4, os.SEEK_END)
                file.write(b"abcd")
        elif how == "shorter":
            os.truncate(changed, os.path.getsize(changed) - 1)
        elif how == "replaced":
            shutil.copy(model, tmp_path / "new.gguf")
            os.replace(tmp_path / "new.gguf", model)
        else:
            os.utime(changed, ns=(1, 1))
        for answer in (running.result(), complete(served, LONG[:40]), served.client.get("/health")):
            assert answer.status_code == 503
            sentence = "The file of tiny has changed since the model was loaded: start the server again."
            assert answer.json()["error"]["message"] == sentence


def test_a_model_whose_file_is_removed_answers_on(tiny_model, tmp_path):
    model = tmp_path / "model.gguf"
    shutil.copy(tiny_model, model)
    with serving(model, tmp_path) as served:
        before = complete(served, LONG[:40]).json()["choices"]
        model.unlink()
        assert complete(served, LONG[:40]).json()["choices"] == before
        assert served.client.get("/health").status_code == 200
