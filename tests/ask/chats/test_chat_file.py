"""Conversations that are kept: what goes on, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

import octavo
from octavo import OctavoError
from octavo.ask.chats.chat_file import read_header, write_conversation
from octavo.ask.session import Session
from octavo.settings import Sampling

DOCUMENT = "The sky is blue. " * 8


def new_session(model, text=DOCUMENT, **options):
    llama = octavo.Llama(model, n_ctx=1024, n_threads=2, **options)
    prompt = llama.prompt()
    llama.eval(prompt.head() + prompt.document(text))
    return Session(llama, Sampling(max_tokens=6, temperature=0))


@pytest.fixture
def saved(tiny_model, tmp_path):
    session = new_session(tiny_model)
    session.ask("Why?")
    path = tmp_path / "talk.safetensors"
    assert session.save(str(path)) == path
    return session, path


@pytest.mark.parametrize("options", [{}, {"attention": "h2o", "budget": 0.9}, {"type_k": 8, "type_v": 8}])
def test_it_goes_on_as_if_it_had_not_been_left(saved, tiny_model, options):
    """By its keys and values; or, where they are stored otherwise or forgotten, by its tokens."""
    session, path = saved
    other = new_session(tiny_model, **options)
    other.load(str(path))
    assert other.n_tokens == session.n_tokens
    assert other.conversation().tokens == session.conversation().tokens
    expected = session.ask("And then?").text
    answer = other.ask("And then?").text
    if not options:
        assert answer == expected
        assert "".join(other.regenerate()) == expected


@pytest.mark.parametrize("forged", [False, True])
def test_steps_that_are_read_again_are_steps(tiny_model, tmp_path, forged):
    """`h2o` keeps no rows, and forgets others where a token is a step. A file may hold any numbers."""
    session, other = (new_session(tiny_model, DOCUMENT * 4, attention="h2o", budget=0.3) for _ in range(2))
    session.ask("Why?")
    conversation = session.conversation()
    assert conversation.steps
    assert not conversation.rows
    if forged:
        conversation = replace(conversation, steps=[10**9, *conversation.steps[::-1], -5, 0, conversation.steps[0]])
    path = session.save(str(tmp_path / "talk.safetensors"))
    write_conversation(path, conversation, read_header(path).source)
    other.load(str(path))
    for each in (session, other):
        each.llama.eval([7])
    np.testing.assert_allclose(other.llama.logits(), session.llama.logits(), atol=0.02)


def test_what_is_refused_leaves_the_conversation_as_it_is(saved, tiny_model, tmp_path):
    _, path = saved
    other = new_session(tiny_model, DOCUMENT + "It rains.")
    other.ask("Why?")
    before = other.conversation()
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(path.read_bytes()[:200])
    empty = tmp_path / "empty.safetensors"
    empty.write_bytes(b"")
    for name, message in (
        (path, "over another document"),
        (damaged, "is not a conversation"),
        (empty, "is not a conversation"),
        (tmp_path / "nothing", "There is no conversation"),
    ):
        with pytest.raises(OctavoError, match=message):
            other.load(str(name))
        now = other.conversation()
        assert (now.tokens, now.unread, now.last) == (before.tokens, before.unread, before.last)
    other.ask("And then?")


def test_a_conversation_with_another_model(saved, tmp_path):
    from helpers import tiny_models

    _, path = saved
    other = new_session(tiny_models.write_model(tmp_path / "qwen.gguf", "qwen2"))
    with pytest.raises(OctavoError, match="was with another model"):
        other.load(str(path))
