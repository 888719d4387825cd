"""Sketch: every row as a few codes, online. The best rows are attended exactly, and the others by their codes.

Ours, after product quantisation: tail_codes.py keeps the codes. Until there are some, and for the newest rows,
everything is exact. So what a step of one token reads follows from the sequence alone, however it came about.

Scores of codes, raised to what exp of the true ones is on average, and exact scores of rows that are attended in any
case, become shares by a softmax. The rows with the largest shares, summed over the group, are attended exactly: a
number of them, or as many as cover a share of the attention. Each other row has the weight that its code says, not
raised, because that is nearer to the true output, and the mean value that its value code says: `estimate` adds them to
a partial result, which log-sum-exp merges with the exact rows.

One thread selects for a head, so `score` does what it can before: it leaves exp of the scores, chunk by chunk, relative
to the chunk's largest score, and a table of these and of the chunks' sums. `select` turns the table into factors of the
weights, and sets the weights of what is attended exactly to 0.

Selection reads (n_codes + 1) / 2 bytes a row, 2 * head_dim a block, and the codebooks and mean values: 8 * CODES *
head_dim.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32

from .. import tail_codes
from ..codes import (
    BLOCK_ROWS,
    CODES,
    HALF_BLOCK,
    add_by_code,
    factors_of,
    fill_tables,
    look_up,
    stack_sums,
    stack_tables,
)
from ..compile import LANES, kernel
from ..decode import LOWEST_SCORE, largest_scores, weight_sums, weighted_values
from ..head import CHUNK_ROWS, chunk_at, count_chunks, head_at
from ..hooks import Hooks
from ..memory import stack_floats
from ..rows import dot, load_query
from ..scores import (
    cap_scores,
    chunk_sums_address,
    chunk_sums_of,
    exp_rows,
    fill,
    importance_address,
    list_address,
    rest_of,
    score_tail_rows,
    scores_address,
)
from ..spans import add_listed_rows, add_tail, spans_to_fill
from ..tail_codes import (
    BLOCKS,
    CODEBOOKS,
    ERRORS,
    ORDER,
    VALUES,
    codes_of,
    means_of,
    prefetch_codes,
    ready_blocks,
    tend_codes,
)
from ..top_k import find_covering, list_from, list_top
from ..vector import add, load, multiply, splat, store, sum_of
from ..views import array_at, record_at
from .dense import select_all

#: First rows, attention sinks, which are always attended.
SINKS = 4

#: By quality, one row of so many is attended at least: where few rows have most of the attention, codes are too coarse
#: to tell which are next.
FEWEST = 32

#: In place of a number of rows: as many as cover the quality.
BY_QUALITY = -1

#: What a head keeps besides its rows and their extras.
STATE = np.dtype(
    [
        *((name, tail_codes.STATE[name]) for name in tail_codes.STATE.names or ()),
        ("n_rows", "i8"),  # rows with codes to attend exactly, or BY_QUALITY
        ("n_most", "i8"),  # most rows with codes to attend exactly by quality
        ("quality", "f4"),  # share of the attention that the rows which are attended exactly cover at least
    ],
    align=True,
)

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
    """Return whether a step attends exactly to as many rows as its quality takes."""
    return state.n_rows == BY_QUALITY


@kernel
def score_codes(shape, head_address, query, part, n_parts):
    """Score a share of the rows, those with codes by these, for one token: a `score` hook (see hooks.py).

    A share is whole chunks. Their scores become exp(score - the chunk's largest) at once, while they are in the cache.
    """
    head = head_at(head_address)
    state, n_blocks, stride = record_at(head.state, STATE), used_blocks(head, 1), head.scratch_items
    n_chunks = count_chunks(head)
    first, stop = n_chunks * part // n_parts, n_chunks * (part + 1) // n_parts
    if first == stop or n_blocks == 0:
        return 0
    for share in range(BLOCKS):
        prefetch_codes(shape, head, first, state.n_codes, share)
    room, floats = stack_tables(shape), stack_floats(shape)
    fill_tables(shape, query, state.n_codes, head.state + ORDER, head.state + CODEBOOKS, room)
    offsets, factors = array_at(floats, (shape.group, BLOCKS), np.float32), factors_of(shape, room)
    raised = _raise_by_errors(shape, query, head, floats + shape.group * BLOCKS * 4)
    if first == 0:
        rest = rest_of(shape, head)
        for g in range(shape.group):
            rest[2, g] = raised[g]
    exact, sums = load_query(shape, query, stack_floats(shape)), chunk_sums_of(shape, head)
    for number in range(first, stop):
        chunk, n_own = chunk_at(head, number), min(n_blocks - number * BLOCKS, BLOCKS)
        dot(shape.of_halves, query, means_of(shape, chunk), n_own, floats, BLOCKS)
        for g in range(shape.group):
            for block in range(n_own):
                offsets[g, block] += factors[1, g] + raised[g]
        scores = scores_address(head, 0) + number * CHUNK_ROWS * 4
        for block in range(n_own):
            if number + 1 < stop:  # its memory is elsewhere: nothing but this announces it
                prefetch_codes(shape, head, number + 1, state.n_codes, block)
            codes = codes_of(shape, chunk, block, state.n_codes)
            look_up(
                shape, room, state.n_codes, codes, floats + block * 4, BLOCKS, scores + block * BLOCK_ROWS * 4, stride
            )
        if number == 0:  # what is attended in any case counts by its exact scores
            score_tail_rows(shape, head, exact, 0, SINKS)
        start, end = number * CHUNK_ROWS, min((number + 1) * CHUNK_ROWS, head.n_tail)
        score_tail_rows(shape, head, exact, max(n_blocks * BLOCK_ROWS, start), end)
        for g in range(shape.group):
            own = scores + g * stride * 4
            cap_scores(own, end - start, head.softcap)
            sums[number, 0, g], sums[number, 1, g] = exp_rows(own, end - start)
    return 0


@kernel
def _raise_by_errors(shape, query, head, floats):
    """Compute what the mean of exp(q . k) is above exp of what codes say, in logarithms, for each query head.

    That is half of the variance of the scores' errors. Returns a view of (group,) f32 at `floats`.
    """
    raised, queries = (
        array_at(floats, (shape.group,), np.float32),
        array_at(query, (shape.group, shape.head_dim), np.float32),
    )
    order = array_at(head.state + ORDER, (shape.head_dim,), np.int32)
    errors = array_at(head.state + ERRORS, (shape.head_dim,), np.float32)
    for g in range(shape.group):
        variance = float32(0)
        for i in range(shape.head_dim):
            column = queries[g, order[i]]
            variance += column * column * errors[i]
        raised[g] = float32(0.5) * variance
    return raised


@kernel
def select_coded(shape, head_address, query, n_tokens, spans_address):
    """Select the rows whose codes score highest, and all that have none: a `select` hook (see hooks.py).

    A batch of more than one token attends to everything.
    """
    head = head_at(head_address)
    state, end = record_at(head.state, STATE), used_blocks(head, n_tokens) * BLOCK_ROWS
    if n_tokens > 1 or end == 0:
        return _select_all(shape, head_address, query, n_tokens, spans_address)
    head.bytes_read += end * (state.n_codes + 1) // 2 + end // BLOCK_ROWS * 2 * shape.head_dim
    head.bytes_read += 8 * CODES * shape.head_dim
    if not _weigh_chunks(shape, head):  # attend to everything, so that a NaN reaches the output
        return _select_all(shape, head_address, query, n_tokens, spans_address)
    _sum_shares(shape, head)
    listed = list_address(shape, head)
    n_selected = _list_best(shape, head, state, end, importance_address(head), listed)
    _leave_rest(shape, head, end, array_at(listed, (n_selected,), np.int32))
    spans = spans_to_fill(spans_address)
    n_spans = add_listed_rows(shape, head, listed, n_selected, spans, 0)
    return add_tail(shape, head, end, 0, spans, n_spans)


@kernel
def _weigh_chunks(shape, head):
    """Turn each chunk's largest score and sum into factors of its weights, and sum up all weights, into the rest.

    One makes weights relative to the largest score of all chunks, the other makes them shares of all attention.
    Returns whether no weight is NaN.
    """
    sums, rest, n_chunks, finite = chunk_sums_of(shape, head), rest_of(shape, head), count_chunks(head), True
    for g in range(shape.group):
        largest, total = float32(LOWEST_SCORE), float32(0)
        for number in range(n_chunks):
            largest = max(largest, sums[number, 0, g])
        for number in range(n_chunks):
            sums[number, 0, g] = float32(math.exp(sums[number, 0, g] - largest))
            total += sums[number, 1, g] * sums[number, 0, g]
        for number in range(n_chunks):
            sums[number, 1, g] = sums[number, 0, g] / total
        rest[0, g], rest[1, g] = largest - rest[2, g], total
        finite = finite and not math.isnan(total)
    return finite


@kernel
def _sum_shares(shape, head):
    """Sum the rows' shares of the attention over the query heads, into their importance."""
    sums, importance = chunk_sums_of(shape, head), importance_address(head)
    for number in range(count_chunks(head)):
        start, own = number * CHUNK_ROWS, sums[number, 1]
        for row in range(start, min(start + CHUNK_ROWS, -(-head.n_tail // LANES) * LANES), LANES):
            total = splat(float32(0))
            for g in range(shape.group):
                total = add(total, multiply(load(scores_address(head, g) + row * 4), splat(own[g])))
            store(importance + row * 4, total)


@kernel
def _leave_rest(shape, head, end, rows):
    """Take the weights of what is attended exactly, these rows and all from `end` on, out of what is estimated."""
    sums, rest = chunk_sums_of(shape, head), rest_of(shape, head)
    for g in range(shape.group):
        weights, exact = array_at(scores_address(head, g), (head.n_tail,), np.float32), float32(0)
        for i in range(len(rows)):
            row = rows[i]
            exact += weights[row] * sums[row // CHUNK_ROWS, 0, g]
            weights[row] = float32(0)
        for row in range(end, head.n_tail):
            exact += weights[row] * sums[row // CHUNK_ROWS, 0, g]
        rest[1, g] = max(rest[1, g] - exact, float32(0))


@kernel
def _select_all(shape, head_address, query, n_tokens, spans_address):
    """Select everything, and leave nothing to estimate. Returns the number of spans."""
    head = head_at(head_address)
    if n_tokens == 1:
        rest = rest_of(shape, head)
        for g in range(shape.group):
            rest[0, g], rest[1, g], rest[2, g] = float32(LOWEST_SCORE), float32(0), float32(0)
    return select_all(shape, head_address, query, n_tokens, spans_address)


@kernel
def _list_best(shape, head, state, end, importance, listed):
    """List the rows with codes that are attended exactly, rising: the sinks, and those of most importance."""
    if not by_quality(state):
        fill(importance, 0, SINKS, float32(np.inf))
        return list_top(importance, end, state.n_rows, listed)
    shares = array_at(importance, (head.n_tail,), np.float32)
    wanted = state.quality * float32(shape.group)
    for row in range(SINKS):
        wanted -= shares[row]
    for row in range(end, head.n_tail):
        wanted -= shares[row]
    fill(importance, 0, SINKS, float32(0))
    least = find_covering(importance, end, wanted, listed)
    fill(importance, 0, SINKS, float32(np.inf))
    n_selected = list_from(importance, end, least, listed)
    n_wanted = min(max(n_selected, end // FEWEST), max(state.n_most, SINKS))
    return n_selected if n_selected == n_wanted else list_top(importance, end, n_wanted, listed)


@kernel
def estimate_rest(shape, head_address, partial, part, n_parts):
    """Add a share of the rows that are not attended exactly to a partial result: an `estimate` hook (see hooks.py)."""
    head = head_at(head_address)
    state, n_blocks = record_at(head.state, STATE), used_blocks(head, 1)
    first, stop = n_blocks * part // n_parts, n_blocks * (part + 1) // n_parts
    rest = rest_of(shape, head)
    if first == stop or rest[1].max() <= 0:
        return 0
    room = stack_sums(shape)
    _sum_by_code(shape, head, state.n_codes, first, stop, room)
    sums = array_at(room, (shape.group, CODES), np.float32)
    means = array_at(head.state + VALUES, (shape.head_dim, CODES), np.float32)
    all_values, totals, highest = (
        weighted_values(shape, partial),
        weight_sums(shape, partial),
        largest_scores(shape, partial),
    )
    for g in range(shape.group):
        total = sums[g].sum()
        if rest[1, g] <= 0 or total <= 0:
            continue
        values, new = all_values[g], max(highest[g], rest[0, g])
        before, factor = float32(math.exp(highest[g] - new)), float32(math.exp(rest[0, g] - new))
        highest[g] = new
        totals[g] = totals[g] * before + total * factor
        for i in range(shape.head_dim):
            value = float32(0)
            for code in range(CODES):
                value += sums[g, code] * means[i, code]
            values[i] = values[i] * before + value * factor
    return 0


@kernel
def _sum_by_code(shape, head, n_codes, first, stop, room):
    """Sum the weights of the rows of blocks first to stop by the codes of their values, into (group, CODES) f32.

    `room` is the address of them, which `stack_sums` gave.
    """
    n_sums, stride = shape.group * CODES, head.scratch_items
    fill(room, 0, n_sums * LANES, float32(0))
    block = first
    while block < stop:
        number, end = block // BLOCKS, min((block // BLOCKS + 1) * BLOCKS, stop)
        codes = codes_of(shape, chunk_at(head, number), block % BLOCKS, n_codes) + n_codes * HALF_BLOCK
        weights, factors = scores_address(head, 0) + block * BLOCK_ROWS * 4, chunk_sums_address(shape, head, number)
        add_by_code(shape, weights, stride, factors, codes, (n_codes + 1) * HALF_BLOCK, end - block, room)
        block = end
    sums = array_at(room, (n_sums,), np.float32)
    for i in range(n_sums):
        sums[i] = sum_of(load(room + i * LANES * 4))


HOOKS = Hooks(select=select_coded, score=score_codes, estimate=estimate_rest, after_step=tend_codes)
