"""Write the products of queries and keys in vector IR: each row is loaded once for several query heads.

A tile is some rows times some query heads. Its sums stay in registers while a loop runs over the columns. The numbers
of rows and of query heads are known when Numba compiles, the sizes of a row and of the group are not.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from ..numba_support.machine_features import LANES
from ..numba_support.shape import NIBBLES
from ..numba_support.vector import FLOAT, INT32, INT64, Emit, accumulators, constant, cover_evenly
from .q4_0 import PAIRS, load_codes, load_last_codes, load_scales, multiply_codes
from .q8_0 import BYTE_BLOCKS, add_products, load_scale, scores_of_products, sums_of_bytes
from .tiles import HEADS_AT_ONCE, Sizes, for_columns

#: Most query heads that rows of q4_0 are multiplied by at once: each has one sum.
_MOST_OF_NIBBLES = 4


def _sum_each(emit: Emit, vectors: list[Any], add: Any) -> Any:
    """Sum the lanes of each of 4 vectors; return the sums as one vector.

    Each step adds pairs of lanes and merges two vectors into one, whose lanes alternate between sums of the first and
    of the second. That takes fewer shuffles than summing each vector alone.
    """
    lanes, step = vectors[0].type.count, 1
    while len(vectors) > 1:
        own = [lane + lanes * (lane // step % 2) for lane in range(lanes)]
        other = [(lane ^ step) + lanes * (lane // step % 2) for lane in range(lanes)]
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [add(emit.shuffle(x, y, own), emit.shuffle(x, y, other)) for x, y in pairs]
        step *= 2
    total = vectors[0]
    while lanes > step:
        lanes //= 2
        low, high = list(range(lanes)), list(range(lanes, 2 * lanes))
        total = add(emit.shuffle(total, total, low), emit.shuffle(total, total, high))
    return total


def _multiply_halves(builder: Any, head_dim: Any, queries: list[Any], rows: list[Any]) -> list[Any]:
    """Multiply queries and f16 rows: return a vector for each query and row, with lanes still to be added."""
    emit = Emit(builder)
    totals = accumulators(builder, emit, len(queries) * len(rows))

    def add_columns(emit: Emit, column: Any) -> None:
        own_queries = [emit.load_float(query, column) for query in queries]
        for r, row in enumerate(rows):  # one key at a time: with AVX2 all would exceed the registers
            key = emit.load_half(row, column)
            for g, own in enumerate(own_queries):
                place = totals[g * len(rows) + r]
                if emit.lanes == LANES:
                    builder.store(emit.fma(key, own, builder.load(place)), place)
                else:
                    product, zeros = builder.fmul(key, own), emit.constant(0.0)
                    longer = emit.shuffle(product, zeros, list(range(LANES)))
                    builder.store(builder.fadd(builder.load(place), longer), place)

    for_columns(builder, head_dim, add_columns)
    return [builder.load(total) for total in totals]


def _multiply_bytes(builder: Any, n: Any, queries: list[Any], rows: list[Any]) -> list[Any]:
    """Multiply n int8 of queries and rows: return an int32 vector for each query and row, to be added up later."""
    emit, widest = Emit(builder), BYTE_BLOCKS[0]
    sums = ir.VectorType(INT32, sums_of_bytes(widest))
    totals = [cgutils.alloca_once(builder, sums) for _ in range(len(queries) * len(rows))]
    for total in totals:
        builder.store(ir.Constant(sums, [0] * sums.count), total)

    def add_block(column: Any, length: int) -> None:
        own_queries = [emit.load_bytes(query, column, length) for query in queries]
        for r, row in enumerate(rows):
            key = emit.load_bytes(row, column, length)
            for g, own in enumerate(own_queries):
                place = totals[g * len(rows) + r]
                builder.store(add_products(emit, key, own, builder.load(place)), place)

    with cgutils.for_range(builder, builder.sdiv(n, constant(widest))) as loop:
        add_block(builder.mul(loop.index, constant(widest)), widest)
    for length in BYTE_BLOCKS[1:]:
        left = builder.and_(n, constant(length))
        with builder.if_then(builder.icmp_signed("!=", left, constant(0)), likely=False):
            add_block(builder.and_(n, constant(-2 * length)), length)
    return [builder.load(total) for total in totals]


def score_halves(builder: Any, sizes: Sizes, rows: list[Any], scores: Any, stride: Any) -> None:
    """Write the scores of f16 rows: scores[g * stride + r] = query[g] . rows[r] for each query head g of the group.

    Parameters
    ----------
    rows : list of LLVM int64
        Addresses of ROWS_AT_ONCE rows.
    scores : LLVM int64
        Address of the scores, f32.
    stride : LLVM int64
        Elements from the scores of one query head to those of the next.
    """

    def write(first: Any, n: int) -> None:
        start = builder.add(sizes.query, builder.mul(first, builder.mul(sizes.head_dim, constant(4))))
        queries = [builder.add(start, builder.mul(sizes.head_dim, constant(4 * g))) for g in range(n)]
        products, emit = _multiply_halves(builder, sizes.head_dim, queries, rows), Emit(builder)
        for g in range(n):
            own = products[g * len(rows) : (g + 1) * len(rows)]
            place = builder.mul(stride, builder.add(first, constant(g)))
            emit.store(_sum_each(emit, own, builder.fadd), scores, place)

    cover_evenly(builder, sizes.group, HEADS_AT_ONCE, write)


def score_bytes(builder: Any, sizes: Sizes, rows: list[Any], scores: Any, stride: Any) -> None:
    """Write the scores of q8_0 rows, the sums of those of their parts if they are latent keys: see `score_halves`."""
    parts, latent = sizes.parts, sizes.parts.latent()
    with cgutils.for_range(builder, builder.add(constant(1), builder.zext(latent, INT64))) as loop:
        first = builder.icmp_signed("==", loop.index, constant(0))
        of_first = builder.select(latent, parts.value_dim(), sizes.head_dim)
        start = builder.select(first, constant(0), of_first)
        length = builder.select(first, of_first, builder.sub(sizes.head_dim, of_first))
        _score_part(builder, sizes, rows, scores, stride, (loop.index, start, length))


def _score_part(builder: Any, sizes: Sizes, rows: list[Any], scores: Any, stride: Any, part: tuple[Any, ...]) -> None:
    """Write the scores of a part of q8_0 rows: its number, first column and length. Add them to those of the first."""
    emit, head_dim, (number, column, length) = Emit(builder), sizes.head_dim, part
    is_first = builder.icmp_signed("==", number, constant(0))
    scales = [load_scale(emit, head_dim, row, number) for row in rows]
    at_once = min(len(rows), sums_of_bytes(BYTE_BLOCKS[0]))
    rows = [builder.add(row, column) for row in rows]

    def write(first: Any, n: int) -> None:
        start = builder.add(sizes.query, builder.add(builder.mul(first, head_dim), column))
        queries = [builder.add(start, builder.mul(head_dim, constant(g))) for g in range(n)]
        products = _multiply_bytes(builder, length, queries, rows)
        for g in range(n):
            own, head = products[g * len(rows) : (g + 1) * len(rows)], builder.add(first, constant(g))
            place = builder.mul(stride, head)
            for r in range(0, len(rows), at_once):
                sums = _sum_each(emit, own[r : r + at_once], builder.add)
                row_scales = ir.Constant(ir.VectorType(FLOAT, at_once), ir.Undefined)
                for i, scale in enumerate(scales[r : r + at_once]):
                    row_scales = builder.insert_element(row_scales, scale, ir.Constant(INT32, i))
                scored = scores_of_products(emit, sizes, number, head, sums, row_scales)
                own_place, of_rows = builder.add(place, constant(r)), Emit(builder, at_once)
                before = builder.select(is_first, of_rows.constant(0.0), of_rows.load_float(scores, own_place))
                emit.store(builder.fadd(before, scored), scores, own_place)

    cover_evenly(builder, sizes.group, HEADS_AT_ONCE, write)


def score_nibbles(builder: Any, sizes: Sizes, rows: list[Any], scores: Any, stride: Any) -> None:
    """Write the scores of q4_0 rows: see `score_halves`."""
    if not PAIRS:
        _score_blocks(builder, sizes, rows, scores, stride, 1)
        return
    rest = builder.and_(sizes.head_dim, constant(2 * NIBBLES - 1))
    with builder.if_else(builder.icmp_signed("==", rest, constant(0))) as (pairs, single):
        with pairs:
            _score_blocks(builder, sizes, rows, scores, stride, 2)
        with single:
            _score_blocks(builder, sizes, rows, scores, stride, 1)


def _score_blocks(builder: Any, sizes: Any, rows: list[Any], scores: Any, stride: Any, n_blocks: int) -> None:
    """Write the scores of q4_0 rows, n_blocks at once.

    Each block has its own scale. So the integers of one block are summed first, for all rows at once, and then its
    scales make them floats.
    """
    head_dim, length = sizes.head_dim, NIBBLES * n_blocks  # elements of the query; a quarter as many sums
    emit, of_sums = Emit(builder), Emit(builder, length // 4)
    n_elements = builder.and_(builder.add(head_dim, constant(NIBBLES - 1)), constant(-NIBBLES))
    n_all = builder.mul(sizes.group, n_elements)
    scales_place = builder.add(sizes.query, builder.mul(n_all, constant(2)))  # see `nibble_query`
    block_bit = NIBBLES // 8 if n_blocks == 2 else 0
    steps = [step for step in (1, 2, 4, 8) if step < of_sums.lanes and step != block_bit]
    lane_of_row = [sum(step for bit, step in enumerate(steps) if r >> bit & 1) for r in range(len(rows))]
    scale_of_lane = [0] * of_sums.lanes
    for lane in range(of_sums.lanes):
        r = sum(1 << bit for bit, step in enumerate(steps) if lane & step) % len(rows)
        scale_of_lane[lane] = r * n_blocks + (1 if lane & block_bit else 0)

    def write(first: Any, n: int) -> None:
        totals = accumulators(builder, of_sums, n)
        start = builder.add(sizes.query, builder.mul(first, n_elements))

        def add_block(column: Any, codes: list[Any]) -> None:
            scales = load_scales(emit, head_dim, rows, column, n_blocks, scale_of_lane)
            for g, total in enumerate(totals):
                place = builder.add(builder.add(start, builder.mul(n_elements, constant(g))), column)
                elements, before = emit.load_bytes(place, 0, length), of_sums.load_integers(builder.add(place, n_all))
                products = [multiply_codes(emit, each, elements, before) for each in codes]
                sums = builder.sitofp(_sum_blocks(emit, products, steps), of_sums.vector)
                builder.store(of_sums.fma(sums, scales, builder.load(total)), total)

        with cgutils.for_range(builder, builder.sdiv(head_dim, constant(length))) as loop:
            column = builder.mul(loop.index, constant(length))
            add_block(column, [load_codes(emit, row, column, length) for row in rows])
        if n_blocks == 1:
            rest = builder.and_(head_dim, constant(NIBBLES - 1))
            with builder.if_then(builder.icmp_signed("!=", rest, constant(0)), likely=False):
                column = builder.sub(head_dim, rest)
                add_block(column, [load_last_codes(emit, row, column, head_dim) for row in rows])
        for g, place in enumerate(totals):
            total, head = builder.load(place), builder.add(first, constant(g))
            of_rows = emit.shuffle(total, total, lane_of_row)
            if block_bit:
                of_rows = builder.fadd(of_rows, emit.shuffle(total, total, [lane + block_bit for lane in lane_of_row]))
            scale = Emit(builder, len(rows)).splat(emit.load_scalar(scales_place, head))
            emit.store(builder.fmul(of_rows, scale), scores, builder.mul(stride, head))

    cover_evenly(builder, sizes.group, _MOST_OF_NIBBLES, write)


def _sum_blocks(emit: Emit, vectors: list[Any], steps: list[int]) -> Any:
    """Sum the lanes of each of 4 int32 vectors whose numbers differ in these bits.

    The sums of vector r are in the lanes whose number has the bits of r, the lowest one in place of the first step.
    """
    builder, (first, *_) = emit.builder, vectors
    lanes, left = range(first.type.count), list(steps)
    while len(vectors) > 1:
        step = left.pop(0)
        own = [lane + len(lanes) * (lane // step % 2) for lane in lanes]
        other = [(lane ^ step) + len(lanes) * (lane // step % 2) for lane in lanes]
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [builder.add(emit.shuffle(x, y, own), emit.shuffle(x, y, other)) for x, y in pairs]
    total = vectors[0]
    for step in left:
        total = builder.add(total, emit.shuffle(total, total, [lane ^ step for lane in lanes]))
    return total
