"""The conversations that the model holds: which one a request goes on with, and what is known of its prompt."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from ...ask.conversation import Conversation, hash_tokens
from ...convert.prefix_reuse import KnownRows, keep_all_rows
from ...errors import OctavoError
from ...runtime.cache.kv_cache import KVCache
from ...runtime.document.cache_layer import Rows
from ...runtime.llama import Llama
from ...runtime.methods.attention import Attention
from ...runtime.sequences.pool import Held, HeldSequences
from ..http.api_error import RequestError
from ..library.open_document import Opened
from ..library.served_library import Documents
from .prompt_cache import KeptPrompts, n_common
from .request import Request
from .running_request import Running

_log = logging.getLogger(__name__)

#: Fewest tokens that are worth taking from elsewhere: copying them costs as much as reading some.
FEWEST = 32

#: Tokens that are read anew at most before a prompt is kept on disk again.
KEPT_EVERY = 1024

#: Most idle sequences, however short.
_MOST_IDLE = 64


@dataclass(frozen=True)
class _Known:
    """Where rows of a prompt's first tokens can be had: after those of the index, if one is attached."""

    n_tokens: int
    rows: Callable[[], list[Rows]]


class Sequences:
    """The sequences of the model, idle ones among them. It is used by the engine's thread alone.

    Parameters
    ----------
    llama : Llama
        The model, which is empty.
    kept : KeptPrompts
        Prompts on disk.
    documents : Documents
        The library: a prompt may begin with the text of one of its documents.
    idle_bytes : int
        Memory that keys and values of idle sequences may take.
    """

    def __init__(self, llama: Llama, kept: KeptPrompts, documents: Documents, idle_bytes: int) -> None:
        self._llama, self._kept, self._documents, self._idle_bytes = llama, kept, documents, idle_bytes
        self._held = HeldSequences(llama)
        self._attention = llama.attention
        self._idle: list[Held] = [self._held.current]  # those used last at the end
        self._running: list[Held] = []
        self._documents_of: dict[Held, Opened | None] = {self._held.current: None}

    def warm_up(self) -> None:
        """Compile what steps of one and of several sequences need, so that no request waits for it."""
        first, token = self._held.current, self._llama.token_bos()
        both = [first, self._held.new()] if self.most_together > 1 else [first]
        for held in both:
            self._held.take(held)
            self._llama.eval([max(token, 0)] * 2)
        self._held.step(both, [max(token, 0)] * len(both))
        for held in both:
            self._held.take(held)
            self._llama.reset()
        self._held.take(first)

    @property
    def most_together(self) -> int:
        """Return how many sequences one step can compute."""
        return self._held.most_together

    @property
    def n_tokens(self) -> int:
        """Return how many tokens all sequences hold after their documents."""
        return sum(held.n_tokens - self._n_document(held) for held in [*self._idle, *self._running])

    def attention_of(self, request: Request) -> Attention:
        """Return how a request's sequence attends: as the server does, unless the request says otherwise.

        Raises
        ------
        OctavoError
            The request's words do not compose.
        """
        if request.attention is None:
            return self._attention
        attention = self._attention.parsed(request.attention)
        if attention.is_llama_cpp:
            raise OctavoError("The server computes octavo's attention: choose another than llama.cpp.")
        return replace(attention, budget=self._attention.budget)

    def begin(self, running: Running) -> None:
        """Give a request a sequence that holds as much of its prompt as is known.

        Raises
        ------
        OctavoError
            The attention cannot be used, the document's index has changed, or the prompt fits no memory.
        """
        request = running.request
        attention, document = self.attention_of(request), request.document
        tokens = np.asarray(request.tokens, np.int32)
        if document is not None:
            document.index.check()
            tokens = np.concatenate([document.index.tokens, tokens])
        if request.of_prompt:  # all of it has to be computed
            held = self._fresh(attention, document)
        else:
            held = self._with_most(tokens[:-1], attention, document)
        try:
            self._held.take(held)
            llama, cache = self._llama, held.sequence.cache
            llama.context.check_room(len(tokens) - llama.n_tokens)
            cache.check_memory(len(tokens) - cache.n_document)
            longest = min(llama.longest, len(tokens) + llama.n_ctx())  # some attentions have no end
            running.start(llama, held, tokens[llama.n_tokens :].tolist(), longest)
        except BaseException:
            self._idle.append(held)
            raise
        self._running.append(held)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Have the model compute something else, on an empty sequence that is empty again afterwards."""
        held = self._fresh(self._attention, None)
        try:
            yield
        finally:
            self._held.take(held)
            self._llama.reset()
            self._idle.append(held)

    def take(self, held: Held) -> None:
        """Have the model go on with a sequence."""
        self._held.take(held)

    def step(self, held: list[Held], tokens: list[int]) -> None:
        """Read a token of each of some sequences, in one step."""
        self._held.step(held, tokens)

    def end(self, held: Held) -> None:
        """Take back a request's sequence: the next request may go on with it."""
        self._running.remove(held)
        self._idle.append(held)
        self._free_idle()

    def keep(self, held: Held) -> None:
        """Keep a long prompt on disk that was read, unless most of it is there already."""
        cache, n_document = held.sequence.cache, self._n_document(held)
        if held.n_tokens - n_document < KEPT_EVERY or not _keeps_rows(cache):
            return
        self._held.take(held)
        tokens = held.tokens
        follows = hash_tokens(tokens[:n_document])
        if self._kept.longest(follows, tokens[n_document:])[0] + KEPT_EVERY <= len(tokens) - n_document:
            self._kept.keep(Conversation.of(self._llama, n_document, [], None))

    def forget(self, document_id: str) -> None:
        """Forget idle sequences over a document that is removed, or over excerpts of it."""
        for held in self._idle:
            own = self._documents_of[held]
            if own is not None and any(each.id == document_id for each in own.documents):
                self._held.take(held)
                self._llama.reset()
                self._documents_of[held] = None

    def close(self) -> None:
        """Keep the long prompts of idle sequences."""
        for held in self._idle:
            self.keep(held)

    def _n_document(self, held: Held) -> int:
        document = self._documents_of[held]
        return document.n_tokens if document else 0

    def _with_most(self, tokens: np.ndarray, attention: Attention, document: Opened | None) -> Held:
        """Find or make a sequence that holds the most of a prompt's first tokens. It is the current one."""
        document = document or self._documents.begun_by(tokens)
        n_near, near = self._nearest(tokens, attention)
        n_forked, forked = self._most_shared(tokens, attention)
        known = max(self._elsewhere(tokens, document), key=lambda known: known.n_tokens)
        if near is not None and n_near + FEWEST > max(known.n_tokens, n_forked):
            self._idle.remove(near)
            self._held.take(near)
            self._llama.rewind(n_near)
            return near
        if forked is not None and n_forked >= known.n_tokens:
            held = self._held.fork(forked, n_forked)
            self._documents_of[held] = self._documents_of[forked]
            return held
        held = self._fresh(attention, document)
        if known.n_tokens > held.n_tokens and not held.sequence.cache.evicts:
            try:
                self._llama.extend(tokens[held.n_tokens : known.n_tokens].tolist(), known.rows())
            except OctavoError as problem:
                _log.warning("What is known of a prompt cannot be used: %s", problem)
        return held

    def _nearest(self, tokens: np.ndarray, attention: Attention) -> tuple[int, Held | None]:
        """Find the idle sequence that shares most with a prompt, and no less than it would have to forget."""
        best, found = 0, None
        for held in self._idle:
            n = self._n_usable(held, tokens, attention)
            own = held.n_tokens - self._n_document(held)
            if n > best and 2 * (n - self._n_document(held)) >= own:
                best, found = n, held
        return best, found

    def _n_usable(self, held: Held, tokens: np.ndarray, attention: Attention) -> int:
        """First tokens of a prompt that a sequence holds, and can go back to."""
        n, cache = n_common(held.tokens, tokens), held.sequence.cache
        goes_back = n == held.n_tokens or _keeps_rows(cache)
        return n if held.attention == attention and goes_back and n >= self._n_document(held) else 0

    def _most_shared(self, tokens: np.ndarray, attention: Attention) -> tuple[int, Held | None]:
        """Find the sequence that shares most with a prompt, and can share its memory."""
        able = [held for held in [*self._idle, *self._running] if _keeps_rows(held.sequence.cache)]
        shared = ((self._n_usable(held, tokens, attention), held) for held in able)
        n, held = max(shared, key=lambda each: each[0], default=(0, None))
        return (n, held) if n >= FEWEST else (0, None)

    def _elsewhere(self, tokens: np.ndarray, document: Opened | None) -> Iterator[_Known]:
        """Find where on disk rows of a prompt's first tokens lie, for a sequence that begins with the document."""
        n_document = document.n_tokens if document else 0
        yield _Known(n_document, list)
        least = n_document + FEWEST
        n_kept, kept = self._kept.longest(hash_tokens(tokens[:n_document]), tokens[n_document:])
        if kept is not None and n_document + n_kept >= least:
            yield _Known(n_document + n_kept, lambda: _first_rows(self._kept.read(kept).rows, n_kept))
        if document is None:
            n, index = self._documents.shares_most(tokens)
            if index is not None and n >= least and keep_all_rows(index.index.layers):
                yield _Known(n, lambda: KnownRows(index.index.layers, n).rows(0, n))

    def _fresh(self, attention: Attention, document: Opened | None) -> Held:
        """A sequence that holds the document, and nothing after it. It is the current one."""
        held = next((held for held in self._idle if held.n_tokens == 0), None)
        if held is None:
            held = self._held.new()
        else:
            self._idle.remove(held)
            self._held.take(held)
        self._documents_of[held] = None
        llama = self._llama
        try:
            if llama.attention != attention:
                try:
                    llama.set_attention(attention)
                except OctavoError as problem:
                    raise RequestError(str(problem), param="attention") from problem
            if document is not None:
                llama.attach(document.index)
                self._documents_of[held] = document
        except BaseException:
            llama.reset()
            self._idle.append(held)
            raise
        return held

    def _free_idle(self) -> None:
        """Free the idle sequences that were not used for longest, as far as they take too much memory."""
        while len(self._idle) > 1 and (len(self._idle) > _MOST_IDLE or self._bytes_of_idle() > self._idle_bytes):
            held = self._idle[0]
            self.keep(held)
            self._idle.remove(held)
            if held is self._held.current:
                self._held.take(self._idle[-1])
            del self._documents_of[held]

    def _bytes_of_idle(self) -> int:
        """Memory of idle sequences' keys and values, but for those that are mapped; what is shared counts once."""
        tails = [tail for held in self._idle for tail in held.sequence.cache.tails]
        chunks = {id(chunk): chunk.nbytes for tail in tails for chunk in tail.chunks if chunk is not None}
        opened = {own for held in self._idle if (own := self._documents_of[held]) is not None}
        return sum(chunks.values()) + sum(own.n_bytes for own in opened)


def _keeps_rows(cache: KVCache) -> bool:
    """Whether a cache keeps all rows, where they were read."""
    return not (cache.evicts or cache.origin)


def _first_rows(rows: list[Rows], n_rows: int) -> list[Rows]:
    return [(keys[:, :n_rows], values[:, :n_rows]) for keys, values in rows]
