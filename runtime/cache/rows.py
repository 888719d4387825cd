"""Stored keys and values as NumPy arrays; cpu_kernels/rows.py says what a row is.

f16 : (..., head_dim) float16
q8_0 : (..., head_dim + 4) uint8: head_dim int8, then an f32, the row's scale
"""

from __future__ import annotations

import numpy as np

from ...cpu_kernels.compile import F16, Q8_0, Shape

_DTYPES: dict[str, np.dtype] = {F16: np.dtype(np.float16), Q8_0: np.dtype(np.uint8)}
_SCALE_BYTES = 4


def row_bytes(head_dim: int, kv_type: str) -> int:
    """Return the bytes of one stored key or value."""
    return Shape(head_dim, 1, kv_type).row_bytes


def row_format(head_dim: int, kv_type: str) -> tuple[np.dtype, int]:
    """Return the type and the number of a stored row's elements."""
    dtype = _DTYPES[kv_type]
    return dtype, row_bytes(head_dim, kv_type) // dtype.itemsize


def kv_type_of(rows: np.ndarray) -> str:
    """Return how these rows are stored, F16 or Q8_0."""
    return next(kv_type for kv_type, dtype in _DTYPES.items() if rows.dtype == dtype)


def as_floats(rows: np.ndarray) -> np.ndarray:
    """Return stored rows as numbers, a copy: (..., head_dim) f32."""
    if kv_type_of(rows) == F16:
        return rows.astype(np.float32)
    scales = rows[..., -_SCALE_BYTES:].view(np.float32)
    floats: np.ndarray = rows[..., :-_SCALE_BYTES].view(np.int8) * scales
    return floats


def write_floats(rows: np.ndarray, floats: np.ndarray) -> None:
    """Store numbers in place of rows: the reverse of `as_floats`, but for rounding."""
    if kv_type_of(rows) == F16:
        rows[...] = floats
        return
    scales = np.abs(floats).max(axis=-1, keepdims=True) / np.float32(127)
    rows[..., :-_SCALE_BYTES] = np.rint(floats / np.where(scales > 0, scales, 1)).astype(np.int8).view(np.uint8)
    rows[..., -_SCALE_BYTES:] = scales.astype(np.float32).view(np.uint8)
