"""Rank documents and excerpts for a question by BM25 and by the attention of retrieval heads.

BM25 (question_words.py) is over the model's tokens. A document scores as its best piece does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from ...library.question_words import rarity, relative_lengths, saturated
from ...library.source_text import SourceText
from ...runtime.llama import Llama
from .question_queries import attention_shares

#: Tokens of a piece: excerpts begin and end between two.
PIECE = 128

#: Weight of attention beside the words.
_ATTENTION = 0.5

#: Length penalty: the maximum of many scores grows with their number, so subtract half of log(pieces).
_LENGTH = 0.5

#: Share of the best score by words from which on a piece may begin a window, and standard deviations of attention.
_OF_BEST, _MUCH = 0.5, 3.0

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


class Candidate(NamedTuple):
    """A document that a question may be about.

    Parameters
    ----------
    share : float
        Share of the attention of the question's words among the ranked documents; of documents that were not read,
        share of the words' scores.
    score : float
        Score by words and attention, in standard deviations; of documents that were not read, by words.
    """

    document: SourceText
    share: float
    score: float


class Span(NamedTuple):
    """Tokens of the text of a document, from `start` up to `stop`; the prompt's head before the text does not count."""

    document: SourceText
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class Ranking:
    """Documents ranked for a question.

    Parameters
    ----------
    question : mapping of int to float
        The weight of each token of the question.
    words : float64 array, shape (n_documents,)
        Score of each document by the words that it shares with the question (word_scores.py).
    pieces : sequence of float32 arrays, shape (n_heads, n_words, n_pieces)
        For each document, the highest score of the question's words with a key of each piece of its text.
    """

    documents: Sequence[SourceText]
    texts: Sequence[np.ndarray]
    question: Mapping[int, float]
    words: np.ndarray
    pieces: Sequence[np.ndarray]

    @cached_property
    def candidates(self) -> list[Candidate]:
        """Return the documents, the likeliest first."""
        best = [scores.max(axis=2) - _LENGTH * np.log(scores.shape[2]) for scores in self.pieces]
        shares = attention_shares(np.stack(best, axis=2))
        scores = _standing_out(self.words) + _ATTENTION * _standing_out(shares)
        candidates = map(Candidate, self.documents, shares.tolist(), scores.tolist())
        return sorted(candidates, key=lambda candidate: -candidate.score)

    def excerpts(self, n_tokens: int) -> list[Span]:
        """Choose the likeliest excerpts of all documents: pieces and the ones after them.

        They have n_tokens tokens or more, unless all documents together have fewer. The likeliest come last, next to
        the question.
        """
        of_pieces = [(number, i) for number, pieces in enumerate(self.pieces) for i in range(pieces.shape[2])]
        words, shares = self._piece_scores
        scores = _standing_out(words) + _ATTENTION * _standing_out(shares)
        chosen: dict[tuple[int, int], float] = {}
        n_chosen = 0
        for at in np.argsort(-scores, kind="stable").tolist():
            number, first = of_pieces[at]
            for piece in (first, first + 1):
                left = len(self.texts[number]) - piece * PIECE
                if left > 0 and (number, piece) not in chosen:
                    chosen[number, piece] = float(scores[at])
                    n_chosen += min(left, PIECE)
            if n_chosen >= n_tokens:
                break
        runs = sorted(_runs(chosen), key=lambda run: max(chosen[piece] for piece in run))
        return [
            Span(
                self.documents[number],
                first * PIECE,
                min((run[-1][1] + 1) * PIECE, len(self.texts[number])),
            )
            for run in runs
            for number, first in run[:1]
        ]

    def windows(self, most: int) -> list[list[Span]]:
        """Choose the likeliest windows of each document, the best first: a piece and the next one.

        A piece has half of the best one's score by words, or very much attention. Windows of a document do not overlap,
        and it may have none.

        Parameters
        ----------
        most : int
            Most windows of a document.
        """
        words, shares = self._piece_scores
        likely = (words >= max(_OF_BEST * words.max(), 1e-9)) | (_standing_out(shares) >= _MUCH)
        scores = np.where(likely, _standing_out(words) + _ATTENTION * _standing_out(shares), -np.inf)
        borders = np.cumsum([pieces.shape[2] for pieces in self.pieces])[:-1]
        return [
            [Span(document, i * PIECE, min((i + 2) * PIECE, len(text))) for i in _apart(own, most)]
            for document, text, own in zip(self.documents, self.texts, np.split(scores, borders), strict=True)
        ]

    @cached_property
    def _piece_scores(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores of the pieces of all documents by words, and their shares of the attention."""
        words = np.concatenate(WordScores(self.texts, PIECE).of_pieces(self.question))
        return words, attention_shares(np.concatenate(self.pieces, axis=2))


def _apart(scores: np.ndarray, most: int) -> list[int]:
    """Return the pieces with the highest finite scores, none of them next to another one."""
    chosen: list[int] = []
    for piece in np.argsort(-scores, kind="stable").tolist():
        if scores[piece] == -np.inf or len(chosen) == most:
            break
        if all(abs(piece - other) > 1 for other in chosen):
            chosen.append(piece)
    return chosen


def _runs(pieces: dict[tuple[int, int], float]) -> Iterator[list[tuple[int, int]]]:
    """Yield runs of pieces that follow one another in a document."""
    numbered = enumerate(sorted(pieces))
    for _, run in groupby(numbered, lambda each: (each[1][0], each[1][1] - each[0])):
        yield [piece for _, piece in run]


def _standing_out(values: np.ndarray) -> np.ndarray:
    """Return the distance of each value from the mean, in standard deviations."""
    above: np.ndarray = (values - values.mean()) / max(float(values.std()), 1e-9)
    return above
