"""Servers that several tests share."""

import pytest
from helpers import talking_model
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


@pytest.fixture(scope="package")
def talking(tmp_path_factory):
    """A server on a model that answers `talking_model.ANSWER`."""
    folder = tmp_path_factory.mktemp("talking")
    model = talking_model.write_model(folder / "talking.gguf")
    with serving(model, folder) as server:
        yield server


@pytest.fixture(scope="package")
def filling(tmp_path_factory):
    """A server on a model that fills gaps, with `talking_model.ANSWER`."""
    folder = tmp_path_factory.mktemp("filling")
    model = talking_model.write_model(folder / "filling.gguf", fills_gaps=True)
    with serving(model, folder) as server:
        yield server
