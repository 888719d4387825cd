"""One of the sequences that a model holds: contexts compute several in turns, and tokens of several in one step."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..cache.kv_cache import KVCache
from ..methods.attention import Attention
from ..query_recorder import Recorder


@dataclass(eq=False)
class TokenSequence:
    """All that a model knows of one sequence.

    Parameters
    ----------
    attention : Attention
        How its tokens attend.
    resolved_attention : Attention
        The same, with the choice of "auto" in its place.
    input_ids : int32 array, shape (n_rows,)
        Its tokens, and room for more.
    n_tokens : int
        How many tokens it has.
    recorder : Recorder or None
        Keeps queries of its steps.

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
    cache: KVCache = field(init=False)

    @property
    def tokens(self) -> np.ndarray:
        """View its tokens: int32, shape (n_tokens,)."""
        return self.input_ids[: self.n_tokens]

    def append(self, token: int) -> None:
        """Add a token that was read in a step of several sequences."""
        if self.n_tokens == len(self.input_ids):
            self.input_ids = np.resize(self.input_ids, 2 * self.n_tokens)
        self.input_ids[self.n_tokens] = token
        self.n_tokens += 1
