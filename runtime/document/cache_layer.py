"""Describe one layer's cache, the rows that it stores, and their rotation by RoPE."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...cpu_kernels.numba_support.shape import F16, Shape
from .stored_rows import as_floats, rows_format, write_floats

#: Stored keys and values (see stored_rows.py).
Rows = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)  # `==` on arrays is ambiguous
class Rope:
    """A rotation of pairs of elements, in proportion to the position.

    Parameters
    ----------
    frequencies : float64 array, shape (n_pairs,)
        Radians for each pair and position. Elements outside pairs stay; without pairs there is no RoPE.
    interleaved : bool
        Whether pair j consists of elements 2 j and 2 j + 1 (llama.cpp's NORM), or of j and n_pairs + j (NEOX).
    """

    frequencies: np.ndarray
    interleaved: bool

    def turn(self, rows: np.ndarray, n_positions: int, split: int = 0) -> None:
        """Rotate stored rows, with this split, in place by a number of positions, which may be negative."""
        write_floats(rows, self.turned(as_floats(rows, split), n_positions), split)

    def turned(self, floats: np.ndarray, n_positions: int) -> np.ndarray:
        """Return keys or queries, (..., head_dim) f32, rotated by a number of positions, which may be negative."""
        n_pairs = len(self.frequencies)
        cos, sin = (turn(n_positions * self.frequencies).astype(np.float32) for turn in (np.cos, np.sin))
        first = slice(0, 2 * n_pairs, 2) if self.interleaved else slice(0, n_pairs)
        second = slice(1, 2 * n_pairs, 2) if self.interleaved else slice(n_pairs, 2 * n_pairs)
        x, y, result = floats[..., first], floats[..., second], floats.copy()
        result[..., first], result[..., second] = x * cos - y * sin, x * sin + y * cos
        return result


@dataclass(frozen=True)
class CacheLayer:
    """Sizes and settings of one layer's cache.

    Parameters
    ----------
    window : int
        Newest rows that a token sees, or most of them, if the window is a chunk; 0 for all.
    kv_type : str
        Storage format of keys and values: F16, Q8_0 or Q4_0.
    softcap : float
        Soft cap of the scores; 0 for none. It is, like `group`, that of the first attention that reads this cache.
    rope : Rope, optional
        The rotation of keys, if octavo knows it.
    value_dim : int
        Elements of a value. 0, the default, is head_dim.
    latent : bool
        Whether a value is the first part of its key, and only keys are stored.
    chunked : bool
        Whether the window is a chunk: a token sees the rows from the last multiple of the window on.

    Attributes
    ----------
    shape : Shape
        The sizes that the layer's kernels read.
    row_bytes : int
        Bytes of one token's keys and values in all heads.
    split : int
        Elements of a latent key that are its value; 0 if values are stored.
    """

    n_kv_head: int
    head_dim: int
    window: int
    kv_type: str = F16
    group: int = 1
    softcap: float = 0.0
    rope: Rope | None = None
    value_dim: int = 0
    latent: bool = False
    chunked: bool = False

    shape: Shape = field(init=False, repr=False, compare=False)
    row_bytes: int = field(init=False, repr=False, compare=False)
    split: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shape = Shape(self.head_dim, self.group, self.kv_type, self.value_dim, self.latent)
        split = shape.value_dim if self.latent else 0
        vars(self).update(shape=shape, row_bytes=self.n_kv_head * shape.token_bytes, split=split)

    def new_rows(self, n_rows: int) -> Rows:
        """Allocate keys and values, (n_kv_head, n_rows, elements of a row) each; see stored_rows.py."""
        dtype, n_elements = rows_format(self.shape)
        first = self.n_kv_head, n_rows
        return np.empty((*first, n_elements[0]), dtype), np.empty((*first, n_elements[1]), dtype)
