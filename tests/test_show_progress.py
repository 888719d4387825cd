"""`make` shows how far it is, and why it fails."""

import io
import os
import subprocess
import sys
import threading

import pytest
from helpers.product import ROOT

SCRIPT = ROOT / "tools" / "show_progress.py"

#: What pip says while it builds llama.cpp, as ninja and make count.
PIP = """
print("Collecting llama-cpp-python<0.3.40,>=0.3.36", flush=True)
print("  Running command Building wheel for llama-cpp-python (pyproject.toml)", flush=True)
print("  [{count}] /usr/bin/g++ -DGGML_BUILD", flush=True)
import time; time.sleep({seconds})
print("  Installing collected packages: numpy", flush=True)
"""


def show(log, code, **options):
    command = [sys.executable, SCRIPT, log, "Installing", sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, **options)


@pytest.mark.parametrize(
    ("count", "picture"),
    [("48/193", "######.................. 48/193 about 0:"), (" 25%", "######.................. 25/100 about 0:")],
)
def test_a_terminal_gets_a_bar_that_moves(tmp_path, count, picture):
    leader, follower = os.openpty()
    command = [sys.executable, SCRIPT, tmp_path / "log", "Installing", sys.executable, "-c"]
    with subprocess.Popen([*command, PIP.format(count=count, seconds=1.5)], stderr=follower) as process:
        os.close(follower)
        shown = b""
        while process.poll() is None or not shown.endswith(b".\r\n"):
            try:
                shown += os.read(leader, 1000)
            except OSError:  # the other end is closed
                break
    os.close(leader)
    pictures = shown.decode().split("\r")
    assert any(each.startswith(f"Building llama.cpp {picture}") for each in pictures)
    assert len({each.strip() for each in pictures if each.startswith("Building")}) > 1  # its clock goes on
    assert pictures[-2].startswith("Installing: done in 0:")
    assert (tmp_path / "log").read_text().count("\n") == 4


def test_elsewhere_a_line_comes_now_and_then():
    module = {"__name__": "show_progress"}
    exec(SCRIPT.read_text("utf-8"), module)
    module |= {"BETWEEN_PICTURES": 0.01, "BETWEEN_LINES": 0.05}
    out = io.StringIO()
    shown = module["Shown"]("Installing", out)
    shown.read("  Running command Building wheel for llama-cpp-python (pyproject.toml)\n")
    shown.read("  [20/193] /usr/bin/g++\n")
    threading.Timer(0.4, shown.ended.set).start()
    shown.show()
    lines = out.getvalue().splitlines()
    assert 2 <= len(lines) <= 8
    assert all(line.startswith("Building llama.cpp ##...") for line in lines)


def test_a_failure_shows_the_end_of_the_output_and_names_the_rest(tmp_path):
    run = show(tmp_path / "log", "print('\\n'.join(map(str, range(100)))); raise SystemExit('no compiler')")
    assert run.returncode == 1
    lines = run.stderr.splitlines()
    assert lines[-2:] == ["no compiler", f"Installing: this failed. All of the output is in {tmp_path / 'log'}."]
    assert "99" in lines
    assert "50" not in lines
    assert (tmp_path / "log").read_text().startswith("0\n1\n")
