"""Passkey: numbers of five digits in long prose, each of a person, asked for one by one.

The task of Quest (Tang et al. 2024, section 4.3); a text holds several keys here, so that it is read once, and one that
was found by chance is not the one that was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np

from ...runtime.llama import Llama
from ...runtime.prompt import Prompt
from ..prose import even_positions, hide, prose_of
from ..samples import Outcome, Sample, Text
from . import Task, contains, novel

_PEOPLE = (
    *("Marta", "Quentin", "Oswald", "Priya", "Hilda", "Tobias", "Ingrid", "Rafael", "Noor", "Barnaby"),
    *("Svetlana", "Dmitri", "Yusuf", "Beatrix", "Leopold", "Anjali", "Casper", "Ximena", "Gustav", "Zelda"),
)
_KEY = "The pass key of {person} is {key}. Remember it. {key} is the pass key of {person}."
_QUESTION, _BEGIN = "What is the pass key of {person}?", "The pass key of {person} is"


@dataclass(frozen=True)
class Passkey(Task):
    """Keys at even places of a text.

    Parameters
    ----------
    per_text : most keys in a text    n_tokens : most tokens of an answer
    """

    per_text: int = 10
    n_tokens: int = 8

    name = "passkey"
    metric = "found"
    samples = 20
    data = novel

    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        """Prose of `depth` tokens with keys in it, and the questions."""
        haystack, prompt, texts = prose_of(llama, data), Prompt(llama), []
        head, blank = prompt.head(), "" if prompt.has_template else " "
        for number in range(ceil(n_samples / self.per_text)):
            rng = np.random.default_rng([seed, depth, number])
            n = min(self.per_text, n_samples - number * self.per_text)
            people = [str(person) for person in rng.choice(_PEOPLE, n, replace=False)]
            keys = [str(key) for key in rng.choice(np.arange(10_000, 100_000), n, replace=False)]
            hidden = [
                (at, _KEY.format(person=person, key=key))
                for at, person, key in zip(even_positions(n), people, keys, strict=True)
            ]
            tokens = head + hide(haystack, depth - len(head), hidden, rng)
            samples = [
                Sample(
                    prompt.first_question(_QUESTION.format(person=person))
                    + haystack.pieces(blank + _BEGIN.format(person=person)),
                    n_predict=self.n_tokens,
                    stop="\n",
                    answers=(key,),
                    position=at,
                )
                for (at, _), person, key in zip(hidden, people, keys, strict=True)
            ]
            texts.append(Text(tokens, samples))
        return texts

    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        """1 where the answer has the key."""
        return {"score": contains(outcome.text, sample.answers)}
