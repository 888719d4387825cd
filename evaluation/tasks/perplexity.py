"""Perplexity: bits per character of long prose, the later part given the earlier.

SparQ (Ribar et al. 2024, section 5.1) and Quest (Tang et al. 2024, section 4.2) measure it on WikiText-103 and PG-19.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log
from pathlib import Path

import numpy as np

from ...runtime.llama import Llama
from ...runtime.methods.parameters import parameter
from ..prose import passage, prose_of
from ..samples import Outcome, Sample, Text
from .task import Task
from .task_data import NOVEL


@dataclass(frozen=True)
class Perplexity(Task):
    """Predict the tokens after a text one by one.

    Parameters
    ----------
    n_tokens : int
        Tokens of a sample.
    per_text : int
        Largest number of samples that follow one another after a text.
    """

    n_tokens: int = parameter(32, least=1)
    per_text: int = parameter(8, least=1)

    name = "perplexity"
    metric = "bits per character"
    higher_is_better = False
    samples = 16
    data = NOVEL

    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        """Take texts from random places of the prose, and the tokens after them (see `Task.texts`)."""
        return following(llama, data, depth, n_samples, seed, self.n_tokens, self.per_text)

    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        """Compute the bits of the sample's tokens per character (see `Task.score`)."""
        steps = np.arange(len(sample.continuation))
        bits = -outcome.log_probs[steps, sample.continuation].astype(np.float64).sum() / log(2)
        return {"score": float(bits / len(sample.answers[0]))}


def following(
    llama: Llama, data: Path, depth: int, n_samples: int, seed: int, n_tokens: int, per_text: int
) -> list[Text]:
    """Take texts from random places of prose, and as samples the tokens after them.

    The samples of a text continue one another; a sample's answer is the text of its tokens.

    Parameters
    ----------
    depth : int
        Tokens of a text.
    n_samples : int
        Samples of all texts together.
    n_tokens : int
        Tokens of a sample.
    per_text : int
        Largest number of samples that follow one another after a text.

    Raises
    ------
    OctavoError
        The prose is too short.
    """
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
