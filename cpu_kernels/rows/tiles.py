"""Cut the rows and query heads that kernels multiply into tiles, whose sums stay in registers.

The sizes of a tile are known when Numba compiles, the sizes of a row and of the group are not: loops run over tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import cgutils

from ..numba_support.machine_features import LANES
from ..numba_support.shape import ShapeParts
from ..numba_support.vector import ACCUMULATORS, Emit, constant, cover_rest

#: Rows of a chunk, by which the tail of a head grows (see layout/head.py).
CHUNK_ROWS = 256

#: Rows that are scored at once: lists of rows are padded to a multiple of that.
ROWS_AT_ONCE = 4

#: Most query heads that they are multiplied by: so many sums fit in registers.
HEADS_AT_ONCE = min(4, ACCUMULATORS // ROWS_AT_ONCE)


class Sizes:
    """The sizes of some products, and the address of the query, from `load_query`: LLVM int64."""

    def __init__(self, builder: Any, shape: Any, query: Any) -> None:
        parts = ShapeParts(builder, shape)
        self.parts, self.query = parts, query
        self.head_dim, self.group = parts.head_dim(), parts.group()


def for_columns(builder: Any, head_dim: Any, write: Callable[[Emit, Any], None]) -> None:
    """Write a loop over the columns of a row, LANES at a time, and 8 in the end if they are left.

    `write` takes a writer of vectors of that many columns, and the first column, LLVM int64.
    """
    with cgutils.for_range(builder, builder.sdiv(head_dim, constant(LANES))) as loop:
        write(Emit(builder), builder.mul(loop.index, constant(LANES)))
    cover_rest(builder, head_dim, write)
