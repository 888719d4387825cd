"""Memory that CPU and GPU share: what NumPy arrays lie in, the GPU reads and writes, without a copy.

Arenas of anonymous pages are wrapped by `newBufferWithBytesNoCopy`, and arrays are cut out of them: many chunks of a
cache, few Metal buffers. Files that are mapped are wrapped as they are. The GPU has addresses of its own for the same
bytes; records that hold addresses are translated (`Memory.on_gpu`).
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import OctavoError
from .gpu import Gpu, reason

#: What an arena takes at least, and what arrays in it begin at a multiple of.
ARENA_BYTES, ALIGNMENT = 32 << 20, 256

#: What f16 and other elements must begin at a multiple of: shaders load 16 bytes of f16 at once, else 4.
_HALVES_ALIGNMENT, _ALIGNMENT = 16, 4


@dataclass
class Region:
    """Pages that a Metal buffer wraps. The buffer comes first: it goes before its memory does.

    buffer : the MTLBuffer    start, length : addresses of the CPU    gpu_start : that of the GPU for the first byte
    memory : what keeps the pages mapped
    """

    buffer: Any
    start: int
    length: int
    gpu_start: int
    memory: mmap.mmap


@dataclass
class _Arena:
    """A region that arrays are cut out of. Those that are freed are used again by arrays of the same size."""

    region: Region
    used: int = 0
    n_live: int = 0
    free: dict[int, list[int]] = field(default_factory=dict)

    def take(self, size: int) -> int | None:
        """Offset of `size` bytes, or None where they do not fit."""
        if self.free.get(size):
            offset = self.free[size].pop()
        elif self.used + size <= self.region.length:
            offset, self.used = self.used, self.used + size
        else:
            return None
        self.n_live += 1
        return offset

    def give_back(self, offset: int, size: int) -> None:
        """Free what `take` gave."""
        self.n_live -= 1
        self.free.setdefault(size, []).append(offset)
        if self.n_live == 0:  # then for arrays of other sizes, too
            self.used, self.free = 0, {}


class Memory:
    """All memory of one context that the GPU sees."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._arenas: list[_Arena] = []
        self._files: dict[int, Region] = {}
        self._regions: list[Region] = []
        self.generation = 0  # goes up when what is where changes
        self._index()

    def allocate(self, n_bytes: int) -> np.ndarray:
        """(n_bytes,) uint8, uninitialised, from a multiple of ALIGNMENT on. It is free when no view of it is left.

        Raises OctavoError where Metal gives no more memory.
        """
        size = max(-(-n_bytes // ALIGNMENT), 1) * ALIGNMENT
        for arena in reversed(self._arenas):
            offset = arena.take(size)
            if offset is not None:
                break
        else:
            total = sum(arena.region.length for arena in self._arenas)
            memory = mmap.mmap(-1, _whole_pages(max(size, ARENA_BYTES, total // 8)))
            arena = _Arena(self._wrap(memory))
            self._arenas.append(arena)
            self._index()
            offset = arena.take(size)
            assert offset is not None
        # Views of an array keep it, and not what it was cut out of: so it is free when the last of them is gone.
        array = np.frombuffer(arena.region.memory, np.uint8, n_bytes, offset)
        weakref.finalize(array, arena.give_back, offset, size).atexit = False
        return array

    def new(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An uninitialised array in shared memory."""
        dtype = np.dtype(dtype)
        n_bytes = int(np.prod(shape)) * dtype.itemsize
        array: np.ndarray = self.allocate(n_bytes).view(dtype).reshape(shape)
        return array

    def share(self, array: np.ndarray) -> np.ndarray:
        """The same numbers where the GPU sees them: the array itself where it lies in a mapped file, else a copy.

        The file stays wrapped until `release`. Raises OctavoError where the array is not aligned as shaders need it.
        """
        memory = _mapping_of(array)
        if memory is None:
            copy = self.new(array.shape, array.dtype)
            copy[...] = array
            return copy
        needed = _HALVES_ALIGNMENT if array.dtype == np.float16 else _ALIGNMENT
        if array.size and array.ctypes.data % needed:
            raise OctavoError(
                "This index was written by an older octavo, and its arrays do not begin where a GPU can read them: "
                "delete it and index the document again, or use --device cpu."
            )
        start = _address(memory)
        if start not in self._files:
            self._files[start] = self._wrap(memory)
            self._index()
        return array

    def release(self) -> None:
        """What was shared from files is not needed any more."""
        self._files.clear()
        self._index()

    def tidy(self) -> None:
        """Give arenas back in which nothing is left."""
        if any(arena.n_live == 0 for arena in self._arenas):
            self._arenas = [arena for arena in self._arenas if arena.n_live]
            self._index()

    @property
    def buffers(self) -> list[Any]:
        """All Metal buffers."""
        return [region.buffer for region in self._regions]

    def on_gpu(self, addresses: np.ndarray) -> np.ndarray:
        """The GPU's addresses of the CPU's, int64; 0 stays 0. Raises OctavoError for one that the GPU does not see."""
        place = np.searchsorted(self._starts, addresses, side="right") - 1
        known = (addresses >= self._starts[place]) & (addresses < self._stops[place])
        if not np.all(known | (addresses == 0)):
            raise OctavoError("octavo was about to give the GPU an address that it does not see: please report this.")
        return np.where(known, addresses - self._starts[place] + self._gpu_starts[place], 0)

    def binding(self, array: np.ndarray) -> tuple[Any, int]:
        """The Metal buffer that an array lies in, and its offset there."""
        place = int(np.searchsorted(self._starts, array.ctypes.data, side="right")) - 1
        region = self._regions[place]
        offset = array.ctypes.data - region.start
        assert offset >= 0
        assert offset + array.nbytes <= region.length
        return region.buffer, offset

    def _index(self) -> None:
        """Regions by their addresses."""
        self.generation += 1
        regions = [arena.region for arena in self._arenas] + list(self._files.values())
        self._regions = sorted(regions, key=lambda region: region.start)
        self._starts = np.array([region.start for region in self._regions] or [0], np.int64)
        self._stops = self._starts + np.array([region.length for region in self._regions] or [0], np.int64)
        self._gpu_starts = np.array([region.gpu_start for region in self._regions] or [0], np.int64)

    def _wrap(self, memory: mmap.mmap) -> Region:
        start, length = _address(memory), _whole_pages(len(memory))
        Metal, device = self.gpu.Metal, self.gpu.device
        if length > device.maxBufferLength():
            raise OctavoError(
                f"Metal takes {device.maxBufferLength() / 2**30:.1f} GiB at once on {self.gpu.name}, and "
                f"{length / 2**30:.1f} GiB are needed: use --device cpu."
            )
        pages = (ctypes.c_ubyte * length).from_address(start)
        with self.gpu.autorelease_pool():
            buffer = device.newBufferWithBytesNoCopy_length_options_deallocator_(
                pages, length, Metal.MTLResourceStorageModeShared, None
            )
            if buffer is None:
                raise OctavoError(
                    f"Metal gives no buffer of {length / 2**20:.0f} MiB: close other programs, or use --device cpu."
                )
            if _address(buffer.contents().as_buffer(length)) != start:
                raise OctavoError(f"Metal copied memory that it was to share: {reason(None)}. Use --device cpu.")
            gpu_start = int(buffer.gpuAddress())
        return Region(buffer, start, length, gpu_start, memory)


def _whole_pages(n_bytes: int) -> int:
    return -(-n_bytes // mmap.PAGESIZE) * mmap.PAGESIZE


def _address(memory: Any) -> int:
    return int(np.frombuffer(memory, np.uint8).ctypes.data)


def _mapping_of(array: np.ndarray) -> mmap.mmap | None:
    """The mapped file that an array lies in, or None."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, mmap.mmap) and isinstance(array, np.memmap) else None
