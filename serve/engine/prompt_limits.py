"""Refuse prompts that the context cannot hold."""

from __future__ import annotations

from functools import cached_property

from ...runtime.llama import Llama
from ..request_error import RequestError


class PromptTooLong(RequestError):
    """A prompt exceeds the context. The words, and the fields of llama.cpp, are those by which clients recognise this.

    Parameters
    ----------
    n_tokens : int
        Tokens of the prompt, or a least number of them.
    n_ctx : int
        Tokens of the context.
    is_least : bool
        Whether the prompt has more tokens than that.
    """

    def __init__(self, n_tokens: int, n_ctx: int, is_least: bool = False) -> None:
        told = f"more than {n_tokens}" if is_least else f"{n_tokens}"
        super().__init__(
            f"This model's maximum context length is {n_ctx} tokens, and the prompt has {told} tokens: send less, "
            "start the server with a larger context (-c), or upload documents to /v1/files and name them.",
            code="context_length_exceeded",
        )
        self.counts = f"{told} tokens > {n_ctx} maximum"
        self.fields = {"n_prompt_tokens": n_tokens, "n_ctx": n_ctx}


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
            raise PromptTooLong(n_tokens, n_ctx)

    def check_length(self, n_characters: int) -> None:
        """Check a text before it is tokenized. Raise RequestError if no tokens are long enough for it to fit."""
        n_ctx = self._llama.context.n_ctx()
        if n_characters > n_ctx * self._longest and not self._endless:
            raise PromptTooLong(n_characters // self._longest, n_ctx, is_least=True)

    @cached_property
    def _longest(self) -> int:
        """Return the bytes of the longest token."""
        return max(len(self._llama.piece(token, special=True)) for token in range(self._llama.n_vocab()))
