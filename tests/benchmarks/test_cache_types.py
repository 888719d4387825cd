"""benchmarks/cache_types.py: what it measures, with a tiny model."""

import importlib
from pathlib import Path

import pytest

from octavo.errors import OctavoError

FOLDER = Path(__file__).parents[2] / "benchmarks"
TEXT = "A text of some length, about nothing in particular, that goes on and on. " * 5


@pytest.mark.parametrize(
    ("script", "options", "takes"),
    [
        ("cache_types", ["--tokens", "200", "--steps", "20"], "220"),
        ("reading", ["--depths", "200,300"], "4,608"),
        ("latent_selection", ["--depth", "200", "--steps", "8"], "208"),
        ("long_text", ["--attention", "window", "--tokens", "300"], "300"),
    ],
)
def test_a_text_that_is_too_short_is_refused(tiny_model, tmp_path, monkeypatch, script, options, takes):
    monkeypatch.syspath_prepend(FOLDER)
    (tmp_path / "text.txt").write_text("Too short.")
    monkeypatch.setattr("sys.argv", [f"{script}.py", str(tmp_path / "text.txt"), "-m", str(tiny_model), *options])
    with pytest.raises(OctavoError, match=rf"text.txt has \d+ tokens, and this takes {takes}: give a longer text\."):
        importlib.import_module(script).main()


def test_the_table_compares_each_type_with_f16(tiny_model, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(FOLDER)
    import cache_types

    (tmp_path / "text.txt").write_text(TEXT)
    arguments = [str(tmp_path / "text.txt"), "-m", str(tiny_model), "-c", "400", "--tokens", "200", "--steps", "20"]
    monkeypatch.setattr("sys.argv", ["cache_types.py", *arguments])
    cache_types.main()
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()]
    rows = {line[0]: line[1:] for line in lines[2:]}
    assert list(rows) == ["f16", "q8_0", "q4_0"]
    assert [int(rows[name][0].replace(",", "")) for name in rows] == [3 * 2 * 2 * n_bytes for n_bytes in (128, 68, 36)]
    assert rows["f16"][1:] == ["0.0000", "0.0000", "1.00"]
    assert 0 < float(rows["q8_0"][1]) < float(rows["q4_0"][1])
