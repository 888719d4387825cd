"""Top-k: the rows whose keys score highest, found by scoring all of them."""

from __future__ import annotations

from dataclasses import dataclass

from ...cpu_kernels.methods.topk import HOOKS
from .method import Heads
from .scorer import ScorerMethod


@dataclass(frozen=True)
class TopK(ScorerMethod):
    """Select the rows with the highest exact scores: the best that a look-up could read; a batch attends to everything.

    The budget pays for the rows that are attended alone, and so do the bytes read: the scores, for which a step reads
    all keys, count nothing. So it takes as long as `dense`, and shows how much other look-ups lose.
    """

    name = "topk"
    hooks = HOOKS

    def item_bytes(self, heads: Heads) -> int:
        """Return 0: the budget pays for the rows that are attended."""
        return 0
