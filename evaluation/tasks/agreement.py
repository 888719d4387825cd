"""Agreement: how far next-token distributions, and what attention gives in each layer, are from dense attention's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...runtime.llama import Llama
from ..samples import Outcome, Sample, Text
from . import Task, novel
from .perplexity import following


@dataclass(frozen=True)
class Agreement(Task):
    """The tokens after a text, whatever it is, predicted one by one.

    Parameters
    ----------
    n_tokens : of a sample    per_text : samples that follow one another after a text
    """

    n_tokens: int = 16
    per_text: int = 8

    name = "agreement"
    metric = "same top token"
    samples = 16
    data = novel
    attention_too = True

    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        """Texts of `depth` tokens from random places of the data, and what follows them there."""
        return following(llama, data, depth, n_samples, seed, self.n_tokens, self.per_text)

    def score(self, sample: Sample, outcome: Outcome, dense: Outcome) -> dict[str, float]:
        """The share of steps whose likeliest token is dense attention's."""
        same = outcome.log_probs.argmax(axis=1) == dense.log_probs.argmax(axis=1)
        return {"score": float(same.mean())}


def output_errors(outcome: Outcome, dense: Outcome) -> list[float]:
    """How far each layer's attention is from dense attention's, relative to that: means over the steps."""
    assert outcome.attention is not None
    assert dense.attention is not None
    own, expected = outcome.attention.astype(np.float64), dense.attention.astype(np.float64)
    errors = np.linalg.norm(own - expected, axis=2) / np.maximum(np.linalg.norm(expected, axis=2), 1e-12)
    return [float(error) for error in errors.mean(axis=0)]
