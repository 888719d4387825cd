"""Hold several sequences of one model: the weights are loaded once, and a step computes a token of each."""

from __future__ import annotations

from collections.abc import Sequence

from llama_cpp import _internals as internals

from .llama import Llama
from .sequences.sequence import TokenSequence


class SequencePool:
    """The sequences of a model. Call its methods, and evaluate on the model, from one thread.

    Parameters
    ----------
    llama : Llama
        The model. Its sequence becomes the first one.
    """

    def __init__(self, llama: Llama) -> None:
        self._llama = llama
        n_together = max(llama.context.most_together, 1)
        self._batch = internals.LlamaBatch(n_tokens=n_together, embd=0, n_seq_max=1, verbose=False)

    @property
    def current(self) -> TokenSequence:
        """Return the current sequence of the model."""
        return self._llama.sequence

    def new(self) -> TokenSequence:
        """Make an empty sequence current, which attends as the last one did, and return it."""
        sequence = self._llama.context.new_sequence()
        self._llama.switch(sequence)
        return sequence

    def fork(self, sequence: TokenSequence, n_tokens: int) -> TokenSequence:
        """Make a sequence current that shares the first tokens of another one and their memory, and return it.

        Parameters
        ----------
        sequence : TokenSequence
            A sequence whose attention evicts no rows.
        n_tokens : int
            Number of tokens to share: at least those of the document, and some that `TokenSequence.usable` returns.
        """
        self.take(sequence)
        if n_tokens == sequence.n_tokens:
            self._llama.context.keep_state()
        with self._llama.context.shielded():
            forked, recurrent = self.new(), sequence.recurrent
            forked.cache.fork(sequence.cache, n_tokens)
            forked.input_ids[:n_tokens], forked.n_tokens = sequence.input_ids[:n_tokens], n_tokens
            forked.steps = [step for step in sequence.steps if step < n_tokens]
            if recurrent is not None:
                self._llama.context.put_states([state for state in recurrent.kept if state.n_tokens <= n_tokens])
        return forked

    def take(self, sequence: TokenSequence) -> None:
        """Make a sequence the current one."""
        if sequence is not self.current:
            self._llama.switch(sequence)

    @property
    def most_together(self) -> int:
        """Return the largest number of sequences that `step` can compute."""
        return self._llama.context.most_together

    def step(self, sequences: Sequence[TokenSequence], tokens: Sequence[int]) -> None:
        """Evaluate a token of each of several sequences; logits come in their order.

        Parameters
        ----------
        sequences : sequence of TokenSequence
            At most `most_together`.

        Raises
        ------
        OctavoError
            A sequence has no room, or memory does not suffice. All sequences are then unchanged.
        """
        if len(sequences) == 1:  # the only way of devices that compute sequences in turns
            self.take(sequences[0])
            self._llama.eval(list(tokens))
            return
        batch = self._batch.batch
        batch.n_tokens = len(sequences)
        for i, (sequence, token) in enumerate(zip(sequences, tokens, strict=True)):
            batch.token[i], batch.pos[i], batch.logits[i] = token, sequence.n_tokens, True
            batch.seq_id[i][0], batch.n_seq_id[i] = i, 1
        with self._llama.context.shielded():
            self._llama.context.decode_together(self._batch, sequences)
            for sequence, token in zip(sequences, tokens, strict=True):
                sequence.append(token)
