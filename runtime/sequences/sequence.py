"""The state of a token sequence: a context computes several in turns, and tokens of several in one step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..cache.kv_cache import KVCache
from ..methods.attention import Attention
from ..query_recorder import Recorder
from .drafter import Drafter
from .recurrent import RecurrentState


@dataclass(eq=False)
class TokenSequence:
    """The state of one sequence in a model.

    Parameters
    ----------
    attention : Attention
        Attention of its tokens.
    resolved_attention : Attention
        The same, with the choice of "auto" in its place.
    input_ids : int32 array, shape (n_rows,)
        Its tokens, and room for more.
    n_tokens : int
        Number of tokens.
    recorder : Recorder or None
        Storage queries of its steps.
    recurrent : RecurrentState or None
        Its recurrent state in a hybrid model.
    steps : list of int
        The tokens, in rising order, that were steps of their own and predicted from. Where a method attends to less in
        a step than in a batch, they must be steps again if they are read again.
    drafter : Drafter or None
        Drafts what may follow a token that is predicted from, so that one step computes several tokens.

    Attributes
    ----------
    cache : KVCache
        Its keys and values. `Context` sets it; llama.cpp's own attention has none.
    """

    attention: Attention
    resolved_attention: Attention
    input_ids: np.ndarray = field(default_factory=lambda: np.zeros(0, np.intc))
    n_tokens: int = 0
    recorder: Recorder | None = None
    recurrent: RecurrentState | None = None
    steps: list[int] = field(default_factory=list)
    drafter: Drafter | None = None
    cache: KVCache = field(init=False)

    @property
    def tokens(self) -> np.ndarray:
        """View its tokens: int32, shape (n_tokens,)."""
        return self.input_ids[: self.n_tokens]

    def append(self, token: int) -> None:
        """Add a token of a step of several sequences."""
        if self.n_tokens == len(self.input_ids):
            self.input_ids = np.resize(self.input_ids, 2 * self.n_tokens)
        self.input_ids[self.n_tokens] = token
        self.n_tokens += 1

    def forget_steps(self, n_tokens: int) -> None:
        """Forget which tokens were steps, but for the first n_tokens tokens."""
        while self.steps and self.steps[-1] >= n_tokens:
            self.steps.pop()

    def common_steps(self, tokens: np.ndarray) -> list[int]:
        """Return which of the first tokens that it shares with others were steps."""
        return steps_within(self.steps, 0, n_common(self.tokens, tokens))

    def usable(self, n_tokens: int) -> int:
        """Return how many of its first n_tokens tokens it can return to without reading any of them again."""
        state = self.recurrent
        if state is None or (n_tokens == self.n_tokens and not state.is_lost):
            return n_tokens
        return state.last(n_tokens).n_tokens


def steps_within(steps: Iterable[int], first: int, stop: int) -> list[int]:
    """Return the steps among the tokens from `first` up to `stop`, in rising order: a file may hold any numbers."""
    return sorted({step for step in steps if first <= step < stop})


def n_common(tokens: np.ndarray | Sequence[int], others: np.ndarray | Sequence[int]) -> int:
    """Return the length of the longest common prefix of two lists of tokens."""
    n = min(len(tokens), len(others))
    differs = np.flatnonzero(np.asarray(tokens[:n]) != np.asarray(others[:n]))
    return int(differs[0]) if len(differs) else n
