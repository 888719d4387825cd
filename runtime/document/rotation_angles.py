"""RoPE as the cache sees it: by how much keys and queries are turned for each position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .stored_rows import as_floats, write_floats


@dataclass(frozen=True, eq=False)  # arrays have no one truth to compare by
class Rope:
    """A rotation of pairs of elements, in proportion to the position.

    Parameters
    ----------
    frequencies : float64 array, shape (n_pairs,)
        Radians by which a pair turns for each position. Elements that are in no pair stay; without pairs there is no
        RoPE.
    interleaved : bool
        Whether pair j is the elements 2 j and 2 j + 1 (llama.cpp's NORM). Else it is j and n_pairs + j (NEOX).
    """

    frequencies: np.ndarray
    interleaved: bool

    def turn(self, rows: np.ndarray, n_positions: int) -> None:
        """Turn stored rows in place by so many positions.

        Parameters
        ----------
        n_positions : int
            Positions; may be below 0.
        """
        write_floats(rows, self.turned(as_floats(rows), n_positions))

    def turned(self, floats: np.ndarray, n_positions: int) -> np.ndarray:
        """Return keys or queries turned by so many positions.

        Parameters
        ----------
        floats : float32 array, shape (..., head_dim)
            As they are at their positions.
        n_positions : int
            Positions; may be below 0.
        """
        n_pairs = len(self.frequencies)
        cos, sin = (turn(n_positions * self.frequencies).astype(np.float32) for turn in (np.cos, np.sin))
        first = slice(0, 2 * n_pairs, 2) if self.interleaved else slice(0, n_pairs)
        second = slice(1, 2 * n_pairs, 2) if self.interleaved else slice(n_pairs, 2 * n_pairs)
        x, y, made = floats[..., first], floats[..., second], floats.copy()
        made[..., first], made[..., second] = x * cos - y * sin, x * sin + y * cos
        return made
