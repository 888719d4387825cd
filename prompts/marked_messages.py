"""Put marks in place of the texts of users and models, and cut a template's output at the marks.

A mark replaces a text without the blanks around it, so that a template can strip them. Words that the template may
look for, such as "/no_think", stay between the marks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

#: Fields of a message that users and models write.
FIELDS = ("content", "reasoning_content")

_MARK = re.compile(r"\[octavo:(\d+)\]")


class Piece(NamedTuple):
    """A piece of a prompt: the template's own text, which may hold control tokens, or a user's or a model's."""

    text: str
    is_template: bool


class MarkedMessages:
    """Messages with marks in place of texts.

    Parameters
    ----------
    messages : sequence of mapping
        Messages in OpenAI's form, with contents as text.
    words : collection of str
        Words that a template may look for in texts.

    Attributes
    ----------
    messages : list of dict
        The messages with marks.
    """

    def __init__(self, messages: Sequence[Mapping[str, Any]], words: Collection[str]) -> None:
        in_order = sorted(words, key=len, reverse=True)
        self._words = re.compile(f"({'|'.join(map(re.escape, in_order))})") if words else None
        self._texts: list[str] = []
        self._of_contents: set[int] = set()
        self.messages = [
            {**message, **{name: self._marked(name, message[name]) for name in FIELDS if message.get(name)}}
            for message in messages
        ]

    def _marked(self, field: str, text: str) -> str:
        parts = self._words.split(text) if self._words else [text]
        marked = []
        for number, part in enumerate(parts):
            core = "" if number % 2 else part.strip()
            if core:
                before, _, after = part.partition(core)
                part = f"{before}[octavo:{len(self._texts)}]{after}"
                if field == "content":
                    self._of_contents.add(len(self._texts))
                self._texts.append(core)
            marked.append(part)
        return "".join(marked)

    def cut(self, rendered: str) -> list[Piece]:
        """Cut a template's output for the messages."""
        pieces = []
        for number, part in enumerate(_MARK.split(rendered)):
            if number % 2 == 0:
                pieces.append(Piece(part, True))
            elif int(part) < len(self._texts):
                pieces.append(Piece(self._texts[int(part)], False))
            else:
                pieces.append(Piece(f"[octavo:{part}]", True))
        return [piece for piece in pieces if piece.text]

    def omits(self, rendered: str) -> bool:
        """Return whether a template left out a content."""
        return not self._of_contents <= {int(number) for number in _MARK.findall(rendered)}


def joined(pieces: Sequence[Piece]) -> str:
    """Return the text of pieces."""
    return "".join(piece.text for piece in pieces)
