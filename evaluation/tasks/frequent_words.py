"""Frequent words: which made-up words occur most often, where frequencies fall by a power of the rank (RULER, 3.3)."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from ...runtime.methods.parameters import parameter
from ..samples import Text
from .ruler import Page, Ruler

_INSTRUCTION = (
    "Read the following coded text and track the frequency of each coded word. Find the three most frequently appeared "
    "coded words."
)
_QUESTION = (
    "Question: Do not provide any explanation. Please ignore the dots '....'. What are the three most frequently "
    "appeared words in the above coded text?"
)
_PREFIX = "Answer: According to the coded text above, the three most frequently appeared words are:"

#: Stands for the word of the first rank, which is noise.
_NOISE = "..."

_LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))

#: Words to find, letters of a word, and ranks: the last ones are too rare to occur.
_FREQUENT, _LENGTH, _RANKS = 3, 6, 2000


@dataclass(frozen=True)
class FrequentWords(Ruler):
    """Name the three most frequent words.

    Parameters
    ----------
    alpha : float
        Power of the rank by which frequencies fall.
    """

    alpha: float = parameter(2.0, above=1)

    name = "frequent-words"

    def text(self, page: Page, depth: int, most: int, rng: np.random.Generator) -> Text:
        """Repeat words in random order, each as often as its rank says (see `Ruler.text`)."""
        drawn: dict[str, None] = {}
        while len(drawn) < _RANKS - 1:
            drawn["".join(rng.choice(_LETTERS, _LENGTH))] = None
        words = [_NOISE, *drawn]
        lengths = np.array([len(page.prose.pieces(f" {word}")) for word in words])
        begin = page.begin(_INSTRUCTION)
        room = depth - len(begin)
        n_words = bisect_right(range(1, max(room, 0) + 1), room, key=lambda n: int(counts(n, self.alpha) @ lengths))
        repetitions = counts(n_words, self.alpha)
        if len(set(repetitions[1 : _FREQUENT + 2])) <= _FREQUENT:
            raise self.too_small(depth)
        order = rng.permutation(np.repeat(np.arange(_RANKS), repetitions))
        tokens = begin + page.prose.pieces("".join(f" {words[i]}" for i in order))
        return Text(tokens[:depth], [page.ask(_QUESTION, _PREFIX, words[1 : _FREQUENT + 1])])


def counts(n_words: int, alpha: float) -> np.ndarray:
    """Return the count of the word of each rank: n k^-alpha / zeta(alpha), rounded.

    Parameters
    ----------
    n_words : int
        Number of words with repetitions.

    Returns
    -------
    int64 array, shape (_RANKS,)
        Counts, the most frequent word first.
    """
    ranks = np.arange(1, _RANKS + 1, dtype=np.float64)
    zeta = (ranks**-alpha).sum() + _RANKS ** (1 - alpha) / (alpha - 1)  # the rest of the sum, as an integral
    rounded: np.ndarray = np.rint(n_words * ranks**-alpha / zeta).astype(np.int64)
    return rounded
