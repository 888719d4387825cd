"""Adapt the parts of llama-cpp-python that take the context for llama.cpp's own."""

from __future__ import annotations

import contextlib
import ctypes
import re
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp.llama import LlamaState
from llama_cpp.llama_tokenizer import LlamaTokenizer

from ..cpu_kernels.numba_support.shape import Q8_0
from ..errors import OctavoError
from .context import Context
from .document.kept_state import KeptState, arrays_of
from .methods.attention import Attention
from .sequences.sequence import TokenSequence, n_common, steps_within


class PromptTooLong(OctavoError, ValueError):
    """A prompt that exceeds the context; a ValueError, too, as in llama-cpp-python."""


class State(LlamaState):
    """A state as llama-cpp-python keeps it, and the tokens that were steps (see `TokenSequence`)."""

    steps: Sequence[int] = ()  # pickles of older versions have none


class Tokenizer(LlamaTokenizer):
    """llama-cpp-python's tokenizer, which loses tokens of more than 32 bytes, without that limit."""

    def detokenize(self, tokens: list[int], prev_tokens: list[int] | None = None, special: bool = False) -> bytes:
        """Return the text of tokens, without the blank that some models begin a text with."""
        text = b"".join(piece_of(self._model.vocab, token, special) for token in tokens)
        return text[1:] if tokens and tokens[0] == self._model.token_bos() and text.startswith(b" ") else text


def piece_of(vocab: Any, token: int, special: bool = False) -> bytes:
    """Return the bytes of a token's text; of control tokens only with `special`."""
    size = 32
    while True:
        buffer = ctypes.create_string_buffer(size)
        n_bytes = llama_cpp.llama_token_to_piece(vocab, token, buffer, size, 0, special)
        if n_bytes >= 0:
            return buffer.raw[:n_bytes]
        size = -n_bytes


class DropIn(llama_cpp.Llama):
    """`llama_cpp.Llama` whose context may be ours: drafts, caches of states, messages and pickles."""

    #: Set by `Llama` before the base class runs: its arguments, and the current sequence.
    sequence: TokenSequence
    _arguments: dict[str, Any]
    _in_prompt = False
    _shows_prompt = False
    _lock: threading.RLock
    _drawn: Sequence[int] = ()
    draft_model: Any
    cache: Any
    _requires_eval: bool

    def rewind(self, n_tokens: int) -> None:
        """Forget all but the first n_tokens tokens."""
        raise NotImplementedError

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

    def extend(
        self,
        tokens: Sequence[int],
        layers: list[tuple[np.ndarray, np.ndarray]],
        states: Sequence[KeptState] = (),
        steps: Sequence[int] = (),
    ) -> None:
        """Add tokens whose keys and values are known from `KVCache.rows` of each layer.

        Parameters
        ----------
        states : sequence of KeptState
            In a hybrid model, the recurrent states to keep, in rising order: the last one is that after all tokens.
        steps : sequence of int
            The tokens that were steps, as in `TokenSequence`.
        """
        end = self.n_tokens + len(tokens)
        with self.context.shielded():
            self.context.cache.append_rows(layers)
            self.context.put_states(states)
            self.input_ids[self.n_tokens : end] = tokens
            self.sequence.steps += steps_within(steps, self.n_tokens, end)
            self.n_tokens = end
            self._requires_eval = True

    def generate(self, tokens: Sequence[int], *args: Any, **options: Any) -> Generator[int, Sequence[int] | None, None]:
        """Generate tokens, as `llama_cpp.Llama.generate` does.

        No draft is used if tokens are read one by one, or if tokens cannot be taken back: it would save nothing.
        """
        drawn = self._drawn = list[int]()
        if options.get("reset", True):
            self._return_to_kept_state(tokens)
        with self._usable_draft():
            self._in_prompt = True
            with contextlib.closing(super().generate(tokens, *args, **options)) as generated:
                try:
                    drawn.append(next(generated))
                    while True:
                        more = yield drawn[-1]
                        if self._drawn is not drawn:
                            raise OctavoError(
                                "Another answer has begun on this model, which holds one at a time: draw answers one "
                                "after another."
                            )
                        drawn.append(generated.send(more))
                except StopIteration:
                    return
                finally:
                    self._in_prompt = False

    def _return_to_kept_state(self, tokens: Sequence[int]) -> None:
        """Go back to where tokens continue, if a recurrent state was kept there: the base class cannot."""
        if not isinstance(self._ctx, Context) or not self._ctx.is_hybrid:
            return
        n_same = n_common(self.sequence.tokens, tokens)
        if n_same == len(tokens) and (n_same < self.n_tokens or self._requires_eval):
            n_same -= 1  # a token to predict from
        self.rewind(n_same)

    @contextlib.contextmanager
    def _usable_draft(self) -> Iterator[None]:
        """Remove the draft model while it is useless; else limit its drafts to a batch."""
        draft = self.draft_model
        if draft is None or not isinstance(self._ctx, Context):
            yield
            return
        cache = self._ctx.cache
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
        return not isinstance(self._ctx, Context) or not (self._ctx.cache.evicts or self._ctx.cache.document)

    def tokenizer(self) -> LlamaTokenizer:
        """Return the model's tokenizer."""
        return Tokenizer(self)

    @property
    def _scores(self) -> np.ndarray:
        """Return the logits after each token.

        For the log probabilities of a whole text the base class pairs each token with the logits in its own place,
        which is right after a BOS token that it leaves out. Without one, the first token has none before it.
        """
        scores: np.ndarray = self.scores[: self.n_tokens]
        if self._shows_prompt and self.n_tokens and self.input_ids[0] != self.token_bos():
            return np.vstack([scores[:1], scores])
        return scores

    def create_completion(self, *args: Any, **options: Any) -> Any:
        """Complete a text as `llama_cpp.Llama.create_completion` does. Threads take turns."""
        with self._lock:
            return super().create_completion(*args, **options)

    def sample(self, *args: Any, **options: Any) -> int:
        """Draw a token as `llama_cpp.Llama.sample` does."""
        with self._lock:
            if isinstance(self._ctx, Context) and (place := self._ctx.place_of_logits(-1)) >= 0:
                options["idx"] = self.n_tokens + place
            return int(super().sample(*args, **options))

    def _create_completion(self, *args: Any, **options: Any) -> Iterator[Any]:
        """Complete a text. The error for a longer text names the length of our context, not of a batch."""
        states, stop, is_stream = self.cache, options.get("stop") or [], bool(options.get("stream"))
        stop, prompt = [stop] if isinstance(stop, str) else stop, options.get("prompt", "")
        shown = "" if not options.get("echo") or is_stream else prompt
        if options.get("suffix") is not None:
            options |= {"prompt": self._to_fill(prompt, options["suffix"]), "suffix": None}
        if shown and isinstance(options["prompt"], list):  # the base class adds texts only
            options["echo"] = False
        elif shown:
            self._shows_prompt, shown = options.get("logprobs") is not None, ""
        if not self._keeps_states:
            self.cache = None
        try:
            for completion in super()._create_completion(*args, **options):
                if not is_stream:
                    choice = completion["choices"][0]
                    if len(stop) > 1 and choice["finish_reason"] == "stop":
                        choice["text"] = (prompt if options.get("echo") else "") + self._text_before(stop)
                    if isinstance(shown, list):
                        shown = self.detokenize(shown).decode("utf-8", "ignore")
                    choice["text"] = shown + choice["text"]
                yield completion
        except ValueError as problem:
            message = re.sub(r"(exceed context window of) \d+", rf"\1 {self._n_ctx}", str(problem))
            if message == str(problem):
                raise
            raise PromptTooLong(f"{message}: give a larger context (n_ctx), or a shorter prompt.") from None
        finally:
            self.cache, self._shows_prompt = states, False

    def _text_before(self, stop: Sequence[str]) -> str:
        """Return the last answer before the first stop sequence in it: the base class takes the first of the list."""
        text: bytes = self.detokenize(list(self._drawn))
        ends = [text.find(each.encode()) for each in stop if each]
        return text[: min((end for end in ends if end >= 0), default=len(text))].decode("utf-8", "ignore")

    def _to_fill(self, prompt: str | list[int], suffix: str) -> list[int]:
        """Return the tokens of a prompt for the text before a suffix: the base class takes wrong ones for marks.

        Raise OctavoError if the model has no tokens for that.
        """
        marks = self._model.token_prefix(), self._model.token_suffix(), self._model.token_middle()
        if min(marks) < 0:
            raise OctavoError("This model cannot complete a text before a suffix: leave out `suffix`.")
        tokens = self.tokenize(prompt.encode(), add_bos=False) if isinstance(prompt, str) else prompt
        before, after = [marks[0], *tokens], [marks[1], *self.tokenize(suffix.encode(), add_bos=False)]
        start = [self.token_bos()] if self._model.add_bos_token() and self.token_bos() >= 0 else []
        return [*start, *(after + before if self.spm_infill else before + after), marks[2]]

    @property
    def _rows_mark(self) -> bytes:
        """Return the end of a state of rows that octavo before 0.4 would read wrongly: those of q8_0 are rotated."""
        return Q8_0.encode() if self._ctx.cache.layers[0].kv_type == Q8_0 else b""

    def save_state(self) -> LlamaState:
        """Return the state as llama-cpp-python keeps it, with our cache in place of llama.cpp's."""
        if self.attention.is_llama_cpp:
            return super().save_state()
        cache = self._ctx.cache
        if cache.document is not None:
            raise OctavoError("The state over an attached document cannot be saved: the index holds the document.")
        rows = b"".join(part.tobytes() for layer in range(len(cache.layers)) for part in cache.rows(layer))
        rows += self._ctx.state_blob().tobytes()
        rows += self._rows_mark
        kept = State(
            input_ids=self.input_ids.copy(),
            scores=self._scores.copy(),
            n_tokens=self.n_tokens,
            llama_state=rows,
            llama_state_size=len(rows),
            seed=self._seed,
        )
        kept.steps = steps_within(self.sequence.steps, 0, self.n_tokens)
        return kept

    def load_state(self, state: LlamaState) -> None:
        """Restore a state of `save_state`. Raise OctavoError for the state of another model or attention."""
        if self.attention.is_llama_cpp:
            super().load_state(state)
            return
        cache, content = self._ctx.cache, state.llama_state.removesuffix(self._rows_mark)
        n_bytes, is_marked = len(content), state.llama_state.endswith(self._rows_mark)
        n_rows, is_hybrid = state.n_tokens * cache.row_bytes, self._ctx.is_hybrid
        if not is_marked or n_bytes < n_rows or (n_bytes > n_rows) != (is_hybrid and state.n_tokens > 0):
            raise OctavoError("This state was not saved by octavo with this model and these types of keys and values.")
        layers, at = [], 0
        for layer in cache.layers:
            rows = layer.new_rows(state.n_tokens)
            for array in rows:
                array.reshape(-1).view(np.uint8)[:] = np.frombuffer(content, np.uint8)[at : at + array.nbytes]
                at += array.nbytes
            layers.append(rows)
        self._ctx.attach(None)
        self.n_tokens = 0
        blob = np.frombuffer(content, np.uint8)[n_rows:]
        states = [KeptState(state.n_tokens, arrays_of(blob))] if len(blob) else []
        self.extend(state.input_ids[: state.n_tokens], layers, states, getattr(state, "steps", ()))
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
