"""benchmarks/whole_batches.py: documents and parts of any length, or a sentence."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "whole_batches.py"


@pytest.fixture
def whole_batches(monkeypatch, tmp_path):
    """The script, with one round of answers of two tokens."""
    spec = importlib.util.spec_from_file_location("whole_batches", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("OCTAVO_INDEX_DIR", str(tmp_path))
    monkeypatch.setattr(module, "ROUNDS", 1)
    monkeypatch.setattr(module, "N_TOKENS", 2)
    return module


def measured(module, monkeypatch, path, text, *arguments):
    path.write_text(text)
    monkeypatch.setattr(sys, "argv", ["whole_batches.py", str(path), *arguments])
    module.main()


def test_parts_that_are_short_are_measured(whole_batches, monkeypatch, tiny_model, tmp_path, capsys):
    """A part has fewer tokens than six pieces here."""
    text = "".join(f"The keeper saw ship {number} from the tower.\n\n" for number in range(100))
    measured(whole_batches, monkeypatch, tmp_path / "log.txt", text, "-m", str(tiny_model), "-c", "768")
    rows = [line.split(" | ")[0] for line in capsys.readouterr().out.splitlines()]
    assert rows[-2:] == ["| parts", "| excerpts"]


def test_a_document_without_parts_is_refused(whole_batches, monkeypatch, tiny_model, tmp_path, capsys):
    with pytest.raises(SystemExit):
        measured(whole_batches, monkeypatch, tmp_path / "log.txt", "A ship.", "-m", str(tiny_model), "-c", "768")
    assert "log.txt fits the context, so it has no parts" in capsys.readouterr().err


@pytest.mark.parametrize(("n_tokens", "bounds"), [(100, (0, 100)), (300, (22, 278)), (2000, (872, 1128))])
def test_an_excerpt_is_in_the_middle(whole_batches, n_tokens, bounds):
    assert whole_batches.excerpt("log.txt", n_tokens)[1:] == bounds
