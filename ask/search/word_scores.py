"""Score documents by the words that they share with a question: BM25 (question_words.py), over the model's tokens.

A document scores as its best piece does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from ...library.question_words import rarity, relative_lengths, saturated
from ...runtime.llama import Llama

#: What `folding` returned for each model.
_FOLDED: WeakKeyDictionary[Llama, np.ndarray] = WeakKeyDictionary()

#: Default tokens of a part. A piece is two parts; the next piece begins with the second of them.
PART = 256


class WordScores:
    """Score documents by the tokens that they share with a question.

    Parameters
    ----------
    documents : sequence of int32 arrays, shape (n_tokens,)
        Tokens of each document; an empty one scores 0.
    n_part : int
        Tokens of a part, half a piece.
    """

    def __init__(self, documents: Sequence[np.ndarray], n_part: int = PART) -> None:
        n_tokens = np.array([len(tokens) for tokens in documents])
        n_parts = np.maximum(-(-n_tokens // n_part), 1)
        self._n_part, self._tokens = n_part, np.concatenate(documents)
        self._starts = np.cumsum(n_tokens) - n_tokens  # token of each document
        self._first = np.cumsum(n_parts) - n_parts  # part of each document
        last = self._first + n_parts - 1
        self._is_last = np.zeros(n_parts.sum(), bool)
        self._is_last[last] = True
        of_parts = np.full(len(self._is_last), n_part)
        of_parts[last] = n_tokens - (n_parts - 1) * n_part
        self._longer = relative_lengths(self._pieces(of_parts))

    def of(self, question: Mapping[int, float]) -> np.ndarray:
        """Return the score of each document: float64, shape (n_documents,).

        Parameters
        ----------
        question : mapping of int to float
            The weight of each token.
        """
        best: np.ndarray = np.maximum.reduceat(self._scores(question), self._first)
        return best

    def of_pieces(self, question: Mapping[int, float]) -> list[np.ndarray]:
        """Return the scores of each document's pieces, one for each of its parts: float64, shape (n_parts,)."""
        return np.split(self._scores(question), self._first[1:])

    def _scores(self, question: Mapping[int, float]) -> np.ndarray:
        """Return the scores of all pieces."""
        scores = np.zeros(len(self._is_last))
        for token, weight in question.items():
            at = np.flatnonzero(self._tokens == token)
            document = np.searchsorted(self._starts, at, side="right") - 1
            parts = self._first[document] + (at - self._starts[document]) // self._n_part
            counts = self._pieces(np.bincount(parts, minlength=len(scores)))
            scores += weight * rarity(int(np.count_nonzero(counts)), len(counts)) * saturated(counts, self._longer)
        return scores

    def _pieces(self, of_parts: np.ndarray) -> np.ndarray:
        """Add each part's values to those of the next part of the same document."""
        following = np.append(of_parts[1:], 0)
        following[self._is_last] = 0
        made: np.ndarray = of_parts + following
        return made


def folding(llama: Llama) -> np.ndarray:
    """Return for each token the first one with the same text, apart from case and blanks: int32, shape (n_vocab,)."""
    if llama not in _FOLDED:
        first: dict[bytes, int] = {}
        texts = (llama.piece(token) for token in range(llama.n_vocab()))
        _FOLDED[llama] = np.array([first.setdefault(text.strip().lower(), i) for i, text in enumerate(texts)], np.int32)
    return _FOLDED[llama]
