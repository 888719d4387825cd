"""Write sums of weighted rows in vector IR: each row is loaded once for several query heads.

A tile is some query heads times some columns. Its sums stay in registers while a loop runs over the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import float32
from numba.core import cgutils

from ..numba_support.compile import kernel
from ..numba_support.machine_features import LANES
from ..numba_support.shape import NIBBLES, ShapeParts
from ..numba_support.vector import (
    ACCUMULATORS,
    CACHE_LINE,
    INT64,
    Emit,
    accumulators,
    constant,
    cover,
    cover_evenly,
    cover_rest,
)
from .q4_0 import count_last, last_columns, load_last_nibbles, load_nibbles
from .q8_0 import load_scale

#: Most query heads of a tile.
_MOST_HEADS = 4


class _Sum:
    """The arguments of a sum, LLVM int64: see `add_weighted` in rows.py."""

    def __init__(self, builder: Any, shape: Any, ahead: Any, *arguments: Any) -> None:
        self.builder, self.ahead = builder, ahead
        self.weights, self.stride, self.listed, n_rows, out = arguments
        self.n_rows, self.out, self.parts = n_rows, out, ShapeParts(builder, shape)
        self.value_dim, self.group = self.parts.value_dim(), self.parts.group()
        self.n_stored = self.parts.value_elements()


#: Takes the address of a row, LLVM int64; returns the vectors of a tile.
_Load = Callable[[Any], list[Any]]


def _add_tile(own: _Sum, emit: Emit, first: Any, n: int, places: list[Any], load: _Load, n_lines: Any) -> None:
    """Add the weighted rows to the sums of n query heads, from the first on, in some columns.

    Parameters
    ----------
    places : list of LLVM int64
        First column of each vector.
    n_lines : LLVM int64
        Cache lines to prefetch of each row.
    """
    builder = own.builder
    totals = accumulators(builder, emit, n * len(places))
    heads = [builder.add(first, constant(g)) for g in range(n)]
    starts = [builder.mul(own.stride, head) for head in heads]

    with cgutils.for_range(builder, own.n_rows) as loop:
        number = loop.index
        later = builder.load(emit.pointer(own.listed, INT64, builder.add(number, own.ahead)))
        with cgutils.for_range(builder, n_lines) as lines:
            emit.prefetch(builder.add(later, builder.mul(lines.index, constant(CACHE_LINE))), CACHE_LINE)
        values = load(builder.load(emit.pointer(own.listed, INT64, number)))
        for g, start in enumerate(starts):
            weight = emit.splat(emit.load_scalar(own.weights, builder.add(start, number)))
            for i, value in enumerate(values):
                total = totals[g * len(places) + i]
                builder.store(emit.fma(weight, value, builder.load(total)), total)
    for g, head in enumerate(heads):
        start = builder.mul(head, own.value_dim)
        for i, column in enumerate(places):
            place = builder.add(start, column)
            total = builder.load(totals[g * len(places) + i])
            emit.store(builder.fadd(emit.load_float(own.out, place), total), own.out, place)


def _vectors_at_once(n: int) -> tuple[int, ...]:
    """Return the numbers of vectors that tiles of n query heads take, the largest first."""
    most = min(8, ACCUMULATORS // n)
    return (4, 1) if most >= 4 else (2, 1)


def _columns_from(builder: Any, first: Any, count: int, step: int) -> list[Any]:
    return [builder.add(first, constant(i * step)) for i in range(count)]


def _load_floats(own: _Sum, emit: Emit, places: list[Any]) -> _Load:
    """Return what loads vectors of an f16 row."""
    return lambda row: [emit.load_half(row, place) for place in places]


def _load_bytes(own: _Sum, emit: Emit, places: list[Any]) -> _Load:
    """Return what loads vectors of a q8_0 row."""

    def load(row: Any) -> list[Any]:
        scale = emit.splat(load_scale(emit, own.n_stored, row))
        return [own.builder.fmul(emit.load_int8(row, place), scale) for place in places]

    return load


def _add_plain(own: _Sum, first: Any, n: int, load: Callable[[_Sum, Emit, list[Any]], _Load], lines: Any) -> None:
    """Add rows whose columns are stored in order to the sums of n query heads."""
    builder, emit = own.builder, Emit(own.builder)

    def write(start: Any, count: int) -> None:
        column = builder.mul(start, constant(LANES))
        places = _columns_from(builder, column, count, LANES)
        _add_tile(own, emit, first, n, places, load(own, emit, places), _if_first(builder, start, lines))

    cover(builder, builder.sdiv(own.value_dim, constant(LANES)), _vectors_at_once(n), write)

    def write_rest(short: Emit, column: Any) -> None:
        _add_tile(own, short, first, n, [column], load(own, short, [column]), _if_first(builder, column, lines))

    cover_rest(builder, own.value_dim, write_rest)


def _if_first(builder: Any, start: Any, lines: Any) -> Any:
    """Return `lines` for the tile that starts at 0: the first one prefetches for all. Return 0 for others."""
    return builder.select(builder.icmp_signed("==", start, constant(0)), lines, constant(0))


def _add_nibbles(own: _Sum, first: Any, n: int, lines: Any) -> None:
    """Add q4_0 rows to the sums of n query heads: blocks, or their halves if a block exceeds the registers."""
    builder, emit, n_stored = own.builder, Emit(own.builder), own.n_stored
    vectors = NIBBLES // LANES
    in_halves = vectors * _MOST_HEADS > ACCUMULATORS
    sizes = (1,) if in_halves else tuple(size for size in (2, 1) if size * vectors * n <= ACCUMULATORS)

    def write(start: Any, count: int) -> None:
        columns = _columns_from(builder, builder.mul(start, constant(NIBBLES)), count * vectors, LANES)
        blocks = [builder.add(start, constant(i)) for i in range(count)]
        for half in (0, 1) if in_halves else (None,):
            places = columns if half is None else columns[half * vectors // 2 :][: vectors // 2]

            def load(row: Any, half: int | None = half) -> list[Any]:
                return [vector for block in blocks for vector in load_nibbles(emit, n_stored, row, block, half)]

            _add_tile(own, emit, first, n, places, load, constant(0) if half else _if_first(builder, start, lines))

    cover(builder, builder.lshr(own.value_dim, constant(5)), sizes, write)
    with cgutils.for_range(builder, count_last(builder, own.value_dim)) as loop:
        four, i = Emit(builder, 4), loop.index

        def load_last(row: Any) -> list[Any]:
            return load_last_nibbles(four, n_stored, row, i)

        _add_tile(own, four, first, n, last_columns(builder, n_stored, i), load_last, constant(0))


def _add_rows(builder: Any, arguments: tuple[Any, ...], add: Callable[[_Sum, Any, int, Any], None]) -> None:
    """Write a sum for tiles of query heads; `add` takes the arguments of `_add_nibbles`."""
    own = _Sum(builder, *arguments)
    n_lines = builder.lshr(builder.add(own.parts.value_bytes(), constant(CACHE_LINE - 1)), constant(6))

    def write(first: Any, n: int) -> None:
        add(own, first, n, _if_first(builder, first, n_lines))

    cover_evenly(builder, own.group, _MOST_HEADS, write)


def add_halves(builder: Any, *arguments: Any) -> None:
    """Write what `add_weighted` computes of f16 rows (rows.py).

    The arguments are the shape, `ahead`, the rows from one to that which is prefetched meanwhile, and those of
    `add_weighted` after the shape: LLVM int64.
    """
    _add_rows(builder, arguments, lambda own, first, n, lines: _add_plain(own, first, n, _load_floats, lines))


def add_bytes(builder: Any, *arguments: Any) -> None:
    """Write what `add_weighted` computes of q8_0 rows: see `add_halves`."""
    _add_rows(builder, arguments, lambda own, first, n, lines: _add_plain(own, first, n, _load_bytes, lines))


def add_nibbles(builder: Any, *arguments: Any) -> None:
    """Write what `add_weighted` computes of q4_0 rows: see `add_halves`."""
    _add_rows(builder, arguments, _add_nibbles)


@kernel
def mean_of_runs(rows, starts, means):
    """Compute the mean of each run of rows.

    Parameters
    ----------
    rows : f32 array, shape (n_rows, n_columns)
        The rows.
    starts : int32 array, shape (n_runs + 1,)
        Where runs start and stop.
    means : f32 array, shape (n_runs, n_columns)
        Receives the means, 0 for an empty run.
    """
    n_columns = rows.shape[1]
    for i in range(len(starts) - 1):
        own = means[i]
        for j in range(n_columns):
            own[j] = float32(0)
        for r in range(starts[i], starts[i + 1]):
            for j in range(n_columns):
                own[j] += rows[r, j]
        size = float32(max(starts[i + 1] - starts[i], 1))
        for j in range(n_columns):
            own[j] /= size
