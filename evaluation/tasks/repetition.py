"""Repetition: a passage's beginning once more after the text; how much of the rest the model repeats exactly.

SparQ (Ribar et al. 2024, section 4.1, "text repetition") on Shakespeare. It works with small models, and takes
retrieval from anywhere in the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from math import ceil
from pathlib import Path

import numpy as np

from ...errors import OctavoError
from ...runtime.llama import Llama
from ..prose import BORDER, passage, prose_of
from ..samples import Outcome, Sample, Text
from . import Task, novel


@dataclass(frozen=True)
class Repetition(Task):
    """Passages of a text's own.

    Parameters
    ----------
    n_cue, n_tokens : tokens of a passage that are given, and most that are to be repeated
    per_text : passages of a text, at random places in as many equal parts of its first half: what is near takes no
        retrieval
    """

    n_cue: int = 32
    n_tokens: int = 48
    per_text: int = 8

    name = "repetition"
    metric = "characters repeated"
    samples = 16
    data = novel

    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        """Texts of `depth` tokens, and the beginnings of some of their passages."""
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
        """Characters until what was written differs from the passage."""
        pairs = zip(outcome.text, sample.answers[0], strict=False)
        return {"score": float(sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)))}
