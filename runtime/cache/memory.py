"""Memory of a cache: that of a device, which reads it where it is, or plain memory."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ...cpu_kernels.vector import CACHE_LINE


class Memory(Protocol):
    """Memory that a device reads and writes, and the CPU too."""

    def allocate(self, n_bytes: int) -> np.ndarray:
        """Return n_bytes uint8, uninitialised. They are free when no view of them is left."""

    def share(self, array: np.ndarray) -> np.ndarray:
        """Return the same numbers, read-only, where the device reads them: the array itself if it can be.

        Raises
        ------
        OctavoError
            If the device cannot read them.
        """

    def release(self) -> None:
        """Take note that what was shared is not needed any more."""


class CpuMemory:
    """Plain memory."""

    def allocate(self, n_bytes: int) -> np.ndarray:
        """Return n_bytes uint8, uninitialised. They begin on a cache line."""
        room = np.empty(n_bytes + CACHE_LINE - 1, np.uint8)
        start = -room.ctypes.data % CACHE_LINE
        return room[start : start + n_bytes]

    def share(self, array: np.ndarray) -> np.ndarray:
        """Return the array itself."""
        return array

    def release(self) -> None:
        """Do nothing: nothing was taken."""
