"""One thread at a time uses a conversation, and a new answer ends the one before it."""

import asyncio
import threading

import pytest

from octavo import Llama
from octavo.ask.session import Session
from octavo.errors import OctavoError
from octavo.settings import Sampling

REFUSED = "Another thread is using this conversation"


@pytest.fixture
def session(tiny_model):
    with Session(Llama(tiny_model, n_ctx=2048, n_threads=1), Sampling(max_tokens=12, temperature=0)) as session:
        yield session


def in_a_thread(call):
    """What a call returns or raises in a thread of its own."""
    found = []

    def run():
        try:
            found.append(call())
        except OctavoError as problem:
            found.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    return found[0]


def answers(session, *questions):
    """The answers to questions in a conversation of their own."""
    session.clear()
    return [session.ask(question).text for question in questions]


@pytest.mark.parametrize(
    "use",
    [
        lambda session: session.ask("Who?"),
        lambda session: next(session.stream("Who?")),
        lambda session: session.clear(),
        lambda session: session.save("x"),
        lambda session: session.recall([]),
        lambda session: session.regenerate(),
        lambda session: session.think(False),
        lambda session: session.resume(session.conversation()),
        lambda session: session.close(),
    ],
    ids=("ask", "stream", "clear", "save", "recall", "regenerate", "think", "resume", "close"),
)
def test_a_second_thread_is_refused_while_an_answer_is_open(session, use):
    [expected] = answers(session, "Why?")
    session.clear()
    stream = session.stream("Why?")
    first = next(stream)
    problem = in_a_thread(lambda: use(session))
    assert isinstance(problem, OctavoError)
    assert REFUSED in str(problem)
    assert first + "".join(stream) == expected


def test_threads_that_ask_at_once_get_whole_answers_or_are_refused(session):
    expected = answers(session, "Why?", "Why?", "Why?", "Why?")
    session.clear()
    start, found = threading.Barrier(4), []

    def ask():
        start.wait()
        for _ in range(4):
            try:
                found.append(session.ask("Why?").text)
            except OctavoError as problem:
                found.append(str(problem))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    refused = [text for text in found if REFUSED in text]
    answered = [text for text in found if REFUSED not in text]
    assert len(found) == 16
    assert refused
    assert answered[:4] == expected[: len(answered[:4])]


def test_another_thread_may_ask_after_an_answer_has_ended(session):
    first, second = answers(session, "Why?", "How?")
    session.clear()
    assert "".join(session.stream("Why?")) == first
    assert in_a_thread(lambda: session.ask("How?").text) == second


def test_an_answer_that_nobody_draws_any_more_is_no_hindrance(session):
    session.clear()
    stream = session.stream("Why?")
    next(stream)
    del stream
    assert in_a_thread(lambda: session.ask("How?").finish_reason) == "length"


def test_a_new_answer_ends_the_open_one_and_nothing_mixes(session):
    session.clear()
    first = session.stream("Why?")
    pieces = [next(first), next(first)]
    mixed = session.ask("How?").text
    assert list(first) == []
    session.clear()
    again = session.stream("Why?")
    assert [next(again), next(again)] == pieces
    again.close()
    assert session.ask("How?").text == mixed


def test_regenerating_ends_the_open_answer(session):
    [expected] = answers(session, "Why?")
    session.clear()
    stream = session.stream("Why?")
    next(stream)
    assert "".join(session.regenerate()) == expected
    assert list(stream) == []


def test_a_refused_question_leaves_no_trace(session):
    first, again = answers(session, "Why?", "How?")
    session.clear()
    assert session.ask("Why?").text == first
    with pytest.raises(OctavoError, match="does not fit"):
        session.ask("long " * 4000)
    assert "".join(session.regenerate()) == first
    assert session.ask("How?").text == again


def test_threads_that_hold_the_lock_take_turns(session):
    """As handlers of a web app do: each asks in a thread of its own, and one draws pieces in changing threads."""
    expected = answers(session, "Why?")[0]

    def ask():
        with session.lock:
            return answers(session, "Why?")[0]

    def stream():
        with session.lock:
            session.clear()
            yield from session.stream("Why?")

    async def serve():
        found = [asyncio.to_thread(ask) for _ in range(4)]
        pieces = stream()
        first = await asyncio.to_thread(next, pieces)
        others = asyncio.gather(*found)
        rest = [await asyncio.to_thread(next, pieces, None)]
        while rest[-1] is not None:
            rest.append(await asyncio.to_thread(next, pieces, None))
        return "".join([first, *rest[:-1]]), *await others

    assert asyncio.run(serve()) == (expected,) * 5
