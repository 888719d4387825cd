"""Make layers of a document that are not clustered."""

from __future__ import annotations

import numpy as np

from .index import IndexLayer
from .stored_rows import as_floats


def whole_layer(
    keys: np.ndarray, values: np.ndarray, window: int, n_tokens: int | None = None, split: int = 0
) -> IndexLayer:
    """Return a layer that is not clustered, with its rows in order.

    Parameters
    ----------
    keys, values : array, shape (n_kv_head, n_tokens, ...)
        Stored rows.
    window : int
        Tokens that a sliding window shows, 0 for no window. Rows that it has left behind are dropped.
    n_tokens : int, optional
        Length of the document, if these rows are only its end.
    split : int
        The split of the keys (see stored_rows.py).
    """
    n_rows = keys.shape[1]
    n_shown = min(n_rows, window) if window else n_rows
    first = (n_rows if n_tokens is None else n_tokens) - n_shown
    keys, values = (np.ascontiguousarray(array[:, n_rows - n_shown :]) for array in (keys, values))
    no_centroids, no_starts = as_floats(keys[:, :0], split).astype(np.float16), np.zeros((len(keys), 1), np.int32)
    no_order = np.zeros((len(keys), 0), np.int32)
    nothing = no_centroids, no_starts, no_centroids, no_starts, no_order
    return IndexLayer(keys, values, first, *nothing, no_mass(keys), split=split)


def no_mass(keys: np.ndarray) -> np.ndarray:
    """Return a mass of 0 for each row: not measured yet."""
    return np.zeros(keys.shape[:2], np.float32)
