"""Needles in a haystack as RULER has them: keys with values, hidden in noise, essays or other needles (section 3.1).

Table 5 has the sizes. A text asks for each of its keys in turn, where the paper makes a text for each question.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...runtime.methods.parameters import parameter
from ..prose import BORDER, insert, passage
from ..samples import Sample, Text
from .ruler import KINDS, NUMBER, WORD, Page, Ruler

#: Fillers of a text: lines of noise, prose, or needles without a question.
NOISE, ESSAY, NEEDLES = _HAYSTACKS = ("noise", "essay", "needles")

_INSTRUCTION = (
    "Some special magic {kind}s are hidden within the following text. Make sure to memorize it. I will quiz you about "
    "the {kind}s afterwards."
)
NEEDLE = "One of the special magic {kind}s for {key} is: {value}."
ONE = "What is the special magic {kind} for {keys} mentioned in the provided text?"
_ALL = "What are all the special magic {kind}s for {keys} mentioned in the provided text?"
_ONE_IS = "The special magic {kind} for {keys} mentioned in the provided text is"
_ALL_ARE = "The special magic {kind}s for {keys} mentioned in the provided text are"

#: Most questions about a text. Needles that fill a text are not all asked for.
_QUESTIONS = 10

#: A needle takes more tokens than this.
SHORTEST = 12


@dataclass(frozen=True)
class Niah(Ruler):
    """Recall the values of keys.

    Parameters
    ----------
    keys : int
        Keys that are hidden. If needles fill the text, as many as fit.
    values : int
        Values of each key.
    queries : int
        Keys that one question asks for.
    key, value : str
        What keys and values are.
    haystack : str
        What they are hidden in: lines of noise, the prose of --data, or needles that fill the text.
    """

    keys: int = parameter(1, least=1)
    values: int = parameter(1, least=1)
    queries: int = parameter(1, least=1)
    key: str = parameter(WORD, choices=KINDS)
    value: str = parameter(NUMBER, choices=KINDS)
    haystack: str = parameter(ESSAY, choices=_HAYSTACKS)

    def text(self, page: Page, depth: int, most: int, rng: np.random.Generator) -> Text:
        """Hide the needles at random places, and ask for their keys (see `Ruler.text`)."""
        begin, fills = page.begin(_INSTRUCTION.format(kind=self.value)), self.haystack == NEEDLES
        room = depth - len(begin)
        least = self.queries if fills else max(self.keys, self.queries)
        if least * self.values * SHORTEST > room:
            raise self.too_small(depth)
        n_keys = room // (self.values * SHORTEST) if fills else least
        keys, values = page.draw(self.key, n_keys, rng), page.draw(self.value, n_keys * self.values, rng)
        needles = [self._needle(page, keys[i // self.values], value) for i, value in enumerate(values)]
        if fills:
            n_keys = int(np.searchsorted(np.cumsum(list(map(len, needles)))[self.values - 1 :: self.values], room))
            needles = needles[: n_keys * self.values]
        room -= sum(map(len, needles))
        if room < 0 or n_keys < self.queries:
            raise self.too_small(depth)
        order = rng.permutation(len(needles))
        positions = np.arange(len(order)) / len(order) if fills else np.sort(rng.random(len(order)))
        hidden = [(float(position), needles[i]) for position, i in zip(positions, order, strict=True)]
        if fills:
            tokens = [token for _, needle in hidden for token in needle]
        else:
            tokens = insert(page.noise(room) if self.haystack == NOISE else passage(page.prose, room, rng), hidden)
        places = positions[np.argsort(order)]
        samples = []
        for first in range(0, n_keys - self.queries + 1, self.queries)[: min(most, _QUESTIONS)]:
            asked = slice(first * self.values, (first + self.queries) * self.values)
            place = round(float(places[first]), 4) if self.values == self.queries == 1 else None
            sample = self._question(page, keys[first : first + self.queries], values[asked], place)
            samples.append(
                replace(sample, passage=self._written(keys[first], values[asked][0]) if place is not None else "")
            )
        return Text(begin + tokens, samples)

    def _needle(self, page: Page, key: str, value: str) -> list[int]:
        """Return the tokens of a needle, with the separator from the next line or paragraph."""
        border = BORDER if self.haystack == ESSAY else "\n"
        return page.prose.pieces(self._written(key, value) + border)

    def _written(self, key: str, value: str) -> str:
        return NEEDLE.format(kind=self.value, key=key, value=value)

    def _question(self, page: Page, keys: list[str], values: list[str], place: float | None) -> Sample:
        *others, last = keys
        named = f"{', '.join(others)}{',' if len(others) > 1 else ''} and {last}" if others else last
        words = {"kind": self.value, "keys": named}
        question, prefix = (_ALL, _ALL_ARE) if len(values) > 1 else (ONE, _ONE_IS)
        return page.ask(question.format(**words), prefix.format(**words), values, place)


@dataclass(frozen=True)
class SingleNiah(Niah):
    """Recall the value of the only key (S-NIAH)."""

    haystack: str = parameter(NOISE, choices=_HAYSTACKS)

    name = "niah-single"


@dataclass(frozen=True)
class MultiKeyNiah(Niah):
    """Recall the value of one of several keys (MK-NIAH)."""

    keys: int = parameter(4, least=1)

    name = "niah-multikey"
    samples = 60


@dataclass(frozen=True)
class MultiValueNiah(Niah):
    """Recall all values of the only key (MV-NIAH)."""

    values: int = parameter(4, least=1)

    name = "niah-multivalue"


@dataclass(frozen=True)
class MultiQueryNiah(Niah):
    """Recall the values of several keys in one answer (MQ-NIAH)."""

    queries: int = parameter(4, least=1)

    name = "niah-multiquery"
