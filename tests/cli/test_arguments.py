"""The arguments of commands that take documents: the words of a question, missing questions, missing files."""

import pytest
from helpers.command_line import SHORT_ANSWER, fails, octavo

from octavo.cli.ask import split_arguments


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    """Work in a folder with some files."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b.pdf", "two words.txt"):
        (tmp_path / name).write_text("The keeper had a cat.\n")
    (tmp_path / "papers").mkdir()


@pytest.mark.parametrize(
    ("arguments", "documents", "question"),
    [
        ("a.txt|Who is it?", ["a.txt"], "Who is it?"),
        ("a.txt|Who|is|it", ["a.txt"], "Who is it"),
        ("a.txt|Why", ["a.txt"], "Why"),
        ("a.txt|b.pdf|papers|Who|is|it", ["a.txt", "b.pdf", "papers"], "Who is it"),
        ("*.txt|What|of|U.S.|and|v1.5?", ["*.txt"], "What of U.S. and v1.5?"),
        ("a.txt|and/or", ["a.txt"], "and/or"),
        ("-|Who|is|it", ["-"], "Who is it"),
        ("a.txt|missing|Who is it?", ["a.txt", "missing"], "Who is it?"),  # a quoted question has no other words
        ("a.txt|missing.txt|Who|is|it", ["a.txt", "missing.txt"], "Who is it"),  # no word: opening it fails
        ("missing.txt|Who|is|it", ["missing.txt"], "Who is it"),
        ("raport|Who|is|it", ["raport"], "Who is it"),
        ("a.txt|papers/missing|Who", ["a.txt", "papers/missing"], "Who"),
        ("z*.txt|Who", ["z*.txt"], "Who"),
    ],
)
def test_documents_come_before_the_words_of_a_question(arguments, documents, question):
    assert split_arguments(arguments.split("|")) == (tuple(documents), question)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("a.txt", "The question is missing: a.txt is a document."),
        ("a.txt|b.pdf", "The question is missing: b.pdf is a document. If it is the question, pass it on standard"),
        ("a.txt|two words.txt", "The question is missing: two words.txt is a document."),
        ("a.txt|missing.pdf", "The question is missing: missing.pdf looks like a document."),
        ("a.txt|*.pdf", "The question is missing: *.pdf is a document."),
        ("Who is it?", "The document is missing: name it before the question. `octavo chat` needs none."),
        ("Who", "The document is missing: name it before the question."),
        ("a.txt|Who|is|b.pdf", "b.pdf is a file, after words of the question: name documents first, or quote it."),
        ("-|-", "Standard input holds the document or the question"),
        ("a.txt|", "The question is empty."),
    ],
)
def test_arguments_that_are_refused(arguments, message):
    fails(octavo("ask", *arguments.split("|")), 2, message)


def test_unquoted_words_get_the_answer_of_the_quoted_question(document, on_tiny):
    quoted = octavo("ask", document, "Which ship is it", *on_tiny, *SHORT_ANSWER)
    words = octavo("ask", document, *on_tiny, "Which", "ship", "is", "it", *SHORT_ANSWER)
    assert words.exit_code == quoted.exit_code == 0
    assert words.stdout == quoted.stdout
    assert "Left out" not in words.stderr


@pytest.mark.parametrize("command", [("ask", "Who is it?"), ("chat",)], ids=lambda command: command[0])
def test_a_named_document_that_is_missing_is_an_error(command, document, on_tiny):
    name, *question = command
    missing = "The document missing.txt cannot be opened: No such file or directory."
    fails(octavo(name, document, "missing.txt", *question, *on_tiny), 1, missing)
    both = "There are no documents missing.txt and gone.txt: nothing is opened."
    fails(octavo(name, "missing.txt", document, "gone.txt", *question, *on_tiny), 1, both)
    assert octavo("list", *on_tiny[:4]).stderr == "Nothing is indexed yet.\n"


def test_a_missing_document_fails_index_after_the_others(document, on_tiny):
    result = octavo("index", document, "missing.txt", *on_tiny)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith("Error: 1 of 2 documents could not be indexed")
    assert octavo("list", *on_tiny[:4]).stderr.startswith("1 index, ")


@pytest.mark.parametrize("command", ["remove", "verify", "stop", "read", "mcp"])
def test_a_missing_document_is_an_error_of_other_commands(command, document, on_tiny):
    octavo("index", document, *on_tiny)
    options = on_tiny[:4] if command in ("remove", "verify") else []
    result = octavo(command, "missing.txt", *options)
    assert result.exit_code in (1, 2)
    assert "missing.txt" in result.stderr.splitlines()[-1]
