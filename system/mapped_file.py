"""Map files read-only without a descriptor: a process may map thousands of files, and has few descriptors.

`mmap.mmap` keeps a descriptor of its file, so this calls the system's `mmap` itself. A mapping ends with its last
array, and holds a file that was removed until then.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from typing import Any

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

#: Address of the system's `madvise`, for compiled code.
MADVISE = ctypes.cast(_libc.madvise, ctypes.c_void_p).value or 0

#: What `mmap` returns if it fails.
_FAILED = ctypes.c_void_p(-1).value


class MappedFile:
    """The bytes of a file, mapped as long as this object lives, or an array that `np.asarray` makes of it: uint8.

    Bytes are read from disk when they are touched.

    Parameters
    ----------
    descriptor : int
        The open file, which may be closed afterwards.
    n_bytes : int
        Its length, which is not 0.

    Raises
    ------
    OSError
        The system does not map it.
    """

    def __init__(self, descriptor: int, n_bytes: int) -> None:
        start = _libc.mmap(None, n_bytes, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if start == _FAILED:
            problem = ctypes.get_errno()
            raise OSError(problem, os.strerror(problem))
        self.start: int = start
        self.n_bytes = n_bytes
        weakref.finalize(self, _libc.munmap, start, n_bytes).atexit = False

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "data": (self.start, True), "shape": (self.n_bytes,), "typestr": "|u1"}

    def madvise(self, advice: int) -> None:
        """Advise the system how the file will be read, by one of `mmap.MADV_...`."""
        _libc.madvise(self.start, self.n_bytes, advice)


def mapping_of(array: np.ndarray) -> MappedFile | None:
    """Return the mapped file that holds an array; None for an array in memory."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, MappedFile) else None
