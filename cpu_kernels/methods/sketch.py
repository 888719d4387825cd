"""Sketch: keep a few codes of every row, online; attend the best rows exactly, and the others by their codes.

This method is octavo's own, after product quantisation; tail_codes.py keeps the codes. Everything is exact until there
are codes, and the newest rows always are. So the rows that a step of one token reads depend on the sequence alone.

A softmax turns scores into shares: scores from codes, raised to the average of exp of the true ones, and exact scores
of rows that are always attended. The rows with the largest shares, summed over the group, are attended exactly: a fixed
number of them, or as many as cover a share of the attention. Each other row has the weight of its code, not raised,
because that is nearer to the true output, and the mean value of its value code. `estimate` adds these rows to a partial
result, which log-sum-exp merges with the exact rows.

One thread selects for a head, so `score` does as much as possible before: it leaves exp of the scores, chunk by chunk,
relative to the chunk's largest score, and a table of the largest scores and of the chunks' sums. `select` turns the
table into factors of the weights, and sets the weights of exact rows to 0.

Selection reads (n_codes + 1) / 2 bytes of each row with a code, 2 * head_dim for each block, and the codebooks and mean
values of codes: 4 * CODES * (head_dim + value_dim).
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32, int64

from ..attend.head import CHUNK_ROWS, count_chunks, head_at, tail_key
from ..attend.hooks import Hooks
from ..attend.partials import LOWEST_SCORE, add_to_partial
from ..attend.spans import add_listed_rows, add_tail, spans_to_fill
from ..numba_support.compile import kernel
from ..numba_support.machine_features import LANES
from ..numba_support.memory import stack_bytes, stack_floats
from ..numba_support.vector import add, load, multiply, splat, store
from ..numba_support.views import array_at, record_at
from ..rows.rows import dot, load_query
from ..select import tail_codes
from ..select.cluster_means import variance_of_scores
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
from ..select.scores import (
    cap_scores,
    chunk_sums_address,
    chunk_sums_of,
    exp_rows,
    fill,
    importance_address,
    list_address,
    rest_of,
    scores_address,
    sum_floats,
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
from ..select.top_k import list_covering, list_top
from .dense import select_all

#: First rows, attention sinks, which are always attended.
SINKS = 4

#: By quality, at least one in this many rows is attended: if few rows have most of the attention, codes are too coarse
#: to rank the next ones.
FEWEST = 32

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
    if n_blocks == 0:
        return 0
    n_chunks = count_chunks(head)
    first, stop = n_chunks * part // n_parts, n_chunks * (part + 1) // n_parts
    if first == stop:
        return 0
    room, floats = stack_bytes(table_sizes(shape)[2]), stack_floats(shape)
    _fill_tables(shape, head, state, query, room)
    exact = load_query(shape, query, stack_floats(shape))
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
def select_coded(shape, head_address, query, n_tokens, spans_address):
    """Select the rows with the highest scores by codes, and all rows without codes: a `select` hook (see hooks.py).

    A batch of more than one token attends to everything.
    """
    head = head_at(head_address)
    state, n_blocks = record_at(head.state, STATE), used_blocks(head, n_tokens)
    if n_tokens > 1 or n_blocks == 0:
        return _select_all(shape, head_address, query, n_tokens, spans_address)
    end = n_blocks * BLOCK_ROWS
    head.bytes_read += end * (state.n_codes + 1) // 2 + n_blocks * 2 * shape.head_dim
    head.bytes_read += 4 * CODES * (shape.head_dim + shape.value_dim)
    if not _weigh_chunks(shape, head):  # attend to everything, so that a NaN reaches the output
        return _select_all(shape, head_address, query, n_tokens, spans_address)
    _sum_shares(shape, head)
    listed = list_address(shape, head)
    n_selected = _list_best(shape, head, state, end, importance_address(head), listed)
    rows = array_at(listed, (n_selected,), np.int32)
    _leave_rest(shape, head, end, rows)
    spans = spans_to_fill(spans_address)
    n_spans = add_listed_rows(shape, head, listed, n_selected, spans, 0)
    return add_tail(shape, head, end, 0, spans, n_spans)


@kernel
def _weigh_chunks(shape, head):
    """Turn each chunk's largest score and sum into factors of its weights, and sum up all weights in the remainder.

    One factor makes weights relative to the largest score of all chunks, the other makes them shares of all attention.
    Return whether all weights are numbers.
    """
    sums, rest, finite = chunk_sums_of(shape, head), rest_of(shape, head), True
    n_chunks = count_chunks(head)
    for g in range(shape.group):
        largest, total = float32(LOWEST_SCORE), float32(0)
        for number in range(n_chunks):
            largest = max(largest, sums[number, 0, g])
        for number in range(n_chunks):
            sums[number, 0, g] = float32(math.exp(sums[number, 0, g] - largest))
            total += sums[number, 1, g] * sums[number, 0, g]
        rest[0, g], rest[1, g] = largest - rest[2, g], total
        for number in range(n_chunks):
            sums[number, 1, g] = sums[number, 0, g] / total
        finite = finite and not math.isnan(total)
    return finite


@kernel
def _sum_shares(shape, head):
    """Sum the rows' shares of the attention over the query heads, as their importance."""
    sums, importance, n = chunk_sums_of(shape, head), importance_address(head), head.n_tail
    for number in range(count_chunks(head)):
        start, own = number * CHUNK_ROWS, sums[number, 1]
        for row in range(start, min(start + CHUNK_ROWS, -(-n // LANES) * LANES), LANES):
            total = splat(float32(0))
            for g in range(shape.group):
                total = add(total, multiply(load(scores_address(head, g) + row * 4), splat(own[g])))
            store(importance + row * 4, total)


@kernel
def _leave_rest(shape, head, end, rows):
    """Remove the weights of exact rows, the listed ones and all from `end` on, from the estimate."""
    sums, rest, stride = chunk_sums_of(shape, head), rest_of(shape, head), head.scratch_items
    weights = array_at(scores_address(head, 0), (shape.group * stride,), np.float32)
    room = stack_floats(shape)
    exact, own = array_at(room, (2, shape.group), np.float32), 0
    fill(room, 0, 2 * shape.group, float32(0))
    for i in range(len(rows)):
        row = int64(rows[i])
        if row // CHUNK_ROWS != own:  # the sums so far belong to another chunk
            _add_chunk(exact, sums[own, 0])
            own = row // CHUNK_ROWS
        for g in range(shape.group):
            exact[1, g] += weights[g * stride + row]
            weights[g * stride + row] = float32(0)
    _add_chunk(exact, sums[own, 0])
    for row in range(end, head.n_tail):
        for g in range(shape.group):
            exact[0, g] += weights[g * stride + row] * sums[row // CHUNK_ROWS, 0, g]
    for g in range(shape.group):
        rest[1, g] = max(rest[1, g] - exact[0, g], float32(0))


@kernel
def _add_chunk(exact, factors):
    """Add the weights of a chunk, relative to its largest score, to those relative to the largest of all."""
    for g in range(len(factors)):
        exact[0, g] += exact[1, g] * factors[g]
        exact[1, g] = float32(0)


@kernel
def _select_all(shape, head_address, query, n_tokens, spans_address):
    """Select everything, and leave nothing to estimate. Return the number of spans."""
    head = head_at(head_address)
    if n_tokens == 1:
        rest = rest_of(shape, head)
        for g in range(shape.group):
            rest[0, g], rest[1, g], rest[2, g] = float32(LOWEST_SCORE), float32(0), float32(0)
    return select_all(shape, head_address, query, n_tokens, spans_address)


@kernel
def _list_best(shape, head, state, end, importance, listed):
    """List the rows to attend exactly, rising: the sinks, and the most important ones."""
    if not by_quality(state):
        fill(importance, 0, SINKS, float32(np.inf))
        return list_top(importance, end, state.n_rows, listed)
    shares, first = array_at(importance, (head.n_tail,), np.float32), array_at(listed, (SINKS,), np.int32)
    wanted = state.quality * float32(shape.group)
    for row in range(end, head.n_tail):
        wanted -= shares[row]
    for row in range(SINKS):
        wanted -= shares[row]
        shares[row] = float32(-1)  # not to be listed twice
        first[row] = row
    fewest, most = end // FEWEST - SINKS, max(state.n_most - SINKS, 0)
    return SINKS + list_covering(importance, end, wanted, fewest, most, listed + 4 * SINKS)


@kernel
def estimate_rest(shape, head_address, partial, part, n_parts):
    """Add a share of the rows without exact attention to a partial result: an `estimate` hook (see hooks.py)."""
    head = head_at(head_address)
    state, rest = record_at(head.state, STATE), rest_of(shape, head)
    n_blocks = used_blocks(head, 1)
    is_left = False
    for g in range(shape.group):
        is_left = is_left or rest[1, g] > 0
    if n_blocks == 0 or not is_left:
        return 0
    first, stop = n_blocks * part // n_parts, n_blocks * (part + 1) // n_parts
    room, sums_address, floats = (
        stack_bytes(code_sums_bytes(shape)),
        stack_bytes(shape.group * CODES * 4),
        stack_floats(shape),
    )
    _sum_by_code(shape, head, state, first, stop, room)
    finish_code_sums(shape, room, sums_address)
    sums = array_at(sums_address, (shape.group, CODES), np.float32)
    means = array_at(head.state + VALUES, (shape.value_dim, CODES), np.float32)
    values = array_at(floats, (shape.group, shape.value_dim), np.float32)
    totals = array_at(floats + shape.group * shape.value_dim * 4, (shape.group,), np.float32)
    for g in range(shape.group):
        totals[g] = sum_floats(sums_address + g * CODES * 4, CODES)
        for i in range(shape.value_dim):
            values[g, i] = float32(0)
            for code in range(CODES):
                values[g, i] += sums[g, code] * means[i, code]
    for g in range(shape.group):
        if rest[1, g] > 0:
            add_to_partial(shape, partial, g, rest[0, g], totals[g], values[g])
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


HOOKS = Hooks(select=select_coded, score=score_codes, estimate=estimate_rest, after_step=tend_codes)

#: The same for fewer rows than get codes.
HOOKS_BELOW = Hooks(select=select_all)
