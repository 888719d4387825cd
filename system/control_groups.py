"""Find the control groups of Linux that limit this process: its own and all above, as a container or a service has."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

#: Where the groups are.
_ROOT = Path("/sys/fs/cgroup")


class ControlGroup(NamedTuple):
    """A control group.

    Parameters
    ----------
    folder : Path
        Where its files are.
    version : {1, 2}
        The version of the interface, which decides the names of the files.
    """

    folder: Path
    version: int


def control_groups(controller: str) -> Iterator[ControlGroup]:
    """Yield the groups of this process whose limits count, its own first.

    Parameters
    ----------
    controller : {"cpu", "memory"}
        What they limit.
    """
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            top, version = (_ROOT / controller, 1) if controllers else (_ROOT, 2)
            own = top / path.strip("/")
            for folder in (own, *own.parents):
                yield ControlGroup(folder, version)
                if folder == top:
                    break
