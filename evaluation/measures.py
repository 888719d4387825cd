"""Compare next-token distributions: the measures that both `octavo bench` and `octavo eval` report."""

from __future__ import annotations

import numpy as np


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Compute log-probabilities from logits.

    Parameters
    ----------
    logits : float array, shape (..., n_vocab)
        Logits of one or more steps.

    Returns
    -------
    float64 array, shape (..., n_vocab)
        Natural logarithms of the probabilities.
    """
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    log_probs: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return log_probs


def kl_divergence(expected: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Compute the Kullback-Leibler divergence of each step's distribution from the expected one.

    Parameters
    ----------
    expected, actual : float arrays, shape (n_steps, n_vocab)
        Log-probabilities.

    Returns
    -------
    float64 array, shape (n_steps,)
        Divergences in nats.
    """
    p, q = expected.astype(np.float64), actual.astype(np.float64)
    divergences: np.ndarray = (np.exp(p) * (p - q)).sum(axis=-1)
    return divergences


def same_top_token(expected: np.ndarray, actual: np.ndarray) -> float:
    """Return the share of steps at which two attentions agree on the most likely token.

    Parameters
    ----------
    expected, actual : float arrays, shape (n_steps, n_vocab)
        Logits or log-probabilities.

    Returns
    -------
    float
        A share from 0 to 1.
    """
    return float((expected.argmax(axis=-1) == actual.argmax(axis=-1)).mean())
