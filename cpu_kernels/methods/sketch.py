"""Sketch: keep a few codes of every row, online; attend the best rows exactly, and the others by their codes.

This method is octavo's own, after product quantisation; tail_codes.py keeps the codes. Everything is exact until there
are codes, and the newest rows always are. So the rows that a step of one token reads depend on the sequence alone.

A softmax turns scores into shares: scores from codes, raised to the average of exp of the true ones, and exact scores
of rows that are always attended. The rows with the largest shares, summed over the group, are attended exactly: a fixed
number of them, or as many as cover a share of the attention. Each other row has the weight of its code, not raised,
because that is nearer to the true output, and the mean value of its value code. `estimate` adds these rows to a partial
result, which log-sum-exp merges with the exact rows.

All threads select, each in chunks of its own. `score` leaves exp of the scores, relative to the chunk's largest score,
and a table of the largest scores and of the chunks' sums. `rank` turns weights into shares, and counts them in a
histogram (histogram.py). `pick` lists the rows with the largest, and sets their weights to 0.

Selection reads (n_codes + 1) / 2 bytes of each row with a code, 2 * head_dim for each block, and the codebooks and mean
values of codes: 4 * CODES * (head_dim + value_dim).
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32, int64

from ..attend.decode import LOWEST_SCORE, add_to_partial
from ..layout.head import chunk_at, chunk_keys, chunk_values, count_chunks, head_at, tail_key
from ..layout.hooks import Hooks, counts_of
from ..layout.scores import (
    BINS,
    EXP_STEP,
    MOST_SUMMED,
    cap_scores,
    chunk_sums_address,
    chunk_sums_of,
    clear_added,
    exp_rows,
    fill,
    histogram_address,
    importance_address,
    importance_of,
    left_address,
    list_address,
    rest_of,
    scores_address,
    sum_floats,
)
from ..layout.spans import add_list, add_tail, count_rows, spans_to_fill
from ..numba_support.compile import kernel
from ..numba_support.machine_features import LANES
from ..numba_support.memory import borrow, fetch_add, give_back, stack_bytes
from ..numba_support.shape import Limits
from ..numba_support.vector import CACHE_LINE, add, load, multiply, splat, store
from ..numba_support.views import array_at, record_at
from ..rows.rows import dot, load_query, query_bytes
from ..rows.tiles import CHUNK_ROWS
from ..select import tail_codes
from ..select.cluster_means import variance_of_scores
from ..select.counting import bits_of
from ..select.histogram import (
    add_histogram,
    as_units,
    count_numbers,
    entry_of,
    find_cut,
    is_counted,
    list_largest,
    of_units,
)
from ..select.product_quantisation import (
    BLOCK_ROWS,
    CODES,
    HALF_BLOCK,
    add_by_code,
    code_sums_bytes,
    factors_of,
    fill_tables,
    finish_code_sums,
    look_up,
    table_sizes,
)
from ..select.tail_codes import (
    BLOCKS,
    CODEBOOKS,
    ERRORS,
    ORDER,
    VALUES,
    codes_of,
    mean_of,
    prefetch_codes,
    ready_blocks,
    tend_codes,
)
from .dense import select_all

#: First rows, attention sinks, which are always attended.
SINKS = 4

#: By quality, at least one in this many rows is attended: if few rows have most of the attention, codes are too coarse
#: to rank the next ones.
FEWEST = 32

#: A row does not matter that has less than this, times its equal share of what may be left out. Half would do for exact
#: shares; those of codes are off by a factor.
_MATTERS = 1 / 128

#: More than any shares add up to.
_EVERYTHING = 1e6

#: Bytes of a thread's own two histograms.
_COUNT_BYTES = 2 * 8 * (BINS + 1)

#: In place of a number of rows: as many as cover the quality.
BY_QUALITY = -1

#: Per-head state, besides rows and their extras.
STATE = np.dtype(
    [
        *((name, tail_codes.STATE[name]) for name in tail_codes.STATE.names or ()),
        ("n_rows", "i8"),  # rows with codes to attend exactly, or BY_QUALITY
        ("n_most", "i8"),  # most rows with codes to attend exactly by quality
        ("quality", "f4"),  # least share of the attention that exact rows cover
    ],
    align=True,
)

#: Of the arrays of the state, and of the sums of chunks.
LIMITS = Limits(tail_codes.LONGEST, MOST_SUMMED)

#: A chunk's extras are its codes.
extras_bytes = tail_codes.extras_bytes


@kernel
def used_blocks(head, n_tokens):
    """Return how many blocks a step of n_tokens tokens sees by their codes: 0 if it attends to all of them exactly."""
    state = record_at(head.state, STATE)
    n_blocks = min(state.n_coded, ready_blocks(head.n_tail - n_tokens))
    return n_blocks if state.n_rows < n_blocks * BLOCK_ROWS else 0


@kernel
def by_quality(state):
    """Return whether quality determines the number of rows to attend exactly."""
    return state.n_rows == BY_QUALITY


@kernel
def score_codes(shape, head_address, query, part, n_parts):
    """Score a share of the rows, in whole chunks, by their codes if they have any: a `score` hook (see hooks.py)."""
    head = head_at(head_address)
    state, n_blocks = record_at(head.state, STATE), used_blocks(head, 1)
    if part == 0:
        clear_added(shape, head)
    first, stop = _own_chunks(head, part, n_parts)
    if n_blocks == 0 or first == stop:
        return 0
    of_tables, of_query = table_sizes(shape)[2], -(-query_bytes(shape) // CACHE_LINE) * CACHE_LINE
    n_bytes = of_tables + of_query + 4 * BLOCKS * shape.group
    room = borrow(n_bytes)
    floats = room + of_tables + of_query
    _fill_tables(shape, head, state, query, room)
    exact = load_query(shape, query, room + of_tables)
    for number in range(first, stop):
        start, end = number * CHUNK_ROWS, min((number + 1) * CHUNK_ROWS, head.n_tail)
        n_own = min(max(n_blocks - number * BLOCKS, 0), BLOCKS)
        _look_up_chunk(shape, head, state, query, room, floats, number, n_own, n_blocks)
        if number == 0:  # rows that are always attended count by their exact scores
            dot(shape, exact, tail_key(shape, head, 0), SINKS, scores_address(head, 0), head.scratch_items)
        row = max(n_blocks * BLOCK_ROWS, start)
        if row < end:
            scores = scores_address(head, 0) + row * 4
            dot(shape, exact, tail_key(shape, head, row), end - row, scores, head.scratch_items)
        _sum_chunk(shape, head, number, end - start)
    give_back(room, n_bytes)
    return 0


@kernel
def _look_up_chunk(shape, head, state, query, room, floats, number, n_own, n_blocks):
    """Score the first n_own blocks of a chunk by their codes.

    `room` has the tables of `_fill_tables`, and `floats` is the address of (group, BLOCKS) f32 to work in. If the next
    chunk has some of the n_blocks blocks with codes, its codes are prefetched.
    """
    first, stride = number * BLOCKS, head.scratch_items
    scores = scores_address(head, 0) + number * CHUNK_ROWS * 4
    offsets, factors = array_at(floats, (shape.group, BLOCKS), np.float32), factors_of(shape, room)
    factors_address = room + table_sizes(shape)[0]
    dot(shape.of_halves, query, mean_of(shape, head, first), n_own, floats, BLOCKS)
    for g in range(shape.group):
        for i in range(n_own):
            offsets[g, i] += factors[1, g]
    for i in range(n_own):
        later = first + i + BLOCKS
        if later < n_blocks:  # hardware cannot foresee the address of the next chunk
            prefetch_codes(shape, head, later, state.n_codes)
        codes, block_scores = codes_of(shape, head, first + i, state.n_codes), scores + i * BLOCK_ROWS * 4
        look_up(shape, room, factors_address, state.n_codes, codes, floats + i * 4, BLOCKS, block_scores, stride)


@kernel
def _fill_tables(shape, head, state, query, room):
    """Make a token's tables, and raise their scores to the logarithm of the average of exp of the true scores.

    That adds half of the variance of the scores' errors.
    """
    fill_tables(shape, query, state.n_codes, head.state + ORDER, head.state + CODEBOOKS, room)
    factors, rest = factors_of(shape, room), rest_of(shape, head)
    for g in range(shape.group):
        raised = float32(0.5) * variance_of_scores(shape, query, g, head.state + ERRORS)
        factors[1, g] += raised
        rest[2, g] = raised  # every thread writes the same


@kernel
def _sum_chunk(shape, head, number, n_rows):
    """Turn a chunk's scores into exp(score - the largest), and sum them up, while they are in the cache."""
    sums, scores = chunk_sums_of(shape, head), scores_address(head, 0) + number * CHUNK_ROWS * 4
    for g in range(shape.group):
        own = scores + g * head.scratch_items * 4
        cap_scores(own, n_rows, head.softcap)
        sums[number, 0, g], sums[number, 1, g] = exp_rows(own, n_rows)


@kernel
def rank_coded(shape, head_address, _query, part, n_parts):
    """Count the rows of a share, in whole chunks, by their importance: a `rank` hook (see hooks.py)."""
    head = head_at(head_address)
    n_blocks = used_blocks(head, 1)
    if n_blocks == 0:
        return 0
    room = borrow(4 * shape.group)
    totals = array_at(room, (shape.group,), np.float32)
    if _sum_weights(shape, head, totals):
        _count_shares(shape, head, n_blocks * BLOCK_ROWS, totals, part, n_parts)
    give_back(room, 4 * shape.group)
    return 0


@kernel
def _count_shares(shape, head, end, totals, part, n_parts):
    """Count the rows of a share before row `end`, and the shares of those that are always attended."""
    own_address, state = stack_bytes(_COUNT_BYTES), record_at(head.state, STATE)
    own, least = array_at(own_address, (2, BINS + 1), np.int64), _least_counted(shape, head, state)
    own[:] = 0
    first, stop = _own_chunks(head, part, n_parts)
    for number in range(first, stop):
        _sum_shares(shape, head, number, totals)
        _take_always(head, number, end, own)
        start = number * CHUNK_ROWS
        n_coded = min(end - start, CHUNK_ROWS)
        if n_coded > 0:
            count_numbers(importance_address(head) + start * 4, n_coded, least, own, _chunk_list(shape, head, number))
    add_histogram(own, histogram_address(shape, head))


@kernel
def _own_chunks(head, part, n_parts):
    """Return the first chunk of a share, and the one after its last."""
    n_chunks = count_chunks(head)
    return n_chunks * part // n_parts, n_chunks * (part + 1) // n_parts


@kernel
def _chunk_list(shape, head, number):
    """Return the address of the part of the list that belongs to a chunk: of its rows, and room for as many more."""
    return list_address(shape, head) + number * CHUNK_ROWS * 8


@kernel
def _sum_weights(shape, head, totals):
    """Sum all weights, relative to the largest score of all chunks, which goes into the remainder.

    Every thread computes and writes the same. Return whether all weights are numbers.
    """
    sums, rest, finite = chunk_sums_of(shape, head), rest_of(shape, head), True
    n_chunks = count_chunks(head)
    for g in range(shape.group):
        largest, total = float32(LOWEST_SCORE), float32(0)
        for number in range(n_chunks):
            largest = max(largest, sums[number, 0, g])
        for number in range(n_chunks):
            total += sums[number, 1, g] * float32(math.exp(sums[number, 0, g] - largest))
        rest[0, g], totals[g] = largest - rest[2, g], total
        finite = finite and not math.isnan(total)
    return finite


@kernel
def _sum_shares(shape, head, number, totals):
    """Sum the shares that a chunk's rows have of the attention over the query heads, as their importance."""
    room = borrow(4 * shape.group)
    factors = array_at(room, (shape.group,), np.float32)
    sums, rest = chunk_sums_of(shape, head), rest_of(shape, head)
    for g in range(shape.group):
        factors[g] = float32(math.exp(sums[number, 0, g] - rest[0, g] - rest[2, g])) / totals[g]
    start, importance = number * CHUNK_ROWS, importance_address(head)
    for row in range(start, min(start + CHUNK_ROWS, head.n_tail), EXP_STEP):  # weights end with zeros
        a = b = c = d = splat(float32(0))
        for g in range(shape.group):
            at, factor = scores_address(head, g) + row * 4, splat(factors[g])
            a = add(a, multiply(load(at), factor))
            b = add(b, multiply(load(at + LANES * 4), factor))
            c = add(c, multiply(load(at + LANES * 8), factor))
            d = add(d, multiply(load(at + LANES * 12), factor))
        at = importance + row * 4
        store(at, a)
        store(at + LANES * 4, b)
        store(at + LANES * 8, c)
        store(at + LANES * 12, d)
    give_back(room, 4 * shape.group)


@kernel
def _take_always(head, number, end, own):
    """Count the shares of a chunk's rows that are always attended: the first ones, and all from `end` on."""
    shares, start = importance_of(head), number * CHUNK_ROWS
    for row in range(max(start, end), min(start + CHUNK_ROWS, head.n_tail)):
        own[0, BINS] += entry_of(shares[row])
    if number == 0:
        for row in range(SINKS):
            own[0, BINS] += entry_of(shares[row])
            shares[row] = float32(np.inf)


@kernel
def _least_counted(shape, head, state):
    """Return the bits of the smallest importance that can matter to the quality; 0 without one.

    All rows with less together have less than half of what may be left out. As codes are coarse, some with less count.
    """
    if not by_quality(state):
        return int64(0)
    left_out = (float32(1) - state.quality) * float32(shape.group) / float32(head.n_tail)
    return int64(bits_of(max(left_out * float32(_MATTERS), float32(0))))


@kernel
def pick_coded(shape, head_address, spans_address, part, n_parts):
    """Pick the most important rows of a share, and all rows without codes: a `pick` hook (see hooks.py)."""
    head = head_at(head_address)
    state, n_blocks = record_at(head.state, STATE), used_blocks(head, 1)
    if n_blocks == 0 or not is_counted(histogram_address(shape, head)):  # all of it, so that a NaN reaches the output
        return _pick_all(shape, head_address, spans_address) if part == 0 else 0
    end = n_blocks * BLOCK_ROWS
    if part == 0:
        head.bytes_read += end * (state.n_codes + 1) // 2 + n_blocks * 2 * shape.head_dim
        head.bytes_read += 4 * CODES * (shape.head_dim + shape.value_dim)
    cut, room = _find_cut(shape, head, state, end), borrow(8 * shape.group)
    left = array_at(room, (shape.group,), np.int64)
    left[:] = 0
    spans, n_rows = spans_to_fill(spans_address), 0
    first, stop = _own_chunks(head, part, n_parts)
    n_spans = first
    for number in range(first, stop):
        start, listed, chunk = number * CHUNK_ROWS, _chunk_list(shape, head, number), chunk_at(head, number)
        n_coded = min(end - start, CHUNK_ROWS)
        if n_coded > 0:
            n_listed = list_largest(importance_address(head) + start * 4, n_coded, cut, listed)
            _leave_rest(shape, head, number, n_coded, array_at(listed, (n_listed,), np.int32), left)
            n_spans = add_list(chunk_keys(chunk), chunk_values(chunk), n_listed, listed, spans, n_spans)
            n_rows += n_listed
    for g in range(shape.group):
        fetch_add(left_address(shape, head) + g * 8, left[g])
    give_back(room, 8 * shape.group)
    if part == n_parts - 1:
        n_spans = add_tail(shape, head, end, 0, spans, n_spans)
        n_rows += head.n_tail - end
    return counts_of(n_spans - first, n_rows)


@kernel
def _find_cut(shape, head, state, end):
    """Return which of the rows with codes are attended exactly besides the first ones: a Cut."""
    histogram, least = histogram_address(shape, head), _least_counted(shape, head, state)
    if not by_quality(state):
        return find_cut(histogram, float32(_EVERYTHING), SINKS, state.n_rows, state.n_rows, least)
    wanted, most = state.quality * float32(shape.group), max(state.n_most, SINKS)
    return find_cut(histogram, wanted, SINKS, end // FEWEST, most, least)


@kernel
def _leave_rest(shape, head, number, n_coded, rows, left):
    """Remove the weights of a chunk's listed rows from the estimate, and count the others with codes.

    In place of the chunk's largest score comes a factor that makes weights relative to the largest score of all chunks.
    """
    stride, sums, rest = head.scratch_items, chunk_sums_of(shape, head), rest_of(shape, head)
    first = scores_address(head, 0) + number * CHUNK_ROWS * 4
    for g in range(shape.group):
        weights = array_at(first + g * stride * 4, (CHUNK_ROWS,), np.float32)
        for i in range(len(rows)):
            weights[rows[i]] = float32(0)
        sums[number, 0, g] = float32(math.exp(sums[number, 0, g] - rest[0, g] - rest[2, g]))
        left[g] += as_units(sum_floats(first + g * stride * 4, n_coded) * sums[number, 0, g])


@kernel
def _pick_all(shape, head_address, spans_address):
    """Pick everything, and leave nothing to estimate. Return the counts of spans and rows."""
    head = head_at(head_address)
    rest = rest_of(shape, head)
    for g in range(shape.group):
        rest[0, g], rest[1, g], rest[2, g] = float32(LOWEST_SCORE), float32(0), float32(0)
    n_spans = select_all(shape, head_address, 0, 1, spans_address)
    return counts_of(n_spans, count_rows(spans_address, n_spans))


@kernel
def estimate_rest(shape, head_address, partial, part, n_parts):
    """Add a share of the rows without exact attention to a partial result: an `estimate` hook (see hooks.py)."""
    head = head_at(head_address)
    state, rest = record_at(head.state, STATE), rest_of(shape, head)
    left, is_left, n_blocks = array_at(left_address(shape, head), (shape.group,), np.int64), False, used_blocks(head, 1)
    for g in range(shape.group):
        is_left = is_left or left[g] > 0
        if part == 0:
            rest[1, g] = of_units(left[g])
    if not is_left:
        return 0
    first, stop = n_blocks * part // n_parts, n_blocks * (part + 1) // n_parts
    n_bytes = code_sums_bytes(shape) + 4 * (CODES * shape.group + shape.value_dim)
    room = borrow(n_bytes)
    sums_address = room + code_sums_bytes(shape)
    _sum_by_code(shape, head, state, first, stop, room)
    finish_code_sums(shape, room, sums_address)
    sums = array_at(sums_address, (shape.group, CODES), np.float32)
    means = array_at(head.state + VALUES, (shape.value_dim, CODES), np.float32)
    values = array_at(sums_address + 4 * CODES * shape.group, (shape.value_dim,), np.float32)
    for g in range(shape.group):
        if left[g] > 0:
            for i in range(shape.value_dim):
                values[i] = float32(0)
                for code in range(CODES):
                    values[i] += sums[g, code] * means[i, code]
            total = sum_floats(sums_address + g * CODES * 4, CODES)
            add_to_partial(shape, partial, g, rest[0, g], total, values)
    give_back(room, n_bytes)
    return 0


@kernel
def _sum_by_code(shape, head, state, first, stop, room):
    """Sum the weights of the blocks first to stop by the codes of their values, into the room of `add_by_code`."""
    stride, size, block = head.scratch_items, (state.n_codes + 1) * HALF_BLOCK, first
    fill(room, 0, code_sums_bytes(shape) // 4, float32(0))
    while block < stop:
        number = block // BLOCKS
        end = min((number + 1) * BLOCKS, stop)
        codes = codes_of(shape, head, block, state.n_codes) + state.n_codes * HALF_BLOCK
        weights, factors = scores_address(head, 0) + block * BLOCK_ROWS * 4, chunk_sums_address(shape, head, number)
        add_by_code(shape, weights, stride, factors, codes, size, end - block, room)
        block = end


HOOKS = Hooks(
    select=select_all,
    score=score_codes,
    rank=rank_coded,
    pick=pick_coded,
    estimate=estimate_rest,
    after_step=tend_codes,
)

#: The same for fewer rows than get codes.
HOOKS_BELOW = Hooks(select=select_all)
