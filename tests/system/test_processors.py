"""How many cores other programs use."""

import subprocess
import sys
import time
from collections import namedtuple
from types import SimpleNamespace

import psutil
import pytest

from octavo.system import processors
from octavo.system.processors import Look, look

Times = namedtuple("Times", "user nice system idle iowait irq softirq steal guest guest_nice")


def test_what_this_process_computes_is_its_own():
    assert Look(10.0, 5.0, 1.0).cores_of_others(Look(12.0, 9.0, 2.5)) == (4.0 - 1.5) / 2
    assert Look(10.0, 5.0, 1.0).cores_of_others(Look(12.0, 6.0, 3.0)) == 0  # the system counts in hundredths of seconds


@pytest.mark.parametrize(("niceness", "busy"), [(0, 2 * (1 + 4 + 64 + 128 + 256)), (10, 2 * (3 + 4 + 64 + 128 + 256))])
def test_low_priority_counts_only_for_programs_of_low_priority(monkeypatch, niceness, busy):
    times = Times(*(float(1 << i) for i in (0, 1, 2, 3, 4, 6, 7, 8, 0, 0)))
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [times] * 4)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {1, 3}, raising=False)
    monkeypatch.setattr("os.nice", lambda increment: niceness)
    assert look().busy == busy


def test_a_system_that_tells_nothing_is_free(monkeypatch):
    def refuse(percpu):
        raise PermissionError("/proc/stat")

    monkeypatch.setattr(psutil, "cpu_times", refuse)
    assert processors.cores_of_others() == 0


def test_a_busy_process_is_seen():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            spent, before = psutil.Process(busy.pid).cpu_times().user, look()
            time.sleep(1)
            seen = before.cores_of_others(look())
            spent = psutil.Process(busy.pid).cpu_times().user - spent
        finally:
            busy.kill()
    assert seen > 0.5 * spent > 0


@pytest.mark.parametrize(("ago", "waits"), [(0.01, True), (1.0, False), (60.0, True)])
def test_others_are_watched_for_a_moment_unless_octavo_was_imported_lately(monkeypatch, ago, waits):
    slept = []
    monkeypatch.setattr(processors, "_FIRST", look()._replace(at=time.monotonic() - ago))
    clock = SimpleNamespace(sleep=slept.append, monotonic=time.monotonic, process_time=time.process_time)
    monkeypatch.setattr(processors, "time", clock)
    processors.cores_of_others()
    assert bool(slept) == waits
