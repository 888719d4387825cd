"""Rotate stored keys and queries by RoPE, for a number of positions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .stored_rows import as_floats, write_floats


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
