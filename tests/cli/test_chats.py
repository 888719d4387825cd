"""Conversations that are kept: by `ask --continue`, `chat --continue` and `--resume`, and in `octavo chats`."""

import json

import pytest
from helpers import tiny_models
from helpers.command_line import SENTENCES, SHORT_ANSWER, fails, octavo


@pytest.fixture
def settings(on_tiny):
    return [*on_tiny, *SHORT_ANSWER]


@pytest.fixture
def library(on_tiny):
    return on_tiny[:4]


def kept(*options):
    return json.loads(octavo("chats", *options, "-o", "json").stdout)


def questions(chat):
    return [message["content"] for message in chat["messages"] if message["role"] == "user"]


def test_ask_continues_as_a_chat_does(document, settings, library):
    chat = octavo("chat", document, *settings, stdin="Which ship?\nAnd where?\n")
    octavo("ask", document, "Which ship?", *settings)
    second = octavo("ask", document, "And where?", "--continue", *settings)
    assert second.exit_code == 0
    assert chat.stdout.endswith(f"\n{second.stdout}")
    continued = "The last conversation continues: 1 question, the last one “Which ship?”."
    assert second.stderr.splitlines()[0] == continued
    [chat] = kept(*library)
    assert (chat["documents"], questions(chat)) == ([str(document)], ["Which ship?", "And where?"])


def test_without_a_document_the_last_conversation_of_all_continues(document, settings, library, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("A text about nothing. " * 9)
    for path in (document, other):
        octavo("ask", path, "Which ship?", *settings)
    result = octavo("ask", "--continue", "And", "where", *settings, "-o", "json")
    assert json.loads(result.stdout)["document"] == str(other)
    assert questions(kept(*library)[0]) == ["Which ship?", "And where"]
    octavo("ask", document, "--continue", "And when?", *settings)
    assert [questions(chat)[-1] for chat in kept(*library)] == ["And when?", "And where"]


def test_a_new_question_replaces_the_last_one_and_no_chat(document, settings, library):
    octavo("ask", document, "First?", *settings)
    octavo("chat", document, "--continue", *settings, stdin="Second?\n")  # from now on it is a chat
    octavo("ask", document, "Third?", *settings)
    octavo("ask", document, "Fourth?", *settings)
    assert {chat["name"]: questions(chat) for chat in kept(*library)} == {
        "island": ["First?", "Second?"],
        "island-2": ["Fourth?"],
    }


def test_there_is_nothing_to_continue(document, settings, library):
    message = f"There is no conversation about {document} yet: leave --continue out."
    fails(octavo("ask", document, "Why?", "--continue", *settings), 2, message)
    fails(octavo("chat", document, "--continue", *settings), 2, message)
    fails(octavo("chat", "--continue", *settings), 2, "There is no conversation yet: leave --continue out.")
    fails(octavo("chat", "--continue", "--resume", "1", *settings), 2, "give one of them")
    assert octavo("chats", *library).stderr == "There are no conversations yet: `octavo chat` begins one.\n"


def test_a_conversation_continues_after_its_document_changed(document, settings, library):
    octavo("ask", document, "Which ship?", *settings)
    document.write_text(SENTENCES * 5 + "The keeper had a cat.\n")
    result = octavo("chat", document, "--continue", *settings, stdin="And where?\n")
    assert result.exit_code == 0
    changed = "island.txt has changed since: new answers come from the new text, and earlier ones stay as they are."
    assert changed in result.stderr.splitlines()
    [chat] = kept(*library)
    assert questions(chat) == ["Which ship?", "And where?"]
    anew = octavo("chat", document, *settings, stdin="Which ship?\n")
    assert anew.exit_code == 0
    again = octavo("chat", document, "--continue", *settings, stdin="And when?\n")
    assert changed not in again.stderr  # it was kept over the new text


def test_the_answer_after_a_change_is_that_of_the_same_texts(document, settings):
    """The model reads the questions and answers after the new text, as if they had been given there."""
    from octavo import ModelSettings, Sampling, open_document

    octavo("ask", document, "Which ship?", *settings)
    document.write_text("Another text. " * 20)
    result = octavo("ask", document, "And where?", "--continue", *settings)
    model = ModelSettings(settings[1], n_threads=2, index_dir=settings[3])
    first = kept(*settings[:4])[0]["messages"][:2]
    with open_document(document, model, sampling=Sampling(max_tokens=5, temperature=0)) as session:
        session.recall(first)
        assert session.ask("And where?").text == result.stdout.removesuffix("\n")


def test_conversations_are_listed_shown_resumed_and_removed(document, settings, library):
    octavo("chat", document, *settings, stdin="Which ship?\n/save talk\n")
    octavo("ask", document, "Why?", *settings)
    listed = octavo("chats", *library).stdout.splitlines()
    assert listed[0].split() == ["name", "about", "questions", "first", "question", "saved", "model", "size"]
    assert [line.split()[:5] for line in listed[2:]] == [["1", "talk", "island.txt", "1", "Which"]]  # no question alone
    shown = octavo("chats", "talk", *library).stdout
    assert shown.startswith("> Which ship?\n\n")
    assert shown == octavo("chats", "1", *library).stdout
    resumed = octavo("chat", "--resume", "talk", *settings, stdin="And where?\n")
    assert resumed.exit_code == 0
    assert questions(kept(*library)[0]) == ["Which ship?", "And where?"]
    refused = octavo("chats", "--remove", "talk", *library, stdin="n\n")
    assert (refused.exit_code, len(kept(*library))) == (1, 2)
    assert octavo("chats", "--remove", "talk", "--yes", *library).stderr == "Removed talk.\n"
    assert [chat["name"] for chat in kept(*library)] == ["island"]
    fails(octavo("chats", "talk", *library), 2, "There is no chat talk: `octavo chats` lists them.")
    fails(octavo("chats", "--remove", *library), 2, "Name the conversations to remove")
    fails(octavo("chat", "--resume", "3", *settings), 2, "There is no chat 3")


def test_a_chat_is_resumed_with_its_model(document, settings, tmp_path):
    """Without -m, and in a folder of indexes that octavo has noted."""
    octavo("chat", document, *settings, stdin="Which ship?\n/save talk\n")
    (tmp_path / "other").mkdir()
    other = tiny_models.write_model(
        tmp_path / "other" / "second.gguf", "llama", chat_template=tiny_models.CHAT_TEMPLATE
    )
    octavo("ask", document, "And the sea?", "-m", other, *SHORT_ANSWER)
    second, first = kept()
    assert (first["model"], second["model"]) == (settings[1], str(other))
    resumed = octavo("chat", "--resume", "1", *SHORT_ANSWER, "-o", "jsonl", stdin="Why?\n")
    assert json.loads(resumed.stdout.splitlines()[-1])["model"] == first["model"]
    result = octavo("ask", "--continue", "And then?", *SHORT_ANSWER, "-o", "json")
    assert json.loads(result.stdout)["model"] == settings[1]


def test_a_folder_is_continued(tmp_path, settings, library):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "ship.txt").write_text(SENTENCES * 3)
    (folder / "tower.txt").write_text("Nobody wrote down who built the tower.\n" * 5)
    octavo("ask", folder, "Which ship?", *settings)
    result = octavo("ask", folder, "Who built the tower?", "--continue", *settings)
    assert result.exit_code == 0
    [chat] = kept(*library)
    assert (chat["documents"], questions(chat)) == ([str(folder)], ["Which ship?", "Who built the tower?"])


def test_a_damaged_conversation_is_listed_and_can_go(document, settings, library):
    octavo("ask", document, "Which ship?", *settings)
    path = kept(*library)[0]["path"]
    with open(path, "r+b") as file:
        file.truncate(100)
    assert "damaged" in octavo("chats", *library).stdout
    assert "is not a conversation that octavo saved" in kept(*library)[0]["problem"]
    fails(octavo("chat", "--resume", "island", *settings), 2, "is not a conversation that octavo saved")
    assert octavo("ask", document, "Why?", *settings).exit_code == 0


def test_standard_input_is_not_kept(settings, library):
    assert octavo("ask", "-", "Which ship?", *settings, stdin=SENTENCES).exit_code == 0
    assert kept(*library) == []


def test_removing_a_document_tells_of_the_conversations_about_it(document, settings, library):
    octavo("ask", document, "Which ship?", *settings)
    removed = octavo("remove", document, "--yes", *library).stderr.splitlines()
    assert removed[-1] == "A conversation about it stays: `octavo chats` lists what is kept."
    octavo("chats", "--remove", "island", "--yes", *library)
    octavo("index", document, *settings[:6])
    assert octavo("remove", document, "--yes", *library).stderr.count("\n") == 1


@pytest.mark.parametrize("how", [("--first-answer", "0s", "--no-background"), ()], ids=str)
def test_a_chat_over_a_folder_says_what_became_of_its_documents(tmp_path, settings, how):
    folder = tmp_path / "papers"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.txt").write_text(f"{name} {SENTENCES * 3}")
    octavo("ask", folder, "Which ship?", *settings, *how)

    def told():
        result = octavo("ask", folder, "Why?", "--continue", *settings, *how)
        assert result.exit_code == 0
        return result.stderr

    assert "since" not in told()
    for name in ("one", "two"):
        (folder / f"{name}.txt").write_text(f"{name}, again. {SENTENCES * 3}")
    assert "has changed since: new answers" in (first := told()) or "have changed since: new answers" in first
    for name in ("one", "two"):
        (folder / f"{name}.txt").rename(folder / f"{name}-moved.txt")
    assert "gone, or cannot be reached: earlier answers stay as they are." in told()
