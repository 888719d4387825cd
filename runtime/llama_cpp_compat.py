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
from llama_cpp.llama import LlamaState

from ..errors import OctavoError
from .context import Context
from .document.kept_state import KeptState, arrays_of
from .methods.attention import Attention
from .sequences.sequence import TokenSequence, n_common


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
    _requires_eval: bool

    @property
    def context(self) -> Context:
        """Return our context. Raise OctavoError on llama.cpp's own attention."""
        if not isinstance(self._ctx, Context):
            raise OctavoError("This needs octavo's attention, and the model was loaded with attention='llama.cpp'.")
        return self._ctx

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

    def extend(
        self, tokens: Sequence[int], layers: list[tuple[np.ndarray, np.ndarray]], states: Sequence[KeptState] = ()
    ) -> None:
        """Add tokens whose keys and values are known from `KVCache.rows` of each layer.

        Parameters
        ----------
        states : sequence of KeptState
            In a hybrid model, the recurrent states to keep, in rising order: the last one is that after all tokens.
        """
        end = self.n_tokens + len(tokens)
        self.context.cache.append_rows(layers)
        self.context.put_states(states)
        self.input_ids[self.n_tokens : end] = tokens
        self.n_tokens = end
        self._requires_eval = True

    def generate(self, tokens: Sequence[int], *args: Any, **options: Any) -> Generator[int, Sequence[int] | None, None]:
        """Generate tokens, as `llama_cpp.Llama.generate` does.

        No draft is used if tokens are read one by one, or if tokens cannot be taken back: it would save nothing.
        """
        if options.get("reset", True):
            self._return_to_kept_state(tokens)
        with self._usable_draft():
            self._in_prompt = True
            yield from super().generate(tokens, *args, **options)

    def _n_predicting(self, n_tokens: int) -> int:
        """Return how many of the next n_tokens tokens are predicted from: the last ones."""
        in_prompt, self._in_prompt = self._in_prompt, False
        if self._arguments.get("logits_all") or (self.draft_model is not None and not in_prompt):
            return n_tokens
        return 1

    def _return_to_kept_state(self, tokens: Sequence[int]) -> None:
        """Go back to where tokens continue, if a recurrent state was kept there: the base class cannot."""
        if not isinstance(self._ctx, Context) or not self._ctx.is_hybrid:
            return
        n_same = n_common(self.sequence.tokens, tokens)
        if n_same == len(tokens) and (n_same < self.n_tokens or self._requires_eval):
            n_same -= 1  # a token to predict from
        n_usable = self.sequence.usable(n_same)
        if self._ctx.kv_cache_seq_rm(-1, n_usable, -1):
            self.n_tokens = n_usable

    @contextlib.contextmanager
    def _usable_draft(self) -> Iterator[None]:
        """Remove the draft model while it is useless; else limit its drafts to a batch."""
        draft, cache = self.draft_model, self._own_cache
        if draft is None or cache is None:
            yield
            return
        self.draft_model = partial(_drafted, draft, self.n_batch - 1)
        if cache.table.cuts or cache.evicts or self._ctx.is_hybrid:
            one_by_one = f"{self.attention} reads tokens one by one"
            why = "This model's recurrent state cannot be cut" if self._ctx.is_hybrid else one_by_one
            warnings.warn(f"{why}, so the draft model is not used.", stacklevel=4)
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

    def save_state(self) -> LlamaState:
        """Return the state as llama-cpp-python keeps it, with our cache in place of llama.cpp's."""
        if self.attention.is_llama_cpp:
            return super().save_state()
        cache = self._ctx.cache
        if cache.document is not None:
            raise OctavoError("The state over an attached document cannot be saved: the index holds the document.")
        rows = b"".join(part.tobytes() for layer in range(len(cache.layers)) for part in cache.rows(layer))
        rows += self._ctx.state_blob().tobytes()
        return LlamaState(
            input_ids=self.input_ids.copy(),
            scores=self._scores.copy(),
            n_tokens=self.n_tokens,
            llama_state=rows,
            llama_state_size=len(rows),
            seed=self._seed,
        )

    def load_state(self, state: LlamaState) -> None:
        """Restore a state of `save_state`. Raise OctavoError for the state of another model or attention."""
        if self.attention.is_llama_cpp:
            super().load_state(state)
            return
        cache, n_bytes = self._ctx.cache, len(state.llama_state)
        n_rows, is_hybrid = state.n_tokens * cache.row_bytes, self._ctx.is_hybrid
        if n_bytes < n_rows or (n_bytes > n_rows) != (is_hybrid and state.n_tokens > 0):
            raise OctavoError("This state was not saved by octavo with this model and these types of keys and values.")
        layers, at = [], 0
        for layer in cache.layers:
            rows = layer.new_rows(state.n_tokens)
            for array in rows:
                array.reshape(-1).view(np.uint8)[:] = np.frombuffer(state.llama_state, np.uint8)[at : at + array.nbytes]
                at += array.nbytes
            layers.append(rows)
        self._ctx.attach(None)
        self.n_tokens = 0
        blob = np.frombuffer(state.llama_state, np.uint8)[n_rows:]
        states = [KeptState(state.n_tokens, arrays_of(blob))] if is_hybrid else []
        self.extend(state.input_ids[: state.n_tokens], layers, states)
        self.scores[: len(state.scores)] = state.scores
        self._seed = state.seed

    def __getstate__(self) -> dict[str, Any]:
        """Return arguments that load the model as it is now, without its tokens, for `__setstate__`."""
        changed = {"seed": self._seed, "chat_format": self.chat_format, "chat_handler": self.chat_handler}
        state = {**self._arguments, **changed, "draft_model": self.draft_model, "model_path": self.model_path}
        return {**state, "attention": self.attention}


def _drafted(draft: Callable[[np.ndarray], np.ndarray], most: int, tokens: np.ndarray) -> np.ndarray:
    """Return a draft model's continuation of tokens, at most `most`: llama.cpp has the logits of one batch only."""
    return draft(tokens)[:most]
