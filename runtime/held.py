"""Several sequences of one model: the weights are loaded once, and a step computes a token of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llama_cpp import _internals as internals

from .llama import Llama
from .sequence import TokenSequence


@dataclass(eq=False)
class Held:
    """A sequence that a model holds, and what `Llama` knows of it while it computes others.

    Parameters
    ----------
    sequence : TokenSequence
        Its cache.
    input_ids : intc array, shape (n,)
        Its tokens, with room for more.
    n_tokens : int
        How many there are.
    attention, budget, chosen
        How it attends: as in `Llama`.
    n_ctx : int
        Most tokens that a token may see.
    """

    sequence: TokenSequence
    input_ids: np.ndarray
    n_tokens: int
    attention: str
    budget: float
    chosen: str
    n_ctx: int

    @property
    def tokens(self) -> np.ndarray:
        """View its tokens."""
        return self.input_ids[: self.n_tokens]


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
        self.current: Held = self._held(llama.context.sequence)

    def new(self) -> Held:
        """Return another sequence, empty, which attends as the model was told to. It is the current one."""
        llama, context = self._llama, self._llama.context
        attention, budget = self.current.attention, self.current.budget
        self._put_away()
        context.switch(context.new_sequence(context.cache.assignments))
        llama.input_ids, llama.n_tokens = np.zeros_like(llama.input_ids), 0
        llama.attention, llama.budget = attention, budget
        self.current = self._held(context.sequence)
        return self.current

    def take(self, held: Held) -> None:
        """Have the model go on with a sequence."""
        if held is self.current:
            return
        self._put_away()
        llama = self._llama
        llama.context.switch(held.sequence)
        llama.input_ids, llama.n_tokens = held.input_ids, held.n_tokens
        llama.attention, llama.budget, llama.chosen = held.attention, held.budget, held.chosen
        llama._n_ctx = held.n_ctx
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
        self._put_away()
        batch = self._batch.batch
        batch.n_tokens = len(held)
        for i, (each, token) in enumerate(zip(held, tokens, strict=True)):
            batch.token[i], batch.pos[i], batch.logits[i] = token, each.n_tokens, True
            batch.seq_id[i][0], batch.n_seq_id[i] = i, 1
        self._llama.context.decode_together(self._batch, [each.sequence for each in held])
        for each, token in zip(held, tokens, strict=True):
            if each.n_tokens == len(each.input_ids):
                each.input_ids = np.resize(each.input_ids, 2 * each.n_tokens)
            each.input_ids[each.n_tokens] = token
            each.n_tokens += 1
        self._llama.n_tokens, self._llama.input_ids = self.current.n_tokens, self.current.input_ids

    def _held(self, sequence: TokenSequence) -> Held:
        llama = self._llama
        return Held(
            sequence, llama.input_ids, llama.n_tokens, llama.attention, llama.budget, llama.chosen, llama.n_ctx()
        )

    def _put_away(self) -> None:
        """Take note of what the model knows of the current sequence."""
        vars(self.current).update(vars(self._held(self.current.sequence)))
