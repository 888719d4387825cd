"""Survive when a mapped file, of a model or an index, shrinks or its disk fails while it is read.

The system then sends SIGBUS, which would end the process. octavo's handler maps a page of zeros over the missing one,
and counts it. Code that computes with mapped files compares the count with an earlier one, and discards its result if
they differ.

The count has a fixed address, because a signal handler gets no data, and because code in Numba's cache on disk cannot
hold an address of this process.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import signal
from functools import cache
from typing import Any

import numpy as np
from numba import types

from ...cpu_kernels.numba_support.compile import native_callback
from ...cpu_kernels.numba_support.memory import address_of, read_int32, read_int64, write_int64

_ON_MAC = platform.system() == "Darwin"

#: Address of the count, if the system grants that page: far from programs, heaps and libraries.
_STATE = 0x20_0000_0000

#: Offsets in the page of the count and of the previous handler.
_COUNT, _BEFORE = _STATE, _STATE + 64

#: Of siginfo_t: offsets of the code and of the address, and the code of missing memory (BUS_ADRERR).
_CODE_AT, _ADDRESS_AT, _NOT_THERE = 8, 24 if _ON_MAC else 16, 2

_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_IN_ITS_PLACE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10  # MAP_FIXED
_PAGE, _SIGBUS = mmap.PAGESIZE, int(signal.SIGBUS)

_map = types.ExternalFunction(
    "mmap", types.intp(types.intp, types.uintp, types.int32, types.int32, types.int32, types.int64)
)
_set_action = types.ExternalFunction("sigaction", types.int32(types.int32, types.intp, types.intp))
_raise = types.ExternalFunction("raise", types.int32(types.int32))


class _Action(ctypes.Structure):
    """C's `struct sigaction`."""

    _fields_ = (
        [("handler", ctypes.c_void_p), ("mask", ctypes.c_uint32), ("flags", ctypes.c_int)]
        if _ON_MAC
        else [
            ("handler", ctypes.c_void_p),
            ("mask", ctypes.c_uint8 * 128),
            ("flags", ctypes.c_int),
            ("restorer", ctypes.c_void_p),
        ]
    )


_WITH_INFO = 0x40 if _ON_MAC else 0x4  # SA_SIGINFO


@native_callback(types.void(types.int32, types.voidptr, types.voidptr))
def _on_bus_error(number: int, info: Any, context: Any) -> None:
    """Map a page of zeros beyond the end of a file. Leave all other errors to the previous handler."""
    information = address_of(info)
    if read_int32(information + _CODE_AT) == _NOT_THERE:
        page = read_int64(information + _ADDRESS_AT) // _PAGE * _PAGE
        if _map(page, _PAGE, _READ_WRITE, _IN_ITS_PLACE, -1, 0) == page:
            write_int64(_COUNT, read_int64(_COUNT) + 1)
            return
    _set_action(number, _BEFORE, 0)
    _raise(number)


@cache
def _count() -> np.ndarray:
    """Install the handler once, and return the count. It stays 0 if the handler cannot be installed."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    place = library.mmap(_STATE, _PAGE, _READ_WRITE, flags, -1, 0)
    if place != _STATE:
        return np.zeros(1, np.int64)
    action = _Action(handler=_on_bus_error.address, flags=_WITH_INFO)
    library.sigaction(_SIGBUS, ctypes.byref(action), ctypes.c_void_p(_BEFORE))
    return np.ctypeslib.as_array((ctypes.c_int64 * 1).from_address(_COUNT))


def n_lost_pages() -> int:
    """Return how many pages of mapped files were missing when they were read. The first call installs the handler."""
    return int(_count()[0])
