"""Allocate memory for a cache: on a device, which reads it in place, or plain memory."""

from __future__ import annotations

import ctypes
import weakref
from collections import defaultdict
from typing import Protocol

import numpy as np

from ...cpu_kernels.numba_support.vector import CACHE_LINE

#: Bytes of a huge page on most systems, of a slab, and of the largest piece that is cut from slabs.
_HUGE_PAGE, _SLAB_BYTES, _LARGEST_PIECE = 2 << 20, 8 << 20, 1 << 20


class Memory(Protocol):
    """Memory that a device reads and writes, and the CPU too."""

    @property
    def is_common(self) -> bool:
        """Return whether this memory can reach what another memory of the device allocated."""

    def allocate(self, n_bytes: int) -> np.ndarray:
        """Allocate n_bytes uint8, uninitialised. They are freed with their last view."""

    def share(self, array: np.ndarray) -> np.ndarray:
        """Return the array, read-only, where the device reads it: the array itself if possible, else a copy.

        Raises
        ------
        OctavoError
            If the device cannot read them.
        """

    def release(self) -> None:
        """Release arrays that were shared."""


class _Slab:
    """Memory that pieces of one size are cut from, so large that the system backs it by huge pages.

    A step reads rows all over the cache; with small pages it would also wait for address translation. Only pieces in
    use hold the slab.
    """

    def __init__(self, piece_bytes: int) -> None:
        buffer = np.empty(_SLAB_BYTES + _HUGE_PAGE, np.uint8)  # NumPy asks for huge pages
        self._buffer = buffer[-buffer.ctypes.data % _HUGE_PAGE :][:_SLAB_BYTES]
        self.free = [i * piece_bytes for i in reversed(range(_SLAB_BYTES // piece_bytes))]

    def cut(self, n_bytes: int) -> np.ndarray:
        """Cut n_bytes from a piece, which returns to the slab with their last view."""
        place = self.free.pop()
        piece = (ctypes.c_uint8 * n_bytes).from_buffer(self._buffer.data, place)
        weakref.finalize(piece, self._put_back, place).atexit = False
        return np.frombuffer(memoryview(piece), np.uint8)  # its views hold the piece, not this array

    def _put_back(self, place: int) -> None:
        self.free.append(place)


class CpuMemory:
    """Plain memory. Small arrays are cut from slabs."""

    is_common = True

    def __init__(self) -> None:
        self._slabs: defaultdict[int, weakref.WeakSet[_Slab]] = defaultdict(weakref.WeakSet)

    def allocate(self, n_bytes: int) -> np.ndarray:
        """Allocate n_bytes uint8, uninitialised, from a cache line on."""
        piece_bytes = -(-n_bytes // CACHE_LINE) * CACHE_LINE
        if not 0 < piece_bytes <= _LARGEST_PIECE:
            buffer = np.empty(n_bytes + CACHE_LINE - 1, np.uint8)
            return buffer[-buffer.ctypes.data % CACHE_LINE :][:n_bytes]
        slab = next((slab for slab in self._slabs[piece_bytes] if slab.free), None) or _Slab(piece_bytes)
        self._slabs[piece_bytes].add(slab)
        return slab.cut(n_bytes)

    def share(self, array: np.ndarray) -> np.ndarray:
        """Return the array itself."""
        return array

    def release(self) -> None:
        """Do nothing: nothing was allocated to share."""
