"""Perplexity and agreement: predict the tokens after a text one by one.

Perplexity is the bits per character of long prose, the later part given the earlier. SparQ (Ribar et al. 2024, section
5.1) and Quest (Tang et al. 2024, section 4.2) measure it on WikiText-103 and PG-19. Agreement is the distance of
next-token distributions and outputs of attention from those of dense attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log
from pathlib import Path

import numpy as np

from ...runtime.llama import Llama
from ...runtime.methods.parameters import parameter
from ..measures import same_top_token
from ..prose import passage, prose_of
from ..samples import Outcome, Sample, Text
from .task import NOVEL, Task


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
    higher_is_better = is_share = False
    samples = 16
    data = NOVEL

    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        """Take texts from random places of prose, and as samples the tokens after them (see `Task.texts`).

        The samples of a text continue one another; a sample's answer is the text of its tokens.
        """
        haystack, texts = prose_of(llama, data), []
        head = haystack.head()
        for number in range(ceil(n_samples / self.per_text)):
            stop = depth + 1 + min(self.per_text, n_samples - number * self.per_text) * self.n_tokens
            paragraphs = passage(haystack, stop - len(head), np.random.default_rng([seed, depth, number]))
            tokens = head + [token for paragraph in paragraphs for token in paragraph]
            samples = []
            for start in range(depth, stop - 1, self.n_tokens):
                continuation = tokens[start + 1 : start + 1 + self.n_tokens]
                characters = llama.detokenize(continuation, special=True).decode("utf-8", "replace")
                samples.append(Sample([tokens[start]], continuation, answers=(characters,)))
            texts.append(Text(tokens[:depth], samples, continues=True))
        return texts

    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        """Compute the bits of the sample's tokens per character (see `Task.score`)."""
        steps = np.arange(len(sample.continuation))
        bits = -outcome.log_probs[steps, sample.continuation].astype(np.float64).sum() / log(2)
        return {"score": float(bits / len(sample.answers[0]))}


@dataclass(frozen=True)
class Agreement(Perplexity):
    """Predict the tokens after a text one by one, and compare the predictions with those of dense attention."""

    n_tokens: int = parameter(16, least=1)

    name = "agreement"
    metric = "same top token"
    higher_is_better = True
    compares_attention = True

    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        """Compute the share of steps whose most likely token is that of dense attention (see `Task.score`)."""
        return {"score": same_top_token(dense.log_probs, outcome.log_probs)}


def output_errors(outcome: Outcome, dense: Outcome) -> list[float]:
    """Compute the error of each layer's output of attention, averaged over the steps.

    The error is relative to the length of the dense output. Both outcomes are of one sample, and hold outputs of
    attention.
    """
    assert outcome.attention is not None
    assert dense.attention is not None
    actual, expected = outcome.attention.astype(np.float64), dense.attention.astype(np.float64)
    errors = np.linalg.norm(actual - expected, axis=2) / np.maximum(np.linalg.norm(expected, axis=2), 1e-12)
    return [float(error) for error in errors.mean(axis=0)]
