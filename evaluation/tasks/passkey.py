"""Passkey: numbers of five digits in long prose, each of a person, asked for one by one.

Quest (Tang et al. 2024, section 4.2) hides one key in a text. Here a text holds several, so that it is read once, and
the model seldom finds the right key by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np

from ...runtime.llama import Llama
from ...runtime.methods.parameters import parameter
from ..direct_prompt import DirectPrompt
from ..prose import even_positions, hide, prose_of
from ..samples import Outcome, Sample, Text
from .task import Task
from .task_data import NOVEL
from .text_scores import contains

_PEOPLE = (
    *("Marta", "Quentin", "Oswald", "Priya", "Hilda", "Tobias", "Ingrid", "Rafael", "Noor", "Barnaby"),
    *("Svetlana", "Dmitri", "Yusuf", "Beatrix", "Leopold", "Anjali", "Casper", "Ximena", "Gustav", "Zelda"),
)
_KEY = "The pass key of {person} is {key}. Remember it. {key} is the pass key of {person}."
_QUESTION, _BEGIN = "What is the pass key of {person}?", "The pass key of {person} is"


@dataclass(frozen=True)
class Passkey(Task):
    """Recall keys that are hidden at even distances in a text.

    Parameters
    ----------
    per_text : int
        Largest number of keys in a text.
    n_tokens : int
        Largest number of tokens of an answer.
    """

    per_text: int = parameter(10, least=1, most=len(_PEOPLE))
    n_tokens: int = parameter(8, least=1)

    name = "passkey"
    metric = "found"
    samples = 100
    data = NOVEL

    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        """Hide keys in prose, and ask for each of them (see `Task.texts`)."""
        haystack, prompt, texts = prose_of(llama, data), DirectPrompt(llama), []
        head, blank = prompt.head(), "" if prompt.has_template else " "
        for number in range(ceil(n_samples / self.per_text)):
            rng = np.random.default_rng([seed, depth, number])
            n = min(self.per_text, n_samples - number * self.per_text)
            people = [str(person) for person in rng.choice(_PEOPLE, n, replace=False)]
            keys = [str(key) for key in rng.choice(np.arange(10_000, 100_000), n, replace=False)]
            hidden = [
                (position, _KEY.format(person=person, key=key))
                for position, person, key in zip(even_positions(n), people, keys, strict=True)
            ]
            tokens = head + hide(haystack, depth - len(head), hidden, rng)
            samples = [
                Sample(
                    prompt.first_question(_QUESTION.format(person=person))
                    + haystack.pieces(blank + _BEGIN.format(person=person)),
                    n_predict=self.n_tokens,
                    stop="\n",
                    answers=(key,),
                    position=position,
                    passage=_KEY.format(person=person, key=key),
                )
                for (position, _), person, key in zip(hidden, people, keys, strict=True)
            ]
            texts.append(Text(tokens, samples))
        return texts

    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        """Return 1 if the answer has the key, else 0 (see `Task.score`)."""
        return {"score": contains(outcome.text, sample.answers)}
