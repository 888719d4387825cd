"""Commands in a pseudo-terminal: what they print while bars are drawn."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from helpers.command_line import SENTENCES, octavo

#: Sequences that move the cursor or set colours.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(arguments, columns, **environment):
    """Run octavo on a terminal of as many columns; return its exit code and what the terminal received."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-c", "from octavo.cli.main import main; main()", *map(str, arguments)]
    settings = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env={**settings, "TERM": "xterm", **environment}
    )
    os.close(slave)
    received = b""
    while True:
        try:
            chunk = os.read(master, 4096)
        except OSError:  # the process has ended
            break
        received += chunk
    os.close(master)
    return process.wait(timeout=60), received.decode()


@pytest.fixture
def texts(tmp_path):
    paths = [tmp_path / f"{name}.txt" for name in ("first", "second", "third")]
    for number, path in enumerate(paths):
        path.write_text(f"Text {number}. " + SENTENCES * (3 + number))
    return paths


@pytest.mark.parametrize("columns", [80, 60])
def test_notices_stand_above_the_bars_of_several_jobs(columns, texts, on_tiny):
    code, screen = on_terminal(["index", "--jobs", 2, *texts, *on_tiny], columns)
    assert code == 0
    plain = _CONTROL.sub("", screen)
    for path in texts:
        assert re.search(rf"(^|[\r\n])Indexing {path.name}, once: ", plain)
        assert re.search(rf"(^|[\r\n])The index of {path.name} is", plain)
    assert "3/3 documents" in plain
    rows = [row for line in plain.split("\n") for row in line.split("\r")]
    assert [row for row in rows if len(row) > columns and " " in row.strip()] == []


def test_colours_are_left_out_on_demand(texts, on_tiny):
    on_terminal(["index", texts[0], *on_tiny, "-q"], 80)
    plain, coloured = (on_terminal(["list", *on_tiny[:4]], 80, **given)[1] for given in ({"NO_COLOR": "1"}, {}))
    assert "\x1b[1m" in coloured
    assert "\x1b" not in plain
    assert plain.splitlines()[0].startswith("document")


def test_quiet_prints_the_answer_only(document, on_tiny):
    code, screen = on_terminal(["ask", document, "Which ship?", *on_tiny, "--temp", "0", "-n", "5", "-q"], 80)
    assert code == 0
    assert "Indexing" not in screen
    assert "Reading" not in screen
    assert "cut after" not in screen
    assert screen.strip()


def test_errors_wrap_between_words(tmp_path, on_tiny):
    code, screen = on_terminal(["ask", tmp_path / "no.txt", "Which ship passed the island?", *on_tiny, "-q"], 40)
    assert code == 1
    assert " ".join(screen.split()).startswith("Error: The document ")
    assert screen.count("\n") > 2


def test_a_document_does_not_control_the_terminal(tmp_path, on_tiny):
    hostile = "\x1b]0;owned\x07\x1b[2J"
    path = tmp_path / f"a{hostile[1:5].replace('/', '')}\x1b[31m.txt"
    path.write_text(f"The keeper {hostile} wrote down the ship {hostile}. " * 20)
    for command in (
        ["read", path],
        ["ask", path, "Which ship?", *on_tiny, "-n", "5", "--sources"],
        ["list", *on_tiny[:4]],
    ):
        code, screen = on_terminal(command, 200)
        assert code == 0
        assert "\x1b]0;" not in screen
        assert "\x1b[2J" not in screen
        assert "\x1b[31m.txt" not in screen
        assert "\ufffd" in screen
    (index,) = (tmp_path / "indexes").rglob("manifest.json")
    assert "\x1b" not in octavo("inspect", index.parent).stdout


@pytest.mark.parametrize("command", [["remove"], ["chats"], ["stop"], ["ask", "a", "b", "--attention"], ["--"], []])
def test_an_argument_that_is_refused_does_not_control_the_terminal(command):
    result = octavo(*command, "a\x1b]0;owned\x07\x1b[2J\x9b31m.txt")
    assert result.exit_code == 2
    assert "owned" in result.stderr
    assert not {"\x1b", "\x07", "\x9b"} & set(result.stderr)
