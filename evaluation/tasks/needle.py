"""Needle and passkey: facts hidden in long prose, asked for one by one.

DuoAttention (Xiao et al. 2024, section 3.2) hides one needle in a text, and Quest (Tang et al. 2024, section 4.2) one
key. Here a text holds several, so that it is prefilled once, and the model seldom finds the right key by chance. A
needle is a sentence in words of its own, whose last word is random, so that a model cannot guess it; a passkey is a
number of five digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...prompts.direct_prompt import DirectPrompt
from ...runtime.llama import Llama
from ...runtime.methods.parameters import parameter
from ..prose import even_positions, hide, prose_of
from ..samples import Outcome, Sample, Text
from .task import NOVEL, Task
from .text_scores import contains

#: For each fact: the sentence up to the drawn word, the question, and the words to draw from.
FACTS = (
    (
        "The password of the lighthouse at Corvane is",
        "What is the password of the lighthouse at Corvane?",
        ("marmalade", "thunder", "velvet", "compass", "cinnamon", "anchor", "granite", "lantern"),
    ),
    (
        "The favourite fruit of Doctor Halloran is the",
        "What is the favourite fruit of Doctor Halloran?",
        ("pineapple", "cherry", "banana", "peach", "lemon", "mango", "apricot", "grape"),
    ),
    (
        "The ship that sank near Tresmoor was loaded with",
        "What was the ship loaded with that sank near Tresmoor?",
        ("copper", "cotton", "wool", "sugar", "timber", "coffee", "silver", "bricks"),
    ),
    (
        "The blue box in the attic of Number Nine contains a",
        "What does the blue box in the attic of Number Nine contain?",
        ("violin", "telescope", "crown", "map", "sword", "mirror", "clock", "doll"),
    ),
    (
        "Captain Ferris has a dog called",
        "What is the dog of Captain Ferris called?",
        ("Rusty", "Shadow", "Pepper", "Duke", "Biscuit", "Ginger", "Max", "Ranger"),
    ),
    (
        "The secret ingredient of Nadia's soup is",
        "What is the secret ingredient of Nadia's soup?",
        ("ginger", "mustard", "honey", "garlic", "saffron", "vinegar", "mint", "butter"),
    ),
    (
        "The winner of the chess tournament in Ostrava was born in",
        "Where was the winner of the chess tournament in Ostrava born?",
        ("Brazil", "Norway", "Egypt", "Canada", "India", "Japan", "Greece", "Kenya"),
    ),
    (
        "The statue on Kestrel Bridge is made of",
        "What is the statue on Kestrel Bridge made of?",
        ("marble", "bronze", "glass", "iron", "wood", "clay", "steel", "gold"),
    ),
    (
        "The gardener of Willowmere sold his house to a",
        "To whom did the gardener of Willowmere sell his house?",
        ("painter", "soldier", "teacher", "lawyer", "sailor", "nurse", "farmer", "priest"),
    ),
    (
        "The wolves of Mount Asgarth are afraid of",
        "What are the wolves of Mount Asgarth afraid of?",
        ("music", "fire", "bells", "horses", "snow", "water", "smoke", "light"),
    ),
)


_PEOPLE = (
    *("Marta", "Quentin", "Oswald", "Priya", "Hilda", "Tobias", "Ingrid", "Rafael", "Noor", "Barnaby"),
    *("Svetlana", "Dmitri", "Yusuf", "Beatrix", "Leopold", "Anjali", "Casper", "Ximena", "Gustav", "Zelda"),
)


class Hidden(NamedTuple):
    """A hidden passage, a question about it, the beginning of the answer, and the rest of the answer."""

    passage: str
    question: str
    begin: str
    answer: str


@dataclass(frozen=True)
class Needle(Task):
    """Recall facts that are hidden at even distances in a text.

    Parameters
    ----------
    per_text : int
        Largest number of facts in a text.
    n_tokens : int
        Largest number of tokens of an answer.
    """

    per_text: int = parameter(len(FACTS), least=1, most=len(FACTS))
    n_tokens: int = parameter(8, least=1)

    name = "needle"
    metric = "found"
    samples = 100
    data = NOVEL

    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        """Hide facts in prose, others in each text or in another order, and ask for each (see `Task.texts`)."""
        haystack, prompt, texts = prose_of(llama, data), DirectPrompt(llama), []
        head, blank = prompt.head(), "" if prompt.has_template else " "
        for number in range(ceil(n_samples / self.per_text)):
            rng = np.random.default_rng([seed, depth, number])
            facts = self.draw(min(self.per_text, n_samples - number * self.per_text), rng)
            positions = even_positions(len(facts))
            hidden = [(position, fact.passage) for position, fact in zip(positions, facts, strict=True)]
            tokens = head + hide(haystack, depth - len(head), hidden, rng)
            samples = [
                Sample(
                    prompt.first_question(fact.question) + haystack.pieces(blank + fact.begin),
                    n_predict=self.n_tokens,
                    stop="\n",
                    answers=(fact.answer,),
                    position=position,
                    passage=fact.passage,
                )
                for position, fact in zip(positions, facts, strict=True)
            ]
            texts.append(Text(tokens, samples))
        return texts

    def draw(self, n: int, rng: np.random.Generator) -> list[Hidden]:
        """Draw n facts."""
        facts = [FACTS[i] for i in rng.permutation(len(FACTS))[:n]]
        words = [str(rng.choice(words)) for _, _, words in facts]
        return [
            Hidden(f"{begin} {word}.", question, begin, word)
            for (begin, question, _), word in zip(facts, words, strict=True)
        ]

    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        """Return 1 if the answer has the drawn word or key, else 0 (see `Task.score`)."""
        return {"score": contains(outcome.text, sample.answers)}


@dataclass(frozen=True)
class Passkey(Needle):
    """Recall keys that are hidden at even distances in a text.

    Parameters
    ----------
    per_text : int
        Largest number of keys in a text.
    n_tokens : int
        Largest number of tokens of an answer.
    """

    per_text: int = parameter(10, least=1, most=len(_PEOPLE))

    name = "passkey"

    def draw(self, n: int, rng: np.random.Generator) -> list[Hidden]:
        """Draw n keys, each of another person."""
        people = rng.choice(_PEOPLE, n, replace=False)
        keys = rng.choice(np.arange(10_000, 100_000), n, replace=False)
        return [
            Hidden(
                f"The pass key of {person} is {key}. Remember it. {key} is the pass key of {person}.",
                f"What is the pass key of {person}?",
                f"The pass key of {person} is",
                str(key),
            )
            for person, key in zip(people, keys, strict=True)
        ]
