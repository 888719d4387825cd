"""Measure how fast a model reads and decodes, and choose measurements that take about an hour."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ..progress import Progress
from ..runtime.llama import Llama
from ..system.working_time import working_time

_Plan = TypeVar("_Plan")

#: Seconds that a part of a report may take.
HOUR = 3600.0

#: Tokens of a batch, batches that are read, and steps that are decoded over nothing and behind them.
_BATCH, _BATCHES, _STEPS = 512, 3, 8


@dataclass(frozen=True)
class Pace:
    """Seconds of a token, read in a batch or decoded: over nothing, and more for each token before it."""

    read_s: float
    read_more_s: float
    step_s: float
    step_more_s: float

    def reading(self, n_tokens: int) -> float:
        """Return the seconds of reading a text."""
        return n_tokens * (self.read_s + self.read_more_s * n_tokens / 2)

    def steps(self, n: int, depth: int) -> float:
        """Return the seconds of decoding n tokens after `depth` others."""
        return n * (self.step_s + self.step_more_s * depth)

    @classmethod
    def of(cls, llama: Llama, progress: Progress) -> Pace:
        """Measure a model on random tokens, and forget them. Its context limits how many."""
        n = max(min(_BATCH, (int(llama.n_ctx()) - _STEPS) // _BATCHES), 1)
        tokens = np.random.default_rng(0).integers(llama.n_vocab(), size=n * _BATCHES).tolist()
        progress.start("Measuring the pace of this model", n * (_BATCHES + 1), "tokens")

        def read(batch: list[int]) -> float:
            seconds = _seconds(llama, batch)
            progress.advance(n)
            return seconds / n

        def step() -> float:  # the fastest: others may use the cores
            return min(_seconds(llama, [token]) for token in tokens[:_STEPS])

        llama.reset()
        read(tokens[:n])  # llama.cpp reserves memory
        llama.reset()
        step_s = step()
        llama.reset()
        first, *_, last = [read(tokens[i * n : (i + 1) * n]) for i in range(_BATCHES)]
        behind_s = step()
        llama.reset()
        more = max(last - first, 0.0) / (n * (_BATCHES - 1)), max(behind_s - step_s, 0.0) / (n * _BATCHES)
        return cls(first, more[0], step_s, more[1])


def _seconds(llama: Llama, tokens: list[int]) -> float:
    start = working_time()
    llama.eval(tokens)
    return working_time() - start


def longest_within(plans: Iterable[_Plan], seconds: Callable[[_Plan], float], limit: float = HOUR) -> _Plan:
    """Return the first plan that takes at most `limit` seconds, or the last one. There is at least one."""
    chosen: _Plan | None = None
    for chosen in plans:
        if seconds(chosen) <= limit:
            break
    assert chosen is not None
    return chosen
