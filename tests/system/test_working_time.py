"""The clock that stands still while kernels are compiled."""

import threading
import time
from unittest.mock import Mock

import numba
import pytest
from numba.core.compiler_lock import global_compiler_lock

from octavo.cpu_kernels.numba_support import background_compile
from octavo.system.working_time import not_working, working_time


def passed(work):
    """Seconds of a work by the clock, and by the wall."""
    before = working_time(), time.perf_counter()
    work()
    return working_time() - before[0], time.perf_counter() - before[1]


def test_work_counts():
    counted, wall = passed(lambda: time.sleep(0.1))
    assert counted == pytest.approx(wall, abs=0.05)


def test_compiling_does_not_count():
    counted, wall = passed(lambda: numba.njit(lambda x: x * 2.0 + 1.0)(3))
    assert counted < wall / 2


def test_what_compiles_while_the_clock_is_read_does_not_count():
    with global_compiler_lock:
        counted, _ = passed(lambda: time.sleep(0.1))
    assert counted < 0.05


def test_two_threads_that_compile_count_once():
    def compile_one():
        with global_compiler_lock:
            time.sleep(0.1)

    def compile_two():
        threads = [threading.Thread(target=compile_one) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        time.sleep(0.1)

    counted, wall = passed(compile_two)
    assert 0.1 <= counted < wall - 0.2


def test_waiting_for_the_process_that_compiles_does_not_count(monkeypatch):
    process = Mock()
    process.stdout.readline = lambda: time.sleep(0.1) or ""  # it ends
    monkeypatch.setattr(background_compile, "_running", [process])
    counted, _ = passed(background_compile.wait)
    assert counted < 0.05


def test_the_clock_goes_on_after_a_failure():
    with pytest.raises(KeyboardInterrupt), not_working():
        raise KeyboardInterrupt
    assert passed(lambda: time.sleep(0.05))[0] >= 0.05
