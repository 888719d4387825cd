"""Compute the attention of one new token over spans: flash-decoding.

The rows of all KV heads, laid end to end, are cut into an equal share for each thread, however uneven the heads are.
Each thread computes a partial result for every head in its share. After a barrier, the partial results of each head are
merged by log-sum-exp.

Rows are taken block by block, by lists of their addresses, from as many spans as a block needs: short spans cost as
much as long ones. The lists of a block's keys, of its values, and of the next block's keys are contiguous, in the order
in which the rows are needed, because sums prefetch along their list (see rows.py).

A span may belong to some query heads of the group only. The others compute its scores too, and then set them to -inf:
each row is read once, whichever heads attend it. Blocks without such spans skip this.

The lower bound is the time to read a key and a value for each selected row.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import float32, int64, types

from ..layout.scores import cap_scores
from ..layout.spans import ALL_HEADS, SPAN, spans_at, spans_to_fill
from ..numba_support.compile import kernel, late_stage, layout
from ..numba_support.machine_features import LANES
from ..numba_support.memory import copy_bytes, read_float
from ..numba_support.vector import add, any_above, exp_difference, load, max_of, maximum, multiply, splat, store, sum_of
from ..numba_support.views import array_at
from ..rows.rotation import rotate_value
from ..rows.rows import add_weighted, dot_listed, load_query
from ..rows.tiles import ROWS_AT_ONCE

#: Below any score, but finite, so that the difference of two such scores is a number.
LOWEST_SCORE = -1e30

#: Rows of a block: their scores, keys and values stay in the L1 cache, or long rows in the L2 cache.
BLOCK = 64

_SPAN_BYTES, _LIST_BYTES, _VECTOR_BYTES, _SCORES_BYTES = SPAN.itemsize, 8 * BLOCK, 4 * LANES, 4 * BLOCK


# A thread's partial result: the contribution of its rows to the output of one KV head. For each query head it has the
# sum of weighted values, the largest score, and the sum of weights, which are relative to the largest score.


@layout
def partial_size(shape):
    """Return the number of f32 in a partial result."""
    return shape.group * (shape.value_dim + 2)


@kernel
def partial_of(shape, partials, n_kv_head, thread, head):
    """Return the address of a thread's partial result of a KV head."""
    return partials + (thread * n_kv_head + head) * partial_size(shape) * 4


@kernel
def weighted_values(shape, partial):
    """View the sums of weighted values of a partial result, (group, value_dim)."""
    return array_at(partial, (shape.group, shape.value_dim), np.float32)


@kernel
def largest_scores(shape, partial):
    """View the largest scores of a partial result, (group,): weights are relative to them."""
    return array_at(partial + shape.group * shape.value_dim * 4, (shape.group,), np.float32)


@kernel
def weight_sums(shape, partial):
    """View the sums of weights of a partial result, (group,)."""
    return array_at(partial + shape.group * (shape.value_dim + 1) * 4, (shape.group,), np.float32)


@kernel
def clear_partial(shape, partial):
    """Make a partial result empty: without attended rows."""
    values = array_at(partial, (partial_size(shape),), np.float32)
    for i in range(partial_size(shape)):
        values[i] = float32(0)
    largest = largest_scores(shape, partial)
    for g in range(shape.group):
        largest[g] = float32(LOWEST_SCORE)


@kernel
def add_to_partial(shape, partial, g, largest, total, values):
    """Add weighted values, (value_dim,) f32, to query head g of a partial result, by log-sum-exp.

    Parameters
    ----------
    largest : float32
        Score that the weights are relative to.
    total : float32
        Sum of the weights; 0 adds nothing.
    """
    if total == 0:
        return
    sums, totals, highest = (
        weighted_values(shape, partial)[g],
        weight_sums(shape, partial),
        largest_scores(shape, partial),
    )
    new = max(highest[g], largest)
    before, factor = float32(math.exp(highest[g] - new)), float32(math.exp(largest - new))
    highest[g], totals[g] = new, totals[g] * before + total * factor
    for i in range(shape.value_dim):
        sums[i] = sums[i] * before + values[i] * factor


# The layout of a thread's scratch.


class _Scratch(NamedTuple):
    """Addresses of the parts of a thread's scratch."""

    running: int  # (group, LANES) f32: sums of weights, not yet added across lanes
    scores: int  # (group, BLOCK) f32, then weights
    keys: int  # lists of rows, BLOCK int64 each
    values: int
    next_keys: int
    next_values: int
    query: int  # the result of `load_query`


@layout
def scratch_parts(shape, scratch):
    """Return the addresses of the parts of a thread's scratch."""
    scores = scratch + shape.group * _VECTOR_BYTES
    keys = scores + shape.group * _SCORES_BYTES
    values = keys + _LIST_BYTES
    next_keys = values + _LIST_BYTES
    next_values = next_keys + _LIST_BYTES
    return _Scratch(scratch, scores, keys, values, next_keys, next_values, next_values + _LIST_BYTES)


@kernel
def list_rows(shape, spans, at, row, count, keys, values):
    """Write the addresses of the next rows into a list of keys and a list of values.

    If the rows do not fill the lists, both continue with copies of their last address: that of keys to a multiple of
    ROWS_AT_ONCE, and then with values, which are needed next.

    Parameters
    ----------
    spans : SPAN array
        Spans to take rows from.
    at, row : int64
        First span, and first row in it.
    count : int64
        Number of rows to list, at most BLOCK and at most as many as the spans have left.
    keys, values : int64
        Addresses of the lists, BLOCK int64 each.

    Returns
    -------
    at, row : int64
        Span and row after those listed.
    heads : int64
        ALL_HEADS, unless some of the rows belong to some query heads only.
    """
    key_bytes, value_bytes = shape.row_bytes, shape.value_bytes
    listed_keys = array_at(keys, (BLOCK,), np.int64)
    listed_values = array_at(values, (BLOCK,), np.int64)
    n, heads = 0, ALL_HEADS
    while n < count:
        span = spans[at]
        heads |= span.heads
        taken = min(count - n, span.n_rows - row)
        if span.rows == 0:
            for i in range(taken):
                listed_keys[n + i] = span.keys + (row + i) * key_bytes
                listed_values[n + i] = span.values + (row + i) * value_bytes
        else:
            numbers = array_at(span.rows + row * 4, (taken,), np.int32)
            for i in range(taken):
                number = int64(numbers[i])
                listed_keys[n + i] = span.keys + number * key_bytes
                listed_values[n + i] = span.values + number * value_bytes
        n += taken
        row += taken
        if row == span.n_rows:
            at, row = at + 1, 0
    if 0 < n < BLOCK:  # a full list continues in the next list, right behind it
        fill_list(values, n, BLOCK)
        scored = -(-n // ROWS_AT_ONCE) * ROWS_AT_ONCE
        fill_list(keys, n, scored)
        copy_bytes(keys + scored * 8, values, (BLOCK - scored) * 8)
    return at, row, heads


@kernel
def fill_list(listed, start, stop):
    """Fill a list of rows, int64 at an address, from index `start` to `stop` with copies of the last address."""
    addresses = array_at(listed, (stop,), np.int64)
    last = addresses[start - 1]
    for i in range(start, stop):
        addresses[i] = last


@kernel
def attend_rows(shape, query, spans_address, n_spans, first, n_rows, softcap, scratch, partial):
    """Add rows of some spans to a partial result, in their stored form: see `add_weighted`.

    Parameters
    ----------
    query : int64
        Address of (group, head_dim) f32, scaled.
    first, n_rows : int64
        First row to add, counted through all spans; and number of rows, at least 1.
    softcap : float32
        Soft cap of the scores, 0 for none.
    scratch : int64
        Address of `scratch_bytes` bytes (layer.py).
    partial : int64
        Address of the partial result.
    """
    spans = spans_at(spans_address, n_spans)
    at, row = 0, first
    while row >= spans[at].n_rows:
        row -= spans[at].n_rows
        at += 1
    room = scratch_parts(shape, scratch)
    query = load_query(shape, query, room.query)
    sums, running = weight_sums(shape, partial), array_at(room.running, (shape.group, LANES), np.float32)
    for g in range(shape.group):
        store(room.running + g * _VECTOR_BYTES, splat(float32(0)))
        running[g, 0] = sums[g]
    left = n_rows
    n = min(BLOCK, left)
    next_at, next_row, heads = list_rows(shape, spans, at, row, n, room.keys, room.values)
    copy_bytes(room.next_keys, room.values, _LIST_BYTES)  # a single block prefetches from it: any addresses do
    while n > 0:
        left -= n
        n_next = min(BLOCK, left)
        after_at, after_row, next_heads = list_rows(
            shape, spans, next_at, next_row, n_next, room.next_keys, room.next_values
        )
        _attend_block(shape, query, room, n, softcap, spans_address, at, row, heads, partial)
        copy_bytes(room.keys, room.next_keys, 2 * _LIST_BYTES)
        at, row, next_at, next_row = next_at, next_row, after_at, after_row
        n, heads = n_next, next_heads
    for g in range(shape.group):
        sums[g] = sum_of(load(room.running + g * _VECTOR_BYTES))


@kernel
def _attend_block(shape, query, room, n, softcap, spans_address, at, row, heads, partial):
    """Add the n listed rows, at most BLOCK, to a partial result, and their weights to the running sums.

    The rows start at `row` of span `at` of the SPAN records at an address. If `heads` is not ALL_HEADS, some belong to
    some query heads only.
    """
    largest = largest_scores(shape, partial)
    scores = array_at(room.scores, (shape.group, BLOCK), np.float32)
    padded = -(-n // LANES) * LANES
    dot_listed(shape, query, room.keys, n, room.scores, BLOCK)
    for g in range(shape.group):
        own_scores, own_sum = room.scores + g * _SCORES_BYTES, room.running + g * _VECTOR_BYTES
        for i in range(n, padded):
            scores[g, i] = float32(-np.inf)
        cap_scores(own_scores, n, softcap)
        if heads != ALL_HEADS:
            _hide_rows(spans_address, at, row, n, g, own_scores)
        before = splat(largest[g])
        highest = before
        for i in range(0, padded, LANES):
            highest = maximum(highest, load(own_scores + i * 4))
        if any_above(highest, before):  # rare after the first blocks
            new = max_of(highest)
            _shrink(shape, float32(math.exp(largest[g] - new)), partial, g, own_sum)
            largest[g] = new
            before = splat(new)
        total = load(own_sum)
        for i in range(0, padded, LANES):
            weight = exp_difference(load(own_scores + i * 4), before)
            store(own_scores + i * 4, weight)
            total = add(total, weight)
        store(own_sum, total)
    add_weighted(shape, room.scores, BLOCK, room.values, n, partial)


@late_stage(*[types.int64] * 6)
def _hide_rows(spans_address, at, row, n, g, scores_address):
    """Set query head g's scores to -inf for those of n rows, from a row of a span on, whose span it does not attend."""
    spans, scores = spans_to_fill(spans_address), array_at(scores_address, (n,), np.float32)
    start = 0
    while start < n:
        span = spans[at]
        stop = min(n, start + span.n_rows - row)
        if span.heads != ALL_HEADS and (span.heads >> g) & 1 == 0:
            for i in range(start, stop):
                scores[i] = float32(-np.inf)
        start, at, row = stop, at + 1, 0


@kernel
def _shrink(shape, factor, partial, g, running):
    """Scale the sums of a query head to a new largest score."""
    values = weighted_values(shape, partial)[g]
    for i in range(shape.value_dim):
        values[i] *= factor
    store(running, multiply(load(running), splat(factor)))


@kernel
def attend_share(
    shape, query, n_kv_head, spans, span_capacity, n_spans, n_rows, softcap, scratch, partials, ith, n_threads
):
    """Compute one thread's share of a token's attention: a partial result of each KV head, empty without rows.

    Parameters
    ----------
    query : int64
        Address of (n_kv_head * group, head_dim) f32, scaled.
    spans : int64
        Address of (n_kv_head, span_capacity) SPAN records.
    span_capacity : int64
        Records from one head to the next.
    n_spans, n_rows : int64
        Addresses of (n_kv_head,) int64: each head's spans, and the rows in them.
    softcap : float32
        Soft cap of the scores, 0 for none.
    scratch : int64
        Address of this thread's `scratch_bytes` bytes (layer.py).
    partials : int64
        Address of (n_threads, n_kv_head) partial results.
    """
    counts = array_at(n_spans, (n_kv_head,), np.int64)
    all_rows = array_at(n_rows, (n_kv_head,), np.int64)
    total = 0
    for head in range(n_kv_head):
        total += all_rows[head]
    start, stop = total * ith // n_threads, total * (ith + 1) // n_threads
    for head in range(n_kv_head):
        partial = partial_of(shape, partials, n_kv_head, ith, head)
        clear_partial(shape, partial)
        first, last = max(start, 0), min(stop, all_rows[head])
        head_spans = spans + head * span_capacity * _SPAN_BYTES
        while first < last:
            group_query, end = query + head * shape.group * shape.head_dim * 4, last
            leading = spans_at(head_spans, 1)[0]
            if leading.queries != 0 and first < leading.n_rows:
                group_query, end = leading.queries, min(last, leading.n_rows)
            attend_rows(shape, group_query, head_spans, counts[head], first, end - first, softcap, scratch, partial)
            first = end
        if shape.rotated and first > max(start, 0):  # sums of rows are rotated, unlike the estimates added to them
            for g in range(shape.group):
                own = partial + g * shape.value_dim * 4
                rotate_value(shape, own, own)
        start -= all_rows[head]
        stop -= all_rows[head]


@kernel
def merge_shares(shape, head, n_kv_head, partials, n_threads, sinks, out, out_stride, rest):
    """Merge the threads' partial results of one KV head into the output of its query heads.

    Parameters
    ----------
    partials : int64
        Address of (n_threads, n_kv_head) partial results.
    sinks : int64
        Address of a score for each query head, f32, or 0. It takes part in the softmax, without a value.
    out : int64
        Address of the output of the first query head of all, (value_dim,) f32.
    out_stride : int64
        Bytes from one query head's output to the next.
    rest : int64
        Address of the estimated remainder, (3, group) f32 (see `rest_of` in scores.py); 0 without an estimate.

    Returns
    -------
    float32
        Share of the attention that was computed exactly, averaged over the query heads.
    """
    covered = float32(shape.group)
    for g in range(shape.group):
        query_head = head * shape.group + g
        largest = float32(LOWEST_SCORE)
        for thread in range(n_threads):
            partial = partial_of(shape, partials, n_kv_head, thread, head)
            largest = max(largest, largest_scores(shape, partial)[g])
        total = float32(0)
        if sinks != 0:
            sink = read_float(sinks + query_head * 4)
            largest = max(largest, sink)
            total = float32(math.exp(sink - largest))
        result = array_at(out + query_head * out_stride, (shape.value_dim,), np.float32)
        for i in range(shape.value_dim):
            result[i] = float32(0)
        for thread in range(n_threads):
            partial = partial_of(shape, partials, n_kv_head, thread, head)
            weight = float32(math.exp(largest_scores(shape, partial)[g] - largest))
            total += weight * weight_sums(shape, partial)[g]
            values = weighted_values(shape, partial)[g]
            for i in range(shape.value_dim):
                result[i] += weight * values[i]
        for i in range(shape.value_dim):
            result[i] /= total
        if rest != 0:
            estimated = array_at(rest, (3, shape.group), np.float32)
            weight = estimated[1, g] * float32(math.exp(estimated[0, g] - largest))
            expected = weight * float32(math.exp(estimated[2, g]))
            covered -= expected / (total - weight + expected)
    return covered / float32(shape.group)
