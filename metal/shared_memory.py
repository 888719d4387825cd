"""Allocate memory that CPU and GPU share: the GPU reads and writes NumPy arrays without a copy.

`newBufferWithBytesNoCopy` wraps arenas of anonymous pages, and arrays are parts of arenas, because a cache has many
chunks and Metal allows few buffers. Mapped files are wrapped directly. The GPU has its own addresses for the same
bytes, so records with addresses are translated (`SharedMemory.on_gpu`).
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import OctavoError
from ..system.mapped_file import MappedFile, mapping_of
from .gpu import Gpu, reason

#: Smallest size of an arena, and alignment of the arrays in it, in bytes.
ARENA_BYTES, ALIGNMENT = 32 << 20, 256

#: Alignment of f16 arrays, and of others: shaders load 16 bytes of f16 at once, and 4 of other types.
_HALVES_ALIGNMENT, _ALIGNMENT = 16, 4


@dataclass
class Region:
    """Pages that a Metal buffer wraps.

    Parameters
    ----------
    buffer : MTLBuffer
        The buffer, as the first field, so that it is freed before its memory.
    start, length : int
        The CPU's address of the first byte, and the number of bytes.
    gpu_start : int
        The GPU's address of the first byte.
    memory : mmap or MappedFile
        The mapped pages.
    """

    buffer: Any
    start: int
    length: int
    gpu_start: int
    memory: Any


@dataclass
class _Arena:
    """A region whose parts are arrays. The space of a freed array serves arrays of the same size again."""

    region: Region
    used: int = 0
    n_live: int = 0
    free: dict[int, list[int]] = field(default_factory=dict)

    def take(self, size: int) -> int | None:
        """Allocate `size` bytes and return their offset, or None if they do not fit."""
        if self.free.get(size):
            offset = self.free[size].pop()
        elif self.used + size <= self.region.length:
            offset, self.used = self.used, self.used + size
        else:
            return None
        self.n_live += 1
        return offset

    def give_back(self, offset: int, size: int) -> None:
        """Free bytes of `take`."""
        self.n_live -= 1
        self.free.setdefault(size, []).append(offset)
        if self.n_live == 0:  # the next arrays may have other sizes
            self.used, self.free = 0, {}


class SharedMemory:
    """All memory of one context that the GPU sees: a `Memory` (see runtime/cache/cache_memory.py).

    Attributes
    ----------
    generation : int
        Increases when the GPU's addresses change.
    is_common : bool
        Whether this memory can reach what another memory allocated.
    """

    is_common = False

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._arenas: list[_Arena] = []
        self._files: dict[int, Region] = {}
        self._regions: list[Region] = []
        self.generation = 0
        self._index()

    def allocate(self, n_bytes: int) -> np.ndarray:
        """Allocate uninitialised uint8, (n_bytes,), at a multiple of ALIGNMENT. They are freed with their last view.

        Raises
        ------
        OctavoError
            Metal has no memory left.
        """
        size = max(-(-n_bytes // ALIGNMENT), 1) * ALIGNMENT
        for arena in reversed(self._arenas):
            offset = arena.take(size)
            if offset is not None:
                break
        else:
            total = sum(arena.region.length for arena in self._arenas)
            memory = mmap.mmap(-1, _whole_pages(max(size, ARENA_BYTES, total // 8)))
            arena = _Arena(self._wrap(memory, _address(memory), len(memory)))
            self._arenas.append(arena)
            self._index()
            offset = arena.take(size)
            assert offset is not None
        # A view of this array refers to the array, not to the arena, so the array is freed with its last view.
        array = np.frombuffer(arena.region.memory, np.uint8, n_bytes, offset)
        weakref.finalize(array, arena.give_back, offset, size).atexit = False
        return array

    def new(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Allocate an uninitialised array."""
        dtype = np.dtype(dtype)
        n_bytes = int(np.prod(shape)) * dtype.itemsize
        array: np.ndarray = self.allocate(n_bytes).view(dtype).reshape(shape)
        return array

    def share(self, array: np.ndarray) -> np.ndarray:
        """Make an array visible to the GPU.

        Returns
        -------
        array
            The array itself if it is in a mapped file, which stays wrapped until `release`; else a copy.

        Raises
        ------
        OctavoError
            The array lacks the alignment that shaders need.
        """
        file = mapping_of(array)
        if file is None:
            copy = self.new(array.shape, array.dtype)
            copy[...] = array
            return copy
        needed = _HALVES_ALIGNMENT if array.dtype == np.float16 else _ALIGNMENT
        if array.size and array.ctypes.data % needed:
            raise OctavoError(
                "This index was written by an older octavo, and its arrays do not begin where a GPU can read them: "
                'delete it and index the document again, or use `device="cpu"`.'
            )
        if file.start not in self._files:
            self._files[file.start] = self._wrap(file, file.start, file.n_bytes)
            self._index()
        return array

    def release(self) -> None:
        """Release the files of shared arrays."""
        self._files.clear()
        self._index()

    def tidy(self) -> None:
        """Free arenas without arrays."""
        if any(arena.n_live == 0 for arena in self._arenas):
            self._arenas = [arena for arena in self._arenas if arena.n_live]
            self._index()

    @property
    def buffers(self) -> list[Any]:
        """Return all Metal buffers."""
        return [region.buffer for region in self._regions]

    def on_gpu(self, addresses: np.ndarray) -> np.ndarray:
        """Translate the CPU's addresses, 0 for none, to the GPU's.

        Raises
        ------
        OctavoError
            The GPU cannot see an address.
        """
        place = np.searchsorted(self._starts, addresses, side="right") - 1
        is_known = (addresses >= self._starts[place]) & (addresses < self._stops[place])
        if not np.all(is_known | (addresses == 0)):
            raise OctavoError("octavo was about to give the GPU an address that it does not see: please report this.")
        return np.where(is_known, addresses - self._starts[place] + self._gpu_starts[place], 0)

    def binding(self, array: np.ndarray) -> tuple[Any, int]:
        """Return the Metal buffer that holds an array, and the array's offset in bytes."""
        place = int(np.searchsorted(self._starts, array.ctypes.data, side="right")) - 1
        region = self._regions[place]
        offset = array.ctypes.data - region.start
        assert offset >= 0
        assert offset + array.nbytes <= region.length
        return region.buffer, offset

    def _index(self) -> None:
        """Sort the regions by address, for `on_gpu` and `binding`."""
        self.generation += 1
        regions = [arena.region for arena in self._arenas] + list(self._files.values())
        self._regions = sorted(regions, key=lambda region: region.start)
        self._starts = np.array([region.start for region in self._regions] or [0], np.int64)
        self._stops = self._starts + np.array([region.length for region in self._regions] or [0], np.int64)
        self._gpu_starts = np.array([region.gpu_start for region in self._regions] or [0], np.int64)

    def _wrap(self, memory: mmap.mmap | MappedFile, start: int, n_bytes: int) -> Region:
        """Wrap mapped pages in a Metal buffer."""
        length = _whole_pages(n_bytes)
        Metal, device = self.gpu.Metal, self.gpu.device
        if length > device.maxBufferLength():
            raise OctavoError(
                f"Metal takes {device.maxBufferLength() / 2**30:.1f} GiB at once on {self.gpu.name}, and "
                f'{length / 2**30:.1f} GiB are needed: use `device="cpu"`.'
            )
        pages = (ctypes.c_ubyte * length).from_address(start)
        with self.gpu.autorelease_pool():
            buffer = device.newBufferWithBytesNoCopy_length_options_deallocator_(
                pages, length, Metal.MTLResourceStorageModeShared, None
            )
            if buffer is None:
                raise OctavoError(
                    f'Metal gives no buffer of {length / 2**20:.0f} MiB: close other programs, or use `device="cpu"`.'
                )
            if _address(buffer.contents().as_buffer(length)) != start:
                raise OctavoError(f'Metal copied memory that it was to share: {reason(None)}. Use `device="cpu"`.')
            gpu_start = int(buffer.gpuAddress())
        return Region(buffer, start, length, gpu_start, memory)


def _whole_pages(n_bytes: int) -> int:
    return -(-n_bytes // mmap.PAGESIZE) * mmap.PAGESIZE


def _address(memory: Any) -> int:
    """Return the address of a buffer's first byte."""
    return int(np.frombuffer(memory, np.uint8).ctypes.data)
