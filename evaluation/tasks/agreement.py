"""Agreement: the distance of next-token distributions and outputs of attention from those of dense attention."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...runtime.llama import Llama
from ...runtime.methods.parameters import parameter
from ..measures import same_top_token
from ..samples import Outcome, Sample, Text
from .perplexity import following
from .task import Task
from .task_data import NOVEL


@dataclass(frozen=True)
class Agreement(Task):
    """Predict the tokens after a text one by one, and compare the predictions with those of dense attention.

    Parameters
    ----------
    n_tokens : int
        Tokens of a sample.
    per_text : int
        Largest number of samples that follow one another after a text.
    """

    n_tokens: int = parameter(16, least=1)
    per_text: int = parameter(8, least=1)

    name = "agreement"
    metric = "same top token"
    samples = 16
    data = NOVEL
    compares_attention = True

    def texts(self, llama: Llama, data: Path, depth: int, n_samples: int, seed: int) -> list[Text]:
        """Take texts from random places of the data, and the tokens after them (see `Task.texts`)."""
        return following(llama, data, depth, n_samples, seed, self.n_tokens, self.per_text)

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
