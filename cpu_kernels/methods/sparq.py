"""SparQ: attend to the rows that score highest by a few of the query's components (Ribar et al. 2024, algorithm 1).

A chunk's extras are
  columns : its keys once more, transposed, so that a component's elements are neighbours: (head_dim, CHUNK_ROWS) f16
  moments : the sums of its keys' components and of their squares: (2, head_dim) f32
  value sum : the sum of its values: (head_dim,) f32

The components with the largest spread * |q| score the rows, |q| summed over the group. The spread is the standard
deviation of a component over keys. The paper takes the largest |q|. Where keys have a large mean, those components may
be nearly the same in all keys, and then they tell rows apart by nothing.

Scores become shares by a softmax whose temperature makes up for the components that were left out: it gives the scores
the variance that all components would give them, were they independent. (Where equation 9 has |q|, this has the square
of |q| times the spread.) The rows with the largest shares, summed over the group, are selected, the newest always
among them. What the scores give to the other rows can go to the mean of all values (step 3).

Selection reads 2 bytes for each component and row, 8 * head_dim for each chunk whose spread is measured, and for the
mean value 4 * head_dim for each chunk.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import float32, int32, int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from ..compile import LANES, Shape, kernel
from ..head import (
    CHUNK_ROWS,
    chunk_at,
    chunk_extras,
    chunk_keys,
    chunk_values,
    count_chunks,
    head_at,
    tail_key,
    tail_value,
)
from ..hooks import Hooks
from ..memory import read_float, stack_floats, write_int64
from ..rows import load_row, widen_row, width
from ..scores import fill, importance_address, list_address, scores_address, scores_of, sum_attention
from ..spans import add_list, spans_to_fill
from ..top_k import list_top
from ..vector import ACCUMULATORS, HALF, INT64, Emit, accumulators, constant, parts
from ..views import array_at, record_at
from .dense import select_all

#: What a head keeps besides its rows and their extras.
STATE = np.dtype(
    [
        ("n_rows", "i8"),  # rows to select
        ("n_recent", "i8"),  # newest rows that are always among them
        ("n_components", "i8"),  # of a query that score rows
        ("reallocates", "i8"),  # whether the attention of the other rows goes to the mean value
    ]
)

#: Full chunks, evenly spaced, over which the spread is measured. One is not enough: components that turn slowly with
#: the position (RoPE) hardly vary inside it. Eight are as good as all.
MEASURED_CHUNKS = 8


def extras_bytes(shape: Shape) -> int:
    """Return the size of a chunk's extras: columns, moments and the sum of the values."""
    return 2 * CHUNK_ROWS * shape.head_dim + 3 * 4 * shape.head_dim


@kernel
def column_address(shape, chunk, component):
    """Return the address of a component of a chunk's keys, (CHUNK_ROWS,) f16."""
    return chunk_extras(shape, chunk) + component * CHUNK_ROWS * 2


@kernel
def moments_of(shape, chunk):
    """View a chunk's moments, (2, head_dim) f32."""
    return array_at(column_address(shape, chunk, shape.head_dim), (2, shape.head_dim), np.float32)


@kernel
def value_sum_of(shape, chunk):
    """View the sum of a chunk's values, (head_dim,) f32."""
    end_of_moments = column_address(shape, chunk, shape.head_dim) + 2 * 4 * shape.head_dim
    return array_at(end_of_moments, (shape.head_dim,), np.float32)


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
def append_to_extras(shape, head_address, start, stop):
    """Take stored rows into the extras of their chunks: an `append` hook (see hooks.py)."""
    head, floats = head_at(head_address), stack_floats(shape)
    row_floats = array_at(floats, (shape.head_dim,), np.float32)
    for row in range(start, stop):
        chunk, within = chunk_at(head, row // CHUNK_ROWS), row % CHUNK_ROWS
        moments, value_sum = moments_of(shape, chunk), value_sum_of(shape, chunk)
        if within == 0:
            moments[:] = float32(0)
            value_sum[:] = float32(0)
        key = tail_key(shape, head, row)
        _transpose_key(shape, key, column_address(shape, chunk, 0) + within * 2)
        widen_row(shape, key, floats)
        for i in range(shape.head_dim):
            moments[0, i] += row_floats[i]
            moments[1, i] += row_floats[i] * row_floats[i]
        widen_row(shape, tail_value(shape, head, row), floats)
        for i in range(shape.head_dim):
            value_sum[i] += row_floats[i]
    return 0


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
    """Return over how many chunks the spread is measured, and among how many from the first on: full ones, if any."""
    n_chunks = max(head.n_tail // CHUNK_ROWS, 1)
    return min(n_chunks, MEASURED_CHUNKS), n_chunks


@kernel
def _measure_spread(shape, head, totals, spread):
    """Write the standard deviation of each component over the keys of some chunks: head_dim f32, to an address.

    `totals` is the address of (2, head_dim) f32 to work in. A component that is not finite in all of these keys spreads
    by NaN.
    """
    head_dim = shape.head_dim
    n_measured, n_chunks = measured_chunks(head)
    total = array_at(totals, (2, head_dim), np.float32)
    total[:] = float32(0)
    for number in range(n_measured):
        moments = moments_of(shape, chunk_at(head, number * n_chunks // n_measured))
        for i in range(head_dim):
            total[0, i] += moments[0, i]
            total[1, i] += moments[1, i]
    factor = float32(1) / float32(n_measured * min(head.n_tail, CHUNK_ROWS))
    deviations = array_at(spread, (head_dim,), np.float32)
    for i in range(head_dim):
        mean = total[0, i] * factor
        variance = total[1, i] * factor - mean * mean
        deviations[i] = math.sqrt(float32(0) if variance < 0 else variance)  # rounding may go below 0; a NaN stays


@kernel
def _choose_components(shape, head, n_components, query, room):
    """Choose the components with the largest spread * |q|, and weigh them for each query head.

    `room` comes from `stack_floats`. Returns the address of the weights, (group, head_dim) f32, of which n columns are
    used; the address of n int64 offsets, where the components' columns lie in a chunk's extras; and n. If a spread is
    NaN, all weights are NaN; if a query is, its own are.
    """
    group, head_dim = shape.group, shape.head_dim
    padded_dim = -(-head_dim // LANES) * LANES
    listed = room + group * head_dim * 4
    sizes = listed + padded_dim * 4
    offsets = sizes + padded_dim * 4
    spread = offsets + head_dim * 8
    _measure_spread(shape, head, offsets, spread)
    queries = array_at(query, (group, head_dim), np.float32)
    weights = array_at(room, (group, head_dim), np.float32)
    magnitudes = array_at(sizes, (head_dim,), np.float32)
    deviations = array_at(spread, (head_dim,), np.float32)
    fill(sizes, 0, padded_dim, float32(-1))
    for i in range(head_dim):
        total = float32(0)
        for g in range(group):
            total += abs(queries[g, i])
        magnitude = total * deviations[i]
        magnitudes[i] = magnitude if magnitude < float32(np.inf) else float32(np.inf)  # `list_top` lists no NaN
    n = list_top(sizes, padded_dim, min(n_components, head_dim), listed)
    chosen = array_at(listed, (n,), np.int32)
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
    """Compute the partial scores of a share of the rows, for one token: a `score` hook (see hooks.py)."""
    head = head_at(head_address)
    n_chunks, n_components = count_chunks(head), record_at(head.state, STATE).n_components
    weights, offsets, n = _choose_components(shape, head, n_components, query, stack_floats(shape))
    stop = n_chunks * (part + 1) // n_parts
    for number in range(n_chunks * part // n_parts, stop):
        columns = column_address(shape, chunk_at(head, number), 0)
        wanted = column_address(shape, chunk_at(head, min(number + 1, stop - 1)), 0)
        scores = scores_address(head, 0) + number * CHUNK_ROWS * 4
        _score_chunk(shape, weights, offsets, n, columns, wanted, scores, head.scratch_items)
    return 0


@kernel
def select_rows(shape, head_address, query, n_tokens, spans_address):
    """Select the best rows, the newest always among them: a `select` hook (see hooks.py).

    A batch of more than one token attends to everything.
    """
    if n_tokens > 1:
        return select_all(shape, head_address, query, n_tokens, spans_address)
    head, spans = head_at(head_address), spans_to_fill(spans_address)
    state, end = record_at(head.state, STATE), head.n_tail
    importance = importance_address(head)
    stop = sum_attention(shape, head, end)
    if math.isnan(read_float(importance)):  # all are NaN: attend to everything, so that the NaN reaches the output
        _keep_everything(shape, head)
        return select_all(shape, head_address, query, n_tokens, spans_address)
    n_recent = min(state.n_recent, end)
    fill(importance, end - n_recent, end, float32(np.inf))
    fill(importance, end, stop, float32(-1))
    head.bytes_read += end * min(state.n_components, shape.head_dim) * 2
    head.bytes_read += measured_chunks(head)[0] * shape.head_dim * 8

    listed = list_address(shape, head)
    n_selected = list_top(importance, stop, max(state.n_rows, n_recent), listed)
    rows = array_at(listed, (n_selected,), np.int32)
    if state.reallocates != 0:
        _keep_mean(shape, head, rows)
    n_spans, i = 0, 0
    while i < n_selected:
        number, start = int64(rows[i]) // CHUNK_ROWS, i
        while i < n_selected and rows[i] < (number + 1) * CHUNK_ROWS:
            rows[i] = int32(int64(rows[i]) % CHUNK_ROWS)
            i += 1
        chunk = chunk_at(head, number)
        keys, values = chunk_keys(shape, chunk), chunk_values(shape, chunk)
        n_spans = add_list(keys, values, i - start, listed + start * 4, spans, n_spans)
    return n_spans


@kernel
def _kept_shares(shape, head):
    """View each query head's share of attention that the selected rows got, (group,) f32.

    Once rows are selected, the head's importance is not needed any more: this and the mean value lie in its place.
    """
    return array_at(importance_address(head), (shape.group,), np.float32)


@kernel
def _mean_value(shape, head):
    """View the mean of all values, (head_dim,) f32, behind the shares."""
    return array_at(importance_address(head) + shape.group * 4, (shape.head_dim,), np.float32)


@kernel
def _keep_everything(shape, head):
    """Note that all rows are attended: no query head gives anything to the mean value."""
    shares = _kept_shares(shape, head)
    for g in range(shape.group):
        shares[g] = float32(1)


@kernel
def _keep_mean(shape, head, rows):
    """Note each query head's share of the scores that these rows have, and the mean of all values."""
    shares, mean = _kept_shares(shape, head), _mean_value(shape, head)
    for g in range(shape.group):
        scores = scores_of(head, g)
        total, selected = float32(0), float32(0)
        for i in range(head.n_tail):
            total += scores[i]
        for i in range(len(rows)):
            selected += scores[rows[i]]
        shares[g] = selected / total
    n_chunks = count_chunks(head)
    mean[:] = float32(0)
    for number in range(n_chunks):
        value_sum = value_sum_of(shape, chunk_at(head, number))
        for i in range(shape.head_dim):
            mean[i] += value_sum[i]
    factor = float32(1) / float32(head.n_tail)
    for i in range(shape.head_dim):
        mean[i] *= factor
    head.bytes_read += n_chunks * shape.head_dim * 4


@kernel
def reallocate(shape, head_address, out, out_stride):
    """Give the attention of the rows that were left out to the mean value: a `finish` hook (see hooks.py).

    For each query head: out = share * out + (1 - share) * mean value (algorithm 1, step 3).
    """
    head = head_at(head_address)
    if record_at(head.state, STATE).reallocates == 0:
        return 0
    shares, mean = _kept_shares(shape, head), _mean_value(shape, head)
    for g in range(shape.group):
        if shares[g] < 1:
            result = array_at(out + g * out_stride, (shape.head_dim,), np.float32)
            for i in range(shape.head_dim):
                result[i] = shares[g] * result[i] + (float32(1) - shares[g]) * mean[i]
    return 0


HOOKS = Hooks(select=select_rows, score=score_rows, finish=reallocate, append=append_to_extras)
