"""Needle: facts of one sentence in long prose, each in words of its own, asked for one by one.

DuoAttention (Xiao et al. 2024, section 3.2) hides one needle in a text. Here a text holds several, so that it is read
once. The last word of each is random, so that a model cannot guess it.
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
        """Hide facts in prose, in another order in each text, and ask for each of them (see `Task.texts`)."""
        haystack, prompt, texts = prose_of(llama, data), DirectPrompt(llama), []
        head, blank = prompt.head(), "" if prompt.has_template else " "
        for number in range(ceil(n_samples / self.per_text)):
            rng = np.random.default_rng([seed, depth, number])
            n = min(self.per_text, n_samples - number * self.per_text)
            facts = [FACTS[i] for i in rng.permutation(len(FACTS))[:n]]
            words = [str(rng.choice(words)) for _, _, words in facts]
            hidden = [
                (position, f"{begin} {word}.")
                for position, (begin, _, _), word in zip(even_positions(n), facts, words, strict=True)
            ]
            tokens = head + hide(haystack, depth - len(head), hidden, rng)
            samples = [
                Sample(
                    prompt.first_question(question) + haystack.pieces(blank + begin),
                    n_predict=self.n_tokens,
                    stop="\n",
                    answers=(word,),
                    position=position,
                    passage=f"{begin} {word}.",
                )
                for (position, _), (begin, question, _), word in zip(hidden, facts, words, strict=True)
            ]
            texts.append(Text(tokens, samples))
        return texts

    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        """Return 1 if the answer has the drawn word, else 0 (see `Task.score`)."""
        return {"score": contains(outcome.text, sample.answers)}
