"""benchmarks/larger_than_memory.py: a document that memory does not hold gives the same answer, read in small parts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.convert.plan.recall_texts import SHIPPED_NOVEL
from octavo.runtime.models.find_model import default_model

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "larger_than_memory.py"
GROUPS = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


@pytest.mark.slow
@pytest.mark.skipif(not any(os.access(group, os.W_OK) for group in GROUPS), reason="control groups need root")
def test_a_step_reads_a_small_part_of_a_document_that_memory_does_not_hold(tmp_path):
    document = tmp_path / "novel.txt"
    document.write_text(SHIPPED_NOVEL.read_text("utf-8")[:24_000], "utf-8")
    options = ["-m", default_model(), "--attention", "squeezed", "--times", "0", "4", "--tokens", "48"]
    command = [sys.executable, SCRIPT, document, tmp_path, *options]
    shown = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr  # not where the answers differ
    _, _, fits, large = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown.stdout.splitlines()]
    room, (n_read, n_waits) = int(large[1]), map(float, large[-2:])
    assert fits[0] == "all fits"
    assert n_waits > 0, "the limit was no limit"
    assert 0 < n_read < 4 * room / 8, "a step read half of the index"
