"""Find where the end of an answer begins that only repeats what came before, so that it can be held back.

The answer shows its repeats once something new follows them, and never if it is stopped as a loop (repeats.py).
"""

from __future__ import annotations

import re

from .repeats import FEW, NUMBER, asks_for, is_data, words_of

#: The end of a sentence, and of a line.
_END = re.compile(r"(?<=[.!?])\s+|\n+")

#: What may begin an item of a list: its number or its sign. It belongs to the sentence after it.
_ITEM = re.compile(r"\s*(?:\d{1,3}[.)]?|[*+-])?\s*")

#: Last characters that are looked for before, and the most that are compared.
_TAIL, _NEAR = 24, 2000


class RepeatedEnd:
    """Watches a text as it is written.

    Parameters
    ----------
    question : str
        It may ask for copies of words that it contains.

    Attributes
    ----------
    start : int
        The character from which on the text only repeats what came before; its length if it does not.
    """

    def __init__(self, question: str) -> None:
        self._question = words_of(question)
        self._text, self.start = "", 0
        self._known: set[str] = set()
        self._border = self._next = 0  # the end of the last whole sentence, and where the end of the next is looked for
        self._run: int | None = None  # where the last sentences begin that were all written before

    def add(self, text: str) -> None:
        """Add a part of the text."""
        self._text += text
        while end := _END.search(self._text, self._next):
            self._next = end.end()
            if sentence := _plain(self._text[self._border : end.start()]):
                self._take(sentence)
                self._border = end.start()
        self.start = len(self._text)
        if not is_data(self._text):
            self.start -= max(self._n_of_sentences(), self._n_of_copy())

    def _take(self, sentence: str) -> None:
        """Note a whole sentence."""
        words = words_of(sentence)
        if len(set(words)) < FEW or asks_for(self._question, words):
            self._run = None
        elif sentence not in self._known:
            self._known.add(sentence)
            self._run = None
        elif self._run is None:
            self._run = self._border

    def _n_of_sentences(self) -> int:
        """Return the characters of the last sentences that were written before, the begun one included."""
        rest = self._text[self._border :]
        now, is_item = _plain(rest), rest.strip()[:1].isdigit()
        if now and not any(known.startswith(now) for known in self._known):
            return 0
        first = self._border if now or is_item else len(self._text)
        return len(self._text) - (first if self._run is None else self._run)

    def _n_of_copy(self) -> int:
        """Return the characters at the end that are a copy of earlier ones."""
        text = self._text
        before = text.rfind(text[-_TAIL:], 0, len(text) - 1) + _TAIL
        if before < _TAIL or len(text) < _TAIL:
            return 0
        period, n_same = len(text) - before, _TAIL
        if len(unit := words_of(text[-period:])) < 1 or asks_for(self._question, unit):
            return 0
        most = min(_NEAR, before)
        while n_same < most and text[-n_same - 1] == text[-n_same - 1 - period]:
            n_same += 1
        return n_same


def _plain(sentence: str) -> str:
    """Return a sentence as sentences are compared: without the number of a list's item, in small letters."""
    return " ".join(_ITEM.sub("", NUMBER.sub(r"\1", sentence), count=1).casefold().split())
