"""Write the products of queries and keys in vector IR: each row is loaded once for a group of query heads.

The loops over rows, query heads and columns unroll, so that all sums stay in registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from ..numba_support.compile import LANES, NIBBLES, Q4_0, Q8_0, Shape
from ..numba_support.vector import ACCUMULATORS, FLOAT, INT32, Emit, constant, parts
from .q4_0 import blocks_at_once, load_codes, load_scales, multiply_codes, nibble_query
from .q8_0 import add_products, byte_blocks, load_scale, scores_of_products

#: Vectors of keys, widened to f32, that can stay in registers while each query head is multiplied by them.
_WIDENED = 16 if LANES == 16 else 4


def _sum_each(emit: Emit, vectors: list[Any], add: Any) -> Any:
    """Sum the lanes of each of 4 or 8 vectors, at most as many as they have lanes; return the sums as one vector.

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


def _dot_halves(emit: Emit, shape: Shape, query: Any, rows: list[Any]) -> Iterator[tuple[int, list[Any]]]:
    """Yield, for each query head, its products with f16 rows: a vector for each row, with lanes still to be added."""
    columns = range(0, shape.head_dim, emit.lanes)
    heads_at_once, widened = max(1, ACCUMULATORS // len(rows)), {}
    if heads_at_once < shape.group and len(rows) * len(columns) <= _WIDENED:
        heads_at_once = 1
        widened = {(r, column): emit.load_half(row, column) for r, row in enumerate(rows) for column in columns}
    for heads in parts(shape.group, heads_at_once):
        totals: dict[tuple[int, int], Any] = {}
        for column in columns:
            queries = {g: emit.load_float(query, g * shape.head_dim + column) for g in heads}
            for r, row in enumerate(rows):
                key = widened[r, column] if widened else emit.load_half(row, column)
                for g in heads:
                    if column == 0:
                        totals[g, r] = emit.builder.fmul(key, queries[g])
                    else:
                        totals[g, r] = emit.fma(key, queries[g], totals[g, r])
        for g in heads:
            yield g, [totals[g, r] for r in range(len(rows))]


def _dot_bytes(emit: Emit, shape: Shape, query: Any, rows: list[Any]) -> Iterator[tuple[int, list[Any]]]:
    """Yield, for each query head, its products with q8_0 rows: an int32 vector for each row, to be added up later."""
    blocks = byte_blocks(shape.head_dim)
    for heads in parts(shape.group, max(1, ACCUMULATORS // len(rows))):
        totals: dict[tuple[int, int], Any] = {}
        for column, length in blocks:
            queries = {g: emit.load_bytes(query, g * shape.head_dim + column, length) for g in heads}
            for r, row in enumerate(rows):
                key = emit.load_bytes(row, column, length)
                for g in heads:
                    totals[g, r] = add_products(emit, key, queries[g], totals.get((g, r)))
        for g in heads:
            yield g, [totals[g, r] for r in range(len(rows))]


def _sum_blocks(emit: Emit, vectors: list[Any], steps: list[int]) -> Any:
    """Sum the lanes of each of 1, 4 or 8 int32 vectors whose numbers differ in these bits.

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


def _score_nibbles(emit: Emit, shape: Shape, query: Any, rows: list[Any], scores: Any, stride: Any) -> None:
    """Write the scores of q4_0 rows, as `score_rows` does.

    Each block has its own scale. So the integers of one block are summed first, for all rows at once, and then its
    scales make them floats.
    """
    builder, head_dim, n_blocks = emit.builder, shape.head_dim, blocks_at_once(shape.head_dim)
    length = NIBBLES * n_blocks  # elements of the query; a quarter as many sums
    n_elements, of_sums = -(-head_dim // length) * length, Emit(builder, length // 4)
    starts_place = builder.add(query, constant(nibble_query(shape, 0).starts))
    block_bit = NIBBLES // 8 if n_blocks == 2 else 0
    steps = [step for step in (1, 2, 4, 8) if step < of_sums.lanes and step != block_bit]
    lane_of_row = [sum(step for bit, step in enumerate(steps) if r >> bit & 1) for r in range(len(rows))]
    scale_of_lane = [0] * of_sums.lanes
    for lane in range(of_sums.lanes):
        r = sum(1 << bit for bit, step in enumerate(steps) if lane & step) % len(rows)
        scale_of_lane[lane] = r * n_blocks + (1 if lane & block_bit else 0)
    totals: dict[int, Any] = {}
    for column in range(0, head_dim, length):
        codes = [load_codes(emit, shape, row, column) for row in rows]
        scales = load_scales(emit, shape, rows, column, scale_of_lane)
        for g in range(shape.group):
            place = g * n_elements + column
            elements, start = emit.load_bytes(query, place, length), of_sums.load_integers(starts_place, place // 4)
            products = [multiply_codes(emit, each, elements, start) for each in codes]
            sums = builder.sitofp(_sum_blocks(emit, products, steps), of_sums.vector)
            totals[g] = of_sums.fma(sums, scales, totals[g]) if g in totals else builder.fmul(sums, scales)
    for g, total in totals.items():
        of_rows = emit.shuffle(total, total, lane_of_row)
        if block_bit:
            of_rows = builder.fadd(of_rows, emit.shuffle(total, total, [lane + block_bit for lane in lane_of_row]))
        scale = Emit(builder, len(rows)).splat(_query_scale(emit, shape, query, g))
        emit.store(builder.fmul(of_rows, scale), scores, builder.mul(stride, constant(g)))


def _query_scale(emit: Emit, shape: Shape, query: Any, g: int) -> Any:
    """Load the scale of a query head of q4_0 keys."""
    return emit.load_scalar(emit.builder.add(query, constant(nibble_query(shape, 0).scales)), g)


def score_rows(emit: Emit, shape: Shape, query: Any, rows: list[Any], scores: Any, stride: Any) -> None:
    """Write scores[g * stride + r] = query[g] . rows[r] for each query head g of the group.

    Parameters
    ----------
    emit : Emit
        Writer of the function, of vectors that divide a row.
    query : LLVM int64
        Address of the query, from `load_query`.
    rows : list of LLVM int64
        Addresses of 1, 4 or 8 rows.
    scores : LLVM int64
        Address of the scores, f32.
    stride : LLVM int64
        Elements from the scores of one query head to those of the next.
    """
    if shape.kv_type == Q4_0:
        _score_nibbles(emit, shape, query, rows, scores, stride)
        return
    builder, quantised = emit.builder, shape.kv_type == Q8_0
    scales = [load_scale(emit, shape, row) for row in rows] if quantised else []
    add = builder.add if quantised else builder.fadd
    for g, products in (_dot_bytes if quantised else _dot_halves)(emit, shape, query, rows):
        first = builder.mul(stride, constant(g))
        if len(rows) == 1:
            lanes = Emit(builder, products[0].type.count)
            total = lanes.sum_integers(products[0]) if quantised else lanes.sum(products[0])
            if quantised:
                total = scores_of_products(emit, shape, query, g, total, scales[0])
            builder.store(total, emit.pointer(scores, FLOAT, first))
            continue
        at_once = min(len(rows), products[0].type.count)
        for r in range(0, len(rows), at_once):
            sums = _sum_each(emit, products[r : r + at_once], add)
            if quantised:
                row_scales = ir.Constant(ir.VectorType(FLOAT, at_once), ir.Undefined)
                for i, scale in enumerate(scales[r : r + at_once]):
                    row_scales = builder.insert_element(row_scales, scale, ir.Constant(INT32, i))
                sums = scores_of_products(emit, shape, query, g, sums, row_scales)
            emit.store(sums, scores, builder.add(first, constant(r)))
