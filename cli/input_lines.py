"""Read the lines of a chat: from an editor on a terminal, else from standard input. An entry may have several lines."""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from .render import say

if TYPE_CHECKING:
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings


def is_terminal() -> bool:
    """Return whether a user types: standard input and stderr are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


@contextmanager
def keys_kept() -> Iterator[None]:
    """Have a terminal show no keys that are typed while octavo writes, and keep them for the prompt that comes next.

    The terminal is as before at the end, and when SIGTERM ends this process.
    """
    terminal = sys.stdin.fileno() if sys.stdin.isatty() else None
    if terminal is None or not _is_ours(terminal):
        yield
        return
    before, handler = termios.tcgetattr(terminal), signal.getsignal(signal.SIGTERM)

    def restore() -> None:
        if _is_ours(terminal):
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)

    def end(number: int, _: FrameType | None) -> None:
        restore()
        signal.signal(number, handler)
        signal.raise_signal(number)

    signal.signal(signal.SIGTERM, end)
    kept = list(before)
    kept[0] &= ~termios.ICRNL  # Enter stays the key that a prompt knows
    kept[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(terminal, termios.TCSADRAIN, kept)
    try:
        yield
    finally:
        restore()
        signal.signal(signal.SIGTERM, handler)


def _is_ours(terminal: int) -> bool:
    """Return whether this process may set a terminal: one of a job in the background would be stopped."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # the terminal controls other processes
        return True


def piped_lines() -> Iterator[str]:
    """Yield entries from standard input. A line that ends with a backslash continues in the next one.

    Raise OctavoError if the input is not UTF-8 text.
    """
    from ..errors import OctavoError

    parts: list[str] = []
    try:
        for line in sys.stdin.buffer:
            parts.append(line.decode().rstrip("\r\n"))
            if parts[-1].endswith("\\"):
                parts[-1] = parts[-1][:-1]
            else:
                yield "\n".join(parts)
                parts = []
    except UnicodeDecodeError as problem:
        raise OctavoError("Standard input is not UTF-8 text: convert it first.") from problem
    if parts:
        yield "\n".join(parts)


def typed_lines() -> Iterator[str]:
    """Yield entries from an editor with history, until Ctrl-D.

    Raise KeyboardInterrupt if the user presses Ctrl-C on an empty entry, twice in a row.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.output import create_output

    session: PromptSession[str] = PromptSession(
        "> ",
        multiline=True,
        prompt_continuation="  ",
        key_bindings=_key_bindings(),
        history=_history(),
        output=create_output(stdout=sys.stderr),
    )
    is_leaving = False
    while True:
        try:
            entry = session.prompt()
        except EOFError:
            return
        except KeyboardInterrupt:
            if is_leaving:
                raise
            is_leaving = True
            say("Ctrl-C once more leaves.")
        else:
            is_leaving = False
            yield entry


def _key_bindings() -> KeyBindings:
    """Bind the keys: Enter sends, Alt-Enter and a trailing backslash add a line, Ctrl-C clears the entry or leaves."""
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def send(event: Any) -> None:
        buffer = event.current_buffer
        if buffer.document.current_line_before_cursor.endswith("\\") and buffer.document.is_cursor_at_the_end:
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def add_line(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    @keys.add("<sigint>")
    def clear_or_leave(event: Any) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt("Left."), style="class:aborting")

    return keys


def _history() -> History:
    """Open the history of earlier entries, in the user's state folder if it is writable."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    from ..settings import state_folder

    path = state_folder() / "chat_history"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(os.fspath(path)) if os.access(path, os.R_OK | os.W_OK) else InMemoryHistory()
