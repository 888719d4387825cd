"""A tiny model, and the shipped novel in its tokens."""

import pytest

import octavo
from octavo.convert.plan.recall_texts import SHIPPED_NOVEL, Haystack


@pytest.fixture(scope="module")
def llama(tiny_model):
    return octavo.Llama(tiny_model, n_threads=2)


@pytest.fixture(scope="module")
def haystack(llama):
    return Haystack(llama, SHIPPED_NOVEL.read_text("utf-8"))
