"""BM25: score pieces of texts by the words that they share with a question.

Robertson and Zaragoza 2009 ("The Probabilistic Relevance Framework: BM25 and Beyond", section 3.5), with their usual
values of the two parameters.
"""

from __future__ import annotations

import numpy as np

#: BM25's k1 and b: saturation of repeated words, and weight of a piece's length.
_K1, _B = 1.5, 0.75

#: Weight of the words of the question before: a question without words of its own, such as "Why?", is about them.
BEFORE = 0.3


def rarity(n_with: int, n: int) -> float:
    """Return the weight of a word that n_with of n pieces have."""
    return float(np.log(1 + (n - n_with + 0.5) / (n_with + 0.5)))


def relative_lengths(lengths: np.ndarray) -> np.ndarray:
    """Return by how much the lengths of pieces, at least one, weaken their words."""
    longer: np.ndarray = 1 - _B + _B * lengths / max(lengths.mean(), 1e-9)
    return longer


def saturated(counts: np.ndarray, longer: np.ndarray) -> np.ndarray:
    """Return what a word counts that pieces of some `relative_lengths` have so many times."""
    counted: np.ndarray = counts * (_K1 + 1) / (counts + _K1 * longer)
    return counted
