"""Tests of the files of an index start from a tiny model and the index of its text."""

from helpers.index_fixtures import copied_index, dense_and_empty, index, llama, model_hash, tokens  # noqa: F401
