"""Emulate Intel's AMX on a CPU with AVX-512's VNNI: kernels call a function of Python for each of its instructions."""

import ctypes
import threading
from collections import defaultdict

import numpy as np
from llvmlite import binding, ir
from numba.core import cgutils

from octavo.cpu_kernels.numba_support import amx, machine_features

_PREFIX = "octavo.emulated."


class _Thread:
    """The tiles of a thread, and their configuration."""

    def __init__(self):
        self.settings, self.tiles = np.zeros(64, np.uint8), np.zeros((8, 16, 64), np.uint8)

    def shape(self, tile):
        """Rows of a tile, and their bytes."""
        return self.settings[48 + tile], self.settings[16 + 2 * tile]

    def rows(self, tile, kind):
        """Those of a tile, as elements of a type."""
        n_rows, n_bytes = self.shape(tile)
        return self.tiles[tile].view(kind)[:n_rows, : n_bytes // np.dtype(kind).itemsize]


_threads = defaultdict(_Thread)


def _own():
    return _threads[threading.get_ident()]


def _memory(address, n_bytes):
    return np.frombuffer((ctypes.c_uint8 * n_bytes).from_address(address), np.uint8)


def _load_configuration(address):
    _own().settings[:] = _memory(address, 64)
    _own().tiles[:] = 0


def _store_configuration(address):
    _memory(address, 64)[:] = _own().settings


def _zero(tile):
    _own().tiles[tile] = 0


def _load(tile, address, step):
    _zero(tile)
    for row, target in enumerate(_own().rows(tile, np.uint8)):
        target[:] = _memory(address + row * step, len(target))


def _store(tile, address, step):
    for row, source in enumerate(_own().rows(tile, np.uint8)):
        _memory(address + row * step, len(source))[:] = source


def _columns(rows, n):
    """The matrix on the right, of rows in which n elements of each column lie side by side."""
    return rows.reshape(len(rows), -1, n).transpose(0, 2, 1).reshape(len(rows) * n, -1)


def _add_bytes(total, left, right):
    own = _own()
    codes = _columns(own.rows(right, np.uint8), 4).astype(np.int32)
    own.rows(total, np.int32)[:] += own.rows(left, np.int8).astype(np.int32) @ codes


def _of_bf16(words):
    return (words.astype(np.uint32) << 16).view(np.float32)


def _add_bf16(total, left, right):
    own = _own()
    columns = _of_bf16(_columns(own.rows(right, np.uint16), 2))
    with np.errstate(all="ignore"):
        own.rows(total, np.float32)[:] += _of_bf16(own.rows(left, np.uint16)) @ columns


_TILE, _PLACE, _STEP = ctypes.c_int8, ctypes.c_void_p, ctypes.c_int64
_FUNCTIONS = {
    "ldtilecfg": (_load_configuration, _PLACE),
    "sttilecfg": (_store_configuration, _PLACE),
    "tilezero": (_zero, _TILE),
    "tileloadd64": (_load, _TILE, _PLACE, _STEP),
    "tilestored64": (_store, _TILE, _PLACE, _STEP),
    "tdpbsud": (_add_bytes, *[_TILE] * 3),
    "tdpbf16ps": (_add_bf16, *[_TILE] * 3),
}
_CALLBACKS = {name: ctypes.CFUNCTYPE(None, *kinds)(function) for name, (function, *kinds) in _FUNCTIONS.items()}


def _call(builder, name, *arguments):
    """Stand in for `amx.call_amx`."""
    values = [ir.Constant(ir.IntType(8), each) if isinstance(each, int) else each for each in arguments]
    signature = ir.FunctionType(ir.VoidType(), [value.type for value in values])
    builder.call(cgutils.get_or_insert_function(builder.module, signature, _PREFIX + name), values)


def emulate():
    """Let octavo believe that there is AMX, if this CPU has what comes with it. No kernel may be imported before."""
    if machine_features.LANES != 16 or not machine_features.HAS_VNNI:
        return
    for name, callback in _CALLBACKS.items():
        binding.add_symbol(_PREFIX + name, ctypes.cast(callback, ctypes.c_void_p).value)
    machine_features.HAS_AMX = amx.HAS_AMX = True
    machine_features.MULTIPLIES_FEW = False
    amx.call_amx = _call
