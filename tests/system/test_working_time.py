"""The clock that stands still while kernels are compiled."""

import threading
from types import SimpleNamespace
from unittest.mock import Mock

import numba
import pytest
from helpers.waiting import wait_until
from numba.core.compiler_lock import global_compiler_lock

from octavo.cpu_kernels.numba_support import background_compile
from octavo.system import working_time as module
from octavo.system.working_time import compiling_time, not_working, working_time


@pytest.fixture
def let_pass(monkeypatch):
    """A function that lets seconds pass."""
    now = [100.0]

    def add(seconds):
        now[0] += seconds

    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return add


def counted(work):
    """Seconds of a work by the clock."""
    before = working_time()
    work()
    return working_time() - before


def test_work_counts(let_pass):
    assert counted(lambda: let_pass(3)) == pytest.approx(3)


def test_compiling_does_not_count():
    before = compiling_time()
    numba.njit(lambda x: x * 2.0 + 1.0)(3)
    assert compiling_time() > before


def test_what_compiles_while_the_clock_is_read_does_not_count(let_pass):
    with global_compiler_lock:
        assert counted(lambda: let_pass(3)) == pytest.approx(0)


def test_two_threads_that_compile_count_once(let_pass):
    has_it, ends = threading.Event(), threading.Event()

    def compile_it():
        with global_compiler_lock:
            has_it.set()
            ends.wait(60)

    def compile_two():
        one, other = (threading.Thread(target=compile_it) for _ in range(2))
        one.start()
        assert has_it.wait(60)
        other.start()
        wait_until(lambda: module._compiling._n_open == 2)
        let_pass(3)
        ends.set()
        one.join()
        other.join()
        let_pass(1)

    before = compiling_time()
    assert counted(compile_two) == pytest.approx(1)
    assert compiling_time() - before == pytest.approx(3)


def test_waiting_for_the_process_that_compiles_does_not_count(let_pass, monkeypatch):
    process = Mock()
    process.stdout.readline = lambda: let_pass(3) or ""  # it ends
    monkeypatch.setattr(background_compile, "_running", [process])
    assert counted(background_compile.wait) == pytest.approx(0)


def test_the_clock_goes_on_after_a_failure(let_pass):
    with pytest.raises(KeyboardInterrupt), not_working():
        raise KeyboardInterrupt
    assert counted(lambda: let_pass(3)) == pytest.approx(3)
