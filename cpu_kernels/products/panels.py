"""Multiply panels of eight or sixteen rows of weights by rounded inputs, in AVX2, with VNNI where the CPU has it.

A panel is unpacked once for many tokens, a slice of columns at a time, which stays in the L1 cache while they are
multiplied by it. Vector j of its codes holds four columns of each of its rows, 4j to 4j + 3, so that a lane of a
product is a row's own, and a token's four bytes are loaded into all lanes. Codes have no sign, which the instructions
for their products ask for. Where they need one, the inputs take it over; with VNNI a number is added to the codes, and
its products are subtracted.

VNNI adds four products of codes and bytes to an int32. AVX2 adds two, and adds up such int16 as long as no input can
overflow them, before they become int32. With a scale for each block of 32 columns the sum of a block becomes f32; a
superblock of 256 has whole scales besides its one f32, which the words of its int16 sums are multiplied by.

Sums of f32 are in the order of the columns, whatever the number of tokens: a token's result does not depend on others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from ..numba_support.machine_features import ADDS_PRODUCTS, HAS_AVX2, HAS_VNNI
from ..numba_support.machine_features import LANES as LANES_OF_CPU
from ..numba_support.vector import FLOAT, INT8, INT16, INT32, INT64, Emit, accumulators, constant, cover_evenly
from .activations import BLOCK, PLACES_OF_SUMS, SCALE_BYTES, SUMS_BYTES
from .integers import (
    ADDED,
    CODES,
    INTEGERS,
    LANES,
    WORDS,
    add_products,
    equal,
    field,
    four_of,
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
    vectors_of,
    with_signs,
)

#: The part of a product that one thread computes at a time.
JOB = np.dtype(
    [
        ("weights", "i8"),  # address of the first row
        ("row_bytes", "i8"),
        ("n_rows", "i8"),
        ("n_blocks", "i8"),  # of a row
        ("panel", "i8"),  # address of `room_bytes` for sums and unpacked weights
        ("inputs", "i8"),  # address of the first token's rounded inputs
        ("token_bytes", "i8"),
        ("tokens", "i8"),  # address of their TOKEN records
        ("n_tokens", "i8"),
        ("on_tiles", "i8"),  # 1 if inputs are rounded to bf16, for tiles (panel_tiles.py)
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

#: Rows of a panel, the lanes of a register. Two registers with AVX-VNNI, which has sixteen, would not leave enough for
#: the sums: Q4_K and Q6_K were slower so on an Intel Xeon than in AVX2.
ROWS = LANES_OF_CPU if HAS_VNNI else LANES

#: Tokens whose sums are in registers together, and most tokens of a job.
TOKENS, MOST_TOKENS = 4, 128

#: Bytes of codes that are unpacked at a time: half of a small L1 cache, as the bytes of four tokens need room, too.
_SLICE_BYTES = 1 << 14

#: Bytes of sums of all tokens, which wait for the next slice.
_SUMS_BYTES = MOST_TOKENS * ROWS * 4

#: How far ahead of its rows a panel prefetches memory: some microseconds, in which a core waits for dozens of lines.
_AHEAD_BYTES = 1 << 16

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
    width : int
        Columns of a row in a vector of codes, 32 or 16.
    scale_bytes : int
        Where a row has a signed byte as the scale of each 16 columns, side by side; 0 if it has not.
    subtracted : int
        What codes are too large by.
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
    width: int = BLOCK
    scale_bytes: int = 0
    subtracted: int = 0

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
        return ROWS * (self.columns + 4 * (self.n_integers + 1 + self.has_minimum))

    @property
    def slice_blocks(self) -> int:
        """Return how many blocks of a panel are unpacked at a time."""
        return _SLICE_BYTES // (ROWS * self.columns)

    @property
    def n_parts(self) -> int:
        """Return how many parts of a block have a scale of their own."""
        return self.columns // self.scaled

    @property
    def room_bytes(self) -> int:
        """Return the bytes of the sums of all tokens and of the slice of a panel behind them."""
        return _SUMS_BYTES + self.slice_blocks * self.panel_bytes

    @property
    def input_bytes(self) -> int:
        """Return the bytes of a block of rounded inputs (activations.py)."""
        return self.columns + (SUMS_BYTES if self.integers else 4) + SCALE_BYTES


#: The address of a block's scales in a panel, less `codes_bytes`; and for each token the sums of products of its codes,
#: and the integers that belong to the sums of its inputs, if there are.
_Block = tuple[Any, list[Any], list[Any]]


class Panel:
    """Write the products of some rows, a lane each.

    Parameters
    ----------
    job : dict
        The fields of its JOB record.
    first_row : LLVM int64
        The first one of the rows.
    """

    def __init__(self, builder: Any, of: BlockType, job: dict[str, Any], first_row: Any, lanes: int) -> None:
        self._builder, self._of, self._job, self._lanes = builder, of, job, lanes
        self._types, self._bytes = vectors_of(lanes), 4 * lanes  # of a vector
        self._first_row, self._left = first_row, builder.sub(job["n_rows"], first_row)
        self._codes_bytes = of.columns * lanes  # of a block in a panel
        self._slice = builder.add(job["panel"], constant(_SUMS_BYTES))
        self._rows = []
        for r in range(lanes):  # beyond the last row, the first one again: its results are not stored
            row = builder.select(builder.icmp_signed("<", constant(r), self._left), constant(r), constant(0))
            own = builder.add(first_row, row)
            self._rows.append(builder.add(job["weights"], builder.mul(own, job["row_bytes"])))

    def multiply_stored(self, n_tokens: int) -> None:
        """Write the products of all tokens, whose number is known, by rows as they are stored."""

        def sums_of_rows(block: Any, inputs: list[Any]) -> _Block:
            own, place = self._rows_of(block), self._slice
            needs_integers = self._of.integers and not self._of.scale_bytes
            if needs_integers:  # which are read together with the floats
                self._unpack_floats(own, place)
                self._unpack_integers(own, place)
            sums = self._sums_of_rows(block, own, place, inputs)
            if not needs_integers:  # gathers floats of eight rows where nothing waits for it
                self._unpack_floats(own, place)
            return place, sums, [] if self._of.scale_bytes else self._offsets(place, inputs)

        self._write(constant(0), n_tokens, constant(0), self._job["n_blocks"], sums_of_rows)

    def multiply_unpacked(self) -> None:
        """Write code that unpacks the rows, and multiplies them by all tokens, a slice of columns at a time."""

        builder, n_blocks, most = self._builder, self._job["n_blocks"], constant(self._of.slice_blocks)
        with cgutils.for_range_slice(builder, constant(0), n_blocks, most, INT64) as (start, _count):
            left = builder.sub(n_blocks, start)
            n_own = builder.select(builder.icmp_signed("<", left, most), left, most)
            with cgutils.for_range(builder, n_own) as loop:
                self.unpack(builder.add(start, loop.index), self._place_of(loop.index))

            def write(token: Any, n: int) -> None:
                is_first = builder.icmp_signed("==", token, constant(0))

                def sums_of_panel(block: Any, inputs: list[Any]) -> _Block:
                    with builder.if_then(is_first):  # memory works while these tokens are multiplied
                        self._prefetch_ahead(builder.add(start, block))
                    place = self._place_of(block)
                    return place, self._sums_of_panel(place, inputs), self._offsets(place, inputs)

                self._write(token, n, start, n_own, sums_of_panel)

            cover_evenly(builder, self._job["n_tokens"], TOKENS, write)

    def unpack(self, block: Any, place: Any) -> None:
        """Write code that unpacks a block of each row to an address: its codes, integers and floats."""
        rows = self._rows_of(block)
        for first in range(0, self._lanes, LANES):
            some, part = rows[first : first + LANES], self._builder.add(place, constant(4 * first))
            self._unpack_codes(some, part)
            self._unpack_integers(some, part)
            self._unpack_floats(some, part)

    def _rows_of(self, block: Any) -> list[Any]:
        """Return the addresses of a block of each row."""
        at = self._builder.mul(block, constant(self._of.n_bytes))
        return [self._builder.add(row, at) for row in self._rows]

    def _place_of(self, block: Any) -> Any:
        """Return the address of a block of the slice."""
        return self._builder.add(self._slice, self._builder.mul(block, constant(self._of.panel_bytes)))

    def _write(
        self, token: Any, n: int, start: Any, n_blocks: Any, block_sums: Callable[[Any, list[Any]], _Block]
    ) -> None:
        """Write the products of n tokens from one on by n_blocks from one on, add the sums before, and store them.

        `block_sums` takes the number of a block from `start` on, and the addresses of the tokens' blocks.
        """
        builder, job, of = self._builder, self._job, self._of
        numbers = [builder.add(token, constant(t)) for t in range(n)]
        inputs = [builder.add(job["inputs"], builder.mul(each, job["token_bytes"])) for each in numbers]
        sums_before = [builder.add(job["panel"], builder.mul(each, constant(self._bytes))) for each in numbers]
        totals = accumulators(builder, Emit(builder, self._lanes), n)
        with builder.if_then(builder.icmp_signed(">", start, constant(0))):
            for total, place in zip(totals, sums_before, strict=True):
                builder.store(load(builder, self._types.floats, place), total)
        with cgutils.for_range(builder, n_blocks) as loop:
            step = builder.mul(builder.add(start, loop.index), constant(of.input_bytes))
            own = [builder.add(each, step) for each in inputs]
            self._add_block(own, *block_sums(loop.index, own), totals)
        is_last = builder.icmp_signed("==", builder.add(start, n_blocks), job["n_blocks"])
        with builder.if_else(is_last) as (last, not_last):
            with last:
                for number, total in zip(numbers, totals, strict=True):
                    record = builder.add(job["tokens"], builder.mul(number, constant(TOKEN.itemsize)))
                    self.store_rows(builder.load(total), field(builder, record, TOKEN, "out"))
            with not_last:
                for total, place in zip(totals, sums_before, strict=True):
                    store(builder, builder.load(total), place)

    def _prefetch_ahead(self, block: Any, part: Any = None, n_parts: int = 1) -> None:
        """Prefetch a part of the memory ahead of these rows: so many streams are more than the CPU foresees."""
        builder, n_bytes = self._builder, self._lanes * self._of.n_bytes // n_parts
        number = builder.add(builder.mul(block, constant(n_parts)), constant(0) if part is None else part)
        ahead = builder.add(self._rows[0], builder.mul(number, constant(n_bytes)))
        Emit(builder).prefetch(builder.add(ahead, constant(_AHEAD_BYTES)), n_bytes)

    def store_rows(self, total: Any, out: Any) -> None:
        """Store the results of rows that there are, in a token's row of results."""
        builder, lanes = self._builder, self._lanes
        place = builder.add(out, builder.mul(self._first_row, constant(4)))
        has_all = builder.icmp_signed(">=", self._left, constant(lanes))
        with builder.if_else(has_all, likely=True) as (all_rows, some):
            with all_rows:
                store(builder, total, place)
            with some:
                numbers = ir.Constant(self._types.integers, list(range(lanes)))
                is_row = builder.icmp_signed("<", numbers, splat(builder, builder.trunc(self._left, INT32), lanes))
                pointer = builder.inttoptr(place, total.type.as_pointer())
                signature = ir.FunctionType(ir.VoidType(), [total.type, pointer.type, INT32, is_row.type])
                name = f"llvm.masked.store.v{lanes}f32.p0v{lanes}f32"
                function = cgutils.get_or_insert_function(builder.module, signature, name)
                builder.call(function, [total, pointer, ir.Constant(INT32, 4), is_row])

    def _unpack_codes(self, rows: list[Any], place: Any) -> None:
        """Write code that unpacks the codes of a block of eight rows."""
        builder, of = self._builder, self._of
        with cgutils.for_range(builder, constant(of.columns // (of.parts * BLOCK))) as loop:
            at = builder.add(place, builder.mul(loop.index, constant(of.parts * BLOCK * self._lanes)))
            read = zip(*(of.read(builder, row, loop.index) for row in rows), strict=True)
            columns = [transposed(builder, list(each)) for each in read]
            for j, own in enumerate(zip(*columns, strict=True)):
                codes = of.codes(builder, [builder.bitcast(each, CODES) for each in own], loop.index)
                for part, each in enumerate(codes):
                    store(builder, self._looked_up(each), at, (part * len(columns[0]) + j) * self._bytes)

    def _looked_up(self, codes: Any) -> Any:
        """Return what stands for 32 codes, less their sign."""
        of, added = self._of, ADDED if self._of.has_sign else 0
        if of.table:
            return look_up(self._builder, tuple(each + added for each in of.table), codes)
        return self._builder.xor(codes, equal(CODES, added)) if added else codes

    def _unpack_integers(self, rows: list[Any], place: Any) -> None:
        """Write code that unpacks the integers of a block of each of eight rows, besides its codes."""
        for i, vector in enumerate(self._of.integers(self._builder, rows) if self._of.integers else []):
            store(self._builder, vector, place, self._codes_bytes + i * self._bytes)

    def _unpack_floats(self, rows: list[Any], place: Any) -> None:
        """Write code that unpacks the scales of a block of each of eight rows that are f32."""
        for i, vector in enumerate(self._of.floats(self._builder, rows), self._of.n_integers):
            store(self._builder, vector, place, self._codes_bytes + i * self._bytes)

    def _add_block(self, inputs: list[Any], place: Any, sums: list[Any], offsets: list[Any], totals: list[Any]) -> None:
        """Add the products of a block to totals: the sums of products of codes, by the scales, and what codes lack."""
        builder, of = self._builder, self._of
        floats = self._codes_bytes + of.n_integers * self._bytes
        scale = load(builder, self._types.floats, place, floats)
        for t, (own, total) in enumerate(zip(inputs, totals, strict=True)):
            input_scale = load(builder, FLOAT, own, of.input_bytes - SCALE_BYTES)
            is_whole = of.has_minimum or not offsets
            self._add_scaled(sums[t] if is_whole else builder.add(sums[t], offsets[t]), input_scale, scale, total)
            if of.has_minimum:
                minimum = load(builder, self._types.floats, place, floats + self._bytes)
                if of.integers:
                    self._add_scaled(offsets[t], input_scale, minimum, total)
                else:
                    scaled_sum = splat(builder, load(builder, FLOAT, own, BLOCK), self._lanes)
                    added = Emit(builder, self._lanes).fma(minimum, scaled_sum, builder.load(total))
                    builder.store(added, total)

    def _offsets(self, place: Any, inputs: list[Any]) -> list[Any]:
        """Return the integers, for each token, that belong to the sums of its inputs."""
        builder, of = self._builder, self._of
        if not of.has_offset:
            return []
        if not of.integers:
            return [splat(builder, load(builder, INT32, own, BLOCK), self._lanes) for own in inputs]
        offsets = [self._slot() for _ in inputs]
        pairs = builder.add(place, constant(self._codes_bytes + of.n_scales * self._bytes))
        with cgutils.for_range(builder, constant(of.columns // (2 * of.scaled))) as loop:
            pair = load(builder, self._types.words, pairs, builder.mul(loop.index, constant(self._bytes)))
            for own, slot in zip(inputs, offsets, strict=True):
                place = builder.add(constant(PLACES_OF_SUMS[of.scaled]), builder.mul(loop.index, constant(4)))
                sums = splat(builder, load(builder, INT32, own, place), self._lanes)
                self._add(slot, multiply_words(builder, pair, sums))
        return [builder.load(slot) for slot in offsets]

    def _add_scaled(self, integers: Any, input_scale: Any, scale: Any, total: Any) -> None:
        """Add integers, times the scales of the inputs and of the rows, to a sum."""
        builder, input_scale = self._builder, splat(self._builder, input_scale, self._lanes)
        floats = builder.fmul(builder.sitofp(integers, self._types.floats), input_scale)
        builder.store(Emit(builder, self._lanes).fma(floats, scale, builder.load(total)), total)

    def _sums_of_rows(self, block: Any, rows: list[Any], place: Any, inputs: list[Any]) -> list[Any]:
        """Return, for each token, the sums of its products with a block of eight rows, as it is stored.

        A vector has 32 columns of a row, or 16 of row r and of row r + 4.
        """
        builder, of = self._builder, self._of
        n_vectors, n_columns = LANES * of.width // BLOCK, of.parts * BLOCK
        slots = [[self._slot() for _ in range(n_vectors)] for _ in inputs]
        if of.scale_bytes:
            self._subtract(rows, inputs, slots)
        at_once = LANES // 2 if len(inputs) < 3 or n_vectors < LANES else LANES // 4  # their sums are in registers
        n_loops = of.columns // n_columns
        for first in range(0, n_vectors, at_once):
            with cgutils.for_range(builder, constant(n_loops)) as loop:
                part = builder.add(loop.index, constant(first // at_once * n_loops))
                self._prefetch_ahead(block, part, n_vectors // at_once * n_loops)  # a core waits for few lines at once
                elements = [self._elements(each, loop.index) for each in inputs]
                for r in range(first, first + at_once):
                    own = range(r, LANES, n_vectors)
                    scales = self._scales_of_rows([rows[each] for each in own], place, own, loop.index)
                    codes = self._codes_of_rows([rows[each] for each in own], loop.index)
                    for i, each in enumerate(codes):
                        for of_token, slot in zip(elements, slots, strict=True):
                            self._add_columns(each, of_token[i], scales[i * of.width // BLOCK], slot[r])
        return [sums_of_lanes(builder, [builder.load(slot) for slot in own]) for own in slots]

    def _elements(self, inputs: Any, part: Any) -> list[Any]:
        """Return the bytes of a token that vectors of codes are multiplied by."""
        builder, of = self._builder, self._of
        at = builder.add(inputs, builder.mul(part, constant(of.parts * BLOCK)))
        kind = ir.VectorType(INT8, of.width)
        read = [load(builder, kind, at, i) for i in range(0, of.parts * BLOCK, of.width)]
        return [joined(builder, each, each) for each in read] if of.width < BLOCK else read

    def _subtract(self, rows: list[Any], inputs: list[Any], slots: list[list[Any]]) -> None:
        """Subtract from the sums of each row what its codes are too large by, if its scales are bytes."""
        builder, of = self._builder, self._of
        for r, row in enumerate(rows):
            scales = builder.sext(load(builder, ir.VectorType(INT8, 2 * LANES), row, of.scale_bytes), WORDS)
            for each, own in zip(inputs, slots, strict=True):
                sums = load(builder, WORDS, each, PLACES_OF_SUMS[of.scaled])
                self._add(own[r], builder.mul(multiply_words(builder, scales, sums), equal(INTEGERS, -of.subtracted)))

    def _codes_of_rows(self, rows: list[Any], part: Any) -> list[Any]:
        """Return the codes of some columns of one row or two, vectors of 32."""
        read = zip(*(self._of.read(self._builder, row, part) for row in rows), strict=True)
        vectors = [joined(self._builder, *each) if len(each) > 1 else each[0] for each in read]
        return [self._looked_up(each) for each in self._of.codes(self._builder, vectors, part)]

    def _scales_of_rows(self, rows: list[Any], place: Any, numbers: range, part: Any) -> list[Any]:
        """Return the whole scales of each 32 columns of one row or two, for words that hold two columns each."""
        builder, of, emit = self._builder, self._of, Emit(self._builder)
        if of.scale_bytes:
            n = of.parts * BLOCK // of.scaled
            at = builder.add(rows[0], builder.mul(part, constant(n)))
            n_copies = 1 if LANES_OF_CPU > LANES else 2  # AVX2 spreads words within halves of a vector
            copies = splat(builder, load(builder, ir.IntType(8 * n), at, of.scale_bytes), n_copies)
            scales = builder.bitcast(copies, ir.VectorType(INT8, n_copies * n))
            words = builder.sext(scales, ir.VectorType(INT16, n_copies * n))
            return [
                emit.shuffle(words, words, [i] * LANES + [(n_copies - 1) * n + i + 1] * LANES) for i in range(0, n, 2)
            ]
        if not of.integers:
            return [equal(WORDS, 1)] * of.parts
        at = builder.add(place, builder.mul(part, constant(of.parts * self._bytes)))
        read = [load(builder, INTEGERS, at, self._codes_bytes + i * self._bytes) for i in range(of.parts)]
        lanes = [row for row in numbers for _ in range(LANES // len(numbers))]
        return [emit.shuffle(each, each, lanes) for each in read]

    def _add_columns(self, codes: Any, inputs: Any, scale: Any, slot: Any) -> None:
        """Add the products of 32 columns of a row, by their whole scales."""
        builder, of = self._builder, self._of
        if ADDS_PRODUCTS and not of.integers:
            builder.store(add_products(builder, builder.load(slot), codes, inputs), slot)
        elif ADDS_PRODUCTS and (of.has_sign or not HAS_AVX2):  # two products overflow an int16
            fours = add_products(builder, equal(INTEGERS, 0), codes, inputs)
            self._add(slot, builder.mul(fours, self._whole(scale)))
        else:
            self._add(slot, multiply_words(builder, self._products(codes, [inputs])[0], scale))

    def _whole(self, scale: Any) -> Any:
        """Return whole scales as int32, from lanes that hold each twice, as words."""
        return self._builder.ashr(self._builder.bitcast(scale, self._types.integers), equal(self._types.integers, 16))

    def _sums_of_panel(self, place: Any, inputs: list[Any]) -> list[Any]:
        """Return, for each token, the sums of its products with a block of a panel."""
        builder, of = self._builder, self._of
        slots = [self._slot() for _ in inputs]
        with cgutils.for_range(builder, constant(of.columns // BLOCK)) as loop:
            codes = builder.add(place, builder.mul(loop.index, constant(BLOCK * self._lanes)))
            own = [builder.add(each, builder.mul(loop.index, constant(BLOCK))) for each in inputs]
            n_scales = BLOCK // of.scaled
            scales = builder.add(place, builder.mul(loop.index, constant(n_scales * self._bytes)))
            together = of.scaled // 4 if ADDS_PRODUCTS else of.together
            for first in range(0, BLOCK // 4, together):
                scale = equal(self._types.words, 1)
                if of.integers:
                    at = self._codes_bytes + first * 4 // of.scaled * self._bytes
                    scale = load(builder, self._types.words, scales, at)
                groups = range(first, first + together)
                if ADDS_PRODUCTS:
                    sums = self._sums_of_fours(codes, own, groups)
                    whole = [builder.mul(each, self._whole(scale)) if of.integers else each for each in sums]
                else:
                    words = self._sums_of_groups(codes, own, groups)
                    whole = [multiply_words(builder, each, scale) for each in words]
                for each, slot in zip(whole, slots, strict=True):
                    self._add(slot, each)
        return [builder.load(slot) for slot in slots]

    def _sums_of_fours(self, place: Any, inputs: list[Any], groups: range) -> list[Any]:
        """Return, for each token, the sums of the products of some groups of four columns, four at once."""
        sums = [equal(self._types.integers, 0)] * len(inputs)
        for j in groups:
            codes, own = self._group(place, inputs, j)
            sums = [add_products(self._builder, total, codes, each) for total, each in zip(sums, own, strict=True)]
        return sums

    def _sums_of_groups(self, place: Any, inputs: list[Any], groups: range) -> list[Any]:
        """Return, for each token, the sums of the products of some groups of four columns, as words."""
        words: list[Any] = []
        for j in groups:
            products = self._products(*self._group(place, inputs, j))
            words = [self._builder.add(*each) for each in zip(words, products, strict=True)] if words else products
        return words

    def _group(self, place: Any, inputs: list[Any], j: int) -> tuple[Any, list[Any]]:
        """Return the codes of four columns of all rows, and each token's bytes in all lanes."""
        own = [four_of(self._builder, each, j, self._lanes) for each in inputs]
        return load(self._builder, self._types.codes, place, j * self._bytes), own

    def _products(self, codes: Any, inputs: list[Any]) -> list[Any]:
        """Multiply 32 codes by the bytes of each token; return sums of two neighbours, as words."""
        if not self._of.has_sign:
            return [multiply_codes(self._builder, codes, own) for own in inputs]
        if len(inputs) == 1 and self._of.largest <= _LARGEST_BYTE:  # all rows share the magnitudes of inputs
            codes, inputs = self._builder.bitcast(inputs[0], CODES), [codes]
        magnitudes = magnitudes_of(self._builder, codes)
        return [multiply_codes(self._builder, magnitudes, with_signs(self._builder, own, codes)) for own in inputs]

    def _add(self, slot: Any, integers: Any) -> None:
        self._builder.store(self._builder.add(self._builder.load(slot), integers), slot)

    def _slot(self) -> Any:
        """Allocate a vector of int32, set to zeros. LLVM turns such a stack slot into a register."""
        slot = cgutils.alloca_once(self._builder, self._types.integers)
        self._builder.store(equal(self._types.integers, 0), slot)
        return slot
