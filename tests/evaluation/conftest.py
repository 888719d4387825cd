"""Models whose tokens texts are made of."""

import pytest

import octavo


@pytest.fixture(scope="session")
def llama(tiny_model):
    """The tiny model: about a token a character."""
    return octavo.Llama(tiny_model, n_threads=2)


@pytest.fixture(scope="session")
def words(real_model):
    """The vocabulary of a real model: about a token a word."""
    return octavo.Llama(real_model, vocab_only=True)
