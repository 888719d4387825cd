"""Servers that several tests share."""

import pytest
from helpers.served import serving


@pytest.fixture(scope="package")
def served(tiny_model, tmp_path_factory):
    """A server on the tiny model."""
    with serving(tiny_model, tmp_path_factory.mktemp("library")) as server:
        yield server


@pytest.fixture(scope="package")
def served_real(real_model, tmp_path_factory):
    """A server on SmolLM2."""
    with serving(real_model, tmp_path_factory.mktemp("library")) as server:
        yield server
