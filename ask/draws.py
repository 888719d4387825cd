"""Draw the tokens of an answer, of which some may be given."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing

from ..runtime.llama import Llama
from ..settings import Sampling


class Draws:
    """Tokens that a model draws after a prompt.

    Parameters
    ----------
    prompt : sequence of int
        Tokens to read first, at least one.
    """

    def __init__(self, llama: Llama, sampling: Sampling, prompt: Sequence[int]) -> None:
        self._llama, self._sampling, self._unread = llama, sampling, list(prompt)
        self._given: Sequence[int] = ()

    def give(self, tokens: Sequence[int]) -> None:
        """Let tokens come next, in place of drawn ones."""
        self._given = tokens

    def __iter__(self) -> Generator[int, None, None]:
        """Yield the tokens without end. Those that came are read when the next one is drawn."""
        sampling = self._sampling
        while True:
            generated = self._llama.generate(
                self._unread,
                reset=False,
                temp=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                min_p=sampling.min_p,
                repeat_penalty=sampling.repeat_penalty,
            )
            with closing(generated):
                for token in generated:
                    yield token
                    if self._given:
                        break
            self._unread, given, self._given = [token, *self._given], self._given, ()
            yield from given
