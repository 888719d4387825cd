"""What the engine has done since its start."""

from __future__ import annotations

from dataclasses import dataclass

from .request import Usage


@dataclass
class Totals:
    """Counters since the start, for /metrics."""

    requests: int = 0
    failed: int = 0
    cancelled: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    answer_tokens: int = 0
    prompt_seconds: float = 0.0
    answer_seconds: float = 0.0

    def add(self, usage: Usage) -> None:
        """Count an answer that has ended."""
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += usage.cached_tokens
        self.answer_tokens += usage.answer_tokens
        self.prompt_seconds += usage.prompt_s
        self.answer_seconds += usage.answer_s
