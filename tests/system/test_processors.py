"""How many cores there are, and how many other programs use."""

import os
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


@pytest.fixture(autouse=True)
def _without_quota(groups):
    groups("0::/\n", {})


@pytest.mark.parametrize(
    ("physical", "usable", "expected"),
    [(4, 8, 4), (8, 4, 4), (4, 1, 1), (None, 6, 6)],
    ids=["two threads a core", "fewer cores usable than there are", "one core usable", "unknown number of cores"],
)
def test_default_threads_are_the_physical_cores_that_are_usable(monkeypatch, physical, usable, expected):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 2 * expected if logical else physical)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(usable)), raising=False)
    assert processors.default_threads() == expected


def test_default_threads_without_affinity(monkeypatch):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 16 if logical else 8)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert processors.default_threads() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert processors.default_threads() == 1


#: Two fast cores of two threads each, and four slow ones, as Linux describes Intel's hybrids.
HYBRID = {
    "cpu_core/cpus": "0-3",
    **{
        f"cpu/cpu{i}/topology/thread_siblings_list": siblings
        for i, siblings in enumerate(["0-1", "0-1", "2-3", "2-3", "4", "5", "6", "7"])
    },
}


@pytest.fixture
def hybrid(tmp_path, monkeypatch):
    """hybrid(usable, **files): have a hybrid processor, some usable processors, and other files."""
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 8 if logical else 6)
    monkeypatch.setattr(processors, "_FAST", tmp_path / "cpu_core/cpus")
    monkeypatch.setattr(processors, "_PROCESSORS", tmp_path / "cpu")

    def have(usable, **files):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(usable), raising=False)
        for name, content in {**HYBRID, **files}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"{content}\n")

    return have


@pytest.mark.parametrize(
    ("usable", "listed", "expected"),
    [
        (range(8), "0-3", 2),
        ({0, 2, 4}, "0-3", 2),
        ({1, 4, 5}, "0-3", 1),
        (range(8), "0,2-3", 2),
        (range(4, 8), "0-3", 4),  # slow cores only: all of them are alike
        (range(8), "", 6),  # a list that cannot be read
    ],
)
def test_default_threads_are_the_fast_cores_of_a_hybrid(hybrid, usable, listed, expected):
    hybrid(usable, **{"cpu_core/cpus": listed})
    assert processors.default_threads() == expected


def test_a_quota_limits_the_fast_cores(hybrid, groups):
    hybrid(range(8))
    groups("0::/\n", {"cpu.max": "100000 100000"})
    assert processors.default_threads() == 1


@pytest.mark.parametrize(("said", "expected"), [("echo 4", 4), ("exit 1", 6), ("echo 0", 6), ("echo none", 6)])
def test_default_threads_are_the_performance_cores_of_a_mac(monkeypatch, tmp_path, said, expected):
    """An Intel Mac, and an older macOS, know no performance levels."""
    asked = f'[ "$*" = "-n hw.perflevel0.physicalcpu" ] && {said}'
    (tmp_path / "sysctl").write_text(f"#!/bin/sh\n{asked}\n")
    (tmp_path / "sysctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(processors.sys, "platform", "darwin")
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 8 if logical else 6)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    processors._fast_cores_of_a_mac.cache_clear()
    try:
        assert processors.default_threads() == expected
    finally:
        processors._fast_cores_of_a_mac.cache_clear()


@pytest.mark.parametrize(
    ("lines", "files", "expected"),
    [
        ("0::/", {"cpu.max": "max 100000"}, 8),
        ("0::/", {"cpu.max": "150000 100000"}, 2),
        ("0::/", {"cpu.max": "10000 100000"}, 1),
        ("0::/", {"cpu.max": "nonsense"}, 8),
        ("0::/own", {"own/cpu.max": "300000 100000"}, 3),
        ("0::/service/own", {"service/cpu.max": "200000 100000", "service/own/cpu.max": "max 100000"}, 2),
        ("0::/service/own", {"service/cpu.max": "400000 100000", "service/own/cpu.max": "100000 100000"}, 1),
        ("0::/somewhere/else", {"cpu.max": "500000 100000"}, 5),  # a container shows its own group at the top
        ("1:cpu:/\n0::/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("1:cpu:/\n0::/", {"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4),
        ("2:cpuacct,cpu:/own", {"cpu/own/cpu.cfs_quota_us": "200000", "cpu/own/cpu.cfs_period_us": "100000"}, 2),
        ("4:memory:/", {"memory/cpu.cfs_quota_us": "100000", "memory/cpu.cfs_period_us": "100000"}, 8),
    ],
)
def test_default_threads_are_no_more_than_a_containers_quota(monkeypatch, groups, lines, files, expected):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    groups(f"{lines}\n", files)
    assert processors.default_threads() == expected


@pytest.mark.parametrize(
    ("usable", "others", "least", "expected"),
    [
        (8, 0.0, 1, 8),
        (8, 0.4, 1, 8),
        (8, 2.1, 2, 6),
        (8, 7.0, 1, 1),
        (8, 7.0, 2, 2),
        (8, 20.0, 2, 2),
        (2, 1.0, 1, 1),
        (1, 0.0, 2, 1),
        (1, 3.0, 2, 1),
    ],
)
def test_threads_are_for_the_cores_that_others_leave(monkeypatch, usable, others, least, expected):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: usable)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(usable)), raising=False)
    monkeypatch.setattr(processors, "cores_of_others", lambda: others)
    assert processors.free_threads(least) == expected
