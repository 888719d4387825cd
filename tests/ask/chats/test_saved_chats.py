"""Conversations that are kept in a library."""

import json
from types import SimpleNamespace

import pytest

import octavo
from octavo.ask.chats.chat_file import read_header
from octavo.ask.chats.saved_chats import newest, saved_chats
from octavo.settings import ModelSettings, Sampling


@pytest.fixture
def session(tiny_model, tmp_path):
    document = tmp_path / "sky.v2.txt"
    document.write_text("The sky is blue. " * 8)
    settings = ModelSettings(tiny_model, n_threads=2, index_dir=tmp_path / "indexes")
    with octavo.open_document(document, settings, sampling=Sampling(max_tokens=4, temperature=0)) as session:
        yield session


def rows(chats):
    return {chat.name: read_header(chat.path).n_rows for chat in chats}


def test_the_last_chat_keeps_its_rows_and_older_ones_their_texts(session):
    session.ask("Why?")
    assert session.keep() == "sky-v2"
    session.save("mine")
    session.clear()
    assert session.keep() is None  # there is nothing to keep
    session.ask("When?")
    assert session.keep() == "sky-v2-2"
    chats = saved_chats([session.library.folder])
    assert rows(chats) == {"sky-v2-2": 3, "mine": 3, "sky-v2": 0}  # 3 layers
    assert chats[-1].questions == ["Why?"]
    tokens = session.n_tokens
    assert session.load("sky-v2")
    assert session.n_tokens == tokens  # read again
    assert newest(chats, session.about).name == "sky-v2-2"
    assert newest(chats, ("/other",)) is None


def test_a_question_is_kept_without_rows_in_place_of_the_last_one(session):
    for question in ("Why?", "When?"):
        session.clear()
        session.ask(question)
        assert session.keep(kind="question") == "sky-v2"
    [chat] = saved_chats([session.library.folder])
    assert (chat.questions, rows([chat])) == (["When?"], {"sky-v2": 0})


def test_a_chat_is_kept_by_its_texts_until_it_ends(session):
    session.ask("Who?")
    assert session.keep(with_rows=False) == "sky-v2"
    assert rows(saved_chats([session.library.folder])) == {"sky-v2": 0}
    messages, tokens = session.conversation().history.messages, session.n_tokens
    assert session.load("sky-v2")  # which reads the texts again
    assert (session.conversation().history.messages, session.n_tokens) == (messages, tokens)
    assert session.keep("sky-v2") == "sky-v2"
    assert rows(saved_chats([session.library.folder])) == {"sky-v2": 3}


def test_what_the_user_named_stays_named(session):
    session.ask("Why?")
    session.save("mine")
    session.ask("When?")
    session.keep("mine")
    [chat] = saved_chats([session.library.folder])
    assert (chat.origin.kind, chat.questions) == ("named", ["Why?", "When?"])


def test_a_conversation_about_another_document_is_named(session, tmp_path):
    session.ask("Why?")
    session.save("mine")
    other = tmp_path / "other.txt"
    other.write_text("The sea is wide. " * 8)
    settings = ModelSettings(session.llama.model_path, n_threads=2, index_dir=tmp_path / "indexes")
    with (
        octavo.open_document(other, settings) as second,
        pytest.raises(octavo.OctavoError, match=r"over another document: it is about .*sky\.v2\.txt"),
    ):
        second.load("mine")


def test_a_file_of_an_older_version_is_found_by_its_name(session, monkeypatch):
    """It names neither its document nor its questions."""
    from octavo.ask.chats import chat_file as conversation

    session.ask("Why?")

    def without_origin(header):
        return json.dumps({name: value for name, value in header.items() if name not in ("origin", "history")})

    monkeypatch.setattr(conversation, "json", SimpleNamespace(dumps=without_origin))
    session.save("last-0123")
    monkeypatch.undo()
    [chat] = saved_chats([session.library.folder])
    assert (chat.origin.documents, chat.questions, chat.problem) == (None, [], "")
    assert newest([chat], session.about) is None
    assert session.load("last-0123")


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("What is the capital of France?", "what-is-the-capital-of-france"),
        ("Explain how a lighthouse works, and who pays its keeper today", "explain-how-a-lighthouse-works-and-who"),
        ("Où est l'île ?", "où-est-l-île"),
        ("灯台はどこですか", "灯台はどこですか"),
        ("../../etc/passwd", "etc-passwd"),
        ("x" * 90, "x" * 40),
        ("2 + 2?", "chat"),
    ],
)
def test_a_chat_without_a_document_has_the_name_of_its_first_question(question, name, tiny_model, tmp_path):
    settings = ModelSettings(tiny_model, n_threads=2, index_dir=tmp_path / "indexes")
    with octavo.open_session(settings, sampling=Sampling(max_tokens=1, temperature=0)) as session:
        session.ask(question)
        session.ask("And then?")
        assert session.keep() == name
        assert session.keep() == f"{name}-2"
