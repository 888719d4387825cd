"""Limit the memory and the computing time of a process that works on files of others: a small file may unfold."""

from __future__ import annotations

import math
import os
import resource
from contextlib import suppress
from typing import NamedTuple, Self

#: Seconds and bytes for any file, and for each byte of it. The slowest documents take a second for 100 KiB.
_SECONDS, _SECONDS_A_BYTE = 60.0, 30 / 2**20
_BYTES, _BYTES_A_BYTE = 2 << 30, 16

#: What the error of a process says that took more.
TOO_MUCH_MEMORY = "It needs more memory than a file of its size may take."
TOO_MUCH_TIME = "it computed for longer than a file of its size may take"


class WorkLimits(NamedTuple):
    """Seconds of computing, and bytes of memory."""

    seconds: float
    n_bytes: int

    @classmethod
    def of_file(cls, path: str | os.PathLike[str]) -> Self:
        """Return the limits of work on a file."""
        size = 0
        with suppress(OSError):
            size = os.stat(path).st_size
        return cls(_SECONDS + size * _SECONDS_A_BYTE, _BYTES + size * _BYTES_A_BYTE)

    def begin(self) -> None:
        """Let this process take no more from now on. Beyond them the system ends it (SIGXCPU), or refuses memory.

        A system that lacks one of these limits has only the other.
        """
        used = resource.getrusage(resource.RUSAGE_SELF)
        limits = {
            resource.RLIMIT_CPU: math.ceil(used.ru_utime + used.ru_stime + self.seconds),
            resource.RLIMIT_DATA: self.n_bytes,
        }
        for kind, most in limits.items():
            with suppress(OSError, ValueError):
                _, hard = resource.getrlimit(kind)
                resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
