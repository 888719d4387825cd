"""A chunk of a tail: rows and extras in one piece of memory, or extras beside rows that lie in a document's index."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...cpu_kernels.layout.head import chunk_bytes
from ...cpu_kernels.numba_support.shape import Shape
from ...cpu_kernels.rows.tiles import CHUNK_ROWS

#: Allocates a number of bytes, as uint8.
Allocate = Callable[[int], np.ndarray]


class Chunk(NamedTuple):
    """The rows and the extras of a chunk (see cpu_kernels/layout/head.py).

    Parameters
    ----------
    keys, values : uint8 arrays
        The bytes of CHUNK_ROWS rows; read-only in an index. Values that are the first part of their keys have none.
    extras : uint8 array
        What the head's method needs for selection.
    """

    keys: np.ndarray
    values: np.ndarray
    extras: np.ndarray

    @classmethod
    def new(cls, shape: Shape, extras_bytes: int, allocate: Allocate) -> Chunk:
        """Return a chunk in one piece of memory, uninitialised."""
        buffer = allocate(chunk_bytes(shape, extras_bytes))
        of_keys, of_both = CHUNK_ROWS * shape.row_bytes, CHUNK_ROWS * shape.token_bytes
        return cls(buffer[:of_keys], buffer[of_keys:of_both], buffer[of_both : of_both + extras_bytes])

    @property
    def is_mapped(self) -> bool:
        """Return whether the rows lie in an index, where they never change."""
        return not self.keys.flags.writeable

    @property
    def n_bytes(self) -> int:
        """Return the bytes of rows and extras."""
        return self.keys.nbytes + self.values.nbytes + self.extras.nbytes

    @property
    def n_own_bytes(self) -> int:
        """Return the same without rows in an index."""
        return self.extras.nbytes if self.is_mapped else self.n_bytes

    @property
    def addresses(self) -> tuple[int, int, int]:
        """Return the fields of its CHUNK record."""
        keys = self.keys.ctypes.data
        return keys, self.values.ctypes.data if self.values.size else keys, self.extras.ctypes.data

    def copy(self, shape: Shape, allocate: Allocate) -> Chunk:
        """Return a copy; rows in an index stay there."""
        if self.is_mapped:
            extras = allocate(len(self.extras))
            extras[:] = self.extras
            return Chunk(self.keys, self.values, extras)
        copy = Chunk.new(shape, len(self.extras), allocate)
        copy.keys[:], copy.values[:], copy.extras[:] = self.keys, self.values, self.extras
        return copy
