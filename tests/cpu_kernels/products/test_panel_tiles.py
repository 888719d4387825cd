"""Test products on AMX tiles where AMX has to be emulated."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.cpu_kernels.numba_support.machine_features import HAS_AMX, HAS_VNNI, LANES

pytestmark = pytest.mark.skipif(HAS_AMX or LANES != 16 or not HAS_VNNI, reason="AMX is there, or cannot be emulated")

ROOT = Path(__file__).parents[3]


def test_tiles_multiply():
    """Run tests of products in a process that believes to have AMX: with scales of f16, and of f16 and bytes."""
    named = "float64 and 513 and (Q4_1 or Q6_K)"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", named]
    environment = os.environ | {"OCTAVO_TEST_CPU": "sapphirerapids"}
    tests = Path(__file__).with_name("test_multiply.py")
    run = subprocess.run([*command, str(tests)], env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    assert "2 passed" in run.stdout
