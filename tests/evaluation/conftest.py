"""Models whose tokens texts are made of."""

import pytest

import octavo


@pytest.fixture(autouse=True, scope="session")
def _benchmarks_warm_up_at_once():
    """Spare tests of figures that nobody reads a third of a second for each engine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("octavo.evaluation.bench._WARM_UP_S", 0)
        yield


@pytest.fixture(scope="session")
def llama(tiny_model):
    """The tiny model: about a token a character."""
    return octavo.Llama(tiny_model, n_threads=2)


@pytest.fixture(scope="session")
def words(real_model):
    """The vocabulary of a real model: about a token a word."""
    return octavo.Llama(real_model, vocab_only=True)
