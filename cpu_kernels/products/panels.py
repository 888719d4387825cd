"""Multiply panels of eight rows of weights by rounded inputs, in AVX2.

A panel is unpacked once for many tokens. Vector j of its codes holds four columns of each of its rows, 4j to 4j + 3, so
that a lane of a product is a row's own, and a token's four bytes are loaded into all lanes. Weights whose codes need a
sign are words instead, two columns of each row in a vector.

Products of codes and bytes are added up in int16 as long as no input can overflow them, then in int32. With a scale for
each block of 32 columns the sum of a block becomes f32; a superblock of 256 has whole scales besides its one f32, which
the words of its int16 sums are multiplied by.

Sums of f32 are in the order of the columns, whatever the number of tokens: a token's result does not depend on others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..numba_support.vector import FLOAT, INT32, INT64, Emit, accumulators, constant, cover
from .activations import BLOCK, SCALE_BYTES, SUMMED, SUPERBLOCK
from .integers import (
    CODES,
    FLOATS,
    INTEGERS,
    LANES,
    WORDS,
    equal,
    field,
    load,
    multiply_codes,
    multiply_words,
    splat,
    store,
    transposed,
)

#: The part of a product that one thread computes at a time.
JOB = np.dtype(
    [
        ("weights", "i8"),  # address of the first row
        ("row_bytes", "i8"),
        ("n_rows", "i8"),
        ("n_blocks", "i8"),  # of a row
        ("panel", "i8"),  # address of room for an unpacked panel
        ("inputs", "i8"),  # address of the first token's rounded inputs
        ("token_bytes", "i8"),
        ("tokens", "i8"),  # address of their TOKEN records
        ("n_tokens", "i8"),
    ],
    align=True,
)

#: Where the inputs and the results of a token lie.
TOKEN = np.dtype(
    [
        ("source", "i8"),  # address of its inputs, f32
        ("out", "i8"),  # address of its results, one f32 for each row of the weights
    ],
    align=True,
)

#: Bytes of a vector.
_VECTOR = 32

#: Tokens whose sums are in registers together.
TOKENS = 4

_LARGEST_BYTE, _LARGEST_WORD = 127, 32767


@dataclass(frozen=True)
class BlockType:
    """Weights in blocks of columns.

    Parameters
    ----------
    n_bytes : int
        Bytes of a block.
    codes : callable
        Takes a builder, the address of a row's block, and which 32 of its columns, LLVM int64. Returns their codes, 32
        bytes without sign, or as 32 words if `largest` is 0.
    floats : callable
        Takes a builder and the addresses of a block in each of eight rows. Returns f32 vectors: the scales, and if
        codes have a minimum besides them, that.
    largest : int
        The largest code.
    columns : int
        Columns of a block.
    integers : callable, optional
        For superblocks of codes. Takes what `floats` takes. Returns int32 vectors, two words in each lane: the scales
        of each `scaled` columns, twice; then factors for each pair of sums of 16 inputs.
    scaled : int
        Columns that share such a scale.
    """

    n_bytes: int
    codes: Callable[[Any, Any, Any], Any]
    floats: Callable[[Any, list[Any]], list[Any]]
    largest: int = 0
    columns: int = BLOCK
    integers: Callable[[Any, list[Any]], list[Any]] | None = None
    scaled: int = BLOCK
    has_minimum: bool = False

    @property
    def in_words(self) -> bool:
        return not self.largest

    @property
    def together(self) -> int:
        """Return how many products of two codes and two bytes int16 can add up."""
        fit = _LARGEST_WORD // (2 * self.largest * _LARGEST_BYTE)
        return max(n for n in (1, 2, 4, 8) if n <= min(fit, self.scaled // 4))

    @property
    def codes_bytes(self) -> int:
        """Return the bytes of a block's codes in a panel."""
        return self.columns * LANES * (2 if self.in_words else 1)

    @property
    def n_scales(self) -> int:
        return self.columns // self.scaled if self.integers else 0

    @property
    def n_integers(self) -> int:
        """Return how many vectors `integers` returns."""
        return self.n_scales + self.columns // (2 * SUMMED) if self.integers else 0

    @property
    def panel_bytes(self) -> int:
        """Return the bytes of a block in a panel."""
        return self.codes_bytes + (self.n_integers + 1 + self.has_minimum) * _VECTOR

    @property
    def input_bytes(self) -> int:
        """Return the bytes of a block of rounded inputs (activations.py)."""
        if self.in_words:
            return 2 * self.columns + SCALE_BYTES
        return self.columns + (self.columns // SUMMED * 2 if self.integers else 4) + SCALE_BYTES


def multiplier(of: BlockType) -> Any:
    """Make the intrinsic that multiplies panels of weights of a type, from one to another."""

    @intrinsic
    def multiply_panels(typing: Any, job: Any, first: Any, stop: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            job, first, stop = args
            with cgutils.for_range_slice(builder, first, stop, constant(1), INT64) as (panel, _count):
                _write_panel(builder, of, job, builder.mul(panel, constant(LANES)))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3), generate

    return multiply_panels


def _write_panel(builder: Any, of: BlockType, job: Any, first_row: Any) -> None:
    """Write code that unpacks a panel, and multiplies it by all tokens."""
    read = {name: field(builder, job, JOB, name) for name in JOB.names or ()}
    left = builder.sub(read["n_rows"], first_row)
    rows = []
    for r in range(LANES):  # beyond the last row, the first one again: its results are not stored
        row = builder.select(builder.icmp_signed("<", constant(r), left), constant(r), constant(0))
        own = builder.add(first_row, row)
        rows.append(builder.add(read["weights"], builder.mul(own, read["row_bytes"])))
    next_panel = builder.add(rows[0], builder.mul(read["row_bytes"], constant(LANES)))
    row_offset = builder.mul(first_row, constant(4))
    lanes = ir.Constant(INTEGERS, list(range(LANES)))
    is_row = builder.icmp_signed("<", lanes, splat(builder, builder.trunc(left, INT32)))

    def unpack(block: Any, place: Any) -> Any:
        at = builder.mul(block, constant(of.n_bytes))
        ahead = builder.add(next_panel, builder.mul(block, constant(LANES * of.n_bytes)))
        Emit(builder).prefetch(ahead, LANES * of.n_bytes)  # eight streams are more than the CPU foresees
        _unpack(builder, of, [builder.add(row, at) for row in rows], place)
        return place

    def unpacked(block: Any) -> Any:
        return builder.add(read["panel"], builder.mul(block, constant(of.panel_bytes)))

    def write(token: Any, n: int, panel: Callable[[Any], Any] = unpacked) -> None:
        inputs = [builder.add(token, constant(t)) for t in range(n)]
        inputs = [builder.add(read["inputs"], builder.mul(each, read["token_bytes"])) for each in inputs]
        for t, total in enumerate(_tile(builder, of, panel, read["n_blocks"], inputs)):
            record = builder.mul(builder.add(token, constant(t)), constant(TOKEN.itemsize))
            out = field(builder, builder.add(read["tokens"], record), TOKEN, "out")
            _store_rows(builder, total, builder.add(out, row_offset), left, is_row)

    with builder.if_else(builder.icmp_signed("==", read["n_tokens"], constant(1))) as (one, many):
        with one:  # a block is needed once, so that all take the memory of one, in the L1 cache
            write(constant(0), 1, lambda block: unpack(block, read["panel"]))
        with many:
            with cgutils.for_range(builder, read["n_blocks"]) as loop:
                unpack(loop.index, unpacked(loop.index))
            cover(builder, read["n_tokens"], (TOKENS, 1), write)


def _store_rows(builder: Any, total: Any, place: Any, left: Any, is_row: Any) -> None:
    """Store the results of rows that there are."""
    with builder.if_else(builder.icmp_signed(">=", left, constant(LANES)), likely=True) as (all_rows, some):
        with all_rows:
            store(builder, total, place)
        with some:
            pointer = builder.inttoptr(place, FLOATS.as_pointer())
            arguments = [FLOATS, pointer.type, INT32, ir.VectorType(ir.IntType(1), LANES)]
            signature = ir.FunctionType(ir.VoidType(), arguments)
            function = cgutils.get_or_insert_function(builder.module, signature, "llvm.masked.store.v8f32.p0v8f32")
            builder.call(function, [total, pointer, ir.Constant(INT32, 4), is_row])


def _unpack(builder: Any, of: BlockType, rows: list[Any], place: Any) -> None:
    """Write code that unpacks a block of each row."""
    with cgutils.for_range(builder, constant(of.columns // BLOCK)) as loop:
        at = builder.add(place, builder.mul(loop.index, constant(of.codes_bytes // (of.columns // BLOCK))))
        codes = [of.codes(builder, row, loop.index) for row in rows]
        n_parts = codes[0].type.count * (2 if of.in_words else 1) // _VECTOR
        for part in range(n_parts):
            own = [_part(builder, each, part, n_parts) for each in codes]
            for j, vector in enumerate(transposed(builder, own)):
                store(builder, vector, at, (part * LANES + j) * _VECTOR)
    vectors = (of.integers(builder, rows) if of.integers else []) + of.floats(builder, rows)
    for i, vector in enumerate(vectors):
        store(builder, vector, place, of.codes_bytes + i * _VECTOR)


def _part(builder: Any, codes: Any, part: int, n_parts: int) -> Any:
    """Return one of the vectors that codes consist of, as int32."""
    n = codes.type.count // n_parts
    own = Emit(builder).shuffle(codes, codes, list(range(part * n, (part + 1) * n))) if n_parts > 1 else codes
    return builder.bitcast(own, INTEGERS)


def _tile(builder: Any, of: BlockType, panel: Callable[[Any], Any], n_blocks: Any, inputs: list[Any]) -> list[Any]:
    """Write the products of a panel and some tokens; return a vector of results for each.

    `panel` returns the address of a block in it.
    """
    totals, write = accumulators(builder, Emit(builder, LANES), len(inputs)), _block_of_codes
    if of.in_words:
        write = _block_of_words
    elif of.integers:
        write = _superblock_of_codes
    with cgutils.for_range(builder, n_blocks) as loop:
        place = panel(loop.index)
        step = builder.mul(loop.index, constant(of.input_bytes))
        write(builder, of, place, [builder.add(own, step) for own in inputs], totals)
    return [builder.load(total) for total in totals]


def _block_of_codes(builder: Any, of: BlockType, place: Any, inputs: list[Any], totals: list[Any]) -> None:
    """Add the products of a block of 32 columns."""
    scale, rest = load(builder, FLOATS, place, of.codes_bytes), BLOCK
    sums = [load(builder, INT32, own, rest) for own in inputs]
    integers = [equal(INTEGERS, 0) if of.has_minimum else splat(builder, each) for each in sums]
    ones = equal(WORDS, 1)
    for first in range(0, BLOCK // 4, of.together):
        words = _add_codes(builder, of, place, inputs, range(first, first + of.together))
        integers = [
            builder.add(each, multiply_words(builder, own, ones)) for each, own in zip(integers, words, strict=True)
        ]
    for own, each, total in zip(inputs, integers, totals, strict=True):
        _add_scaled(builder, each, load(builder, FLOAT, own, rest + 4), scale, total)
        if of.has_minimum:
            minimum = load(builder, FLOATS, place, of.codes_bytes + _VECTOR)
            scaled_sum = splat(builder, load(builder, FLOAT, own, rest))
            builder.store(Emit(builder, LANES).fma(minimum, scaled_sum, builder.load(total)), total)


def _add_codes(builder: Any, of: BlockType, place: Any, inputs: list[Any], groups: range) -> list[Any]:
    """Return, for each token, the sums of the products of some groups of four columns, as words."""
    words: list[Any] = [None] * len(inputs)
    for j in groups:
        codes = load(builder, CODES, place, j * _VECTOR)
        for t, own in enumerate(inputs):
            product = multiply_codes(builder, codes, splat(builder, load(builder, INT32, own, 4 * j)))
            words[t] = product if words[t] is None else builder.add(words[t], product)
    return words


def _add_scaled(builder: Any, integers: Any, input_scale: Any, scale: Any, total: Any) -> None:
    """Add integers, times the scales of the inputs and of the rows, to a sum."""
    floats = builder.fmul(builder.sitofp(integers, FLOATS), splat(builder, input_scale))
    builder.store(Emit(builder, LANES).fma(floats, scale, builder.load(total)), total)


def _superblock_of_codes(builder: Any, of: BlockType, place: Any, inputs: list[Any], totals: list[Any]) -> None:
    """Add the products of a superblock of 256 columns, whose scales are whole numbers besides one f32."""
    integers = [_slot(builder) for _ in inputs]
    offsets = [_slot(builder) for _ in inputs] if of.has_minimum else integers
    scales = builder.add(place, constant(of.codes_bytes))
    pairs = builder.add(scales, constant(of.n_scales * _VECTOR))
    with cgutils.for_range(builder, constant(SUPERBLOCK // BLOCK)) as loop:
        codes = builder.add(place, builder.mul(loop.index, constant(BLOCK * LANES)))
        own = [builder.add(each, builder.mul(loop.index, constant(BLOCK))) for each in inputs]
        n_scales = BLOCK // of.scaled
        own_scales = builder.add(scales, builder.mul(loop.index, constant(n_scales * _VECTOR)))
        for first in range(0, BLOCK // 4, of.together):
            scale = load(builder, WORDS, own_scales, first * 4 // of.scaled * _VECTOR)
            words = _add_codes(builder, of, codes, own, range(first, first + of.together))
            for each, slot in zip(words, integers, strict=True):
                builder.store(builder.add(builder.load(slot), multiply_words(builder, each, scale)), slot)
        pair = load(builder, WORDS, pairs, builder.mul(loop.index, constant(_VECTOR)))
        for each, slot in zip(inputs, offsets, strict=True):
            sums = load(builder, INT32, each, builder.add(constant(SUPERBLOCK), builder.mul(loop.index, constant(4))))
            product = multiply_words(builder, pair, splat(builder, sums))
            builder.store(builder.add(builder.load(slot), product), slot)
    floats = of.codes_bytes + of.n_integers * _VECTOR
    scale = load(builder, FLOATS, place, floats)
    for t, own in enumerate(inputs):
        input_scale = load(builder, FLOAT, own, of.input_bytes - SCALE_BYTES)
        _add_scaled(builder, builder.load(integers[t]), input_scale, scale, totals[t])
        if of.has_minimum:
            minimum = load(builder, FLOATS, place, floats + _VECTOR)
            _add_scaled(builder, builder.load(offsets[t]), input_scale, minimum, totals[t])


def _block_of_words(builder: Any, of: BlockType, place: Any, inputs: list[Any], totals: list[Any]) -> None:
    """Add the products of a block, or a superblock, of words."""
    integers = [_slot(builder) for _ in inputs]
    with cgutils.for_range(builder, constant(of.columns // BLOCK)) as loop:
        words = builder.add(place, builder.mul(loop.index, constant(2 * BLOCK * LANES)))
        own = [builder.add(each, builder.mul(loop.index, constant(2 * BLOCK))) for each in inputs]
        for j in range(BLOCK // 2):
            pair = load(builder, WORDS, words, j * _VECTOR)
            for each, slot in zip(own, integers, strict=True):
                product = multiply_words(builder, pair, splat(builder, load(builder, INT32, each, 4 * j)))
                builder.store(builder.add(builder.load(slot), product), slot)
    scale = load(builder, FLOATS, place, of.codes_bytes)
    for own_inputs, slot, total in zip(inputs, integers, totals, strict=True):
        input_scale = load(builder, FLOAT, own_inputs, of.input_bytes - SCALE_BYTES)
        _add_scaled(builder, builder.load(slot), input_scale, scale, total)


def _slot(builder: Any) -> Any:
    """Allocate a vector of int32, set to zeros. LLVM turns such a stack slot into a register."""
    slot = cgutils.alloca_once(builder, INTEGERS)
    builder.store(equal(INTEGERS, 0), slot)
    return slot
