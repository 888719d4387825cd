"""Repetition: give the beginning of a passage after the text, and measure how much of the passage the model repeats.

SparQ (Ribar et al. 2024, section 5.1, "text repetition") does so with Shakespeare. Small models can do this task, and
it needs retrieval from anywhere in the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from math import ceil
from pathlib import Path

import numpy as np

from ...errors import OctavoError
from ...runtime.llama import Llama
from ...runtime.methods.parameters import parameter
from ..prose import BORDER, passage, prose_of
from ..samples import Outcome, Sample, Text
from .task import NOVEL, Task


@dataclass(frozen=True)
class Repetition(Task):
    """Repeat passages of the text.

    Parameters
    ----------
    n_cue : int
        First tokens of a passage, which the model reads again.
    n_tokens : int
        Tokens after them, which the model should repeat.
    per_text : int
        Largest number of passages of a text. They lie at random places in as many equal parts of its first half: what
        is near needs no retrieval.
    """

    n_cue: int = parameter(32, least=1)
    n_tokens: int = parameter(48, least=1)
    per_text: int = parameter(8, least=1)

    name = "repetition"
    metric = "characters repeated"
    is_share = False
    samples = 40
    data = NOVEL

    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        """Take texts from random places of the prose, and cues from their first halves (see `Task.texts`)."""
        haystack, texts = prose_of(llama, data), []
        head, border = haystack.head(), haystack.pieces(BORDER)
        for number in range(ceil(n_samples / self.per_text)):
            rng = np.random.default_rng([seed, depth, number])
            n = min(self.per_text, n_samples - number * self.per_text)
            size = (depth - len(head)) // 2 // n
            room = size - self.n_cue - self.n_tokens
            if room < 1:
                raise OctavoError(
                    f"{n} passages of {self.n_cue + self.n_tokens} tokens are too much for the first half of {depth:,} "
                    "tokens: give larger --depths or fewer --samples."
                )
            paragraphs = passage(haystack, depth - len(head), rng)
            tokens = head + [token for paragraph in paragraphs for token in paragraph]
            samples = []
            for part in range(n):
                start = len(head) + part * size + int(rng.integers(room))
                cue = start + self.n_cue
                expected = llama.detokenize(tokens[cue : cue + self.n_tokens]).decode("utf-8", "replace")
                samples.append(
                    Sample(
                        border + tokens[start:cue],
                        n_predict=self.n_tokens,
                        answers=(expected,),
                        position=round(start / depth, 4),
                    )
                )
            texts.append(Text(tokens, samples))
        return texts

    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        """Count the characters until the answer differs from the passage (see `Task.score`)."""
        pairs = zip(outcome.text, sample.answers[0], strict=False)
        return {"score": float(sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)))}
