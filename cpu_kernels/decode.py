"""Attention of one new token over spans: flash-decoding.

The rows of all KV heads are laid end to end and cut into one equal share for each thread, however uneven the heads.
Each thread leaves a partial result for every head that it touched; after a barrier they are merged by log-sum-exp.

Reads 4 * head_dim bytes for each selected row: that over the read bandwidth is the floor.
"""

from __future__ import annotations

import math

import numpy as np
from numba import carray, float32

from .blocks import add_weighted, dot
from .compile import LANES, Shape, kernel
from .memory import pointer, read_float, read_int64
from .select import cap_scores
from .spans import SPAN, spans_at
from .vector import add, exp, load, max_of, maximum, splat, store, subtract, sum_of

#: Rows between two looks at the running maximum: their scores stay in the L1 cache.
BLOCK = 128

#: Below any score, and far enough from -inf that differences are numbers.
LOWEST_SCORE = -1e30

_SPAN_BYTES = SPAN.itemsize


def partial_size(shape: Shape) -> int:
    """f32 of one partial result of a KV head: weighted values, largest score and sum of weights per query head."""
    return shape.group * (shape.head_dim + 2)


@kernel
def clear_partial(shape, partial):
    """An empty partial result at an address: nothing attended yet."""
    size = shape.group * (shape.head_dim + 2)
    values = carray(pointer(partial), (size,), np.float32)
    for i in range(size):
        values[i] = float32(0)
    for g in range(shape.group):
        values[shape.group * shape.head_dim + g] = float32(LOWEST_SCORE)


@kernel
def attend_rows(shape, query, keys, values, n_rows, softcap, scores, partial):
    """Add n_rows rows to a partial result.

    query : address of (group, head_dim) f32, scaled    keys, values : addresses of (n_rows, head_dim) f16
    scores : address of (group, BLOCK) f32, scratch
    """
    group, head_dim = shape.group, shape.head_dim
    sums = carray(pointer(partial), (group, head_dim), np.float32)
    largest = carray(pointer(partial + group * head_dim * 4), (group,), np.float32)
    totals = carray(pointer(partial + group * (head_dim + 1) * 4), (group,), np.float32)
    all_scores = carray(pointer(scores), (group, BLOCK), np.float32)
    row = 0
    while row < n_rows:
        n = min(BLOCK, n_rows - row)
        padded = -(-n // LANES) * LANES
        dot(shape, query, keys + row * head_dim * 2, n, scores, BLOCK)
        for g in range(group):
            place = scores + g * BLOCK * 4
            for i in range(n, padded):
                all_scores[g, i] = float32(-np.inf)
            cap_scores(place, n, softcap)
            top = splat(largest[g])
            for i in range(0, padded, LANES):
                top = maximum(top, load(place + i * 4))
            new = max_of(top)
            if new > largest[g]:
                shrink = float32(math.exp(largest[g] - new))
                largest[g] = new
                totals[g] *= shrink
                for i in range(head_dim):
                    sums[g, i] *= shrink
            top, total = splat(new), splat(float32(0))
            for i in range(0, padded, LANES):
                weight = exp(subtract(load(place + i * 4), top))
                store(place + i * 4, weight)
                total = add(total, weight)
            totals[g] += sum_of(total)
        add_weighted(shape, scores, BLOCK, values + row * head_dim * 2, n, partial)
        row += n


@kernel
def attend_share(
    shape, query, n_kv_head, spans, span_capacity, n_spans, n_rows, softcap, scores, partials, ith, n_threads
):
    """Thread ith's share of one token's attention: a partial result for each KV head, empty where it had no rows.

    query : address of (n_kv_head * group, head_dim) f32, scaled
    spans : address of (n_kv_head, span_capacity) SPANs    n_spans, n_rows : addresses of (n_kv_head,) int64
    partials : address of (n_threads, n_kv_head) partial results
    """
    all_rows = carray(pointer(n_rows), (n_kv_head,), np.int64)
    total = 0
    for head in range(n_kv_head):
        total += all_rows[head]
    start, stop = total * ith // n_threads, total * (ith + 1) // n_threads
    size = shape.group * (shape.head_dim + 2) * 4
    row_bytes = shape.head_dim * 2
    for head in range(n_kv_head):
        partial = partials + (ith * n_kv_head + head) * size
        clear_partial(shape, partial)
        if start < all_rows[head] and stop > 0:
            at = 0
            count = read_int64(n_spans + head * 8)
            head_spans = spans_at(spans + head * span_capacity * _SPAN_BYTES, count)
            for i in range(count):
                span = head_spans[i]
                first, last = max(start - at, 0), min(stop - at, span.n_rows)
                if first < last:
                    keys, values = span.keys + first * row_bytes, span.values + first * row_bytes
                    group_query = query + head * shape.group * shape.head_dim * 4
                    attend_rows(shape, group_query, keys, values, last - first, softcap, scores, partial)
                at += span.n_rows
        start -= all_rows[head]
        stop -= all_rows[head]


@kernel
def merge_shares(shape, head, n_kv_head, partials, n_threads, sinks, out, out_stride):
    """Merge the threads' partial results of one KV head into its query heads' output.

    sinks : address of an f32 score for each query head that takes part in the softmax with no value, or 0
    out : address of the first query head's (head_dim,) f32 output    out_stride : bytes to the next
    """
    group, head_dim = shape.group, shape.head_dim
    size = group * (head_dim + 2) * 4
    for g in range(group):
        top = float32(LOWEST_SCORE)
        for thread in range(n_threads):
            partial = partials + (thread * n_kv_head + head) * size
            top = max(top, read_float(partial + (group * head_dim + g) * 4))
        total = float32(0)
        if sinks != 0:
            sink = read_float(sinks + (head * group + g) * 4)
            top = max(top, sink)
            total = float32(math.exp(sink - top))
        result = carray(pointer(out + (head * group + g) * out_stride), (head_dim,), np.float32)
        for i in range(head_dim):
            result[i] = float32(0)
        for thread in range(n_threads):
            partial = partials + (thread * n_kv_head + head) * size
            weight = float32(math.exp(read_float(partial + (group * head_dim + g) * 4) - top))
            total += weight * read_float(partial + (group * (head_dim + 1) + g) * 4)
            sums = carray(pointer(partial + g * head_dim * 4), (head_dim,), np.float32)
            for i in range(head_dim):
                result[i] += weight * sums[i]
        for i in range(head_dim):
            result[i] /= total
