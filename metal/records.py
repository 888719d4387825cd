"""Copy HEAD records and the methods' states for the shaders, with the GPU's addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..cpu_kernels.layout.head import HEAD
from .shared_memory import SharedMemory

#: Settings of a step: `Step` in metal/common.metal.
GPU_STEP = np.dtype(
    [
        ("n_kv_head", "u4"),
        ("n_tokens", "u4"),
        ("n_shares", "u4"),
        ("span_capacity", "u4"),
        ("softcap", "f4"),
        ("has_sinks", "u4"),
        ("first_tile", "u4"),
    ]
)

#: Bytes of a `Span` and of a `Selected` there.
SPAN_BYTES, SELECTED_BYTES = 40, 8

#: HEAD's fields with addresses of data, and the field that is 0 if there is no data.
_ADDRESSES = {"document_keys": "n_document", "document_values": "n_document", "scratch": "scratch"}


@dataclass(frozen=True)
class State:
    """The states of one method's heads on the CPU.

    Parameters
    ----------
    numbers : int64 array, shape (n_heads,)
        The heads.
    records : STATE array, shape (n_heads,)
        Their records.
    addresses : tuple of str
        Fields of the records that are addresses, 0 for none.
    """

    numbers: np.ndarray
    records: np.ndarray
    addresses: tuple[str, ...]


class GpuHeads:
    """Copies of a cache's records, and of the tables of chunks that they point to, with the GPU's addresses.

    Two of the fields for compiled hooks hold numbers of methods instead: `select` has the method that selects, and
    `append` the method that owns the chunks' extras. The others are unused.
    """

    def __init__(self, memory: SharedMemory, n_heads: int, table_size: int) -> None:
        self._memory = memory
        self.records = memory.new((n_heads,), HEAD)
        self._tables = memory.new((n_heads, table_size), np.int64)
        self._tables[:] = 0
        self._translated = np.zeros((n_heads, table_size), np.int64)  # the CPU's tables at the last update
        self._generation = -1
        self._states: list[tuple[State, np.ndarray]] = []

    def serve(self, states: Sequence[State]) -> None:
        """Copy the states of these methods. If two methods serve a head, the later one counts."""
        with_records = [state for state in states if state.records.itemsize and len(state.numbers)]
        self._states = [(state, self._memory.new(state.records.shape, state.records.dtype)) for state in with_records]

    def update(self, heads: np.ndarray, tables: np.ndarray, selecting: np.ndarray, appending: np.ndarray) -> None:
        """Copy the CPU's records before a step.

        Parameters
        ----------
        tables : int64 array, shape (n_heads, table_size)
            Addresses of chunks, each in one piece of memory; 0 for none.
        selecting, appending : int64 arrays, shape (n_heads,)
            Numbers of the methods that select for each head, and that own its chunks' extras.

        Raises
        ------
        OctavoError
            A record holds an address that the GPU cannot see.
        """
        records, memory = self.records, self._memory
        records[...] = heads
        for name, exists in _ADDRESSES.items():
            records[name] = memory.on_gpu(np.where(heads[exists] != 0, heads[name], 0))
        if memory.generation != self._generation:
            self._translated[:], self._generation = -1, memory.generation
        changed = np.flatnonzero(np.any(tables != self._translated, axis=1))
        if len(changed):
            self._tables[changed] = memory.on_gpu(tables[changed])
            self._translated[changed] = tables[changed]
        first = self._tables.ctypes.data + np.arange(len(records)) * self._tables.strides[0]
        records["tail_chunks"] = memory.on_gpu(first)
        records["select"], records["append"], records["state"] = selecting, appending, 0
        for state, copy in self._states:
            copy[...] = state.records
            for name in state.addresses:
                copy[name] = memory.on_gpu(state.records[name])
            places = copy.ctypes.data + np.arange(len(copy)) * copy.itemsize
            records["state"][state.numbers] = memory.on_gpu(places)

    def take_back(self, heads: np.ndarray) -> None:
        """Copy back what the GPU wrote in a step: bytes_read, and the numbers in the methods' states."""
        heads["bytes_read"] = self.records["bytes_read"]
        for state, copy in self._states:
            for name in state.records.dtype.names or ():
                if name not in state.addresses:
                    state.records[name] = copy[name]
