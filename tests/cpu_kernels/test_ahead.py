"""Test that kernels are compiled in a process of their own, once."""

import pytest

from octavo.cpu_kernels import ahead
from octavo.cpu_kernels.compile import Shape, cache_folder
from octavo.cpu_kernels.methods.dense import select_all


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Have kernels cached in a folder of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_folder.cache_clear()
    yield cache_folder()
    monkeypatch.undo()
    cache_folder.cache_clear()


def test_kernels_are_compiled_in_the_background_once(folder):
    ahead.compile_ahead([select_all], [Shape(8, 1)])
    assert ahead._running
    ahead.wait()
    assert not ahead._running
    assert any("select_all" in path.name for path in folder.rglob("*.nbc"))
    ahead.compile_ahead([select_all], [Shape(8, 1)])
    assert not ahead._running


def test_what_failed_is_tried_again(folder, monkeypatch):
    monkeypatch.setattr(ahead.sys, "executable", "/bin/false")
    for _ in range(2):
        ahead.compile_ahead([select_all], [Shape(8, 1)])
        assert ahead._running
        ahead.wait()
