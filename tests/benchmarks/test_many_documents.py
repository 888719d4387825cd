"""benchmarks/many_documents.py: what it measures, with a tiny model."""

import subprocess
import sys
from pathlib import Path

import pytest

from octavo.settings import READS

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "many_documents.py"


@pytest.mark.slow
def test_each_way_to_read_has_a_row(tiny_model, tmp_path):
    command = [sys.executable, SCRIPT, tmp_path, "--documents", "4", "--tokens", "300", "-m", tiny_model]
    shown = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown.strip().splitlines()]
    assert [row[0] for row in rows] == list(READS)
    for row in rows:
        told = dict(zip(head, row, strict=False))
        assert (told["documents"], told["right document first"][-4:]) == ("4", "of 4")
        assert 0 < float(told["first search from it, s"]) < 60
        assert int(told["tokens"].replace(",", "")) > 1000
        assert int(told["resident MB"].replace(",", "")) > 50
