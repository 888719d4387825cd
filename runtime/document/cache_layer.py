"""Describe one layer's cache and the rows that it stores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...cpu_kernels.numba_support.shape import F16, Shape
from .rotation_angles import Rope
from .stored_rows import row_bytes, row_format

#: Stored keys and values (see stored_rows.py).
Rows = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class CacheLayer:
    """Sizes and settings of one layer's cache.

    Parameters
    ----------
    window : int
        Newest rows that a token sees; 0 for all.
    kv_type : str
        Storage format of keys and values: F16, Q8_0 or Q4_0.
    softcap : float
        Soft cap of the scores; 0 for none. It is, like `group`, that of the first attention that reads this cache.
    rope : Rope, optional
        The rotation of keys, if octavo knows it.
    """

    n_kv_head: int
    head_dim: int
    window: int
    kv_type: str = F16
    group: int = 1
    softcap: float = 0.0
    rope: Rope | None = None

    @property
    def shape(self) -> Shape:
        """Return the sizes that the layer's kernels are compiled for."""
        return Shape(self.head_dim, self.group, self.kv_type)

    @property
    def row_bytes(self) -> int:
        """Return the bytes of one token's keys and values in all heads."""
        return 2 * self.n_kv_head * row_bytes(self.head_dim, self.kv_type)

    def new_rows(self, n_rows: int) -> np.ndarray:
        """Allocate keys and values: (2, n_kv_head, n_rows, elements of a row); see stored_rows.py."""
        dtype, n_elements = row_format(self.head_dim, self.kv_type)
        return np.empty((2, self.n_kv_head, n_rows, n_elements), dtype)
