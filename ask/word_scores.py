"""Score documents by the words that they share with a question: BM25, over the model's tokens.

Robertson and Zaragoza 2009 ("The Probabilistic Relevance Framework: BM25 and Beyond", section 3.5), with their usual
values of the two parameters. A document scores as its best piece does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: BM25's k1 and b: saturation of repeated words, and weight of a piece's length.
_K1, _B = 1.5, 0.75

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
        self._longer = 1 - _B + _B * lengths / max(lengths.mean(), 1e-9)

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
            n_with = np.count_nonzero(counts)
            weight = np.log(1 + (len(counts) - n_with + 0.5) / (n_with + 0.5))
            scores += weight * counts * (_K1 + 1) / (counts + _K1 * self._longer)
        return scores

    def _pieces(self, of_parts: np.ndarray) -> np.ndarray:
        """Add each part's values to those of the next part of the same document."""
        following = np.append(of_parts[1:], 0)
        following[self._is_last] = 0
        made: np.ndarray = of_parts + following
        return made
