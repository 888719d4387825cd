"""The measures of next-token distributions, against numbers by hand."""

from math import log

import numpy as np
from helpers.evaluation_runs import distributions

from octavo.evaluation.measures import kl_divergence, log_softmax, same_top_token


def test_log_softmax():
    logits = np.array([1e4, 1e4 + log(3), -1e4], np.float32)
    np.testing.assert_allclose(np.exp(log_softmax(logits)), [0.25, 0.75, 0], atol=1e-3)


def test_log_softmax_of_many_steps():
    logits = np.random.default_rng(0).normal(size=(4, 9)) * 5
    each = np.stack([row - np.logaddexp.reduce(row) for row in logits])
    np.testing.assert_allclose(log_softmax(logits), each, rtol=1e-12)


def test_divergence_is_from_the_expected_distribution():
    expected = distributions([[0.5, 0.5], [0.9, 0.1]])
    actual = distributions([[0.25, 0.75], [0.9, 0.1]])
    by_hand = [0.5 * log(0.5 / 0.25) + 0.5 * log(0.5 / 0.75), 0]
    np.testing.assert_allclose(kl_divergence(expected, actual), by_hand, atol=1e-7)


def test_same_top_token_is_a_share_of_steps():
    expected = distributions([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.4, 0.5, 0.1], [0.4, 0.3, 0.3]])
    actual = distributions([[0.4, 0.3, 0.3], [0.2, 0.1, 0.7], [0.5, 0.4, 0.1], [0.9, 0.05, 0.05]])
    assert same_top_token(expected, actual) == 0.75
