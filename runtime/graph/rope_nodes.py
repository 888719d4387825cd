"""Determine from a model's graph how far RoPE rotates an attention's queries for each position."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..document.cache_layer import Rope
from . import ggml

#: Operations that do not affect a rotation.
_TRANSPARENT = ("VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE", "CONT", "CPY", "DUP", "SCALE")

#: llama.cpp's numbers of the two ways to pair elements.
_NORM, _NEOX = 0, 2


def rope_of(queries: Any) -> Rope | None:
    """Return the rotation of an attention node's queries; None if octavo does not know it."""
    node = origin(queries)
    operation = _name(node)
    if operation == "ROPE":
        return _read(node)
    if operation == "CONCAT":
        return _of_parts(node.src[0].contents, node.src[1].contents)
    is_projection = operation == "MUL_MAT" or (operation == "ADD" and _name(node.src[0].contents) == "MUL_MAT")
    return Rope(np.zeros(0), interleaved=False) if is_projection else None


def origin(node: Any) -> Any:
    """Return the node that computed another one's numbers."""
    while _name(node) in _TRANSPARENT:
        node = node.src[0].contents
    return node


def _of_parts(first: Any, second: Any) -> Rope | None:
    """Return the rotation of queries of two parts, of which only the second turns, as in latent attention."""
    ropes = rope_of(first), rope_of(second)
    if ropes[0] is None or ropes[1] is None or len(ropes[0].frequencies) or not ropes[1].interleaved:
        return None
    still = np.zeros(first.ne[0] // 2)  # pairs that stay
    return Rope(np.concatenate([still, ropes[1].frequencies]), interleaved=True)


def _name(node: Any) -> str:
    """Return the name of a node's operation."""
    return ggml.operation_name(node.op)


def _read(node: Any) -> Rope | None:
    """Return the rotation of a ROPE node: llama.cpp's NORM or NEOX, with any scaling."""
    integers = list(node.op_params)
    n_dims, mode, original = integers[1], integers[2], integers[4]
    base, scale, extrapolated, _, fast, slow = np.frombuffer(bytes(node.op_params)[20:44], np.float32).tolist()
    if mode not in (_NORM, _NEOX):
        return None
    pairs = np.arange(n_dims // 2)
    frequencies = base ** (-2.0 * pairs / n_dims)
    if node.src[2]:
        frequencies /= ggml.strided(node.src[2].contents, np.float32, (n_dims // 2,), (4,))
    stretched = scale * frequencies
    if extrapolated:  # YaRN: fast pairs keep their frequency, slow ones are stretched
        low, high = (_pair_with(turns, n_dims, original, base) for turns in (fast, slow))
        low, high = max(np.floor(low), 0.0), min(np.ceil(high), n_dims - 1.0)
        kept = extrapolated * (1 - np.clip((pairs - low) / max(high - low, 0.001), 0.0, 1.0))
        stretched = stretched * (1 - kept) + frequencies * kept
    return Rope(np.ascontiguousarray(stretched, np.float64), interleaved=mode == _NORM)


def _pair_with(turns: float, n_dims: int, original: int, base: float) -> float:
    """Return the pair that turns this often in the original context."""
    return float(n_dims * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(base)))
