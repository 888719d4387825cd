"""Multiply panels by many tokens on Intel's AMX tiles, in bf16.

Weights are unpacked to bf16, and inputs are rounded to it: each keeps 8 bits of its own, where bytes share the scale of
their block. Sums of f32 stay in tiles over all columns of a slice. Sums of bytes would have to leave their tile after
each block, which takes longer than their products. So a token among many others has other results than among few: they
differ by less than its rounding to bytes changes.

A tile on the left is 32 columns of sixteen tokens, and one on the right the same columns of sixteen rows of weights,
with pairs of columns interleaved.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from ..numba_support.amx import ROW_BYTES, TILE_BYTES, TILE_ROWS, call_amx, load_tile, rounded_pairs, store_tile
from ..numba_support.machine_features import HAS_AMX
from ..numba_support.vector import INT32, INT64, Emit, constant, cover_evenly
from .activations import BLOCK
from .integers import equal, field, load, splat, store, vectors_of
from .panels import TOKEN, BlockType, Panel

#: Tokens from which a group is multiplied on tiles. Fewer, such as drafts, keep the results that each has alone.
FEWEST_TILED = 33

#: Most tokens of a job on tiles: to unpack rows takes as long as to multiply them by a hundred.
MOST_TILED = 512

#: Panels of sixteen rows that are multiplied together, so that a tile on the left is loaded once for two products.
_PANELS = 2

#: Rows of weights that a job takes at a time, where tiles multiply.
TILED_ROWS = _PANELS * TILE_ROWS

#: The most columns of a slice: their tiles almost fill a L1 cache of 48 KiB.
_COLUMNS = 640

#: Tiles for operands; the others hold sums.
_LEFT, _RIGHT = (4, 5), (6, 7)

_SUMS_BYTES, _RIGHT_BYTES = MOST_TILED * TILED_ROWS * 4, _COLUMNS // BLOCK * _PANELS * TILE_BYTES

_LANES = TILE_ROWS
_TYPES = vectors_of(_LANES)


def tiled_room_bytes(of: BlockType) -> int:
    """Return the bytes of the sums of all tokens, of a slice of weights as tiles, and of an unpacked block."""
    return _SUMS_BYTES + _RIGHT_BYTES + of.panel_bytes if HAS_AMX else 0


def multiply_tiled(builder: Any, of: BlockType, job: dict[str, Any], first_row: Any) -> None:
    """Write code that multiplies TILED_ROWS rows by all tokens of a job."""
    panels = [Panel(builder, of, job, builder.add(first_row, constant(i * _LANES)), _LANES) for i in range(_PANELS)]
    sums, n_blocks = job["panel"], job["n_blocks"]
    right = builder.add(sums, constant(_SUMS_BYTES))
    block_room = builder.add(right, constant(_RIGHT_BYTES))
    n_tiles = builder.udiv(builder.add(job["n_tokens"], constant(TILE_ROWS - 1)), constant(TILE_ROWS))
    most = constant(_COLUMNS // of.columns)
    with cgutils.for_range_slice(builder, constant(0), n_blocks, most, INT64) as (start, _count):
        left = builder.sub(n_blocks, start)
        n_own = builder.select(builder.icmp_signed("<", left, most), left, most)
        with cgutils.for_range(builder, n_own) as loop:
            block = builder.add(start, loop.index)
            own = builder.add(right, builder.mul(loop.index, constant(of.columns // BLOCK * _PANELS * TILE_BYTES)))
            for i, panel in enumerate(panels):
                panel.unpack(block, block_room)
                _write_right(builder, of, block_room, builder.add(own, constant(i * TILE_BYTES)))

        n_steps = builder.mul(n_own, constant(of.columns // BLOCK))
        is_first = builder.icmp_signed("==", start, constant(0))
        inputs = builder.add(job["inputs"], builder.mul(start, constant(2 * of.columns)))

        def write(tile: Any, n: int) -> None:
            token = builder.mul(tile, constant(TILE_ROWS))
            own = builder.add(inputs, builder.mul(token, job["token_bytes"]))
            own_sums = builder.add(sums, builder.mul(token, constant(4 * TILED_ROWS)))
            _add_products(builder, n, own, job["token_bytes"], right, n_steps, own_sums, is_first)

        cover_evenly(builder, n_tiles, _PANELS, write)

    with cgutils.for_range(builder, job["n_tokens"]) as loop:
        record = builder.add(job["tokens"], builder.mul(loop.index, constant(TOKEN.itemsize)))
        own = builder.add(sums, builder.mul(loop.index, constant(4 * TILED_ROWS)))
        for i, panel in enumerate(panels):
            panel.store_rows(load(builder, _TYPES.floats, own, i * ROW_BYTES), field(builder, record, TOKEN, "out"))


def _add_products(
    builder: Any, n: int, left: Any, token_bytes: Any, right: Any, n_steps: Any, sums: Any, is_first: Any
) -> None:
    """Write code that adds the products of n tiles of tokens with all panels to sums, which are 0 at first."""
    places = [(2 * i + j, 4 * TILED_ROWS * TILE_ROWS * i + ROW_BYTES * j) for i in range(n) for j in range(_PANELS)]
    with builder.if_else(is_first) as (first, others):
        with first:
            for tile, _ in places:
                call_amx(builder, "tilezero", tile)
        with others:
            for tile, at in places:
                load_tile(builder, tile, sums, at, constant(4 * TILED_ROWS))
    with cgutils.for_range(builder, n_steps) as loop:
        own = builder.add(left, builder.mul(loop.index, constant(ROW_BYTES)))
        step = builder.add(right, builder.mul(loop.index, constant(_PANELS * TILE_BYTES)))
        for j in range(_PANELS):
            load_tile(builder, _RIGHT[j], step, j * TILE_BYTES)
        for i in range(n):
            load_tile(builder, _LEFT[i], own, builder.mul(token_bytes, constant(i * TILE_ROWS)), token_bytes)
            for j in range(_PANELS):
                call_amx(builder, "tdpbf16ps", 2 * i + j, _LEFT[i], _RIGHT[j])
    for tile, at in places:
        store_tile(builder, tile, sums, at, constant(4 * TILED_ROWS))


def _write_right(builder: Any, of: BlockType, place: Any, target: Any) -> None:
    """Write code that turns an unpacked block of sixteen rows into tiles of bf16, _PANELS tiles apart."""
    emit, vector_bytes = Emit(builder, _LANES), 4 * _LANES
    floats = of.columns * _LANES + of.n_integers * vector_bytes
    scale = load(builder, _TYPES.floats, place, floats)
    minimum = load(builder, _TYPES.floats, place, floats + vector_bytes) if of.has_minimum else scale

    def integer(at: Any, is_upper: Any = None) -> Any:
        """Return words besides the codes as f32: of all lanes the upper one, or as given."""
        words = load(builder, _TYPES.integers, place, builder.add(at, constant(of.columns * _LANES)))
        if is_upper is not None:
            shift = builder.select(is_upper, ir.Constant(INT32, 0), ir.Constant(INT32, 16))
            words = builder.shl(words, splat(builder, shift, _LANES))
        return builder.sitofp(builder.ashr(words, equal(_TYPES.integers, 16)), _TYPES.floats)

    with cgutils.for_range(builder, constant(of.n_parts)) as loop:
        part, factor = loop.index, scale
        if of.integers:
            factor = builder.fmul(scale, integer(builder.mul(part, constant(vector_bytes))))
        if of.integers and of.has_offset:
            pair = builder.add(builder.lshr(part, constant(1)), constant(of.n_scales))
            offset = integer(builder.mul(pair, constant(vector_bytes)), _is_odd(builder, part))
            offset = builder.fmul(minimum, offset)
        else:
            offset = minimum if of.has_minimum else builder.fmul(scale, emit.constant(-float(of.subtracted)))
        factor, offset = (_quiet(builder, emit, each) for each in (factor, offset))
        codes = builder.add(place, builder.mul(part, constant(of.scaled * _LANES)))
        column = builder.mul(part, constant(of.scaled))
        own = builder.add(target, builder.mul(builder.udiv(column, constant(BLOCK)), constant(_PANELS * TILE_BYTES)))
        own = builder.add(own, builder.mul(builder.urem(column, constant(BLOCK)), constant(ROW_BYTES // 2)))
        for j in range(of.scaled // 4):
            four = load(builder, _TYPES.integers, codes, j * vector_bytes)
            bytes_of = [
                builder.and_(builder.lshr(four, equal(_TYPES.integers, 8 * k)), equal(_TYPES.integers, 255))
                for k in range(4)
            ]
            weights = [emit.fma(builder.sitofp(each, _TYPES.floats), factor, offset) for each in bytes_of]
            for k in (0, 1):
                store(builder, rounded_pairs(emit, *weights[2 * k : 2 * k + 2]), own, (2 * j + k) * ROW_BYTES)


def _is_odd(builder: Any, number: Any) -> Any:
    return builder.trunc(number, ir.IntType(1))


def _quiet(builder: Any, emit: Emit, floats: Any) -> Any:
    """Return floats with the plainest NaN in place of any: rounding adds to their bits."""
    return builder.select(builder.fcmp_unordered("uno", floats, floats), emit.constant(float("nan")), floats)
