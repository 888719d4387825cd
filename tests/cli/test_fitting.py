"""What commands print fits the terminal: tables, notices, headers of sources, names of tasks."""

import json
import sys

import pytest
from click import unstyle
from rich.cells import cell_len

from octavo.cli import render
from octavo.cli.fitting import Wrapper, plain, shortened, wrapped
from octavo.cli.render import as_json
from octavo.cli.table import table

LONG = "A very long report name about the fog of the northern coast, final version 7.md"
NAMES = ["document", "model", "tokens", "size", "state"]
ROWS = [
    [LONG, "Some-Model.gguf", "1,234", "10.5 MiB", ""],
    ["日本語の報告.txt", "Some-Model.gguf", "9", "1 B", "changed"],
]


@pytest.fixture
def terminal(monkeypatch):
    """Make standard output and stderr a terminal of as many columns."""

    def of_width(columns):
        for stream in (sys.stdout, sys.stderr):
            monkeypatch.setattr(stream, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(columns))

    return of_width


def lines_of_table(capsys):
    table(NAMES, ROWS, {"tokens", "size"}, optional=["model"], short={"document"})
    return unstyle(capsys.readouterr().out).splitlines()


@pytest.mark.parametrize("columns", [60, 80, 132])
def test_a_row_is_one_line_of_a_terminal(columns, terminal, capsys):
    terminal(columns)
    lines = lines_of_table(capsys)
    assert len(lines) == 2 + len(ROWS)
    assert max(map(cell_len, lines)) <= columns
    assert ("model" in lines[0]) == (columns > 60)
    assert lines[2].startswith("A very")
    assert "7.md" in lines[2]
    assert ("…" in lines[2]) == (columns < 132)


def test_off_a_terminal_a_table_is_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = lines_of_table(capsys)
    assert lines[0].split() == NAMES
    assert lines[2].split("  ")[0] == LONG


def test_cells_that_are_folded_lose_nothing(terminal, capsys):
    terminal(40)
    table(["name", "why"], [["a-name-without-any-blank.gguf", "no: it has another form"]], folded={"name", "why"})
    lines = capsys.readouterr().out.splitlines()[2:]
    assert max(map(len, lines)) <= 40
    assert "".join(line[:14] for line in lines).replace(" ", "").startswith("a-name-without")
    assert "another" in " ".join(lines)


@pytest.mark.parametrize("width", [10, 15, 16])
def test_shortened_texts_keep_their_ends(width):
    assert cell_len(shortened(LONG, width)) <= width
    assert shortened(LONG, width).endswith(".md")
    assert cell_len(shortened("日本語の報告はここです", width)) <= width
    assert shortened("short", 5) == "short"


def test_notices_wrap_between_words(terminal, capsys):
    sentence = "This sentence is longer than thirty columns, and names /a/path/that/stays/whole/even/so.txt as it is."
    render.notice(sentence)
    assert capsys.readouterr().err == f"{sentence}\n"
    terminal(30)
    render.notice(sentence)
    lines = capsys.readouterr().err.splitlines()
    assert " ".join(lines) == sentence
    assert [line for line in lines if len(line) > 30] == ["/a/path/that/stays/whole/even/so.txt"]


def test_wrapped_texts_are_indented():
    assert wrapped("1. page 5, Geology > Epochs, line 63", 18, "   ") == "1. page 5, Geology\n   > Epochs, line\n   63"
    assert wrapped("| a | b | c |", 7) == "| a | b\n| c |"  # a quote of a table


def test_quiet_leaves_answers_and_errors(capsys):
    render.be_quiet(True)
    try:
        render.notice("A notice.")
        with render.TaskProgress() as progress:
            progress.start("Reading", 10, "tokens")
            progress.advance(10)
        render.say("An answer to a command.")
    finally:
        render.be_quiet(False)
    assert capsys.readouterr().err == "An answer to a command.\n"


HOSTILE = "a\x1b]0;title\x07b\x1b[2Jc\rd\x9b31me\x00\x7f\tf"
SHOWN = "a\ufffd]0;title\ufffdb\ufffd[2Jcd\ufffd31me\ufffd\ufffd\tf"


def test_no_text_controls_the_terminal():
    """Texts of documents and answers, and names of files: in lines, pieces, names and JSON."""
    assert plain(HOSTILE) == wrapped(HOSTILE, None) == SHOWN
    assert plain("a\r\nb\n\tc") == "a\nb\n\tc"
    for text in (wrapped(HOSTILE, 5), shortened(HOSTILE, 8), shortened(HOSTILE, 100), Wrapper(40).add(HOSTILE + " ")):
        assert not any(ord(character) < 32 and character not in "\n\t" for character in text)
        assert not any(127 <= ord(character) < 160 for character in text)
    written = as_json({HOSTILE: HOSTILE})
    assert json.loads(written) == {HOSTILE: HOSTILE}
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in written)
    assert as_json(["ä", "Ω"]) == '["ä", "Ω"]'
