"""Perplexity: bits per character of long prose, the later part given the earlier.

SparQ (Ribar et al. 2024, section 4.1) and Quest (Tang et al. 2024, section 4.2) measure it on WikiText-103 and PG-19.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log
from pathlib import Path

import numpy as np

from ...runtime.llama import Llama
from ..prose import passage, prose_of
from ..samples import Outcome, Sample, Text
from . import Task, novel


@dataclass(frozen=True)
class Perplexity(Task):
    """The tokens after a text, predicted one by one.

    Parameters
    ----------
    n_tokens : of a sample    per_text : samples that follow one another after a text
    """

    n_tokens: int = 32
    per_text: int = 8

    name = "perplexity"
    metric = "bits per character"
    higher_is_better = False
    samples = 16
    data = novel

    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        """Texts of `depth` tokens from random places of the prose, and what follows them there."""
        return following(llama, data, depth, n_samples, seed, self.n_tokens, self.per_text)

    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        """Bits of the sample's tokens over its characters."""
        steps = np.arange(len(sample.continuation))
        bits = -outcome.log_probs[steps, sample.continuation].astype(np.float64).sum() / log(2)
        return {"score": float(bits / len(sample.answers[0]))}


def following(
    llama: Llama, data: Path, depth: int, n_samples: int, seed: int, n_tokens: int, per_text: int
) -> list[Text]:
    """Texts, and after each of them samples of n_tokens tokens that follow one another."""
    haystack, texts = prose_of(llama, data), []
    head = haystack.head()
    for number in range(ceil(n_samples / per_text)):
        n = min(per_text, n_samples - number * per_text)
        stop = depth + 1 + n * n_tokens
        paragraphs = passage(haystack, stop - len(head), np.random.default_rng([seed, depth, number]))
        tokens = head + [token for paragraph in paragraphs for token in paragraph]
        samples = []
        for start in range(depth, stop - 1, n_tokens):
            continuation = tokens[start + 1 : start + 1 + n_tokens]
            characters = llama.detokenize(continuation, special=True).decode("utf-8", "replace")
            samples.append(Sample([tokens[start]], continuation, answers=(characters,)))
        texts.append(Text(tokens[:depth], samples, continues=True))
    return texts
