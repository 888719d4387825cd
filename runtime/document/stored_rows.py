"""Convert stored keys and values from and to NumPy arrays; cpu_kernels/rows/rows.py defines the formats.

f16 : (..., length) float16
q8_0 : (..., length + 4) int8: length numbers, then an f32, the row's scale; rotated
flat q8_0 : the same in uint8, not rotated: all q8_0 rows before 0.4
q4_0 : (..., elements) uint16: the codes of 4 elements in each, then for each 32 elements an f16, their scale; rotated
The length is head_dim for a key and value_dim for a value.

A latent key, whose first part is its value, has a `split`, the length of that part; other rows have a split of 0. Both
parts are rotated apart, and have an f32 each in q8_0, the first part's first. No values are stored then: they
are rows without elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...cpu_kernels.numba_support.shape import F16, FLAT_Q8_0, NIBBLES, Q4_0, Q8_0, Shape
from ...cpu_kernels.rows.q4_0 import DIVISORS, nibble_blocks
from ...cpu_kernels.rows.rotation import rotation_block
from ...cpu_kernels.rows.rows import convert_rows
from ...cpu_kernels.rows.weighted_sums import mean_of_runs

#: Storage format by the type of an array.
_DTYPES: dict[str, np.dtype] = {
    F16: np.dtype(np.float16),
    Q8_0: np.dtype(np.int8),
    Q4_0: np.dtype(np.uint16),
    FLAT_Q8_0: np.dtype(np.uint8),
}
_SCALE_BYTES = 4


def row_format(length: int, kv_type: str) -> tuple[np.dtype, int]:
    """Return the type and number of a stored row's elements."""
    dtype = _DTYPES[kv_type]
    return dtype, Shape(length, 1, kv_type).row_bytes // dtype.itemsize


def rows_format(shape: Shape) -> tuple[np.dtype, tuple[int, int]]:
    """Return the type of the elements of stored rows, and their number in a key and in a value."""
    dtype = _DTYPES[shape.kv_type]
    return dtype, (shape.row_bytes // dtype.itemsize, (shape.token_bytes - shape.row_bytes) // dtype.itemsize)


def kv_type_of(rows: np.ndarray) -> str:
    """Return the storage format of rows: F16, Q8_0, Q4_0 or FLAT_Q8_0."""
    return next(kv_type for kv_type, dtype in _DTYPES.items() if rows.dtype == dtype)


def is_format(rows: np.ndarray) -> bool:
    """Return whether an array has the type of some format's rows."""
    return rows.dtype in _DTYPES.values()


def converted(rows: np.ndarray, dtype: np.dtype, split: int = 0) -> np.ndarray:
    """Return rows of q8_0 as those of its other format, of this type, rounded once more.

    Parameters
    ----------
    rows : array, shape (..., n_rows, elements of a row)
        C-contiguous. Rows of the same type, and any other arrays, are returned as they are.
    """
    length = rows.shape[-1] - _SCALE_BYTES * (2 if split else 1)
    if rows.dtype == dtype or {rows.dtype, dtype} != {_DTYPES[Q8_0], _DTYPES[FLAT_Q8_0]}:
        return rows
    if not rows.size:
        return rows.view(dtype)
    if length % 8 or split % 8 or not split < length:
        return rows
    stored = np.empty(rows.shape, dtype)
    shape, other = (Shape(length, 1, kv_type_of(array), split or length, split > 0) for array in (rows, stored))
    convert_rows(shape, rows.ctypes.data, rows.size // rows.shape[-1], other, stored.ctypes.data)
    return stored


def joined(parts: Sequence[np.ndarray], split: int = 0) -> np.ndarray:
    """Join the rows of parts of a text, (n_heads, n_rows, ...) each, in the format of the last part."""
    own = [converted(np.ascontiguousarray(part), parts[-1].dtype, split) for part in parts]
    return np.concatenate(own, axis=1)


def as_floats(rows: np.ndarray, split: int = 0) -> np.ndarray:
    """Return a copy of stored rows as numbers, (..., length) f32."""
    kv_type = kv_type_of(rows)
    if kv_type == F16:
        return rows.astype(np.float32)
    if kv_type == Q4_0:
        return rotated(_unpacked(rows), split)
    n_scales = 2 if split else 1
    rows = np.ascontiguousarray(rows).view(np.uint8)
    scales = np.ascontiguousarray(rows[..., -n_scales * _SCALE_BYTES :]).view(np.float32)
    elements = rows[..., : -n_scales * _SCALE_BYTES].view(np.int8)
    parts = [elements[..., part] * scales[..., i : i + 1] for i, part in enumerate(_parts(split))]
    floats: np.ndarray = np.concatenate(parts, axis=-1) if split else parts[0]
    return rotated(floats, split) if kv_type == Q8_0 else floats


def _parts(split: int) -> list[slice]:
    """Return the parts of a row: two of a latent key."""
    return [slice(0, split), slice(split, None)] if split else [slice(None)]


def mean_rows(rows: np.ndarray, starts: np.ndarray, split: int = 0) -> np.ndarray:
    """Compute the mean of each run of rows.

    Parameters
    ----------
    rows : array, shape (n_rows, ...)
        Stored rows with this split, or f32.
    starts : int32 array, shape (n_runs + 1,)
        Where runs start and stop.

    Returns
    -------
    float32 array, shape (n_runs, length)
        The means; 0 for an empty run.
    """
    floats = rows if rows.dtype == np.float32 else as_floats(rows[: starts[-1]], split)
    means = np.empty((len(starts) - 1, floats.shape[1]), np.float32)
    mean_of_runs(floats, starts.astype(np.int32), means)
    return means


def capped_scores(queries: np.ndarray, keys: np.ndarray, softcap: float) -> np.ndarray:
    """Compute scores of keys, under the soft cap; 0 for none."""
    scores: np.ndarray = queries @ keys.T
    return softcap * np.tanh(scores / softcap) if softcap else scores


def write_floats(rows: np.ndarray, floats: np.ndarray, split: int = 0) -> None:
    """Store numbers in rows: the inverse of `as_floats`, up to rounding."""
    kv_type = kv_type_of(rows)
    if kv_type == F16:
        rows[...] = floats
    elif kv_type == Q4_0:
        _pack(rows, rotated(floats, split))
    else:
        length, rows = floats.shape[-1], rows.view(np.uint8)
        floats = rotated(floats, split) if kv_type == Q8_0 else floats
        for i, part in enumerate(_parts(split)):
            own = floats[..., part]
            scales = np.abs(own).max(axis=-1, keepdims=True) / np.float32(127)
            elements = np.rint(own / np.where(scales > 0, scales, 1)).astype(np.int8)
            rows[..., :length][..., part] = elements.view(np.uint8)
            place = length + i * _SCALE_BYTES
            rows[..., place : place + _SCALE_BYTES] = scales.astype(np.float32).view(np.uint8)


def rotated(floats: np.ndarray, split: int = 0) -> np.ndarray:
    """Rotate rows of floats, (..., length), as cpu_kernels/rows/rotation.py does. Two rotations cancel."""
    if split:
        return np.concatenate([rotated(floats[..., part]) for part in _parts(split)], axis=-1)
    block, distance = rotation_block(floats.shape[-1]), 1
    while distance < block:
        pairs = floats.reshape(*floats.shape[:-1], floats.shape[-1] // (2 * distance), 2, distance)
        x, y = pairs[..., 0, :], pairs[..., 1, :]
        floats = np.stack([x + y, x - y], axis=-2).reshape(floats.shape)
        distance *= 2
    scaled: np.ndarray = floats * floats.dtype.type(1 / math.sqrt(block))
    return scaled


def _head_dim(n_elements: int) -> int:
    """Return the head_dim of a q4_0 row: in each 9 elements, the last is a scale, and so is the row's last element."""
    return 4 * (n_elements - -(-n_elements // (NIBBLES // 4 + 1)))


def _unpacked(rows: np.ndarray) -> np.ndarray:
    """Return q4_0 rows as numbers, f32, still rotated."""
    head_dim = _head_dim(rows.shape[-1])
    rows = np.ascontiguousarray(rows)
    codes = rows[..., : head_dim // 4].copy().view(np.uint8)
    scales = rows[..., head_dim // 4 :].view(np.float16).astype(np.float32)
    floats = np.empty((*rows.shape[:-1], head_dim), np.float32)
    for block, (first, length) in enumerate(nibble_blocks(head_dim)):
        packed = codes[..., first // 2 : (first + length) // 2]
        whole = np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.float32) - 8
        floats[..., first : first + length] = whole * scales[..., block : block + 1]
    return floats


def _pack(rows: np.ndarray, floats: np.ndarray) -> None:
    """Write rotated numbers as q4_0 rows, as `pack_row` in cpu_kernels/rows/q4_0.py does."""
    head_dim = floats.shape[-1]
    packed = np.empty((*floats.shape[:-1], head_dim // 2), np.uint8)
    for block, (first, length) in enumerate(nibble_blocks(head_dim)):
        numbers = floats[..., first : first + length]
        scales = _scales(numbers)
        codes = (_steps(numbers, scales) + 8).astype(np.uint8)
        packed[..., first // 2 : (first + length) // 2] = codes[..., : length // 2] | codes[..., length // 2 :] << 4
        rows[..., head_dim // 4 + block] = scales[..., 0].view(np.uint16)
    rows[..., : head_dim // 4] = packed.view(np.uint16)


def _scales(block: np.ndarray) -> np.ndarray:
    """Return the scale of each row of a block with the least squared error, (..., 1) f16."""
    extreme = np.take_along_axis(block, np.abs(block).argmax(axis=-1, keepdims=True), axis=-1)
    scales = (extreme / -8).astype(np.float16)
    least = _squared_errors(block, scales)
    for divisor in DIVISORS:
        others = (extreme / divisor).astype(np.float16)
        errors = _squared_errors(block, others)
        scales, least = np.where(errors < least, others, scales), np.minimum(errors, least)
    return scales


def _squared_errors(block: np.ndarray, scales: np.ndarray) -> np.ndarray:
    errors: np.ndarray = np.square(_steps(block, scales) * scales - block).sum(axis=-1, keepdims=True)
    return errors


def _steps(block: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return the codes of a block, minus 8, as f32."""
    inverse = np.divide(1, scales, out=np.zeros(scales.shape, np.float32), where=scales != 0, dtype=np.float32)
    steps: np.ndarray = np.clip(np.rint(block * inverse), -8, 7)
    return steps
