"""What all tests of the command line need."""

import os

import pytest


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch, tmp_path):
    """Hide the tester's OCTAVO_... variables from the tests, and the tester's history of questions."""
    for name in [name for name in os.environ if name.startswith("OCTAVO_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
