"""Fit texts into the columns of a terminal: wrap them between words, or shorten them."""

from __future__ import annotations

import os
import shutil
from typing import TextIO

_ELLIPSIS = "…"

#: What becomes of the control characters of texts and names, which a terminal would obey.
_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n\f"} | {ord("\r"): ""}


def plain(text: str) -> str:
    """Return a text in which control characters are visible, without carriage returns."""
    return text.translate(_CONTROLS)


def columns_of(stream: TextIO) -> int | None:
    """Return the columns of the terminal that a stream writes to; None if it is not a terminal."""
    if not stream.isatty():
        return None
    if not os.environ.get("COLUMNS", "").isdigit():
        try:
            return os.get_terminal_size(stream.fileno()).columns or None
        except (OSError, ValueError):
            pass
    return shutil.get_terminal_size().columns


def wrapped(text: str, width: int | None, indent: str = "") -> str:
    """Break a text between words; words that are wider stay whole. `indent` precedes all lines but the first.

    With None as its width, it stays as it is, but for control characters.
    """
    if width is None:
        return plain(text)
    wrapper = Wrapper(max(width, 1), indent, is_markdown=False)
    return wrapper.add(text) + wrapper.rest()


def shortened(text: str, width: int) -> str:
    """Put an ellipsis in place of the middle of a text that has more columns: the ends of names tell them apart."""
    from rich.cells import cell_len, set_cell_size

    text = plain(text)
    if cell_len(text) <= width:
        return text
    n_after = (width - 1) // 2
    before, after = set_cell_size(text, width - 1 - n_after).rstrip(), text
    while cell_len(after) > n_after:
        after = after[1:]
    return f"{before}{_ELLIPSIS}{after.lstrip()}"


class Wrapper:
    """Break the lines of a text that comes in pieces between words, at most `width` columns wide.

    Lines of code blocks and tables stay as they are, unless the text is not Markdown. `indent` precedes the lines that
    are begun anew.
    """

    def __init__(self, width: int, indent: str = "", is_markdown: bool = True) -> None:
        self._is_markdown = is_markdown
        self._width, self._indent, self._column = width, indent, 0
        self._word, self._blanks = "", ""
        self._line, self._in_code = "", False

    def add(self, piece: str) -> str:
        """Return the text that is ready to print; the last word waits until it is whole."""
        shown = ""
        for character in plain(piece):
            if character == "\n":
                shown += self._take_word() + "\n"
                self._in_code ^= self._line.lstrip().startswith("```")
                self._line, self._column, self._blanks = "", 0, ""
            elif character in " \t":
                shown += self._take_word()
                self._blanks += character
                self._line += character
            else:
                self._word += character
                self._line += character
        return shown

    def rest(self) -> str:
        """Return the last word."""
        return self._take_word()

    def _take_word(self) -> str:
        """Return the next whole word, and the text before it: blanks, or a line end."""
        from rich.cells import cell_len

        word, blanks, self._word = self._word, self._blanks, ""
        if not word:
            return ""
        self._blanks = ""
        as_it_is = self._is_markdown and (self._in_code or self._line.lstrip().startswith(("```", "|")))
        if not as_it_is and self._column and self._column + cell_len(blanks + word) > self._width:
            self._column = len(self._indent) + cell_len(word)
            return f"\n{self._indent}{word}"
        self._column += cell_len(blanks + word)
        return blanks + word
