"""Partial scores: the rows that score highest by a few of the query's components (SparQ, algorithm 1).

The components are those with the largest spread * |q|, |q| summed over the group: the spread is the standard deviation
of the component over keys. The paper takes the largest |q|, but where keys have a large mean these may be nearly the
same in all keys, and tell rows apart by nothing. Their columns of the keys are read from a second, transposed copy:
chunks of CHUNK_ROWS rows, each (head_dim, CHUNK_ROWS) f16, so that a component's are neighbours. Spreads come from
moments: beside each chunk, (2, head_dim) f32, the sums of its keys' components and of their squares.

Scores become shares by a softmax whose temperature makes up for what was left out: it gives the scores the variance
that all components give them, if these are independent. (Equation 9 has |q| where this has its square times the
spread's.) The rows with the largest sums over the group are selected, the newest always among them. What the scores
give to the rows that are left out can go to the mean of all values (step 3), for which the sum of each chunk's is kept.

Reads 2 bytes for each component and row, 8 * head_dim for each chunk whose spread is measured, and for the mean
4 * head_dim for each chunk.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, float32, int32, int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from ..compile import LANES, Shape, kernel, native_callback
from ..memory import pointer, read_float, read_int64, stack_floats, write_int64
from ..rows import load_row, widen_row, width
from ..scores import MANY, SIGNATURE, add_shares, cap_scores, exp_scores, fill, list_of, scores_of, select_all
from ..spans import ANY_ORDER, CHUNK_ROWS, head_at, spans_at
from ..top_k import list_top
from ..vector import ACCUMULATORS, HALF, INT64, Emit, accumulators, constant, parts

#: The spread is measured over at most so many full chunks, evenly spaced. One is not enough: components that turn
#: slowly with the position (RoPE) hardly vary inside it. Eight are as good as all.
MEASURED_CHUNKS = 8


@intrinsic
def _transpose_key(typing: Any, shape: Any, key: Any, columns: Any) -> Any:
    """Write a stored key's elements CHUNK_ROWS f16 apart."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, key, columns = args
        emit = Emit(builder, width(shape.shape))
        for first, value in load_row(emit, shape.shape, key, range(0, shape.shape.head_dim, emit.lanes)).items():
            halves = builder.fptrunc(value, ir.VectorType(HALF, emit.lanes))
            for lane in range(emit.lanes):
                place = emit.pointer(columns, HALF, (first + lane) * CHUNK_ROWS)
                builder.store(builder.extract_element(halves, constant(lane)), place)
        return context.get_dummy_value()

    return types.void(shape, types.int64, types.int64), generate


@kernel
def append_to_columns(shape, key, columns, row):
    """Take the stored key at an address into the transposed copy at an address; `row` counts from its first chunk's."""
    chunk_bytes = shape.head_dim * CHUNK_ROWS * 2
    _transpose_key(shape, key, columns + row // CHUNK_ROWS * chunk_bytes + row % CHUNK_ROWS * 2)


@kernel
def append_to_moments(shape, key, moments, row):
    """Add the stored key at an address to its chunk's moments, (2, head_dim) f32, which the first row starts."""
    floats = stack_floats(shape)
    widen_row(shape, key, floats)
    added = carray(pointer(floats), (shape.head_dim,), np.float32)
    sums = carray(pointer(moments), (2, shape.head_dim), np.float32)
    for i in range(shape.head_dim):
        square = added[i] * added[i]
        sums[0, i] = added[i] if row == 0 else sums[0, i] + added[i]
        sums[1, i] = square if row == 0 else sums[1, i] + square


@kernel
def append_to_sum(shape, value, total, row):
    """Add the stored value at an address to its chunk's sum, head_dim f32, which the chunk's first row starts."""
    floats = stack_floats(shape)
    widen_row(shape, value, floats)
    added = carray(pointer(floats), (shape.head_dim,), np.float32)
    sums = carray(pointer(total), (shape.head_dim,), np.float32)
    for i in range(shape.head_dim):
        sums[i] = added[i] if row == 0 else sums[i] + added[i]


@intrinsic
def _score_chunk(
    typing: Any, shape: Any, query: Any, offsets: Any, n: Any, columns: Any, wanted: Any, scores: Any, stride: Any
) -> Any:
    """scores[g * stride + r] = sum over i < n of query[g, i] * column i of row r, for CHUNK_ROWS rows.

    query : address of (group, head_dim) f32, whose first n columns are used
    offsets : address of n int64, where in a chunk each component's column is, bytes
    columns, wanted : addresses of a transposed chunk, and of one to be asked for meanwhile
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _shape, query, offsets, n, columns, wanted, scores, stride = args
        emit, head_dim = Emit(builder), shape.shape.head_dim
        for heads in parts(shape.shape.group, ACCUMULATORS // 2):
            for vectors in parts(CHUNK_ROWS // LANES, ACCUMULATORS // len(heads)):
                places = [(g, vector * LANES) for g in heads for vector in vectors]
                totals = accumulators(builder, emit, len(places))
                with cgutils.for_range(builder, n) as loop:
                    offset = builder.load(emit.pointer(offsets, INT64, loop.index))
                    column = builder.add(columns, offset)
                    if heads.start == 0:
                        next_part = builder.add(builder.add(wanted, offset), constant(vectors.start * LANES * 2))
                        emit.prefetch(next_part, len(vectors) * LANES * 2)
                    keys = {vector * LANES: emit.load_half(column, vector * LANES) for vector in vectors}
                    for g in heads:
                        weight = emit.splat(emit.load_scalar(query, builder.add(loop.index, constant(g * head_dim))))
                        for (head, row), total in zip(places, totals, strict=True):
                            if head == g:
                                builder.store(emit.fma(weight, keys[row], builder.load(total)), total)
                for (g, row), total in zip(places, totals, strict=True):
                    place = builder.add(builder.mul(stride, constant(g)), constant(row))
                    emit.store(builder.load(total), scores, place)
        return context.get_dummy_value()

    return types.void(shape, *[types.int64] * 7), generate


@kernel
def measured_chunks(head):
    """How many chunks the spread is measured over, and among how many from the first on: full ones, if there are."""
    n_chunks = max(head.n_tail // CHUNK_ROWS, 1)
    return min(n_chunks, MEASURED_CHUNKS), n_chunks


@kernel
def _measure_spread(shape, head, totals, spread):
    """The standard deviation of each component over the keys of some chunks: head_dim f32, to an address.

    totals : address of (2, head_dim) f32 to work in    A component that is not finite in all of them spreads by NaN.
    """
    head_dim = shape.head_dim
    n_measured, n_chunks = measured_chunks(head)
    fill(totals, 0, 2 * head_dim, float32(0))
    total = carray(pointer(totals), (2 * head_dim,), np.float32)
    for number in range(n_measured):
        chunk = read_int64(head.tail_chunks + number * n_chunks // n_measured * 8)
        moments = carray(pointer(chunk + head.moment_offset), (2 * head_dim,), np.float32)
        for i in range(2 * head_dim):
            total[i] += moments[i]
    factor = float32(1) / float32(n_measured * min(head.n_tail, CHUNK_ROWS))
    deviations = carray(pointer(spread), (head_dim,), np.float32)
    for i in range(head_dim):
        mean = total[i] * factor
        variance = total[head_dim + i] * factor - mean * mean
        deviations[i] = math.sqrt(float32(0) if variance < 0 else variance)  # rounded below 0; a NaN stays


@kernel
def _choose_components(shape, head, query, room):
    """The components with the largest spread * |q|: where in a chunk their columns are, and each head's weights.

    room : from `stack_floats`    Returns the addresses of the weights, (group, head_dim) f32, of which n columns are
    used, and of n int64 offsets; and n. Where a spread is NaN, so are all weights; where a query is, so are its own.
    """
    group, head_dim = shape.group, shape.head_dim
    padded_dim = -(-head_dim // LANES) * LANES
    listed = room + group * head_dim * 4
    sizes = listed + padded_dim * 4
    offsets = sizes + padded_dim * 4
    spread = offsets + head_dim * 8
    _measure_spread(shape, head, offsets, spread)
    queries = carray(pointer(query), (group, head_dim), np.float32)
    weights = carray(pointer(room), (group, head_dim), np.float32)
    magnitudes = carray(pointer(sizes), (head_dim,), np.float32)
    deviations = carray(pointer(spread), (head_dim,), np.float32)
    fill(sizes, 0, padded_dim, float32(-1))
    for i in range(head_dim):
        total = float32(0)
        for g in range(group):
            total += abs(queries[g, i])
        magnitude = total * deviations[i]
        magnitudes[i] = magnitude if magnitude < float32(np.inf) else float32(np.inf)  # `list_top` lists no NaN
    n = list_top(sizes, padded_dim, min(head.n_components, head_dim), listed)
    chosen = carray(pointer(listed), (n,), np.int32)
    for i in range(n):
        write_int64(offsets + i * 8, int64(chosen[i]) * CHUNK_ROWS * 2)
    for g in range(group):
        whole, part = float32(0), float32(0)
        for i in range(head_dim):
            product = queries[g, i] * deviations[i]
            whole += product * product
        for i in range(n):
            product = queries[g, chosen[i]] * deviations[chosen[i]]
            part += product * product
        factor = float32(1) if part == 0 else float32(math.sqrt(whole / part))
        for i in range(n):
            weights[g, i] = queries[g, chosen[i]] * factor
    return room, offsets, n


@kernel
def score_rows(shape, head_address, query, part, n_parts):
    """The partial scores of this thread's share of the rows, for one token."""
    head = head_at(head_address)[0]
    n_chunks = -(-head.n_tail // CHUNK_ROWS)
    weights, offsets, n = _choose_components(shape, head, query, stack_floats(shape))
    stop = n_chunks * (part + 1) // n_parts
    for chunk in range(n_chunks * part // n_parts, stop):
        columns, wanted = _columns(head, chunk), _columns(head, min(chunk + 1, stop - 1))
        scores = scores_of(head) + chunk * CHUNK_ROWS * 4
        _score_chunk(shape, weights, offsets, n, columns, wanted, scores, head.scratch_items)
    return 0


@kernel
def _columns(head, chunk):
    """Address of a chunk's transposed copy."""
    return read_int64(head.tail_chunks + chunk * 8) + head.column_offset


@kernel
def select_rows(shape, head_address, query, n_tokens, spans_address):
    """The n_selected best rows, the newest n_recent among them. A batch of more than one token attends everything."""
    head, spans = head_at(head_address)[0], spans_at(spans_address, MANY)
    if n_tokens > 1:
        _leave_nothing(shape, head)
        return select_all(shape, head_address, query, n_tokens, spans_address)
    end = head.n_tail
    stop = -(-end // LANES) * LANES
    fill(head.scratch, 0, stop, float32(0))
    for g in range(shape.group):
        scores = scores_of(head) + g * head.scratch_items * 4
        cap_scores(scores, end, head.softcap)
        fill(scores, end, stop, float32(-np.inf))
        exp_scores(scores, stop)
        add_shares(scores, stop, head.scratch)
    if math.isnan(read_float(head.scratch)):  # then all are: attend everything, so that it shows
        _leave_nothing(shape, head)
        return select_all(shape, head_address, query, n_tokens, spans_address)
    n_recent = min(head.n_recent, end)
    fill(head.scratch, end - n_recent, end, float32(np.inf))
    fill(head.scratch, end, stop, float32(-1))
    head.bytes_read += end * min(head.n_components, shape.head_dim) * 2
    head.bytes_read += measured_chunks(head)[0] * shape.head_dim * 8

    listed = list_of(shape, head)
    n_selected = list_top(head.scratch, stop, max(head.n_selected, n_recent), listed)
    rows = carray(pointer(listed), (n_selected,), np.int32)
    if head.reallocation != 0:
        _leave_mean(shape, head, rows)
    n_spans, i = 0, 0
    while i < n_selected:
        chunk, start = int64(rows[i]) // CHUNK_ROWS, i
        while i < n_selected and rows[i] < (chunk + 1) * CHUNK_ROWS:
            rows[i] = int32(int64(rows[i]) % CHUNK_ROWS)
            i += 1
        address = read_int64(head.tail_chunks + chunk * 8)
        spans[n_spans].keys = address + head.key_offset
        spans[n_spans].values = address + head.value_offset
        spans[n_spans].n_rows = i - start
        spans[n_spans].position = ANY_ORDER
        spans[n_spans].window = 0
        spans[n_spans].rows = listed + start * 4
        n_spans += 1
    return n_spans


@kernel
def _leave_nothing(shape, head):
    """All is attended: no query head gives anything to the mean value."""
    if head.reallocation != 0:
        kept = carray(pointer(head.reallocation), (shape.group,), np.float32)
        for g in range(shape.group):
            kept[g] = float32(1)


@kernel
def _leave_mean(shape, head, rows):
    """Write each query head's share of the scores that these rows have, and the mean of all values."""
    kept = carray(pointer(head.reallocation), (shape.group,), np.float32)
    for g in range(shape.group):
        scores = carray(pointer(scores_of(head) + g * head.scratch_items * 4), (head.n_tail,), np.float32)
        total, part = float32(0), float32(0)
        for i in range(head.n_tail):
            total += scores[i]
        for i in range(len(rows)):
            part += scores[rows[i]]
        kept[g] = part / total
    mean = carray(pointer(head.reallocation + shape.group * 4), (shape.head_dim,), np.float32)
    for i in range(shape.head_dim):
        mean[i] = float32(0)
    n_chunks = -(-head.n_tail // CHUNK_ROWS)
    for chunk in range(n_chunks):
        address = read_int64(head.tail_chunks + chunk * 8) + head.sum_offset
        sums = carray(pointer(address), (shape.head_dim,), np.float32)
        for i in range(shape.head_dim):
            mean[i] += sums[i]
    factor = float32(1) / float32(head.n_tail)
    for i in range(shape.head_dim):
        mean[i] *= factor
    head.bytes_read += n_chunks * shape.head_dim * 4


@kernel
def reallocate(shape, reallocation, out, out_stride):
    """out = kept * out + (1 - kept) * mean value for each query head, by what `select_rows` left at an address.

    out : address of the first query head's (head_dim,) f32    out_stride : bytes to the next
    """
    mean = carray(pointer(reallocation + shape.group * 4), (shape.head_dim,), np.float32)
    for g in range(shape.group):
        kept = read_float(reallocation + g * 4)
        if kept < 1:
            result = carray(pointer(out + g * out_stride), (shape.head_dim,), np.float32)
            for i in range(shape.head_dim):
                result[i] = kept * result[i] + (float32(1) - kept) * mean[i]


@cache
def native_score_rows(shape: Shape) -> Any:
    """`score_rows` for one shape as a native function."""

    @native_callback(SIGNATURE)
    def call(head, query, part, n_parts):
        return score_rows(shape, head, query, part, n_parts)

    return call


@cache
def native_select_rows(shape: Shape) -> Any:
    """`select_rows` for one shape as a native function."""

    @native_callback(SIGNATURE)
    def call(head, query, n_tokens, spans):
        return select_rows(shape, head, query, n_tokens, spans)

    return call
