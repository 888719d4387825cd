"""A chunk: CHUNK_ROWS keys and values of one KV head's tail, and what a selector keeps beside them."""

from __future__ import annotations

from collections.abc import Sequence

from .compile import Shape
from .methods.h2o import SLOT_BYTES
from .methods.quest import PAGE_ROWS
from .spans import CHUNK_ROWS
from .tail_clusters import cluster_bytes

#: What can be kept beside a chunk's rows, by the field of HEAD that says where: bytes for a shape.
_BESIDE = {
    "page_offset": lambda shape: CHUNK_ROWS // PAGE_ROWS * 4 * shape.head_dim,
    "column_offset": lambda shape: CHUNK_ROWS * 2 * shape.head_dim,
    "moment_offset": lambda shape: 2 * 4 * shape.head_dim,
    "sum_offset": lambda shape: 4 * shape.head_dim,
    "cluster_offset": lambda shape: cluster_bytes(shape.head_dim),
    "slot_offset": lambda shape: CHUNK_ROWS * SLOT_BYTES,
}


def chunk_layout(shape: Shape, beside: Sequence[str]) -> tuple[dict[str, int], int]:
    """Where in a chunk its parts begin, by their field of HEAD (0 where there is none), and its bytes."""
    offsets = dict.fromkeys(("key_offset", "value_offset", *_BESIDE), 0)
    end = 0
    for name in ("key_offset", "value_offset", *beside):
        offsets[name] = end
        size = _BESIDE[name](shape) if name in _BESIDE else CHUNK_ROWS * shape.row_bytes
        end += -(-size // 64) * 64
    return offsets, end
