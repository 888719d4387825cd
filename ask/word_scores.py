"""Score documents by the words that they share with a question: BM25 (library/bm25.py), over the model's tokens.

A document scores as its best piece does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..library.bm25 import rarity, relative_lengths, saturated

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
        n_parts = [max(-(-len(tokens) // n_part), 1) for tokens in documents]
        self._first = np.cumsum([0, *n_parts])[:-1]  # part of each document
        self._tokens = np.concatenate(documents)
        within = [
            first + np.arange(len(tokens)) // n_part for first, tokens in zip(self._first, documents, strict=True)
        ]
        self._part_of = np.concatenate(within)
        self._is_last = np.zeros(sum(n_parts), bool)
        self._is_last[self._first + n_parts - 1] = True
        lengths = self._pieces(np.bincount(self._part_of, minlength=len(self._is_last)))
        self._longer = relative_lengths(lengths)

    def of(self, question: Sequence[int]) -> np.ndarray:
        """Return the score of each document: float64, shape (n_documents,). A repeated token counts once."""
        best: np.ndarray = np.maximum.reduceat(self._scores(question), self._first)
        return best

    def of_pieces(self, question: Sequence[int]) -> list[np.ndarray]:
        """Return the scores of each document's pieces, one for each of its parts: float64, shape (n_parts,)."""
        return np.split(self._scores(question), self._first[1:])

    def _scores(self, question: Sequence[int]) -> np.ndarray:
        """Return the scores of all pieces."""
        scores = np.zeros(len(self._is_last))
        for token in set(question):
            counts = self._pieces(np.bincount(self._part_of[self._tokens == token], minlength=len(self._is_last)))
            scores += rarity(int(np.count_nonzero(counts)), len(counts)) * saturated(counts, self._longer)
        return scores

    def _pieces(self, of_parts: np.ndarray) -> np.ndarray:
        """Add each part's values to those of the next part of the same document."""
        following = np.append(of_parts[1:], 0)
        following[self._is_last] = 0
        made: np.ndarray = of_parts + following
        return made
