"""Tests of indexes start from a tiny model and the index of its text."""

from helpers.index_fixtures import (  # noqa: F401
    copied_index,
    dense_and_empty,
    direct_logits,
    index,
    llama,
    model_hash,
    tokens,
)
