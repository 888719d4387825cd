"""Read the lines of a chat: from an editor on a terminal, else from standard input. An entry may have several lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .render import say

if TYPE_CHECKING:
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings


def is_terminal() -> bool:
    """Return whether a user types: standard input and stderr are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


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
