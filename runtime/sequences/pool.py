"""Several sequences of one model: the weights are loaded once, and a step computes a token of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llama_cpp import _internals as internals

from ..llama import Llama
from ..methods.attention import Attention


@dataclass
class _State:
    """What `Llama` knows of a sequence, kept while it computes another one."""

    input_ids: np.ndarray
    n_tokens: int
    attention: Attention
    resolved_attention: Attention
    n_ctx: int

    @classmethod
    def of(cls, llama: Llama) -> _State:
        """Take down what a model knows now."""
        return cls(llama.input_ids, llama.n_tokens, llama.attention, llama.resolved_attention, llama.n_ctx())

    def restore(self, llama: Llama) -> None:
        """Have the model know it again."""
        llama.input_ids, llama.n_tokens = self.input_ids, self.n_tokens
        llama.attention, llama.resolved_attention = self.attention, self.resolved_attention
        llama._n_ctx = self.n_ctx


class Held:
    """A sequence that a model holds.

    Parameters
    ----------
    llama : Llama
        The model, which computes it now.

    Attributes
    ----------
    sequence : TokenSequence
        Its cache.
    """

    def __init__(self, llama: Llama) -> None:
        self.sequence = llama.context.sequence
        self._now: Llama | _State = llama

    @property
    def n_tokens(self) -> int:
        """Return how many tokens it has."""
        return int(self._now.n_tokens)

    @property
    def tokens(self) -> np.ndarray:
        """View its tokens."""
        tokens: np.ndarray = self._now.input_ids[: self._now.n_tokens]
        return tokens

    @property
    def attention(self) -> Attention:
        """Return how it attends."""
        return self._now.attention

    def put_away(self) -> None:
        """Take note that the model goes on with another sequence."""
        if not isinstance(self._now, _State):
            self._now = _State.of(self._now)

    def bring_back(self, llama: Llama) -> None:
        """Have the model go on with it."""
        if isinstance(self._now, _State):
            llama.context.switch(self.sequence)
            self._now.restore(llama)
            self._now = llama

    def append(self, token: int) -> None:
        """Take note of a token that was read in a step of several sequences."""
        now = self._now
        if now.n_tokens == len(now.input_ids):
            now.input_ids = np.resize(now.input_ids, 2 * now.n_tokens)
        now.input_ids[now.n_tokens] = token
        now.n_tokens += 1


class HeldSequences:
    """The sequences of a model. Its methods are called from one thread, and nobody else evaluates on the model.

    Parameters
    ----------
    llama : Llama
        The model. What it holds becomes the first sequence.
    """

    def __init__(self, llama: Llama) -> None:
        self._llama = llama
        n_together = max(llama.context.most_together, 1)
        self._batch = internals.LlamaBatch(n_tokens=n_together, embd=0, n_seq_max=1, verbose=False)
        self.current = Held(llama)

    def new(self) -> Held:
        """Return another sequence, empty, which attends as the current one does. It is the current one then."""
        llama, context = self._llama, self._llama.context
        self.current.put_away()
        context.switch(context.new_sequence(context.cache.assignments))
        llama.input_ids, llama.n_tokens = np.zeros_like(llama.input_ids), 0
        self.current = Held(llama)
        return self.current

    def fork(self, held: Held, n_tokens: int) -> Held:
        """Return another sequence that begins as one does, in the same memory. It is the current one then.

        Parameters
        ----------
        held : Held
            A sequence whose attention evicts no rows.
        n_tokens : int
            How many of its tokens to take: no fewer than those of its document.
        """
        self.take(held)
        tokens = held.tokens[:n_tokens].copy()
        forked, llama = self.new(), self._llama
        llama.context.cache.fork(held.sequence.cache, n_tokens)
        llama.input_ids[:n_tokens], llama.n_tokens = tokens, n_tokens
        return forked

    def take(self, held: Held) -> None:
        """Have the model go on with a sequence."""
        if held is not self.current:
            self.current.put_away()
            held.bring_back(self._llama)
            self.current = held

    @property
    def most_together(self) -> int:
        """Return how many sequences `step` can compute."""
        return self._llama.context.most_together

    def step(self, held: Sequence[Held], tokens: Sequence[int]) -> None:
        """Evaluate a token of each of some sequences; logits come in their order.

        Parameters
        ----------
        held : sequence of Held
            The sequences, at most `most_together`.
        tokens : sequence of int
            A token for each.

        Raises
        ------
        OctavoError
            A sequence has no room, or memory does not suffice. Then none of them has changed.
        """
        if len(held) == 1:  # devices that compute sequences in turns have no other way
            self.take(held[0])
            self._llama.eval(list(tokens))
            return
        batch = self._batch.batch
        batch.n_tokens = len(held)
        for i, (each, token) in enumerate(zip(held, tokens, strict=True)):
            batch.token[i], batch.pos[i], batch.logits[i] = token, each.n_tokens, True
            batch.seq_id[i][0], batch.n_seq_id[i] = i, 1
        self._llama.context.decode_together(self._batch, [each.sequence for each in held])
        for each, token in zip(held, tokens, strict=True):
            each.append(token)
