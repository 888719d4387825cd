"""Draft the tokens that may come next: those that followed the longest match of the last tokens.

Answers about documents copy names, numbers and sentences. So the text before the last tokens often says what follows
them. A draft costs a longer step, and is worth it if the model then draws these tokens: both are observed. Every token
is predicted, drafted or not, so that the odds are known where drafts pause. They are worse where the text went on in
other ways after most of the shorter matches: such a match is disputed.

Knows no model: tokens in, tokens out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median_low

import numpy as np

#: Fewest tokens that match, and most that are compared.
_FEWEST, _MOST = 2, 32

#: Longest draft that is chosen by its odds.
_LONGEST = 24

#: By how many tokens a match is shorter whose places may dispute what follows.
_SHORTER = 3

#: Matches of so many tokens or more have odds of their own; and the odds to begin with, of matches that are undisputed,
#: then of others. They count as so many tokens.
_LENGTHS = 2, 3, 5, 9, 17
_FIRST_ODDS, _WEIGHT = (0.3, 0.4, 0.6, 0.8, 0.9, 0.15, 0.2, 0.3, 0.5, 0.8), 4.0

#: How much an observed token still counts after each later one.
_FORGETS = 0.95

#: A draft is worth it if the expected tokens grow by so much more than the time.
_LEAST_GAIN = 1.05

#: By how much of a step of one token each further token prolongs it: before it is measured.
_FIRST_COST = 0.4

#: Last steps of one token, and of drafts, whose median counts: other programs interrupt some of them.
_SINGLES, _DRAFTED = 15, 9

#: Steps of one token after which drafts are tried again that took too long.
_TRIED_AGAIN = 64

#: A token between texts: it matches none.
_NO_TOKEN = -1


class Experience:
    """What drafts of a model have shown: how often matches predict the next token, and what longer steps take."""

    def __init__(self) -> None:
        self._hits = [odds * _WEIGHT for odds in _FIRST_ODDS]
        self._observed = [_WEIGHT] * len(_FIRST_ODDS)
        self._n_alone = 0  # steps of one token since the last draft
        self._singles, self._costs = deque[float](maxlen=_SINGLES), deque([_FIRST_COST], maxlen=_DRAFTED)

    def note_prediction(self, n_matched: int, is_disputed: bool, is_hit: bool) -> None:
        """Note whether a match of so many tokens predicted the next one."""
        number = _kind(n_matched, is_disputed)
        self._hits[number] = self._hits[number] * _FORGETS + is_hit
        self._observed[number] = self._observed[number] * _FORGETS + 1

    def note_step(self, n_tokens: int, seconds: float) -> None:
        """Note what a step of a token and its draft took, n_tokens in all."""
        self._n_alone = self._n_alone + 1 if n_tokens == 1 else 0
        if n_tokens == 1:
            self._singles.append(seconds)
            if self._n_alone % _TRIED_AGAIN == 0:
                self._costs.append(_FIRST_COST)
        elif self._singles:
            self._costs.append(max(seconds / median_low(self._singles) - 1, 0.0) / (n_tokens - 1))

    def best_length(self, n_matched: int, is_disputed: bool, most: int) -> int:
        """Return the length up to `most` that gives most tokens for their time, as expected; 0 if none pays."""
        best, length, expected, likely, cost = _LEAST_GAIN, 0, 1.0, 1.0, median_low(self._costs)
        for n_tokens in range(1, most + 1):
            number = _kind(n_matched + n_tokens - 1, is_disputed and n_tokens == 1)
            likely *= self._hits[number] / self._observed[number]
            expected += likely
            if (gain := expected / (1 + cost * n_tokens)) > best:
                best, length = gain, n_tokens
        return length


class Drafter:
    """Draft tokens for one answer.

    Parameters
    ----------
    most : int, optional
        Length of all drafts, 0 for none; by default each has the length that pays most.
    prediction : sequence of int
        Tokens of a text that the answer may resemble.
    experience : Experience, optional
        What earlier answers have shown.

    Attributes
    ----------
    n_drafted, n_accepted : int
        Tokens that were drafted, and the ones among them that the model drew.
    is_paused : bool
        Whether not to draft for now.
    """

    def __init__(
        self, most: int | None = None, prediction: Sequence[int] = (), experience: Experience | None = None
    ) -> None:
        self._most, self._prediction = most, np.array([*prediction, _NO_TOKEN], np.intc)
        self._experience = experience or Experience()
        self.n_drafted = self.n_accepted = 0
        self.is_paused = False
        self._expected: list[int] = []  # what followed the match, from the next token on
        self._n_matched, self._is_disputed = 0, False

    def note(self, token: int) -> None:
        """Note the token that comes next in the text."""
        if not self._expected:
            return
        is_hit = token == self._expected[0]
        self._experience.note_prediction(self._n_matched, self._is_disputed, is_hit)
        self._n_matched, self._is_disputed = self._n_matched + 1, False
        self._expected = self._expected[1:] if is_hit else []

    def note_step(self, n_tokens: int, seconds: float) -> None:
        """Note what a step of a token and its draft took, n_tokens in all."""
        self.n_drafted += n_tokens - 1
        self._experience.note_step(n_tokens, seconds)

    def draft(self, tokens: np.ndarray, room: int) -> list[int]:
        """Return what may follow some tokens: at most `room` tokens, perhaps none.

        Parameters
        ----------
        tokens : int32 array, shape (n_tokens,)
            All tokens so far.
        """
        if self._most == 0:
            return []
        text = np.concatenate([self._prediction, tokens])
        end, self._n_matched, self._is_disputed = longest_match(text)
        most = _LONGEST if self._most is None else self._most
        self._expected = text[end : end + most].tolist() if self._n_matched else []
        if _NO_TOKEN in self._expected:
            del self._expected[self._expected.index(_NO_TOKEN) :]
        most = min(room, len(self._expected))
        if self.is_paused:
            most = 0
        elif self._most is None:
            most = self._experience.best_length(self._n_matched, self._is_disputed, most)
        return self._expected[:most]


def _kind(n_matched: int, is_disputed: bool) -> int:
    """Return the number of the odds of a match of so many tokens."""
    return sum(n_matched >= length for length in _LENGTHS[1:]) + is_disputed * len(_LENGTHS)


def longest_match(tokens: np.ndarray) -> tuple[int, int, bool]:
    """Find the longest match of the last tokens earlier in a text, the latest of several.

    Returns
    -------
    end, n_matched : int
        Where the match ends, and how many tokens match, at most `_MOST`; 0 if fewer than `_FEWEST` do.
    is_disputed : bool
        Whether another token follows most matches that are shorter by `_SHORTER` tokens, or of one token.
    """
    last = len(tokens) - 1
    ends = np.flatnonzero(tokens[:last] == tokens[last]) if last > 0 else np.zeros(0, int)
    matches = []  # the ends of matches of one token, of two, ...
    while len(ends):
        matches.append(ends)
        n_matched = len(matches)
        if n_matched == min(_MOST, last):
            break
        ends = ends[ends >= n_matched]
        ends = ends[tokens[ends - n_matched] == tokens[last - n_matched]]
    if len(matches) < _FEWEST:
        return 0, 0, False
    end, shorter = int(matches[-1][-1]) + 1, matches[max(len(matches) - _SHORTER, 1) - 1]
    n_same = np.count_nonzero(tokens[shorter + 1] == tokens[end])
    return end, len(matches), bool(2 * n_same < len(shorter))
