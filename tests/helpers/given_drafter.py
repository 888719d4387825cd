"""Draft tokens that a test knows to come, with wrong ones among them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.runtime.sequences.drafter import Drafter

#: The share of drafted tokens that are right, and the token in the place of the others.
_RIGHT, _WRONG = 0.85, 31


class GivenDrafter(Drafter):
    """Draft a sequence's tokens, up to nine at a time.

    Parameters
    ----------
    tokens : sequence of int
        All tokens of the sequence.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        super().__init__()
        self._given, self._random = tokens, np.random.default_rng(0)

    def draft(self, tokens: np.ndarray, room: int) -> list[int]:
        """Return what comes after these tokens, or nearly."""
        coming = self._given[len(tokens) : len(tokens) + min(room, int(self._random.integers(0, 10)))]
        return [token if self._random.random() < _RIGHT else _WRONG for token in coming]
