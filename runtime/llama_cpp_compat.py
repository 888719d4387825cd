"""Adapt the parts of llama-cpp-python that take the context for llama.cpp's own."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any

import llama_cpp
import numpy as np

from ..errors import OctavoError
from .context import Context
from .methods.attention import Attention
from .sequences.sequence import TokenSequence


class PromptTooLong(OctavoError, ValueError):
    """A prompt that exceeds the context; a ValueError, too, as in llama-cpp-python."""


class DropIn(llama_cpp.Llama):
    """`llama_cpp.Llama` whose context may be ours: drafts, caches of states, messages and pickles."""

    #: Set by `Llama` before the base class runs: its arguments, and the current sequence.
    sequence: TokenSequence
    _arguments: dict[str, Any]
    _in_prompt = False
    draft_model: Any
    cache: Any

    @property
    def attention(self) -> Attention:
        """Return the sequence's attention."""
        return self.sequence.attention

    @property
    def resolved_attention(self) -> Attention:
        """Return the sequence's attention, with the choice of "auto" in its place."""
        return self.sequence.resolved_attention

    @property
    def input_ids(self) -> np.ndarray:
        """Return the sequence's tokens, with room for more."""
        return self.sequence.input_ids

    @input_ids.setter
    def input_ids(self, input_ids: np.ndarray) -> None:
        self.sequence.input_ids = input_ids

    @property
    def n_tokens(self) -> int:
        """Return the sequence's number of tokens."""
        return self.sequence.n_tokens

    @n_tokens.setter
    def n_tokens(self, n_tokens: int) -> None:
        self.sequence.n_tokens = n_tokens

    @property
    def _own_cache(self) -> Any:
        """Return our KV cache; None on llama.cpp's own attention."""
        return self._ctx.cache if isinstance(self._ctx, Context) else None

    def generate(self, tokens: Sequence[int], *args: Any, **options: Any) -> Generator[int, Sequence[int] | None, None]:
        """Generate tokens, as `llama_cpp.Llama.generate` does.

        No draft is used if tokens are read one by one, or if tokens cannot be taken back: it would save nothing.
        """
        with self._usable_draft():
            self._in_prompt = True
            yield from super().generate(tokens, *args, **options)

    def _n_predicting(self, n_tokens: int) -> int:
        """Return how many of the next n_tokens tokens are predicted from: the last ones."""
        in_prompt, self._in_prompt = self._in_prompt, False
        if self._arguments.get("logits_all") or (self.draft_model is not None and not in_prompt):
            return n_tokens
        return 1

    @contextlib.contextmanager
    def _usable_draft(self) -> Iterator[None]:
        """Remove the draft model while it is useless; else limit its drafts to a batch."""
        draft, cache = self.draft_model, self._own_cache
        if draft is None or cache is None:
            yield
            return
        self.draft_model = partial(_drafted, draft, self.n_batch - 1)
        if cache.cuts or cache.evicts:
            warnings.warn(f"{self.attention} reads tokens one by one, so the draft model is not used.", stacklevel=4)
            self.draft_model = None
        try:
            yield
        finally:
            self.draft_model = draft

    def set_cache(self, cache: Any) -> None:
        """Keep states of conversations in a cache, as `llama_cpp.Llama.set_cache` does, if states can be kept."""
        super().set_cache(cache)
        if cache is not None and not self._keeps_states:
            warnings.warn(f"{self.attention} forgets what it read, so the cache is not used.", stacklevel=2)

    @property
    def _keeps_states(self) -> bool:
        """Return whether `save_state` works."""
        cache = self._own_cache
        return cache is None or not (cache.evicts or cache.document is not None)

    def _create_completion(self, *args: Any, **options: Any) -> Iterator[Any]:
        """Complete a text. The error for a longer text names the length of our context, not of a batch."""
        states = self.cache
        if not self._keeps_states:
            self.cache = None
        try:
            yield from super()._create_completion(*args, **options)
        except ValueError as problem:
            message = re.sub(r"(exceed context window of) \d+", rf"\1 {self._n_ctx}", str(problem))
            if message == str(problem):
                raise
            raise PromptTooLong(f"{message}: give a larger context (n_ctx), or a shorter prompt.") from None
        finally:
            self.cache = states

    def __getstate__(self) -> dict[str, Any]:
        """Return arguments that load the model as it is now, without its tokens, for `__setstate__`."""
        changed = {"seed": self._seed, "chat_format": self.chat_format, "chat_handler": self.chat_handler}
        state = {**self._arguments, **changed, "draft_model": self.draft_model, "model_path": self.model_path}
        return {**state, "attention": self.attention}


def _drafted(draft: Callable[[np.ndarray], np.ndarray], most: int, tokens: np.ndarray) -> np.ndarray:
    """Return a draft model's continuation of tokens, at most `most`: llama.cpp has the logits of one batch only."""
    return draft(tokens)[:most]
