"""Streaming: sink tokens and a recent window (StreamingLLM, Xiao et al. 2023, section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...cpu_kernels.layout.scores import items_holding
from ...cpu_kernels.rows.tiles import CHUNK_ROWS
from ..document.index import Index
from .evicting import CHUNK, EVICT, FULL
from .method import Heads
from .parameters import parameter
from .window import Window

#: Ways to count positions.
_IN_CACHE, _IN_SEQUENCE = "cache", "sequence"


@dataclass(frozen=True)
class Streaming(Window):
    """Show each token the first rows and the newest ones, and forget the others. The window grows as `window` does.

    Parameters
    ----------
    budget : float
        Share of the rows that is kept, sinks included; at least a chunk of them.
    tokens : int
        Number of rows that are kept, sinks included; 0 for a share, the budget.
    sinks : int
        First rows that are kept, at most a chunk; 4 in the paper. With 0 this is `window`.
    recent : int
        Newest rows that a token sees, its own included; 0 for what `tokens` or the budget leaves besides the sinks.
    positions : str
        "cache": positions are those in the cache, as in the paper, so that the sinks stay near, and a sequence can be
        of any length. "sequence": positions are those in the sequence.
    prefill : str
        "full": batches attend to everything and forget nothing, and the first step of one token forgets what is over
        the budget, as SqueezeAttention does (Wang et al. 2024, algorithm 1). "evict": batches attend and forget as
        single tokens do, and take less memory. "chunk": as "evict", but a token also sees all that came before it in
        its batch, and all tokens of a batch see the same newest rows before it, as in DuoAttention.
    """

    sinks: int = parameter(4, least=0, most=CHUNK_ROWS)
    recent: int = parameter(0, least=0)
    positions: str = parameter(_IN_CACHE, choices=(_IN_CACHE, _IN_SEQUENCE))
    prefill: str = parameter(EVICT, choices=(EVICT, FULL, CHUNK))

    name = "streaming"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {"sinks": 4, "recent": 1020, "positions": _IN_CACHE}}

    @property
    def asked_tokens(self) -> int:
        """Return the number of recent rows, or of all kept rows; 0 for a budget."""
        return self.recent or self.tokens

    def fixed_share(self, heads: Heads, n_tokens: int) -> np.ndarray:
        """Return the share of sinks and recent rows among n_tokens rows."""
        kept = self.sinks + self.recent if self.recent else self.tokens
        return np.full(len(heads.numbers), min(kept / n_tokens, 1.0))

    def least_tokens(self, index: Index | None) -> int:
        """Return the number of rows that a token always attends to: the sinks and itself."""
        return 1 if self.recent else self.sinks + 1

    @property
    def on_metal(self) -> bool:  # type: ignore[override]
        """Return whether the shader part supports these parameters: it cannot turn queries, and has no chunks."""
        return not self.turns and self.prefill != CHUNK

    @property
    def turns(self) -> bool:  # type: ignore[override]
        return self.sinks > 0 and self.positions == _IN_CACHE

    @property
    def rolls(self) -> bool:
        return self.prefill != FULL and (self.sinks == 0 or self.turns)

    def start(self, heads: Heads, index: Index | None) -> None:
        """Set the frequencies of each head's RoPE in the state, if the method turns queries."""
        for state, rope in zip(heads.state, heads.ropes, strict=True):
            if self.turns and rope is not None:
                state["frequencies"], state["n_pairs"] = rope.frequencies.ctypes.data, len(rope.frequencies)
                state["interleaved"] = rope.interleaved

    def before_step(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Let a window that is a share grow with the sequence, and set whether to turn queries."""
        state = heads.state
        if self.recent:
            n_recent = np.rint(self.recent * heads.scale)
        else:
            n_recent = self.rows_to_keep(heads, self.length(n_tokens)) - self.sinks
        n_recent = np.clip(n_recent, 1, max(heads.n_ctx - self.sinks, 1))
        is_far = (n_tokens > self.sinks + n_recent) | (state["origin"] > 0)
        n_new = n_tokens - (heads.get("tail_position") + heads.get("n_tail"))
        state["n_sinks"], state["n_recent"] = self.sinks, n_recent
        state["n_turned"] = np.where(is_far & (state["n_pairs"] > 0), n_new, 0)
        state["whole_batch"] = self.prefill == CHUNK

    def before_batch(self, heads: Heads, index: Index | None, n_tokens: int) -> None:
        """Show everything to a prompt if `prefill` is "full"."""
        self.before_step(heads, index, n_tokens)
        if self.prefill == FULL:
            heads.state["n_recent"], heads.state["n_turned"] = n_tokens, 0

    def n_items(self, heads: Heads) -> int:
        """Return the items whose scratch holds the turned queries."""
        most = int((heads.state["n_turned"] * heads.group * heads.head_dim).max(initial=0))
        return items_holding(int(heads.group.min(initial=1)), most)

    def move_origin(self, heads: Heads, origin: int) -> None:
        """Count the positions of later steps from another token of the sequence."""
        heads.state["origin"] = origin

    def kept_window(self, heads: Heads) -> tuple[np.ndarray, np.ndarray]:
        return heads.state["n_sinks"], heads.state["n_recent"] + heads.state["whole_batch"]
