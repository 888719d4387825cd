"""Commands of other programs are met with what does it here, and no guess deletes anything."""

import re

import pytest
from helpers.command_line import fails, octavo

from octavo.cli.main import COMMANDS, SECTIONS, cli
from octavo.cli.words_of_others import _DELETING, _HERE


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("run llama3", "`octavo chat -m MODEL` talks with a model"),
        ("pull llama3", "`octavo chat -hf OWNER/REPO` fetches a model"),
        ("rm llama3", "octavo removes no models"),
        ("ps", "`octavo list` lists indexes, and documents that are being read"),
        ("show llama3", "`octavo inspect MODEL` describes a model"),
        ("PULL llama3", "`octavo chat -hf OWNER/REPO` fetches a model"),
        ("query report.pdf", '`octavo ask DOCUMENT "QUESTION"` answers a question.'),
        ("upload report.pdf", "`octavo index DOCUMENT` reads a document"),
    ],
)
def test_a_command_of_others_is_met_with_what_does_it_here(arguments, said):
    fails(octavo(*arguments.split()), 2, f"No such command '{arguments.split()[0]}'. {said}")


def test_a_document_a_model_and_a_question_are_met_with_their_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("my report.pdf", "tiny.gguf"):
        (tmp_path / name).touch()
    (tmp_path / "papers").mkdir()
    about = '`octavo chat {0}` talks about it, and `octavo ask {0} "QUESTION"` answers a question.'
    fails(octavo("papers/"), 2, f"No such command 'papers/'. {about.format('papers/')}")
    fails(octavo("my report.pdf", "Why?"), 2, about.format("'my report.pdf'"))
    fails(octavo("tiny.gguf"), 2, "`octavo chat -m tiny.gguf` talks with this model.")
    fails(octavo("Who wrote it?"), 2, '`octavo ask DOCUMENT "QUESTION"` answers a question.')
    assert "`" not in octavo("missing.pdf").stderr


def test_no_word_of_others_is_a_command_here_and_each_sentence_names_one_that_is():
    assert _HERE.keys().isdisjoint(COMMANDS)
    for sentence in _HERE.values():
        named = re.findall(r"`octavo (\w+)", sentence)
        assert set(named) <= COMMANDS.keys()


def test_help_is_the_help():
    assert octavo("help").stdout == octavo("--help").stdout
    assert octavo("help", "index").stdout == octavo("index", "--help").stdout
    fails(octavo("help", "pull"), 2, "`octavo chat -hf OWNER/REPO` fetches a model")


@pytest.mark.parametrize("typed", ["remov", "prun", "removes", "prunes", "emove"])
def test_a_guess_never_proposes_what_deletes(typed):
    result = octavo(typed)
    assert result.exit_code == 2
    assert "Did you mean" not in result.stderr


@pytest.mark.parametrize("arguments", ["chats --remov", "prune --stal", "remove x --yess", "prune --large-than 3"])
def test_nor_does_a_guess_at_an_option(arguments):
    result = octavo(*arguments.split())
    assert result.exit_code == 2
    assert "Did you mean" not in result.stderr
    assert "Did you mean '--first-answer'?" in octavo("ask", "a", "b", "--first-anser", "3").stderr


def test_all_commands_and_options_that_delete_are_known():
    removing = {name for section in SECTIONS.values() for name, text in section.items() if text.startswith("Remove")}
    assert removing <= _DELETING
    options = {
        option
        for name in COMMANDS
        for parameter in cli.get_command(None, name).params
        for option in parameter.opts
        if name in removing or "emove" in (getattr(parameter, "help", "") or "")
    }
    kept = {"names", "model", "index_dir", "-m", "--model", "--index-dir"}
    assert options - kept <= _DELETING
