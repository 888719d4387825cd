"""Put a Markdown text together of strings, blocks, and the marks around and before them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import dropwhile

from ..markdown import as_text

#: Characters that only say where a word may break, or how a formula is meant.
UNSEEN = re.compile("[\u00ad\u200b\u2060-\u2064\ufeff]+")


class _Level:
    """What lines of an item of a list or of a quote begin with: the first line, and the others."""

    def __init__(self, first: str, rest: str) -> None:
        self.first, self.rest, self.is_used = first, rest, False


class _Mark:
    """A mark of emphasis. It is written before the first text within it, so that an empty one has none."""

    def __init__(self, sign: str) -> None:
        self.sign, self.is_open = sign, False


class MarkdownWriter:
    """A Markdown text that grows.

    Parameters
    ----------
    labels : list of str
        Labels of pages that begin before the next text.
    in_line : bool
        Whether the text is one line, such as a heading or a cell of a table.
    """

    def __init__(self, labels: list[str], in_line: bool = False) -> None:
        self.labels, self.in_line = labels, in_line
        self.pages: list[tuple[int, str]] = []
        self.has_blank = False  # before the next text
        self._parts: list[str] = []
        self._length = 0
        self._breaks = 1  # before the next text
        self._levels: list[_Level] = []
        self._marks: list[_Mark] = []

    def text(self) -> str:
        """Return what was written."""
        return "".join(self._parts)

    def string(self, text: str | None) -> None:
        """Write a string, with one space for any number of blanks."""
        if not text:
            return
        if not text.isascii() and not (text := UNSEEN.sub("", text)):
            return
        words = text.split()
        self.has_blank |= text[0].isspace()
        if words:
            self.put(" ".join(words))
            self.has_blank = text[-1].isspace()

    def put(self, text: str, is_block: bool = False) -> None:
        """Write a text after the breaks and blanks that it needs, and after the marks that begin with it."""
        if self._breaks and not self.in_line:
            self._begin_line()
            text = text if is_block or self._marks else as_text(text)
        elif self.has_blank and self._parts:
            self._add(" ")
        self._breaks, self.has_blank = 0, False
        if self.labels and not self.in_line:
            self.begin_pages()
        if not is_block:
            for mark in self._marks:
                if not mark.is_open:
                    mark.is_open = True
                    self._add(mark.sign)
        self._add(text)

    def block(self, lines: Iterable[str]) -> None:
        """Write lines as they are, apart from the lines before and after them."""
        self.need(2)
        for number, line in enumerate(lines):
            self._breaks = 1 if number else self._breaks
            self.put(line, is_block=True)
        self.need(2)

    def need(self, breaks: int) -> None:
        """Begin a line before the next text, after a blank one if there are two breaks."""
        if self.in_line:
            self.has_blank = True
        elif not self._levels or self._levels[-1].is_used:
            self._breaks = max(self._breaks, breaks)

    def take_blank_line(self) -> None:
        """Begin a line without a blank one before."""
        self._breaks = min(self._breaks, 1)

    def break_line(self) -> None:
        """Begin a line, or end the paragraph where one has begun."""
        self.need(min(self._breaks + 1, 2))

    def begin_level(self, first: str, rest: str) -> None:
        """Begin an item of a list or a quote."""
        if self.in_line:
            self.has_blank = True
            if first.strip() and first != rest:
                self.put(first.strip())
                self.has_blank = True
            return
        self._breaks = max(self._breaks, 1)
        self._levels.append(_Level(first, rest))

    def end_level(self, breaks: int) -> None:
        """End an item of a list or a quote, and begin a line, even if its last paragraph needs more."""
        if self.in_line:
            self.has_blank = True
        elif self._levels.pop().is_used:
            self._breaks = breaks

    def begin_mark(self, sign: str) -> None:
        """Begin emphasis; in code, or where there is the same already, it has no mark."""
        self._marks.append(_Mark("" if any(mark.sign in (sign, "`") for mark in self._marks) else sign))

    def end_mark(self, sign: str | None = None) -> None:
        """End emphasis, before any blanks, with the sign that it began with or another."""
        mark = self._marks.pop()
        if mark.is_open:
            self._add(sign if sign is not None and mark.sign else mark.sign)

    def begin_pages(self) -> None:
        """Begin the pages that wait for text."""
        self.pages += [(self._length, label) for label in self.labels]
        self.labels.clear()

    def _pause_strike(self) -> None:
        """End text that is struck out, with the emphasis in it, before a line: it begins again with its next text."""
        opened = [mark for mark in self._marks if mark.is_open]
        for mark in reversed(list(dropwhile(lambda mark: mark.sign != "~~", opened))):
            self._add(mark.sign)
            mark.is_open = False

    def _add(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)

    def _begin_line(self) -> None:
        self._pause_strike()
        if self._parts:
            blank = "".join(level.rest for level in self._levels if level.is_used).rstrip()
            self._add("\n" if self._breaks == 1 else f"\n{blank}\n")
        if self.labels:
            self.begin_pages()
        for level in self._levels:
            self._add(level.rest if level.is_used else level.first)
            level.is_used = True
