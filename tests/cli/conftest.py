"""What all tests of the command line need."""

import os
from pathlib import Path

import pytest
from helpers.command_line import SENTENCES


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch, tmp_path):
    """Hide the tester's OCTAVO_... variables from the tests, and what other tests leave."""
    for name in [name for name in os.environ if name.startswith("OCTAVO_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OCTAVO_FIRST_ANSWER", "1h")  # documents are read, however slow the machine is
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def document(tmp_path) -> Path:
    path = tmp_path / "island.txt"
    path.write_text(SENTENCES * 6)
    return path


@pytest.fixture
def on_tiny(tiny_model, tmp_path) -> list[str]:
    """Options that every command takes here."""
    return ["-m", str(tiny_model), "--index-dir", str(tmp_path / "indexes"), "-t", "2"]
