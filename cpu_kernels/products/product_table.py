"""Keep the records and the working memory of a context's products."""

from __future__ import annotations

import ctypes
import traceback

import numpy as np

from ..numba_support import background_compile
from ..numba_support.memory import Callback
from ..numba_support.vector import CACHE_LINE
from .multiply import GROUP, PRODUCT, SHARED, inputs_bytes
from .panel_tiles import tiled_room_bytes
from .panels import TOKEN
from .weights import KERNELS

#: Types of ggml that a table has a place for.
N_TYPES = max(KERNELS) + 1

#: The records, without what belongs to one context.
_RECORDS = np.zeros(N_TYPES, PRODUCT)
for _number, _kernels in KERNELS.items():
    _own = _RECORDS[_number]
    _own["columns"], _own["input_bytes"] = _kernels.of.columns, _kernels.of.input_bytes
    _own["room_bytes"] = max(_kernels.of.room_bytes, tiled_room_bytes(_kernels.of))
    _own["factor"] = -_kernels.of.subtracted


class ProductTable:
    """The records that the products of a context read, one for each type of weights, and their working memory.

    Memory grows, and kernels are compiled, when a graph first needs them.

    Attributes
    ----------
    address : int
        Address of the records, in the order of ggml's numbers.
    prepare_address : int
        Address of a native function of the number of a type, columns, tokens, and matrices. It does what a product of
        these needs before it is computed.
    """

    def __init__(self, n_threads: int) -> None:
        self._n_threads = n_threads
        self._shared = np.zeros(1, SHARED)
        self._records = _RECORDS.copy()
        self._records["shared"] = self._shared.ctypes.data
        self.address: int = self._records.ctypes.data
        self._room: dict[str, np.ndarray] = {}
        self._callback = Callback(self._prepare)
        self.prepare_address = ctypes.cast(self._callback, ctypes.c_void_p).value

    def start(self) -> None:
        """Start a graph, which may run on more or fewer threads than the one before."""
        self._shared["arrived"] = 0

    def prepare(self, number: int, n_columns: int, n_tokens: int, n_groups: int = 1) -> None:
        """Compile the kernels of a type, and make room for a product of tokens by so many matrices."""
        own, kernels = self._records[number], KERNELS[number]
        own["round"] = background_compile.compiled(kernels.round).address
        own["multiply"] = background_compile.compiled(kernels.multiply).address
        self._make_room("inputs", inputs_bytes.py_func(own, n_columns, n_tokens), 1)
        self._make_room("panels", int(own["room_bytes"]), self._n_threads)
        self._make_room("tokens", n_tokens * TOKEN.itemsize, 1)
        self._make_room("groups", n_groups * GROUP.itemsize, 1)

    def _prepare(self, number: int, n_columns: int, n_tokens: int, n_groups: int) -> int:
        try:
            self.prepare(number, n_columns, n_tokens, n_groups)
        except BaseException:  # C would lose it. llama.cpp computes the product
            traceback.print_exc()
        return 0

    def _make_room(self, name: str, n_bytes: int, count: int) -> None:
        """Make room for so many parts of n_bytes each, unless there is."""
        n_bytes = -(-n_bytes // CACHE_LINE) * CACHE_LINE
        if n_bytes > self._shared[f"{name}_bytes"][0]:
            self._room[name] = room = np.empty(n_bytes * count + CACHE_LINE, np.uint8)
            self._shared[name] = -(-room.ctypes.data // CACHE_LINE) * CACHE_LINE
            self._shared[f"{name}_bytes"] = n_bytes
