"""Memory of a cache: a device's, which reads it where it is, or plain memory."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class Memory(Protocol):
    """Memory that a device reads and writes, and the CPU too."""

    def allocate(self, n_bytes: int) -> np.ndarray:
        """(n_bytes,) uint8, uninitialised; free when no view of it is left."""

    def share(self, array: np.ndarray) -> np.ndarray:
        """The same numbers, read-only, where the device reads them: the array itself if it can be.

        Raises OctavoError where the device cannot read them.
        """

    def release(self) -> None:
        """What was shared is not needed any more."""


class CpuMemory:
    """Plain memory."""

    def allocate(self, n_bytes: int) -> np.ndarray:
        """(n_bytes,) uint8, uninitialised."""
        return np.empty(n_bytes, np.uint8)

    def share(self, array: np.ndarray) -> np.ndarray:
        """The array itself."""
        return array

    def release(self) -> None:
        """Nothing was taken."""
