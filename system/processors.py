"""Tell how many processors this process may use, and how many of them other programs use.

The first depends on affinity, on the quota of a container, and on the kinds of cores: a step waits for its slowest
thread, so that slow cores beside fast ones only delay it. Programs of low priority do not count: they make room.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import psutil

from .control_groups import ControlGroup, control_groups


def usable_cpus() -> int:
    """Return the number of processors that the system may run this process on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quota() -> int | None:
    """Return how many processors' time a container or a service may take, rounded up; None without a quota."""
    quotas = [quota for group in control_groups("cpu") if (quota := _quota_of(group)) is not None]
    return min(quotas, default=None)


def _quota_of(group: ControlGroup) -> int | None:
    with suppress(OSError, ValueError):
        if group.version == 2:
            quota, period = (group.folder / "cpu.max").read_text("utf-8").split()
        else:
            quota, period = ((group.folder / f"cpu.cfs_{name}_us").read_text("utf-8") for name in ("quota", "period"))
        return None if quota == "max" or int(quota) < 0 else math.ceil(int(quota) / int(period))
    return None


#: Where Linux lists the processors of a hybrid's fast cores, and describes each processor.
_FAST, _PROCESSORS = Path("/sys/devices/cpu_core/cpus"), Path("/sys/devices/system/cpu")


@cache
def _fast_cores_of_a_mac() -> int | None:
    """Return the number of a Mac's performance cores; None on an Intel Mac, whose cores are alike."""
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        command = ["sysctl", "-n", "hw.perflevel0.physicalcpu"]
        return int(subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True)) or None
    return None


def fast_cores() -> int | None:
    """Return the number of fast physical cores that this process may use; None if they are alike."""
    if sys.platform == "darwin":
        return _fast_cores_of_a_mac()
    with suppress(OSError, ValueError):
        fast: set[int] = set()
        for part in _FAST.read_text("utf-8").strip().split(","):
            first, _, last = part.partition("-")
            fast |= set(range(int(first), int(last or first) + 1))
        siblings = (_PROCESSORS / f"cpu{i}/topology/thread_siblings_list" for i in fast & os.sched_getaffinity(0))
        return len({path.read_text("utf-8") for path in siblings}) or None
    return None


def default_threads() -> int:
    """Return the number of physical cores, without the slow ones of a hybrid, that this process may use."""
    usable = usable_cpus()
    cores = fast_cores() or psutil.cpu_count(logical=False) or usable
    return max(1, min(cores, usable, cpu_quota() or usable))


#: What a core does for programs, or for others than this system (steal), in the words of psutil.
_BUSY = ("user", "system", "irq", "softirq", "steal")

#: Shortest and longest time, in seconds, that tells what others do now.
_SHORTEST, _LONGEST = 0.1, 3.0


class Look(NamedTuple):
    """Times at one moment, in seconds.

    Parameters
    ----------
    at : float
        The time.
    busy, own : float
        What all programs, and this one, have computed until then, on the cores that this one may use.
    """

    at: float
    busy: float
    own: float

    def cores_of_others(self, later: Look) -> float:
        """Return how many cores others used on average until a later look."""
        return max(later.busy - self.busy - (later.own - self.own), 0.0) / max(later.at - self.at, 1e-9)


def look() -> Look:
    """Look at the system's counters. Where they cannot be read, others do nothing."""
    busy = 0.0
    with suppress(OSError, RuntimeError, ValueError):
        cores = psutil.cpu_times(percpu=True)
        usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(cores))
        kinds = (*_BUSY, "nice") if os.nice(0) > 0 else _BUSY
        busy = sum(getattr(times, kind, 0.0) for i, times in enumerate(cores) if i in usable for kind in kinds)
    return Look(time.monotonic(), busy, time.process_time())


#: The first look, when octavo is imported: what others do is known when a model is loaded.
_FIRST = look()


def cores_of_others() -> float:
    """Return how many cores others use now: since octavo was imported, if that was lately, or in a short while."""
    first, now = _FIRST, look()
    if not _SHORTEST <= now.at - first.at <= _LONGEST:
        first = now
        time.sleep(_SHORTEST)
        now = look()
    return first.cores_of_others(now)


def free_threads(least: int) -> int:
    """Return the number of these cores that are free, and at least so many."""
    usable = default_threads()
    free = round(usable_cpus() - cores_of_others())
    return min(usable, max(free, least))
