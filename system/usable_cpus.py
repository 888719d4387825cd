"""Tell how many processors this process may use: by its affinity, and by the quota of its container."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

#: Where containers find their own control group: that of version 2, and that of version 1.
_GROUPS = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/cpu")


def usable_cpus() -> int:
    """Return the number of processors that the system may run this process on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quota() -> int | None:
    """Return how many processors' time a container may take, rounded up; None without a quota."""
    new, old = _GROUPS
    with suppress(OSError, ValueError):
        quota, period = (new / "cpu.max").read_text("utf-8").split()
        return None if quota == "max" else math.ceil(int(quota) / int(period))
    with suppress(OSError, ValueError):
        quota, period = ((old / f"cpu.cfs_{name}_us").read_text("utf-8") for name in ("quota", "period"))
        return None if int(quota) < 0 else math.ceil(int(quota) / int(period))
    return None


def default_threads() -> int:
    """Return the number of physical cores that this process may use."""
    import psutil

    usable = usable_cpus()
    return max(1, min(psutil.cpu_count(logical=False) or usable, usable, cpu_quota() or usable))
