"""Keys that are typed while octavo writes."""

import io
import os
import pty
import signal
import subprocess
import sys
import termios
import time

import pytest

from octavo.cli import input_lines
from octavo.cli.input_lines import keys_kept

#: Asks for lines, and answers each once it may: a byte of its first argument, a pipe, lets an answer end.
_ASK = """
import os, sys
from octavo.cli.input_lines import keys_kept, typed_lines
with keys_kept():
    for line in typed_lines():
        sys.stderr.write(f"[asked {line!r}")
        sys.stderr.flush()
        os.read(int(sys.argv[1]), 1)
        sys.stderr.write("]")
"""


@pytest.fixture
def terminal():
    """Both ends of a terminal: what its keyboard and screen hold, and what programs have."""
    ends = pty.openpty()
    os.set_blocking(ends[0], False)
    yield ends
    for end in ends:
        os.close(end)


def shown_until(keyboard: int, text: bytes) -> bytes:
    """What the terminal shows up to a text."""
    screen, deadline = b"", time.monotonic() + 60
    while text not in screen:
        assert time.monotonic() < deadline, screen
        try:
            screen += os.read(keyboard, 1)
        except BlockingIOError:
            time.sleep(0.01)
    return screen


def test_keys_typed_during_an_answer_wait_for_the_next_prompt(terminal):
    """Also those that edit the line, and several lines; SIGTERM leaves the terminal as it was."""
    keyboard, program = terminal
    before, (reads, ends) = termios.tcgetattr(program), os.pipe()
    environment = {**os.environ, "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-c", _ASK, str(reads)],
        stdin=program,
        stdout=program,
        stderr=program,
        pass_fds=[reads],
        env=environment,
    )
    shown_until(keyboard, b">")
    os.write(keyboard, b"first\r")
    shown_until(keyboard, b"[asked 'first'")
    os.write(keyboard, b"seco\x7fond\x1b\rline\rthi\x1b[Drd\r")
    os.write(ends, b".")
    assert shown_until(keyboard, b"]").strip() == b"]"
    shown_until(keyboard, b"[asked 'second\\nline'")
    os.write(ends, b".")
    shown_until(keyboard, b"[asked 'thrdi'")
    assert not termios.tcgetattr(program)[3] & termios.ECHO
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == -signal.SIGTERM
    assert termios.tcgetattr(program) == before
    for pipe in (reads, ends):
        os.close(pipe)


@pytest.mark.parametrize("ends_by", [KeyboardInterrupt, OSError, None])
def test_a_terminal_shows_keys_again(ends_by, terminal, monkeypatch):
    before, handler = termios.tcgetattr(terminal[1]), signal.getsignal(signal.SIGTERM)
    with open(terminal[1], closefd=False) as typed:
        monkeypatch.setattr(sys, "stdin", typed)
        try:
            with keys_kept():
                assert termios.tcgetattr(terminal[1]) != before
                if ends_by is not None:
                    raise ends_by
        except (KeyboardInterrupt, OSError):
            pass
    assert (termios.tcgetattr(terminal[1]), signal.getsignal(signal.SIGTERM)) == (before, handler)


def test_a_terminal_of_others_is_left_alone(terminal, monkeypatch):
    """A job in the background would be stopped if it set the terminal."""
    before = termios.tcgetattr(terminal[1])
    monkeypatch.setattr(input_lines.os, "tcgetpgrp", lambda _: os.getpgrp() + 1)
    with open(terminal[1], closefd=False) as typed:
        monkeypatch.setattr(sys, "stdin", typed)
        with keys_kept():
            assert termios.tcgetattr(terminal[1]) == before


def test_a_pipe_has_no_keys(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("first\n"))
    with keys_kept():
        assert sys.stdin.read() == "first\n"
