"""benchmarks/cache_types.py: what it measures, with a tiny model."""

from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"
TEXT = "A text of some length, about nothing in particular, that goes on and on. " * 5


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
