"""Attention of one new token over spans: flash-decoding.

The rows of all KV heads are laid end to end and cut into one equal share for each thread, however uneven the heads.
Each thread leaves a partial result for every head that it touched; after a barrier they are merged by log-sum-exp.

Rows are taken a block at a time, from however many spans it takes, by lists of their addresses: spans of a few rows
cost what long ones cost. The lists of a block's keys, its values, and the next block's keys lie one after another, in
the order in which they are wanted (see rows.py).

Reads a key and a value for each selected row: that over the read bandwidth is the floor.
"""

from __future__ import annotations

import math

import numpy as np
from numba import carray, float32, int64

from .compile import LANES, Shape, kernel
from .memory import copy_bytes, pointer, read_float, read_int32, read_int64, write_int64
from .rows import add_weighted, dot_listed, load_query, query_bytes
from .scores import cap_scores
from .spans import SPAN, spans_at
from .vector import add, any_above, exp, load, max_of, maximum, multiply, splat, store, subtract, sum_of

#: Rows of a block: their scores, keys and values stay in the L1 cache, or of long rows in the L2 cache.
BLOCK = 64

#: Below any score, and far enough from -inf that differences are numbers.
LOWEST_SCORE = -1e30

_SPAN_BYTES, _LIST_BYTES = SPAN.itemsize, 8 * BLOCK


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


def decode_scratch_bytes(shape: Shape) -> int:
    """Scratch that a thread needs: running totals, scores, four lists of rows, and a query from `load_query`."""
    return 4 * shape.group * (LANES + BLOCK) + 4 * _LIST_BYTES + query_bytes(shape)


@kernel
def list_rows(shape, spans, at, row, count, keys, values):
    """Write the addresses of the next `count` keys and values; returns where the rows after them are.

    at, row : the span to start in, and its row    keys, values : addresses of BLOCK int64
    """
    row_bytes = shape.row_bytes
    listed_keys = carray(pointer(keys), (BLOCK,), np.int64)
    listed_values = carray(pointer(values), (BLOCK,), np.int64)
    n = 0
    while n < count:
        span = spans[at]
        taken = min(count - n, span.n_rows - row)
        if span.rows == 0:
            for i in range(taken):
                listed_keys[n + i] = span.keys + (row + i) * row_bytes
                listed_values[n + i] = span.values + (row + i) * row_bytes
        else:
            for i in range(taken):
                number = int64(read_int32(span.rows + (row + i) * 4))
                listed_keys[n + i] = span.keys + number * row_bytes
                listed_values[n + i] = span.values + number * row_bytes
        n += taken
        row += taken
        if row == span.n_rows:
            at, row = at + 1, 0
    if 0 < n < BLOCK:  # a full list, whose rows come in the order in which they are wanted
        fill_list(values, n, BLOCK)
        copy_bytes(keys + n * 8, values, (BLOCK - n) * 8)
    return at, row


@kernel
def fill_list(listed, start, stop):
    """Repeat the address before index `start` of a list up to index `stop`."""
    for i in range(start, stop):
        write_int64(listed + i * 8, read_int64(listed + (start - 1) * 8))


@kernel
def attend_rows(shape, query, spans_address, n_spans, first, n_rows, softcap, scratch, partial):
    """Add n_rows rows of some spans, from the row `first` of all of them on, to a partial result.

    query : address of (group, head_dim) f32, scaled    scratch : address of decode_scratch_bytes(shape)
    """
    spans = spans_at(spans_address, n_spans)
    at, row = 0, first
    while row >= spans[at].n_rows:
        row -= spans[at].n_rows
        at += 1
    running = scratch
    scores = running + shape.group * LANES * 4
    keys = scores + shape.group * BLOCK * 4
    values, next_keys, next_values = keys + _LIST_BYTES, keys + 2 * _LIST_BYTES, keys + 3 * _LIST_BYTES
    query = load_query(shape, query, keys + 4 * _LIST_BYTES)
    for g in range(shape.group):
        store(running + g * LANES * 4, splat(float32(0)))
    left = n_rows
    n = min(BLOCK, left)
    at, row = list_rows(shape, spans, at, row, n, keys, values)
    copy_bytes(next_keys, values, _LIST_BYTES)  # what the last block asks for ahead, if no other came before it
    while n > 0:
        left -= n
        n_next = min(BLOCK, left)
        at, row = list_rows(shape, spans, at, row, n_next, next_keys, next_values)
        _attend_block(shape, query, keys, values, n, softcap, scores, running, partial)
        copy_bytes(keys, next_keys, 2 * _LIST_BYTES)
        n = n_next
    totals = carray(pointer(partial + shape.group * (shape.head_dim + 1) * 4), (shape.group,), np.float32)
    for g in range(shape.group):
        totals[g] += sum_of(load(running + g * LANES * 4))


@kernel
def _attend_block(shape, query, keys, values, n, softcap, scores, running, partial):
    """Add n listed rows, at most BLOCK, to a partial result, but their weights to `running`: LANES f32 a query head."""
    group, head_dim = shape.group, shape.head_dim
    largest = carray(pointer(partial + group * head_dim * 4), (group,), np.float32)
    all_scores = carray(pointer(scores), (group, BLOCK), np.float32)
    padded = -(-n // LANES) * LANES
    dot_listed(shape, query, keys, n, scores, BLOCK)
    for g in range(group):
        place, total_place = scores + g * BLOCK * 4, running + g * LANES * 4
        for i in range(n, padded):
            all_scores[g, i] = float32(-np.inf)
        cap_scores(place, n, softcap)
        top = splat(largest[g])
        highest = top
        for i in range(0, padded, LANES):
            highest = maximum(highest, load(place + i * 4))
        if any_above(highest, top):  # seldom, after the first blocks
            new = max_of(highest)
            _shrink(shape, float32(math.exp(largest[g] - new)), partial + g * head_dim * 4, total_place)
            largest[g] = new
            top = splat(new)
        total = load(total_place)
        for i in range(0, padded, LANES):
            weight = exp(subtract(load(place + i * 4), top))
            store(place + i * 4, weight)
            total = add(total, weight)
        store(total_place, total)
    add_weighted(shape, scores, BLOCK, values, n, partial)


@kernel
def _shrink(shape, factor, sums, running):
    """Scale what a query head has gathered to a new largest score."""
    values = carray(pointer(sums), (shape.head_dim,), np.float32)
    for i in range(shape.head_dim):
        values[i] *= factor
    store(running, multiply(load(running), splat(factor)))


@kernel
def attend_share(
    shape, query, n_kv_head, spans, span_capacity, n_spans, n_rows, softcap, scratch, partials, ith, n_threads
):
    """Thread ith's share of one token's attention: a partial result for each KV head, empty where it had no rows.

    query : address of (n_kv_head * group, head_dim) f32, scaled
    spans : address of (n_kv_head, span_capacity) SPANs    n_spans, n_rows : addresses of (n_kv_head,) int64
    scratch : address of decode_scratch_bytes(shape)    partials : address of (n_threads, n_kv_head) partial results
    """
    all_rows = carray(pointer(n_rows), (n_kv_head,), np.int64)
    total = 0
    for head in range(n_kv_head):
        total += all_rows[head]
    start, stop = total * ith // n_threads, total * (ith + 1) // n_threads
    size = shape.group * (shape.head_dim + 2) * 4
    for head in range(n_kv_head):
        partial = partials + (ith * n_kv_head + head) * size
        clear_partial(shape, partial)
        first, last = max(start, 0), min(stop, all_rows[head])
        if first < last:
            group_query = query + head * shape.group * shape.head_dim * 4
            head_spans = spans + head * span_capacity * _SPAN_BYTES
            count = read_int64(n_spans + head * 8)
            attend_rows(shape, group_query, head_spans, count, first, last - first, softcap, scratch, partial)
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
