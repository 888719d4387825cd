"""A plugin of pytest that runs the tests of llama.cpp's server, unmodified, against octavo.

Tests that fail stand in a list with their reasons; one that passes although it is listed fails.
"""

import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pytest

#: Reasons, each in a line that begins with "# ", and below it tests, or files of tests, which do not run at all.
_LISTED = Path(__file__).parents[1] / "data" / "llama_server_tests.txt"
_HERE = Path(__file__).parent

sys.modules["wget"] = ModuleType("wget")  # what they import first; nothing is downloaded


def listed() -> dict[str, str]:
    """Return the reason of each test or file in the list."""
    reasons, reason = {}, ""
    for line in _LISTED.read_text().splitlines():
        if line.startswith("# "):
            reason = line.removeprefix("# ")
        elif line:
            reasons[line] = reason
    return reasons


def pytest_configure():
    folder = Path(tempfile.mkdtemp())
    server = folder / "llama-server"
    server.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m helpers.llama_server "$@"\n')
    server.chmod(0o755)
    paths = [str(_HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ |= {"LLAMA_SERVER_BIN_PATH": str(server), "OCTAVO_TEST_MODELS": str(folder / "models")}
    os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "OMP_WAIT_POLICY": "PASSIVE"}


def pytest_ignore_collect(collection_path):
    return True if collection_path.name in listed() else None


def pytest_collection_modifyitems(items):
    reasons = listed()
    for item in items:
        names = [f"{item.path.name}::{name}" for name in (item.name, item.originalname)]
        reason = next((reasons[name] for name in names if name in reasons), None)
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
