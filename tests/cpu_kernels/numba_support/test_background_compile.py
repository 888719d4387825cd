"""Test that kernels are compiled in a process of their own, once."""

import subprocess
import sys
import time

import pytest

from octavo.cpu_kernels.methods.dense import select_all
from octavo.cpu_kernels.numba_support import background_compile, kernel_cache, numba_cache
from octavo.cpu_kernels.numba_support.machine import cpu_name


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Have kernels cached in a folder of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / name))  # where a CPU is pretended
    for cached in (kernel_cache.kernel_folder, kernel_cache.folder_of):
        cached.cache_clear()
    yield kernel_cache.kernel_folder()
    monkeypatch.undo()
    for cached in (kernel_cache.kernel_folder, kernel_cache.folder_of):
        cached.cache_clear()


def test_kernels_are_compiled_in_the_background_once(folder):
    background_compile.compile_ahead([select_all])
    assert background_compile._running
    background_compile.wait()
    assert not background_compile._running
    assert any("select_all" in path.name for path in folder.rglob("*.nbc"))
    background_compile.compile_ahead([select_all])
    assert not background_compile._running


def test_only_what_is_wanted_is_waited_for_and_once(folder, monkeypatch):
    talks = f"print('{__name__}.first', flush=True); import time; time.sleep(60)"
    pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    talking = subprocess.Popen([sys.executable, "-c", talks], **pipes, text=True)
    monkeypatch.setattr(background_compile, "_running", [talking])
    monkeypatch.setattr(background_compile, "_awaited", {f"{__name__}.first", f"{__name__}.second"})

    def first():
        pass

    started = time.monotonic()
    for function in (first, first, select_all):  # the last one was not asked for
        background_compile.wait(function)
    assert time.monotonic() - started < 30
    assert talking.poll() is None
    talking.kill()
    background_compile.wait()
    assert not background_compile._running


def test_one_process_compiles_all_that_is_asked_for(folder):
    background_compile.compile_ahead([select_all])
    first = background_compile._running[0]
    background_compile.compile_ahead([select_all, cpu_name])
    assert background_compile._running == [first]
    background_compile.wait(cpu_name)
    assert first.poll() is None
    background_compile.wait()
    assert len(list(folder.glob("compiled-*"))) == 2


def test_what_failed_is_tried_again(folder, monkeypatch):
    monkeypatch.setattr(background_compile.sys, "executable", "/bin/false")
    for _ in range(2):
        background_compile.compile_ahead([select_all])
        assert background_compile._running
        background_compile.wait()


#: Saves 20 signatures of one function as soon as there is a file `go`.
SAVING = """
import sys, time
from pathlib import Path
from octavo.cpu_kernels.numba_support import kernel_cache, numba_cache
folder, number = kernel_cache.kernel_folder(), sys.argv[1]
(folder / f"ready-{number}").touch()
while not (folder / "go").exists():
    time.sleep(0.001)
for i in range(20):
    numba_cache._OurFiles(str(folder), "function", "stamp").save((number, i), f"{number}, {i}")
"""


def test_what_processes_save_at_once_is_all_there(folder):
    folder.mkdir(parents=True)
    saving = [subprocess.Popen([sys.executable, "-c", SAVING, str(number)]) for number in range(3)]
    while sum(1 for _ in folder.glob("ready-*")) < len(saving):
        assert all(each.poll() is None for each in saving)
        time.sleep(0.01)
    (folder / "go").touch()
    assert [each.wait(60) for each in saving] == [0] * len(saving)
    saved = numba_cache._OurFiles(str(folder), "function", "stamp")
    for number in range(len(saving)):
        assert [saved.load((str(number), i)) for i in range(20)] == [f"{number}, {i}" for i in range(20)]
