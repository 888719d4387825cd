"""How streams tell that the server still works."""

import asyncio

import pytest

from octavo.serve.http import requests

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
