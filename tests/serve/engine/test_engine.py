"""The engine: prompts that come again, many requests at once, and requests that end early."""

import asyncio
import json
import shutil
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers import tiny_models
from helpers.served import serving
from helpers.slow_compiling import SECONDS, compile_slowly

from octavo.serve.engine.request import End, Generation, Request
from octavo.settings import Sampling

LONG = [3 + (7 * i + i // 11) % 200 for i in range(1400)]


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def complete(served, tokens, n=4, **more):
    return served.post("/v1/completions", prompt=tokens, max_tokens=n, **more)


def test_a_prompt_that_comes_again_is_not_computed_again(served):
    first = complete(served, LONG)
    assert cached(first) == 0
    again = complete(served, LONG)
    assert cached(again) == len(LONG) - 1
    assert again["choices"] == first["choices"]
    assert cached(complete(served, LONG[:900] + [5] * 40)) == 900
    assert cached(complete(served, [*LONG, 9, 8, 7])) == len(LONG)


def test_a_prompt_shares_what_another_has_read_while_that_goes_on(served):
    tokens = [token + 1 for token in LONG]
    never = {str(token): -100 for token in range(250, served.server.engine.llama.n_vocab())}
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(complete, served, tokens, 300, logit_bias=never)
        sequences = served.server.engine.sequences
        while not any(sequence.n_tokens >= len(tokens) for sequence in sequences._running):
            time.sleep(0.02)
        other = complete(served, [*tokens[:1000], 4, 4, 4])
        assert not running.done()
        assert cached(other) == 1000
        assert running.result()["usage"]["completion_tokens"] == 300


def test_prompts_survive_a_restart(tiny_model, tmp_path):
    with serving(tiny_model, tmp_path) as served:
        first = complete(served, LONG, 8)
    with serving(tiny_model, tmp_path) as served:
        again = complete(served, LONG, 8)
        assert cached(again) == len(LONG) - 1
        assert again["choices"] == first["choices"]
    [file] = tmp_path.glob("*/prompts/*.safetensors")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with serving(tiny_model, tmp_path) as served:
        computed = complete(served, LONG, 8)
        assert cached(computed) == 0
        assert computed["choices"] == first["choices"]
    shutil.rmtree(file.parent)
    file.parent.mkdir()
    file.write_bytes(b"garbage")
    with serving(tiny_model, tmp_path) as served:
        assert complete(served, LONG, 8)["choices"] == first["choices"]


def test_prompts_on_disk_take_no_more_than_they_may(tiny_model, tmp_path):
    with serving(tiny_model, tmp_path) as served:
        complete(served, LONG)
        served.wait_until_idle()
    [file] = tmp_path.glob("*/prompts/*")
    size = file.stat().st_size
    with serving(tiny_model, tmp_path, kept_bytes=int(2.5 * size)) as served:
        for number in range(4):
            complete(served, [(token + number) % 250 + 3 for token in LONG])
    kept = list(tmp_path.glob("*/prompts/*"))
    assert len(kept) == 2
    with serving(tiny_model, tmp_path / "none", kept_bytes=0) as served:
        complete(served, LONG)
    assert not list((tmp_path / "none").glob("*/prompts/*"))


def test_a_longer_prompt_takes_the_place_of_its_beginning(tiny_model, tmp_path):
    with serving(tiny_model, tmp_path, n_ctx=4096) as served:
        complete(served, LONG)
        complete(served, LONG + LONG)
        complete(served, LONG[:1200])
    assert len(list(tmp_path.glob("*/prompts/*.safetensors"))) == 1
    with serving(tiny_model, tmp_path, n_ctx=4096) as served:
        assert cached(complete(served, LONG + LONG + [4])) == 2 * len(LONG)


def test_attentions_that_forget_answer_as_they_do_alone(tiny_model, tmp_path):
    expected = None
    with serving(tiny_model, tmp_path, attention="h2o:budget=.5") as served:
        for _ in range(2):
            answer = complete(served, LONG[:500], 8)
            expected = expected or answer["choices"]
            assert answer["choices"] == expected
        growing = complete(served, [*LONG[:500], *range(20, 40)], 8)
        assert cached(growing) <= 500 + 8


def engine_of(served):
    return served.server.engine


def test_a_long_prompt_stops_no_answer_for_longer_than_a_batch(served, monkeypatch):
    engine, events = engine_of(served), []
    read, answer = engine._read, engine._answer

    def noted_read(running, n_batch):
        events.append(("read", n_batch))
        read(running, n_batch)

    def noted_answer(answering):
        events.append(("answer", len(answering)))
        answer(answering)

    monkeypatch.setattr(engine, "_read", noted_read)
    monkeypatch.setattr(engine, "_answer", noted_answer)
    never = {str(token): -100 for token in range(250, engine.llama.n_vocab())}
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(complete, served, [11, 12, 13], 200, logit_bias=never)
        while not events or events[-1][0] != "answer":
            time.sleep(0.005)
        start = len(events)
        complete(served, [token + 7 for token in LONG], 2)
        during = events[start:]
        assert running.result()["usage"]["completion_tokens"] == 200
    reads = [i for i, (kind, _) in enumerate(during) if kind == "read"]
    assert len(reads) > 5
    assert all(during[i + 1][0] == "answer" for i in reads[:-1])
    assert all(n_batch < engine.llama.n_batch for kind, n_batch in during if kind == "read")
    assert max(n for kind, n in during if kind == "answer") == 2


def test_short_prompts_are_read_in_one_turn(served, monkeypatch):
    engine, turns = engine_of(served), []
    turn, read, admit = engine._turn, engine._read, engine._admit

    def noted_turn():
        turns.append([])
        turn()

    def noted_read(running, n_batch):
        turns[-1].append((len(running.unread), n_batch))
        read(running, n_batch)

    def admit_all_at_once():
        if any(turns) or len(engine._waiting) == 4:
            admit()

    for name, noted in (("_turn", noted_turn), ("_read", noted_read), ("_admit", admit_all_at_once)):
        monkeypatch.setattr(engine, name, noted)
    prompts = [[20 + i, 5, 6, 7, 8, 9] for i in range(3)] + [[token % 200 + 30 for token in LONG[:700]]]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda tokens: complete(served, tokens, 2), prompts))
    first, *others = [reads for reads in turns if reads]
    assert sum(n_batch for _, n_batch in first) <= engine.llama.n_batch
    assert all(sum(n_batch for _, n_batch in reads) <= engine.llama.n_batch for reads in others)
    assert any(len(reads) >= 2 and all(n == n_batch for n, n_batch in reads) for reads in turns)


def test_clients_take_turns(tiny_model, tmp_path):
    """One that asks much does not keep others waiting."""
    with serving(tiny_model, tmp_path, n_parallel=1) as served:
        engine, order = engine_of(served), []
        begin = engine.sequences.begin

        def noted(running):
            order.append(running.request.generation.client)
            begin(running)

        engine.sequences.begin = noted

        async def ask(client):
            async for _ in engine.stream(Request(tokens=[5, 6, 7, len(order)], generation=Generation(client=client))):
                pass

        async def all_of_them():
            many = [asyncio.create_task(ask("much")) for _ in range(6)]
            await asyncio.sleep(0)
            await asyncio.gather(*many, ask("little"))

        asyncio.run(all_of_them())
    assert sorted(order) == ["little"] + 6 * ["much"]
    assert order.index("little") < 3


def test_a_full_queue_refuses_and_a_slow_request_is_given_up(tiny_model, tmp_path):
    with serving(tiny_model, tmp_path, n_parallel=1, n_waiting=1, timeout=1.0) as served:
        never = {str(token): -100 for token in range(250, engine_of(served).llama.n_vocab())}

        def ask(_):
            body = {"prompt": [5, 6], "max_tokens": 1900, "logit_bias": never}
            return served.client.post("/v1/completions", json=body).status_code

        with ThreadPoolExecutor(6) as pool:
            codes = sorted(pool.map(ask, range(6)))
        assert codes.count(503) >= 3
        assert set(codes) <= {200, 503, 504}
        served.wait_until_idle()
        assert complete(served, [5, 6])["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("n_prompt", [3, 1400])
def test_a_client_that_hangs_up_stops_its_work(served, stream, n_prompt):
    engine = engine_of(served)
    before = engine.totals.cancelled
    never = {str(token): -100 for token in range(250, engine.llama.n_vocab())}
    body = {"prompt": [n_prompt % 200, *LONG[: n_prompt - 1]], "max_tokens": 600, "logit_bias": never, "stream": stream}
    content = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n\r\n"
    with socket.create_connection(served.address) as connection:
        connection.sendall(head.encode() + content)
        while not engine.n_running:
            time.sleep(0.001)
    late = time.monotonic() + 5
    while engine.totals.cancelled == before and time.monotonic() < late:
        time.sleep(0.01)
    served.wait_until_idle()
    assert engine.totals.cancelled == before + 1


def test_figures_add_up(served):
    before = served.client.get("/metrics").text
    complete(served, [4, 5, 6], 3, logit_bias={str(t): -100 for t in range(250, engine_of(served).llama.n_vocab())})

    def figure(text, name):
        [line] = [line for line in text.splitlines() if line.startswith(f"octavo_{name} ")]
        return float(line.split()[1])

    after = served.client.get("/metrics").text
    assert figure(after, "answer_tokens_total") - figure(before, "answer_tokens_total") == 3
    assert figure(after, "prompt_tokens_total") - figure(before, "prompt_tokens_total") == 3
    assert figure(after, "requests_running") == 0
    assert after.count("# HELP") == after.count("# TYPE")


def test_a_control_token_has_a_text_where_the_request_names_one(served):
    """As [TOOL_CALLS] of Mistral, by which calls are found."""
    engine, biased = served.server.engine, {tiny_models.IM_START: 100.0}

    async def said(texts):
        generation = Generation(sampling=Sampling(max_tokens=3, temperature=0), logit_bias=biased)
        request = Request(tokens=LONG[:20], generation=generation, call_texts=texts)
        return "".join([event.text async for event in engine.stream(request) if not isinstance(event, End)])

    assert asyncio.run(said({})) == ""
    assert asyncio.run(said({tiny_models.IM_START: "[TOOL_CALLS]"})) == "[TOOL_CALLS]" * 3


def test_compiling_counts_as_no_time_of_an_answer(served, monkeypatch):
    compile_slowly(monkeypatch)
    timings = served.post("/completion", prompt=[21, 22, 23], n_predict=3)["timings"]
    assert 0 < timings["prompt_ms"] < SECONDS * 1e3 / 2
    assert timings["predicted_per_second"] > 2 / SECONDS
