"""Refuse prompts that the context cannot hold."""

from __future__ import annotations

from functools import cached_property

from ...runtime.llama import Llama
from ..http.api_error import RequestError


class PromptLimits:
    """The limits of prompts. An attention that forgets has none."""

    def __init__(self, llama: Llama) -> None:
        self._llama = llama
        self._endless = llama.context.longest > llama.context.n_ctx()

    def check(self, n_tokens: int) -> None:
        """Check a prompt. Raise RequestError if it has no tokens, or leaves no room for an answer."""
        n_ctx = self._llama.context.n_ctx()
        if n_tokens == 0:
            raise RequestError("The prompt is empty.")
        if n_tokens >= n_ctx and not self._endless:
            raise RequestError(
                f"The prompt has {n_tokens:,} tokens, and the context of {n_ctx:,} leaves no room for an answer: send "
                "less, or start the server with a larger one (-c).",
                code="context_length_exceeded",
            )

    def check_length(self, n_characters: int) -> None:
        """Check a text before it is tokenized. Raise RequestError if no tokens are long enough for it to fit."""
        n_ctx = self._llama.context.n_ctx()
        if n_characters > n_ctx * self._longest and not self._endless:
            raise RequestError(
                f"The prompt has {n_characters:,} characters, more than the context of {n_ctx:,} tokens can hold: send "
                "less, or upload it to /v1/files and ask about it.",
                code="context_length_exceeded",
            )

    @cached_property
    def _longest(self) -> int:
        """Return the bytes of the longest token."""
        return max(len(self._llama.piece(token, special=True)) for token in range(self._llama.n_vocab()))
