"""Bars and spinners say that kernels are compiled, and move meanwhile."""

from io import StringIO
from types import SimpleNamespace

import numba
import pytest
from rich.console import Console

from octavo.cli.bars import bars, spinner
from octavo.system import working_time


@pytest.fixture
def now(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(working_time, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(working_time, "_compiling", working_time._Compiling())
    return now


def drawn(progress):
    console = Console(width=80, record=True, file=StringIO())
    console.print(progress.get_renderable())
    return console.export_text()


def test_a_bar_tells_how_long_kernels_have_been_compiled(now):
    progress = bars(("amounts",))
    task = progress.add_task("Reading a.txt", total=10, completed=3, amounts="3/10")
    assert "Reading a.txt" in drawn(progress)
    with working_time.not_working():
        now[0] += 0.1
        assert "Reading a.txt" in drawn(progress)  # kernels are found on disk
        now[0] += 5
        assert "Compiling kernels 0:05" in drawn(progress)
        assert "3/10" in drawn(progress)
    assert "Reading a.txt" in drawn(progress)
    with working_time.not_working(), working_time.not_working():
        now[0] += 3
        assert "Compiling kernels 0:08" in drawn(progress)  # all waits together
        assert "Compiling kernels" in drawn(spinner("Opening a.txt"))
    assert "Opening a.txt ..." in drawn(spinner("Opening a.txt"))
    progress.remove_task(task)


def test_what_numba_compiles_is_counted():
    before = working_time.compiling_time()
    numba.njit(lambda x: x + 1)(1)
    assert working_time.compiling_time() > before
    assert working_time.compiling_now() == 0
