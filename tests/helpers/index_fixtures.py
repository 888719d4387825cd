"""Fixtures: a tiny model, the index of its text, and what goes with them."""

import shutil

import pytest
from helpers.index_builds import NAME, TEXT, build, evaluate_directly, library_of, logits_after, new_llama

from octavo.convert.pipeline import document_tokens


@pytest.fixture(scope="module")
def llama(tiny_model):
    return new_llama(tiny_model)


@pytest.fixture(autouse=True)
def dense_and_empty(llama):
    """Each test finds the shared model as it was loaded."""
    llama.context.attach(None)
    llama.set_attention("dense")
    llama.reset()


@pytest.fixture(scope="module")
def index(llama, tmp_path_factory):
    """The index of TEXT: not to be changed."""
    return build(llama, tmp_path_factory.mktemp("index"))


@pytest.fixture
def copied_index(index, tmp_path):
    return shutil.copytree(index, tmp_path / index.name)  # times too


@pytest.fixture(scope="module")
def model_hash(llama, index):
    return library_of(llama, index.parent.parent).model_hash


@pytest.fixture(scope="module")
def tokens(llama):
    return document_tokens(llama, NAME, TEXT)


@pytest.fixture(scope="module")
def direct_logits(llama, tokens):
    evaluate_directly(llama, tokens)
    return logits_after(llama)
