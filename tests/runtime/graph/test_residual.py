"""The residual stream is compared in the node that adds attention to it, and the sum stays what it was."""

import numpy as np
import pytest
from helpers import tiny_models

import octavo
from octavo.convert.plan.heads import HIDDEN, evaluate
from octavo.convert.plan.layer_importance import ResidualChange
from octavo.runtime.graph.residual import ResidualSums, watch_residual

TOKENS = np.random.default_rng(3).integers(0, 256, 700).tolist()  # two batches


def hidden_states(llama, wants=lambda name: False, take=lambda name, values: None):
    """The last hidden states of all tokens, while other tensors are observed too."""
    states = []

    def observe(name, values):
        if name == HIDDEN:
            states.append(values)
        else:
            take(name, values)
        return True

    llama.reset()
    evaluate(llama, TOKENS, np.ones(len(TOKENS), bool), lambda name: name == HIDDEN or wants(name), observe)
    return np.concatenate(states)


@pytest.mark.parametrize("architecture", tiny_models.RUN)
def test_similarities_are_those_of_the_tensors(tmp_path, architecture):
    n_layer = 6 if architecture == "gemma3" else 3
    llama = octavo.Llama(tiny_models.write_model(tmp_path / "model.gguf", architecture, n_layer=n_layer), n_threads=2)
    expected, sums = ResidualChange(n_layer), ResidualSums(n_layer, 2)
    plain = hidden_states(llama, expected.wants, expected.take)
    for _ in range(2):  # a graph that is used again
        sums.clear()
        watch_residual(llama.context._executor.step, sums)
        np.testing.assert_array_equal(hidden_states(llama), plain)
        np.testing.assert_allclose(sums.means, expected.means, rtol=1e-6)
    watch_residual(llama.context._executor.step, None)
    sums.clear()
    np.testing.assert_array_equal(hidden_states(llama), plain)


def test_without_tokens_there_are_no_means():
    assert ResidualSums(3, 2).means.shape == (0,)
