"""Multiply panels of eight rows of weights by rounded inputs, in AVX2, with VNNI where the CPU has it.

A panel is unpacked once for many tokens. Vector j of its codes holds four columns of each of its rows, 4j to 4j + 3, so
that a lane of a product is a row's own, and a token's four bytes are loaded into all lanes. Codes have no sign, which
the instructions for their products ask for. Where they need one, the inputs take it over; with VNNI a number is added
to the codes, and its products are subtracted.

VNNI adds four products of codes and bytes to an int32. AVX2 adds two, and adds up such int16 as long as no input can
overflow them, before they become int32. With a scale for
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

from ..numba_support.machine_features import HAS_VNNI
from ..numba_support.vector import FLOAT, INT32, INT64, Emit, accumulators, constant, cover
from .activations import BLOCK, PLACES_OF_SUMS, SCALE_BYTES, SUMS_BYTES
from .integers import (
    ADDED,
    CODES,
    FLOATS,
    INTEGERS,
    LANES,
    WORDS,
    add_products,
    equal,
    field,
    joined,
    load,
    look_up,
    magnitudes_of,
    multiply_codes,
    multiply_words,
    splat,
    store,
    sums_of_lanes,
    transposed,
    with_signs,
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
    read : callable
        Takes a builder, the address of a row's block, and which of its columns, LLVM int64. Returns a list of vectors,
        all of 16 bytes or all of 32.
    floats : callable
        Takes a builder and the addresses of a block in each of eight rows. Returns f32 vectors: the scales, and if
        codes have a minimum besides them, that.
    largest : int
        The largest code, or its magnitude if codes have a sign.
    codes : callable, optional
        Takes a builder, such vectors, and which of the columns they are. Returns the codes that their bytes hold, the
        first columns first: `parts` vectors of 32, or two of 16. A code depends on the bytes in its place alone, so
        that the bytes of eight rows can be transposed before.
    table : tuple of int, optional
        What stands for the 16 codes.
    columns : int
        Columns of a block.
    integers : callable, optional
        For superblocks of codes. Takes what `floats` takes. Returns int32 vectors, two words in each lane: the scales
        of each `scaled` columns, twice; then, if `has_offset`, factors for pairs of sums of so many inputs.
    scaled : int
        Columns that share such a scale.
    parts : int
        Vectors of codes that bytes of a row hold together.
    """

    n_bytes: int
    read: Callable[[Any, Any, Any], list[Any]]
    floats: Callable[[Any, list[Any]], list[Any]]
    largest: int
    codes: Callable[[Any, list[Any], Any], list[Any]] = lambda _builder, read, _part: read
    table: tuple[int, ...] | None = None
    columns: int = BLOCK
    integers: Callable[[Any, list[Any]], list[Any]] | None = None
    scaled: int = BLOCK
    has_minimum: bool = False
    has_sign: bool = False
    parts: int = 1

    @property
    def has_offset(self) -> bool:
        """Return whether sums of the inputs, times a factor, belong to the products of codes."""
        return not self.has_sign or ADDED > 0

    @property
    def together(self) -> int:
        """Return how many products of two codes and two bytes int16 can add up."""
        fit = _LARGEST_WORD // (2 * self.largest * _LARGEST_BYTE)
        return max(n for n in (1, 2, 4, 8) if n <= min(fit, self.scaled // 4))

    @property
    def few(self) -> int:
        """Return for how many tokens at most rows are multiplied as they are stored: a panel takes longer.

        The lanes of a row are added up once a block, and 32 columns with two scales take further steps.
        """
        return 3 if self.integers and self.scaled == BLOCK else 2

    @property
    def codes_bytes(self) -> int:
        """Return the bytes of a block's codes in a panel."""
        return self.columns * LANES

    @property
    def n_scales(self) -> int:
        return self.columns // self.scaled if self.integers else 0

    @property
    def n_integers(self) -> int:
        """Return how many vectors `integers` returns."""
        n_pairs = self.columns // (2 * self.scaled) if self.integers and self.has_offset else 0
        return self.n_scales + n_pairs

    @property
    def panel_bytes(self) -> int:
        """Return the bytes of a block in a panel."""
        return self.codes_bytes + (self.n_integers + 1 + self.has_minimum) * _VECTOR

    @property
    def input_bytes(self) -> int:
        """Return the bytes of a block of rounded inputs (activations.py)."""
        return self.columns + (SUMS_BYTES if self.integers else 4) + SCALE_BYTES


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

    def rows_of(block: Any) -> list[Any]:
        at = builder.mul(block, constant(of.n_bytes))
        return [builder.add(row, at) for row in rows]

    def prefetch_next(block: Any) -> None:  # eight streams are more than the CPU foresees
        ahead = builder.add(next_panel, builder.mul(block, constant(LANES * of.n_bytes)))
        Emit(builder).prefetch(ahead, LANES * of.n_bytes)

    def panel_of(block: Any) -> Any:
        return builder.add(read["panel"], builder.mul(block, constant(of.panel_bytes)))

    def write(token: Any, n: int, block_sums: Callable[[Any, list[Any]], _Block]) -> None:
        is_first = builder.icmp_signed("==", token, constant(0))

        def sums_and_prefetch(block: Any, inputs: list[Any]) -> _Block:
            with builder.if_then(is_first):  # memory works while these tokens are multiplied
                prefetch_next(block)
            return block_sums(block, inputs)

        inputs = [builder.add(token, constant(t)) for t in range(n)]
        inputs = [builder.add(read["inputs"], builder.mul(each, read["token_bytes"])) for each in inputs]
        for t, total in enumerate(_tile(builder, of, sums_and_prefetch, read["n_blocks"], inputs)):
            record = builder.mul(builder.add(token, constant(t)), constant(TOKEN.itemsize))
            out = field(builder, builder.add(read["tokens"], record), TOKEN, "out")
            _store_rows(builder, total, builder.add(out, row_offset), left, is_row)

    def sums_of_rows(block: Any, inputs: list[Any]) -> _Block:
        own = rows_of(block)
        _unpack_scales(builder, of, own, read["panel"])
        return read["panel"], _sums_of_rows(builder, of, own, read["panel"], inputs)

    def sums_of_panel(block: Any, inputs: list[Any]) -> _Block:
        place = panel_of(block)
        return place, _sums_of_panel(builder, of, place, inputs)

    many, end = builder.append_basic_block("many"), builder.append_basic_block("end")
    by_number = builder.switch(read["n_tokens"], many)
    for n in range(1, of.few + 1):
        few = builder.append_basic_block("few")
        by_number.add_case(constant(n), few)
        with builder.goto_block(few):
            write(constant(0), n, sums_of_rows)
            builder.branch(end)
    builder.position_at_end(many)
    with cgutils.for_range(builder, read["n_blocks"]) as loop:
        own, place = rows_of(loop.index), panel_of(loop.index)
        _unpack_codes(builder, of, own, place)
        _unpack_scales(builder, of, own, place)
    cover(builder, read["n_tokens"], (TOKENS, 1), lambda token, n: write(token, n, sums_of_panel))
    builder.branch(end)
    builder.position_at_end(end)


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


def _unpack_codes(builder: Any, of: BlockType, rows: list[Any], place: Any) -> None:
    """Write code that unpacks the codes of a block of each row."""
    with cgutils.for_range(builder, constant(of.columns // (of.parts * BLOCK))) as loop:
        at = builder.add(place, builder.mul(loop.index, constant(of.parts * BLOCK * LANES)))
        read = zip(*(of.read(builder, row, loop.index) for row in rows), strict=True)
        columns = [transposed(builder, list(each)) for each in read]
        for j, own in enumerate(zip(*columns, strict=True)):
            codes = of.codes(builder, [builder.bitcast(each, CODES) for each in own], loop.index)
            for part, each in enumerate(codes):
                store(builder, _looked_up(builder, of, each), at, (part * len(columns[0]) + j) * _VECTOR)


def _codes_of_row(builder: Any, of: BlockType, row: Any, part: Any) -> list[Any]:
    """Return the codes of some columns of a row, vectors of 32."""
    codes = of.codes(builder, of.read(builder, row, part), part)
    if codes[0].type.count < BLOCK:
        codes = [joined(builder, *codes)]
    return [_looked_up(builder, of, each) for each in codes]


def _looked_up(builder: Any, of: BlockType, codes: Any) -> Any:
    """Return what stands for 32 codes, less their sign."""
    if of.table:
        codes = look_up(builder, of.table, codes)
    return builder.xor(codes, equal(CODES, ADDED)) if of.has_sign and ADDED else codes


def _unpack_scales(builder: Any, of: BlockType, rows: list[Any], place: Any) -> None:
    """Write code that unpacks what a block of each row has besides codes."""
    vectors = (of.integers(builder, rows) if of.integers else []) + of.floats(builder, rows)
    for i, vector in enumerate(vectors):
        store(builder, vector, place, of.codes_bytes + i * _VECTOR)


#: The address of a block's scales in a panel, less `codes_bytes`; and for each token the sums of products of its codes.
_Block = tuple[Any, list[Any]]


def _tile(
    builder: Any, of: BlockType, block_sums: Callable[[Any, list[Any]], _Block], n_blocks: Any, inputs: list[Any]
) -> list[Any]:
    """Write the products of eight rows and some tokens; return a vector of results for each.

    `block_sums` takes the number of a block, and the addresses of the tokens' blocks.
    """
    totals = accumulators(builder, Emit(builder, LANES), len(inputs))
    with cgutils.for_range(builder, n_blocks) as loop:
        step = builder.mul(loop.index, constant(of.input_bytes))
        own = [builder.add(each, step) for each in inputs]
        place, sums = block_sums(loop.index, own)
        _add_block(builder, of, place, own, sums, totals)
    return [builder.load(total) for total in totals]


def _add_block(builder: Any, of: BlockType, place: Any, inputs: list[Any], sums: list[Any], totals: list[Any]) -> None:
    """Add the products of a block to totals: the sums of products of codes, by the scales, and what codes lack."""
    offsets = _offsets(builder, of, place, inputs) if of.has_offset else []
    floats = of.codes_bytes + of.n_integers * _VECTOR
    scale = load(builder, FLOATS, place, floats)
    for t, (own, total) in enumerate(zip(inputs, totals, strict=True)):
        input_scale = load(builder, FLOAT, own, of.input_bytes - SCALE_BYTES)
        is_whole = of.has_minimum or not of.has_offset
        _add_scaled(builder, sums[t] if is_whole else builder.add(sums[t], offsets[t]), input_scale, scale, total)
        if of.has_minimum:
            minimum = load(builder, FLOATS, place, floats + _VECTOR)
            if of.integers:
                _add_scaled(builder, offsets[t], input_scale, minimum, total)
            else:
                scaled_sum = splat(builder, load(builder, FLOAT, own, BLOCK))
                builder.store(Emit(builder, LANES).fma(minimum, scaled_sum, builder.load(total)), total)


def _offsets(builder: Any, of: BlockType, place: Any, inputs: list[Any]) -> list[Any]:
    """Return the integers, for each token, that belong to the sums of its inputs."""
    if not of.integers:
        return [splat(builder, load(builder, INT32, own, BLOCK)) for own in inputs]
    offsets = [_slot(builder) for _ in inputs]
    pairs = builder.add(place, constant(of.codes_bytes + of.n_scales * _VECTOR))
    with cgutils.for_range(builder, constant(of.columns // (2 * of.scaled))) as loop:
        pair = load(builder, WORDS, pairs, builder.mul(loop.index, constant(_VECTOR)))
        for own, slot in zip(inputs, offsets, strict=True):
            place = builder.add(constant(PLACES_OF_SUMS[of.scaled]), builder.mul(loop.index, constant(4)))
            _add(builder, slot, multiply_words(builder, pair, splat(builder, load(builder, INT32, own, place))))
    return [builder.load(slot) for slot in offsets]


def _add_scaled(builder: Any, integers: Any, input_scale: Any, scale: Any, total: Any) -> None:
    """Add integers, times the scales of the inputs and of the rows, to a sum."""
    floats = builder.fmul(builder.sitofp(integers, FLOATS), splat(builder, input_scale))
    builder.store(Emit(builder, LANES).fma(floats, scale, builder.load(total)), total)


def _sums_of_rows(builder: Any, of: BlockType, rows: list[Any], place: Any, inputs: list[Any]) -> list[Any]:
    """Return, for each token, the sums of its products with a block of eight rows, as it is stored."""
    slots = [[_slot(builder) for _ in rows] for _ in inputs]
    at_once = LANES // 2 if len(inputs) < 3 else LANES // 4  # their sums are in registers together
    for first in range(0, LANES, at_once):
        with cgutils.for_range(builder, constant(of.columns // (of.parts * BLOCK))) as loop:
            for r in range(first, first + at_once):
                for i, codes in enumerate(_codes_of_row(builder, of, rows[r], loop.index)):
                    part = builder.add(builder.mul(loop.index, constant(of.parts)), constant(i))
                    own = [load(builder, CODES, each, builder.mul(part, constant(BLOCK))) for each in inputs]
                    scale = _scale_of_row(builder, of, place, part, r)
                    for each, of_token in zip(own, slots, strict=True):
                        _add_columns(builder, of, codes, each, scale, of_token[r])
    return [sums_of_lanes(builder, [builder.load(slot) for slot in own]) for own in slots]


def _add_columns(builder: Any, of: BlockType, codes: Any, inputs: Any, scale: Any, slot: Any) -> None:
    """Add the products of 32 columns of a row, by their whole scales."""
    if HAS_VNNI and not of.integers:
        builder.store(add_products(builder, builder.load(slot), codes, inputs), slot)
    elif HAS_VNNI and of.has_sign:  # two products overflow an int16
        fours = add_products(builder, equal(INTEGERS, 0), codes, inputs)
        _add(builder, slot, builder.mul(fours, _whole(builder, scale)))
    else:
        _add(builder, slot, multiply_words(builder, _products(builder, of, codes, [inputs])[0], scale))


def _whole(builder: Any, scale: Any) -> Any:
    """Return whole scales, of which each lane has two words, as int32."""
    return builder.ashr(builder.bitcast(scale, INTEGERS), equal(INTEGERS, 16))


def _scale_of_row(builder: Any, of: BlockType, place: Any, part: Any, r: int) -> Any:
    """Return the whole scales of 32 columns of a row, for words that hold two columns each."""
    if not of.integers:
        return equal(WORDS, 1)
    n = BLOCK // of.scaled
    first = builder.add(builder.mul(part, constant(n * _VECTOR)), constant(of.codes_bytes + 4 * r))
    scales = [splat(builder, load(builder, INT32, place, builder.add(first, constant(i * _VECTOR)))) for i in range(n)]
    if n == 1:
        return scales[0]
    low, high = scales
    return Emit(builder).shuffle(low, high, [0, 1, 2, 3, 12, 13, 14, 15])


def _sums_of_panel(builder: Any, of: BlockType, place: Any, inputs: list[Any]) -> list[Any]:
    """Return, for each token, the sums of its products with a block of a panel."""
    slots = [_slot(builder) for _ in inputs]
    with cgutils.for_range(builder, constant(of.columns // BLOCK)) as loop:
        codes = builder.add(place, builder.mul(loop.index, constant(BLOCK * LANES)))
        own = [builder.add(each, builder.mul(loop.index, constant(BLOCK))) for each in inputs]
        n_scales = BLOCK // of.scaled
        scales = builder.add(place, builder.mul(loop.index, constant(n_scales * _VECTOR)))
        together = of.scaled // 4 if HAS_VNNI else of.together
        for first in range(0, BLOCK // 4, together):
            scale = equal(WORDS, 1)
            if of.integers:
                scale = load(builder, WORDS, scales, of.codes_bytes + first * 4 // of.scaled * _VECTOR)
            groups = range(first, first + together)
            if HAS_VNNI:
                sums = _sums_of_fours(builder, codes, own, groups)
                whole = [builder.mul(each, _whole(builder, scale)) if of.integers else each for each in sums]
            else:
                words = _sums_of_groups(builder, of, codes, own, groups)
                whole = [multiply_words(builder, each, scale) for each in words]
            for each, slot in zip(whole, slots, strict=True):
                _add(builder, slot, each)
    return [builder.load(slot) for slot in slots]


def _sums_of_fours(builder: Any, place: Any, inputs: list[Any], groups: range) -> list[Any]:
    """Return, for each token, the sums of the products of some groups of four columns, by VNNI."""
    sums = [equal(INTEGERS, 0)] * len(inputs)
    for j in groups:
        codes = load(builder, CODES, place, j * _VECTOR)
        own = [splat(builder, load(builder, INT32, each, 4 * j)) for each in inputs]
        sums = [add_products(builder, total, codes, each) for total, each in zip(sums, own, strict=True)]
    return sums


def _sums_of_groups(builder: Any, of: BlockType, place: Any, inputs: list[Any], groups: range) -> list[Any]:
    """Return, for each token, the sums of the products of some groups of four columns, as words."""
    words: list[Any] = []
    for j in groups:
        own = [splat(builder, load(builder, INT32, each, 4 * j)) for each in inputs]
        products = _products(builder, of, load(builder, CODES, place, j * _VECTOR), own)
        words = [builder.add(*each) for each in zip(words, products, strict=True)] if words else products
    return words


def _products(builder: Any, of: BlockType, codes: Any, inputs: list[Any]) -> list[Any]:
    """Multiply 32 codes by the bytes of each token; return sums of two neighbours, as words."""
    if not of.has_sign:
        return [multiply_codes(builder, codes, own) for own in inputs]
    magnitudes = magnitudes_of(builder, codes)
    return [multiply_codes(builder, magnitudes, with_signs(builder, own, codes)) for own in inputs]


def _add(builder: Any, slot: Any, integers: Any) -> None:
    builder.store(builder.add(builder.load(slot), integers), slot)


def _slot(builder: Any) -> Any:
    """Allocate a vector of int32, set to zeros. LLVM turns such a stack slot into a register."""
    slot = cgutils.alloca_once(builder, INTEGERS)
    builder.store(equal(INTEGERS, 0), slot)
    return slot
