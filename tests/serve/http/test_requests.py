"""How streams tell that the server still works."""

import asyncio
import gc
import json
import threading

import pytest

from octavo.serve.http import requests
from octavo.serve.request_error import RequestError

HELLO = [{"role": "user", "content": "Hello."}]


def test_a_silent_stream_gets_comments(monkeypatch):
    monkeypatch.setattr(requests, "_SILENCE", 0.02)

    async def lines():
        yield "one"
        await asyncio.sleep(0.05)
        yield "two"

    async def collected():
        return [event async for event in requests._events(lines(), str)]

    events = asyncio.run(collected())
    assert (events[0], events[-1]) == ("data: one\n\n", "data: two\n\n")
    assert set(events[1:-1]) == {": still working\n\n"}


def test_a_stream_whose_client_has_gone_ends_its_work(monkeypatch):
    monkeypatch.setattr(requests, "_SILENCE", 0.01)
    ended = []

    async def lines():
        try:
            await asyncio.sleep(60)
            yield "late"
        finally:
            ended.append(True)

    async def begun():
        events = requests._events(lines(), str)
        assert await anext(events) == ": still working\n\n"
        await events.aclose()

    asyncio.run(begun())
    assert ended == [True]


@pytest.mark.parametrize("more", [{"return_progress": True}, {}])
def test_a_stream_tells_how_far_its_prompt_is_read(talking, more):
    text = "A word that was not read before: " * 40
    events = talking.stream("/v1/chat/completions", messages=[{"role": "user", "content": text + str(more)}], **more)
    told = [event["prompt_progress"] for event in events if "prompt_progress" in event]
    assert bool(told) == bool(more)
    if told:
        assert told[0]["processed"] == told[0]["cache"]  # at once, before a batch is read
        assert told[-1]["processed"] == told[-1]["total"] > 200
        assert [each["processed"] for each in told] == sorted(each["processed"] for each in told)


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt": "x", "repeat_penalty": Infinity}',
        b'{"prompt": "x", "repeat_penalty": "Infinity"}',
        b'{"prompt": "x", "temperature": NaN}',
        b'{"prompt": "x", "metadata": {"a": NaN}}',
        b'{"prompt": "x", "metadata": [1e999]}',
        b'{"prompt": "x", "logit_bias": {"5": -Infinity}}',
        b'{"prompt": "x", "logit_bias": {"5": "nan"}}',
        b'{"prompt": "x", "seed": 1e400}',
    ],
)
def test_numbers_that_json_lacks_are_faults_of_the_client(served, body):
    response = served.client.post("/v1/completions", content=body)
    assert response.status_code == 400, response.text


@pytest.mark.parametrize("name", ["--5", "-", "٣x", "9" * 5000, "-" * 50])
def test_a_bias_names_a_token_or_a_text(served, name):
    response = served.client.post("/v1/completions", json={"prompt": "x", "logit_bias": {name: 1}, "max_tokens": 1})
    assert response.status_code in (200, 400), response.text


def test_json_of_too_many_values_is_refused_before_it_is_parsed(served, monkeypatch):
    monkeypatch.setattr(requests, "_MOST_VALUES", 1000)
    many = {"prompt": [1] * 1002}
    status, error = served.refused("/v1/completions", **many)
    assert (status, error["message"]) == (413, "The body has more than 1,000 values.")
    assert served.post("/v1/completions", prompt='a,"b\\",' * 100, max_tokens=1, metadata={"a,": "," * 5000})
    monkeypatch.setattr(requests, "_MOST_JSON", 1000)
    status, error = served.refused("/v1/completions", prompt="x" * 1001)
    assert (status, "upload documents to /v1/files" in error["message"]) == (413, True)


def test_json_of_too_many_escapes_is_refused(served, monkeypatch):
    monkeypatch.setattr(requests, "_MOST_ESCAPES", 100)
    assert served.post("/v1/completions", prompt="\n" * 100, max_tokens=1)
    status, error = served.refused("/v1/completions", prompt="\n" * 101, max_tokens=1)
    assert (status, error["message"]) == (413, "The body has more than 100 escapes: send its text as UTF-8.")


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (rb'["\ud83d\ude00", "\ud83d", "x\udc00"]', ["😀", "\ufffd", "x\ufffd"]),
        (b'\xef\xbb\xbf{"a": [1, -2.5e3]}', {"a": [1, -2500.0]}),
        (b'{"a": 1, "a": "\xc3\xa9"}', {"a": "é"}),
        (b"1" * 400, int("1" * 400)),
        (rb'"\\ud83d"', "\\ud83d"),
    ],
)
def test_values_of_json(body, value):
    assert requests.json_of(body) == value


@pytest.mark.parametrize("body", [b"", b"{", b'"\xff"', b"[1e999]", rb'["\ud83d", NaN]', b"[" * 300 + b"]" * 300])
def test_what_is_not_json(body):
    with pytest.raises((ValueError, RecursionError)):
        requests.json_of(body)


def test_commas_and_quotes_in_texts_are_no_values(monkeypatch):
    monkeypatch.setattr(requests, "_MOST_VALUES", 3)
    for text in ("a,b,c,d,e", '","' * 2, '\\",\\,,,', "\\"):
        assert requests.json_of(json.dumps([text, 1]).encode()) == [text, 1]
    for value in ([1] * 5, [[], [], [], [], []], ["a,"] * 5, [{"a": 1}] * 5):
        with pytest.raises(RequestError, match="more than 3 values"):
            requests.json_of(json.dumps(value).encode())


def test_a_long_body_is_parsed_beside_the_loop(monkeypatch):
    threads = []

    def parse():
        threads.append(threading.current_thread())

    asyncio.run(requests.aside(10, parse))
    asyncio.run(requests.aside(10**6, parse))
    assert threads[0] is threading.main_thread()
    assert threads[1] is not threading.main_thread()


def test_what_a_client_left_behind_is_not_logged(caplog):
    """The end of a stream that came after its client had gone."""

    async def left():
        async def lines():
            return
            yield ""

        coming = asyncio.ensure_future(anext(lines()))
        await asyncio.sleep(0.01)
        await requests._end(coming)
        await requests._end(None)

    with caplog.at_level("ERROR"):
        asyncio.run(left())
        gc.collect()
    assert caplog.text == ""
