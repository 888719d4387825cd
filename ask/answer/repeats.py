"""Notice that a model repeats itself without end, as small ones do, and leave other repetition alone.

Three signs are a loop. The text ends with many copies of the same words, one after another. Sentence after sentence was
written twice before. Or two paragraphs of prose, one after another, were written before. Numbers of list items do not
count: small models count on while they repeat an item.

Poems have refrains, and tables, code and data repeat what they must: tables, code and JSON need far more copies; copies
without letters, and those that the question contains, do not count.
"""

from __future__ import annotations

import re
from collections import Counter

#: Characters at the end of a text in which copies are looked for, and after how many new ones it is looked again.
_NEAR, _STEP = 4000, 48

#: How often words stand one after another in a loop, and how many characters these have together: either pair.
_COPIES = ((8, 300), (4, 900))

#: The same for one or two words alone, and for code, tables and JSON.
_COPIES_OF_FEW = ((60, 500),)
_COPIES_OF_DATA = ((20, 2000),)

#: If the last 20 characters occur fewer than 4 times, skip the search for copies.
_TAIL, _FEWEST = 20, 4

#: Fewest different words that are more than a few.
FEW = 3

#: How often a sentence was written before; how many such sentences are a loop, and how many characters.
_BEFORE, _SENTENCES, _CHARACTERS = 2, 8, 600

#: Fewest characters of a paragraph that counts as a repeat, and the break between paragraphs.
_PARAGRAPH, _BLANK_LINE = 80, "\n\n"

#: The number of a list's item, at the beginning of a line.
NUMBER = re.compile(r"^([ \t]*)(?:\d+|[A-Za-z])[.)][ \t]", re.MULTILINE)

#: The end of a sentence, and lines of tables, code and JSON.
_END = re.compile(r"(?<=[.!?])\s+|\n+")
_DATA = re.compile(r"\s*(?:[|{}\[\]<]|\"[^\"\n]*\":)| {4}|\t")

_WORDS, _BORDER = re.compile(r"[^\W\d_]+"), re.compile(r"[\W\d_]")


class LoopWatch:
    """Watches a text as it is written.

    Parameters
    ----------
    question : str
        What was asked. It may ask for copies of what it contains.
    """

    def __init__(self, question: str) -> None:
        self._question = words_of(question)
        self._text, self._n_seen, self._n_split = "", 0, 0
        self._counts: Counter[str] = Counter()
        self._stale: list[str] = []

    def add(self, text: str) -> bool:
        """Add a part of the text. Return whether the text loops now."""
        self._text += text
        if len(self._text) - self._n_seen < _STEP:
            return False
        self._n_seen = len(self._text)
        return self._is_copied() or self._is_stale() or self._repeats_paragraphs()

    def _is_copied(self) -> bool:
        near = NUMBER.sub(r"\1#. ", self._text[-_NEAR:])
        if near.count(near[-_TAIL:]) < _FEWEST:
            return False  # to look for periods takes a millisecond
        of_data = is_data(self._text)
        few, many = (_COPIES_OF_DATA,) * 2 if of_data else (_COPIES_OF_FEW, _COPIES)
        words: dict[int, list[str]] = {}
        for length, period in _periods(near[::-1]):
            if any(length >= least and length >= copies * period for copies, least in (*few, *many)):
                unit = words.setdefault(period, words_of(_from_border(near[-period:])))
                limits = many if len(set(unit)) >= FEW else few
                if unit and any(length >= least and length >= copies * period for copies, least in limits):
                    return not asks_for(self._question, unit)
        return False

    def _is_stale(self) -> bool:
        """Return whether one sentence after another was written before."""
        *ended, rest = _END.split(NUMBER.sub(r"\1", self._text[self._n_split :]))
        self._n_split = len(self._text) - len(rest)
        for sentence in ended:
            same = _same(sentence)
            self._counts[same] += 1
            words = words_of(sentence)
            if self._counts[same] <= _BEFORE or _DATA.match(sentence):
                self._stale.clear()
            elif len(set(words)) >= FEW and not asks_for(self._question, words):
                self._stale.append(sentence)
        is_long = sum(map(len, self._stale)) >= _CHARACTERS
        return is_long and len(self._stale) >= _SENTENCES and not is_data(self._text)

    def _repeats_paragraphs(self) -> bool:
        """Return whether the last two whole paragraphs, of prose, were written before."""
        *before, one, other, _ = ["", "", *NUMBER.sub(r"\1", self._text).split(_BLANK_LINE)]
        earlier = {_same(paragraph) for paragraph in before}
        return all(
            len(paragraph) >= _PARAGRAPH
            and "\n" not in paragraph
            and same in earlier
            and not asks_for(self._question, words_of(paragraph))
            for paragraph, same in ((one, _same(one)), (other, _same(other)))
        )


def asks_for(question: list[str], unit: list[str]) -> bool:
    """Return whether the words of a question contain these words among others."""
    n_words = len(unit)
    if n_words >= len(question):
        return False
    turned = unit + unit  # the copies may begin anywhere
    return any(
        question[at : at + n_words] == turned[first : first + n_words]
        for at in range(len(question) - n_words + 1)
        for first in range(n_words)
    )


def is_data(text: str) -> bool:
    """Return whether a text ends in code, in a table or in JSON."""
    last = text.rstrip("\n").rpartition("\n")[2]
    is_json = text.lstrip()[:1] in ("{", "[")
    return is_json or text.count("```") % 2 == 1 or _DATA.match(last) is not None


def _from_border(unit: str) -> str:
    """Return copied text from the end of its first word on, with that word at its end."""
    border = _BORDER.search(unit)
    return unit[border.end() :] + unit[: border.end()] if border else unit


def _same(text: str) -> str:
    """Return a text as texts are compared."""
    return " ".join(text.casefold().split())


def words_of(text: str) -> list[str]:
    """Return the words of a text, in small letters."""
    return _WORDS.findall(text.casefold())


def _periods(text: str) -> list[tuple[int, int]]:
    """Return the length and the smallest period of each beginning of a text (Knuth, Morris and Pratt 1977)."""
    borders, border = [0] * len(text), 0
    for i in range(1, len(text)):
        while border and text[i] != text[border]:
            border = borders[border - 1]
        border += text[i] == text[border]
        borders[i] = border
    return [(i + 1, i + 1 - border) for i, border in enumerate(borders) if 2 * border >= i + 1]
