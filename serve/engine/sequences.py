"""The conversations that the model holds: find the one that a request continues, and rows of its prompt on disk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from ...ask.chats.chat_file import Conversation, hash_tokens
from ...ask.context.answer_context import Context
from ...convert.prefix_reuse import KnownRows, keep_all_rows
from ...errors import OctavoError
from ...library.source_text import SourceText
from ...runtime.cache.kv_cache import KVCache
from ...runtime.document.cache_layer import Rows
from ...runtime.document.kept_state import KeptState
from ...runtime.llama import Llama
from ...runtime.methods.attention import Attention
from ...runtime.sequence_pool import SequencePool
from ...runtime.sequences.sequence import TokenSequence, n_common, steps_within
from ..request_error import RequestError
from .prompt_cache import PromptCache
from .running_request import RunningRequest

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

#: Smallest number of tokens worth copying from elsewhere.
FEWEST = 32

#: New tokens after which a prompt is kept on disk again, and after which a hybrid model's recurrent state is kept.
KEPT_EVERY = 1024

#: Largest number of idle sequences.
_MOST_IDLE = 64


@dataclass(frozen=True)
class _StoredRows:
    """Rows of a prompt's first tokens on disk, and recurrent states: those after the index, if one is attached."""

    n_tokens: int
    read: Callable[[], tuple[list[Rows], Sequence[KeptState], Sequence[int]]]


class OpenDocuments(Protocol):
    """Indexed documents that prompts may begin with."""

    def begun_by(self, tokens: np.ndarray) -> Context | None:
        """Find the longest document that a prompt begins with."""

    def shares_most(self, tokens: np.ndarray, least: int) -> tuple[int, Context | None]:
        """Find the document with the longest common prefix with a prompt, of a least length; return the length, too."""


class Sequences:
    """The sequences of the model, idle ones included. Only the engine's thread uses it.

    Parameters
    ----------
    llama : Llama
        The model, which is empty.
    prompt_cache : PromptCache
        Prompts on disk.
    documents : OpenDocuments
        The documents of the library.
    idle_bytes : int
        Memory limit for keys and values of idle sequences.
    """

    def __init__(self, llama: Llama, prompt_cache: PromptCache, documents: OpenDocuments, idle_bytes: int) -> None:
        self._llama, self._prompt_cache, self._documents, self._idle_bytes = llama, prompt_cache, documents, idle_bytes
        self._pool = SequencePool(llama)
        self._attention = llama.attention
        self._idle: list[TokenSequence] = [self._pool.current]  # least recently used first
        self._running: list[TokenSequence] = []
        self._contexts: dict[TokenSequence, Context | None] = {self._pool.current: None}

    def warm_up(self) -> None:
        """Compile the kernels for steps of one and of several sequences, so that no request waits for them."""
        first, token = self._pool.current, self._llama.token_bos()
        both = [first, self._pool.new()] if self.most_together > 1 else [first]
        for sequence in both:
            self._pool.take(sequence)
            self._llama.eval([max(token, 0)] * 2)
        self._pool.step(both, [max(token, 0)] * len(both))
        for sequence in both:
            self._pool.take(sequence)
            self._llama.reset()
        self._pool.take(first)

    @property
    def most_together(self) -> int:
        """Return the largest number of sequences of a step."""
        return self._pool.most_together

    @property
    def n_tokens(self) -> int:
        """Return the number of tokens of all sequences after their documents."""
        return sum(sequence.n_tokens - self._n_document(sequence) for sequence in [*self._idle, *self._running])

    def begin(self, running: RunningRequest) -> None:
        """Give a request a sequence that holds as much of its prompt as possible.

        Raise OctavoError if the attention cannot be used, the document's index has changed, or memory does not suffice
        for the prompt.
        """
        request = running.request
        attention, context = request.generation.attention or self._attention, request.context
        tokens = np.asarray(request.tokens, np.int32)
        if context is not None:
            context.index.check()
            tokens = np.concatenate([context.index.tokens, tokens])
        steps: Sequence[int] = []
        if request.generation.of_prompt:  # its logits have to be computed
            sequence = self._fresh(attention, context)
        else:
            sequence, steps = self._with_most(tokens[:-1], attention, context)
        try:
            self._pool.take(sequence)
            llama, cache = self._llama, sequence.cache
            llama.context.check_room(len(tokens) - llama.n_tokens)
            cache.check_memory(len(tokens) - cache.n_document)
            longest = min(llama.longest, len(tokens) + llama.n_ctx())  # some attentions have no limit
            steps = steps_within(steps if cache.table.depends_on_steps else [], llama.n_tokens, len(tokens))
            running.start(llama, sequence, tokens[llama.n_tokens :].tolist(), steps, longest)
        except BaseException:
            self._idle.append(sequence)
            raise
        self._running.append(sequence)

    def aside(self, steps: Generator[object, None, _Result]) -> Generator[None, None, _Result]:
        """Lend the model an empty sequence for the steps of another computation, and empty it again afterwards.

        The model may compute other sequences between the steps.
        """
        sequence = self._fresh(self._attention, None)
        try:
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                yield
                self._pool.take(sequence)
        finally:
            self._pool.take(sequence)
            steps.close()
            self._llama.reset()
            self._idle.append(sequence)

    def take(self, sequence: TokenSequence) -> None:
        """Make a sequence the model's current one."""
        self._pool.take(sequence)

    def read(self, tokens: list[int], is_step: bool, is_last: bool) -> None:
        """Read a batch of the current sequence's prompt, or a step of it; predict from the last one."""
        recurrent, llama = self._pool.current.recurrent, self._llama
        if recurrent is not None and llama.n_tokens - recurrent.last(llama.n_tokens).n_tokens >= KEPT_EVERY:
            llama.context.keep_state()
        if is_last:
            llama.eval_prompt(tokens)
        else:
            llama.prefill(tokens, [llama.n_tokens] if is_step else ())

    def step(self, sequences: list[TokenSequence], tokens: list[int]) -> None:
        """Read a token of each of several sequences, in one step."""
        self._pool.step(sequences, tokens)

    def end(self, sequence: TokenSequence) -> None:
        """Take back a request's sequence; the next request may continue it."""
        self._running.remove(sequence)
        self._idle.append(sequence)
        self._free_idle()

    def keep(self, sequence: TokenSequence) -> None:
        """Keep a long prompt on disk, unless most of it is there already. An answer does not depend on it."""
        try:
            self._keep(sequence)
        except Exception:  # such as memory that does not suffice for a copy
            _log.exception("A prompt is not kept.")

    def _keep(self, sequence: TokenSequence) -> None:
        tokens, n_document = sequence.tokens, self._n_document(sequence)
        if len(tokens) - n_document < KEPT_EVERY or not _keeps_rows(sequence.cache):
            return
        follows = hash_tokens(tokens[:n_document])
        if self._prompt_cache.longest(follows, tokens[n_document:])[0] + KEPT_EVERY <= len(tokens) - n_document:
            self._pool.take(sequence)
            self._prompt_cache.keep(Conversation.of(self._llama, n_document, [], None))

    def forget(self, is_removed: Callable[[SourceText], bool]) -> None:
        """Forget idle sequences over a removed document, or over excerpts of it."""
        for sequence in self._idle:
            context = self._contexts[sequence]
            if context is not None and any(map(is_removed, context.documents)):
                self._pool.take(sequence)
                self._llama.reset()
                self._contexts[sequence] = None

    def close(self) -> None:
        """Keep the long prompts of idle sequences."""
        for sequence in self._idle:
            self.keep(sequence)

    def _n_document(self, sequence: TokenSequence) -> int:
        context = self._contexts[sequence]
        return len(context.index.tokens) if context else 0

    def _with_most(
        self, tokens: np.ndarray, attention: Attention, context: Context | None
    ) -> tuple[TokenSequence, Sequence[int]]:
        """Find or make the sequence that holds most of a prompt's first tokens, and make it current.

        Return also which of the tokens that it may have to read again were steps.
        """
        context = context or self._documents.begun_by(tokens)
        n_near, near = self._nearest(tokens, attention)
        n_forked, forked = self._most_shared(tokens, attention)
        steps: Sequence[int] = []
        stored = max(self._elsewhere(tokens, context), key=lambda stored: stored.n_tokens)
        # An idle sequence goes on in place, so it wins even if the others hold a few tokens more: to evaluate those
        # takes less than to fork a sequence, or to load rows from disk. A fork costs no reading, so it beats the disk.
        if near is not None and n_near + FEWEST > max(stored.n_tokens, n_forked):
            self._pool.take(near)
            steps = near.common_steps(tokens)
            self._llama.rewind(n_near)
            self._idle.remove(near)
            return near, steps
        if forked is not None and n_forked >= stored.n_tokens:
            sequence = self._pool.fork(forked, n_forked)
            self._contexts[sequence] = self._contexts[forked]
            return sequence, forked.common_steps(tokens)
        sequence = self._fresh(attention, context)
        if stored.n_tokens > sequence.n_tokens and not sequence.cache.evicts:
            try:
                rows, states, steps = stored.read()
                new = tokens[sequence.n_tokens : stored.n_tokens].tolist()
                usable = [state for state in states if sequence.n_tokens < state.n_tokens <= stored.n_tokens]
                self._llama.extend(new, rows, usable, steps)
            except OctavoError as problem:
                _log.warning("Rows of a prompt on disk cannot be used: %s", problem)
        return sequence, steps

    def _nearest(self, tokens: np.ndarray, attention: Attention) -> tuple[int, TokenSequence | None]:
        """Find the idle sequence that shares most with a prompt, and at least as much as it would have to forget."""
        best, found = 0, None
        for sequence in self._idle:
            n, n_document = self._n_usable(sequence, tokens, attention), self._n_document(sequence)
            if n > best and 2 * (n - n_document) >= sequence.n_tokens - n_document:
                best, found = n, sequence
        return best, found

    def _n_usable(self, sequence: TokenSequence, tokens: np.ndarray, attention: Attention) -> int:
        """Return how many first tokens of a prompt a sequence holds, and can go back to."""
        n, cache = sequence.usable(n_common(sequence.tokens, tokens)), sequence.cache
        goes_back = n == sequence.n_tokens or _keeps_rows(cache)
        return n if sequence.attention == attention and goes_back and n >= self._n_document(sequence) else 0

    def _most_shared(self, tokens: np.ndarray, attention: Attention) -> tuple[int, TokenSequence | None]:
        """Find the sequence that shares most with a prompt, and can share its memory."""
        able = [sequence for sequence in [*self._idle, *self._running] if _keeps_rows(sequence.cache)]
        shared = ((self._n_usable(sequence, tokens, attention), sequence) for sequence in able)
        n, found = max(shared, key=lambda n_and_sequence: n_and_sequence[0], default=(0, None))
        return (n, found) if n >= FEWEST else (0, None)

    def _elsewhere(self, tokens: np.ndarray, context: Context | None) -> Iterator[_StoredRows]:
        """Find rows of a prompt's first tokens on disk, for a sequence that begins with the context."""
        n_document = len(context.index.tokens) if context else 0
        yield _StoredRows(n_document, lambda: ([], [], []))
        least = n_document + FEWEST
        n_kept, prompt = self._prompt_cache.longest(hash_tokens(tokens[:n_document]), tokens[n_document:])
        if prompt is not None and n_document + n_kept >= least:
            n_same = n_document + n_kept
            usable = self._restorable(n_same, prompt.state_ends)
            yield _StoredRows(usable, lambda: _first_rows(self._prompt_cache.read(prompt), usable - n_document, n_same))
        if context is None:
            n, found = self._documents.shares_most(tokens, least)
            if found is not None and keep_all_rows(found.index.layers):
                n, stored = self._restorable(n, [state.n_tokens for state in found.index.states]), found.index
                yield _StoredRows(n, lambda: (KnownRows(stored.layers, n).rows(0, n), stored.states, []))

    def _restorable(self, n_tokens: int, state_ends: Sequence[int]) -> int:
        """Return how many of n_tokens stored tokens can be restored: a hybrid model needs a recurrent state there."""
        if not self._llama.context.is_hybrid:
            return n_tokens
        return max((end for end in state_ends if end <= n_tokens), default=0)

    def _fresh(self, attention: Attention, context: Context | None) -> TokenSequence:
        """Make a sequence current that holds the context alone, and return it."""
        sequence = next((sequence for sequence in self._idle if sequence.n_tokens == 0), None)
        if sequence is None:
            sequence = self._pool.new()
        else:
            self._idle.remove(sequence)
            self._pool.take(sequence)
        self._contexts[sequence] = None
        llama = self._llama
        try:
            if llama.attention != attention:
                try:
                    llama.set_attention(attention)
                except OctavoError as problem:
                    raise RequestError(str(problem), param="attention") from problem
            if context is not None:
                llama.attach(context.index)
                self._contexts[sequence] = context
        except BaseException:
            self._idle.append(sequence)
            llama.reset()
            raise
        return sequence

    def _free_idle(self) -> None:
        """Free the least recently used idle sequences while they exceed the memory limit."""
        while len(self._idle) > 1 and (len(self._idle) > _MOST_IDLE or self._bytes_of_idle() > self._idle_bytes):
            sequence = self._idle[0]
            self.keep(sequence)
            self._idle.remove(sequence)
            if sequence is self._pool.current:
                self._pool.take(self._idle[-1])
            del self._contexts[sequence]

    def _bytes_of_idle(self) -> int:
        """Return the memory of idle sequences' keys and values, without mapped ones; shared ones count once."""
        tails = [tail for sequence in self._idle for tail in sequence.cache.tails]
        chunks = {id(chunk): chunk.n_own_bytes for tail in tails for chunk in tail.chunks if chunk is not None}
        states = sum(sequence.recurrent.n_bytes for sequence in self._idle if sequence.recurrent is not None)
        contexts = {self._contexts[sequence] for sequence in self._idle}
        own = {id(each.index): each.index.n_bytes for each in contexts if each is not None and not each.is_whole}
        return sum(chunks.values()) + states + sum(own.values())


def _keeps_rows(cache: KVCache) -> bool:
    """Return whether a cache keeps all rows where they were read."""
    return not (cache.evicts or cache.origin)


def _first_rows(
    prompt: Conversation, n_rows: int, n_same: int
) -> tuple[list[Rows], Sequence[KeptState], Sequence[int]]:
    """Return the first rows of a prompt, its recurrent states, and the steps among its first n_same tokens."""
    rows = [(keys[:, :n_rows], values[:, :n_rows]) for keys, values in prompt.rows]
    return rows, prompt.states, steps_within(prompt.steps, 0, n_same)
