"""Variable tracking: which variables have a value, after a chain of assignments (RULER, section 3.2).

One short example with its answer comes first (appendix D).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...runtime.methods.parameters import parameter
from ..prose import insert
from ..samples import Text
from .ruler import NOISE, Page, Ruler

_INSTRUCTION = "Memorize and track the chain(s) of variable assignment hidden in the following text."
_QUESTION = "Question: Find all variables that are assigned the value {value} in the text above."
_PREFIX = (
    "Answer: According to the chain(s) of variable assignment in the text above, {n} variables are assigned the value "
    "{value}, they are:"
)
_LETTERS = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))

#: Letters of a variable's name.
_NAME = 5

#: An assignment takes more tokens than this.
_SHORTEST = 4


@dataclass(frozen=True)
class VariableTracking(Ruler):
    """Name all variables of a chain.

    Parameters
    ----------
    chains : int
        Chains of assignments, each with a value of its own. The text asks for each of them.
    hops : int
        Assignments of a chain after the first.
    """

    chains: int = parameter(1, least=1)
    hops: int = parameter(4, least=1)

    name = "variable-tracking"

    def text(self, page: Page, depth: int, most: int, rng: np.random.Generator) -> Text:
        """Hide the assignments of each chain in order, at random places (see `Ruler.text`)."""
        if self.chains * (self.hops + 1) * _SHORTEST > depth:
            raise self.too_small(depth)
        chains = self._chains(rng, self.chains + 1)
        begin = page.begin(f"{self._example(rng, *chains.popitem())}\n\n{_INSTRUCTION}\n")
        hidden: list[tuple[float, list[int]]] = []
        for value, names in chains.items():
            places = np.sort(rng.random(self.hops + 1)).tolist()
            hidden += zip(places, map(page.prose.pieces, self._assignments(value, names)), strict=True)
        room = depth - len(begin) - sum(len(tokens) for _, tokens in hidden)
        noise = page.noise(max(room, 0))
        if not noise:
            raise self.too_small(depth)
        tokens = begin + insert(noise, sorted(hidden, key=lambda place: place[0]))
        asked = list(chains.items())[:most]
        return Text(tokens, [page.ask(*self._question(value), names) for value, names in asked])

    def _chains(self, rng: np.random.Generator, n: int) -> dict[str, list[str]]:
        """Draw chains: the variables of each value."""
        values: dict[str, None] = {}
        names: dict[str, None] = {}
        while len(values) < n:
            values[str(rng.integers(10_000, 100_000))] = None
        while len(names) < n * (self.hops + 1):
            names["".join(rng.choice(_LETTERS, _NAME))] = None
        remaining = iter(names)
        return {value: [next(remaining) for _ in range(self.hops + 1)] for value in values}

    def _assignments(self, value: str, names: list[str]) -> list[str]:
        return [f"VAR {name} = {given}\n" for name, given in zip(names, [value, *names[:-1]], strict=True)]

    def _question(self, value: str) -> tuple[str, str]:
        return _QUESTION.format(value=value), _PREFIX.format(n=self.hops + 1, value=value)

    def _example(self, rng: np.random.Generator, value: str, names: list[str]) -> str:
        """Return the task once more, short and answered."""
        lines = [NOISE + line for line in self._assignments(value, names)]
        question, prefix = self._question(value)
        return f"{_INSTRUCTION}\n\n{''.join(lines)}{NOISE}\n{question} {prefix} {' '.join(names)}"
