"""Sketch: every row as a few codes, online. The best rows are attended exactly, and the others by their codes.

Ours, after product quantisation (see codes.py). A chunk's extras are, for each block of BLOCK_ROWS rows,
  mean : of the block's keys, (head_dim,) f16. Codes stand for what is left of a key without it
  codes : n_codes for each row's key, and one for its value, the number of the nearest of CODES mean values
all means first, then all codes.

The codebooks and the mean values belong to the head. They are found once TRAINED rows are stored, on these rows, and
anew each time that the sequence is twice as long. Until then, and for the newest rows, everything is exact. So what a
step of one token reads follows from the sequence alone, however it came about.

What makes the error of a score is the error of a column times the query there. Queries are large where the mean of the
keys is, because it is by this mean that they turn to the first token or away from it: so a column counts by the square
of the mean, and by no less than a share of the squares of all columns. That needs nothing but the rows. Scores of
codes, raised to what exp of the true ones is on average, become shares by a softmax. The rows with the largest shares,
summed over the group, are attended exactly: a number of them, or as many as cover a share of the attention, which is
then taken over all rows, with exact scores for those that are attended in any case. Each other row has the weight that
its code says, not raised, because that is nearer to the true output, and the mean value that its value code says:
`estimate` adds them to a partial result, which log-sum-exp merges with the exact rows.

Selection reads (n_codes + 1) / 2 bytes a row, 2 * head_dim a block, and the codebooks and mean values: 8 * CODES *
head_dim.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float32, types
from numba.core import cgutils
from numba.extending import intrinsic

from ..codes import (
    BLOCK_ROWS,
    CODES,
    HALF_BLOCK,
    block_bytes,
    deal_columns,
    factors_of,
    fill_tables,
    look_up,
    nearest,
    stack_tables,
    train,
    write_code,
)
from ..compile import LANES, Shape, kernel
from ..decode import LOWEST_SCORE, largest_scores, weight_sums, weighted_values
from ..head import (
    CHUNK_ROWS,
    chunk_at,
    chunk_extras,
    head_at,
    tail_key,
    tail_value,
)
from ..hooks import Hooks
from ..memory import read_float, stack_floats
from ..rows import dot, load_query, narrow_row, widen_row
from ..scores import (
    add_attention,
    fill,
    importance_address,
    list_address,
    rest_of,
    score_tail_rows,
    scores_address,
    sum_floats,
)
from ..spans import add_listed_rows, add_tail, spans_to_fill
from ..top_k import find_covering, list_from, list_top
from ..vector import FLOAT, INT64
from ..views import array_at, record_at
from .dense import select_all

#: Blocks of a chunk.
BLOCKS = CHUNK_ROWS // BLOCK_ROWS

#: Rows at which codebooks are found first.
TRAINED = 512

#: What a column of a key counts at least, as a share of the mean over all columns.
_LEAST_WEIGHT = 0.1

#: Rows that codebooks are found on, and rows that mean values are found on: evenly spaced, this many at most.
KEY_SAMPLE, VALUE_SAMPLE = 2048, 1024

#: Rows that the errors of codes are measured on: evenly spaced, this many at most.
ERROR_SAMPLE = 256

#: Newest rows, which have no codes yet, and first rows, attention sinks. They are always attended.
RECENT, SINKS = 32, 4

#: By quality, one row of so many is attended at least: where few rows have most of the attention, codes are too coarse
#: to tell which are next.
FEWEST = 32

#: The longest head_dim, and the most columns of a part.
LONGEST, MOST_COLUMNS = 512, 8

#: In place of a number of rows: as many as cover the quality.
BY_QUALITY = -1

#: What a head keeps besides its rows and their extras.
STATE = np.dtype(
    [
        ("n_rows", "i8"),  # rows with codes to attend exactly, or BY_QUALITY
        ("quality", "f4"),  # share of the attention that the rows which are attended exactly cover at least
        ("n_codes", "i8"),  # codes of a key
        ("n_coded", "i8"),  # blocks with codes
        ("trained", "i8"),  # rows that the codebooks were found on; 0 for none
        ("order", "i4", (LONGEST,)),  # columns of the parts
        ("weights", "f4", (LONGEST,)),  # of the columns, in this order
        ("errors", "f4", (LONGEST,)),  # mean square of what codes miss, of the columns in this order
        ("codebooks", "f4", (CODES * LONGEST,)),
        ("values", "f4", (CODES * LONGEST,)),  # mean values, (head_dim, CODES)
    ],
    align=True,
)
_OFFSETS = {name: place[1] for name, place in (STATE.fields or {}).items()}
_ORDER, _WEIGHTS, _ERRORS = (_OFFSETS[name] for name in ("order", "weights", "errors"))
_CODEBOOKS, _VALUES = (_OFFSETS[name] for name in ("codebooks", "values"))


def extras_bytes(shape: Shape, n_codes: int) -> int:
    """Return the size of a chunk's extras."""
    return BLOCKS * (2 * shape.head_dim + block_bytes(n_codes + 1))


@kernel
def means_of(shape, chunk):
    """Return the address of the mean keys of a chunk's blocks, (BLOCKS, head_dim) f16."""
    return chunk_extras(shape, chunk)


@kernel
def codes_of(shape, chunk, block, n_codes):
    """Return the address of the codes of a chunk's block."""
    return chunk_extras(shape, chunk) + BLOCKS * 2 * shape.head_dim + block * (n_codes + 1) * HALF_BLOCK


@kernel
def ready_blocks(n_rows):
    """Return how many blocks of n_rows rows are full, and none of them of the newest rows."""
    return max(n_rows - RECENT, 0) // BLOCK_ROWS


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
    """Score a share of the rows by their codes, for one token: a `score` hook (see hooks.py)."""
    head = head_at(head_address)
    state, n_blocks, stride = record_at(head.state, STATE), used_blocks(head, 1), head.scratch_items
    n_chunks = -(-n_blocks // BLOCKS)
    first, stop = n_chunks * part // n_parts, n_chunks * (part + 1) // n_parts
    if first == stop:
        return 0
    room, floats = stack_tables(shape), stack_floats(shape)
    fill_tables(shape, query, state.n_codes, head.state + _ORDER, head.state + _CODEBOOKS, room)
    offsets, factors = array_at(floats, (shape.group, BLOCKS), np.float32), factors_of(shape, room)
    raised = _raise_by_errors(shape, query, head, floats + shape.group * BLOCKS * 4)
    for number in range(first, stop):
        chunk, n_own = chunk_at(head, number), min(n_blocks - number * BLOCKS, BLOCKS)
        dot(shape.of_halves, query, means_of(shape, chunk), n_own, floats, BLOCKS)
        for g in range(shape.group):
            for block in range(n_own):
                offsets[g, block] += factors[1, g] + raised[g]
        scores = scores_address(head, 0) + number * CHUNK_ROWS * 4
        for block in range(n_own):
            codes = codes_of(shape, chunk, block, state.n_codes)
            look_up(
                shape, room, state.n_codes, codes, floats + block * 4, BLOCKS, scores + block * BLOCK_ROWS * 4, stride
            )
    if by_quality(state):  # what is attended in any case counts by its exact scores
        loaded = load_query(shape, query, floats)
        if first == 0:
            score_tail_rows(shape, head, loaded, 0, SINKS)
        if stop == n_chunks:
            score_tail_rows(shape, head, loaded, n_blocks * BLOCK_ROWS, head.n_tail)
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
    order = array_at(head.state + _ORDER, (shape.head_dim,), np.int32)
    errors = array_at(head.state + _ERRORS, (shape.head_dim,), np.float32)
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
    importance, rest = importance_address(head), rest_of(shape, head)
    n_scored = head.n_tail if by_quality(state) else end
    fill(importance, 0, -(-n_scored // LANES) * LANES, float32(0))
    raised = _raise_by_errors(shape, query, head, stack_floats(shape))
    for g in range(shape.group):
        rest[0, g], rest[2, g] = add_attention(head, g, n_scored) - raised[g], raised[g]
    head.bytes_read += end * (state.n_codes + 1) // 2 + end // BLOCK_ROWS * 2 * shape.head_dim
    head.bytes_read += 8 * CODES * shape.head_dim
    if math.isnan(read_float(importance)):  # then all are NaN: attend to everything, so that the NaN reaches the output
        return _select_all(shape, head_address, query, n_tokens, spans_address)
    listed = list_address(shape, head)
    n_selected = _list_best(shape, head, state, end, importance, listed)
    rows = array_at(listed, (n_selected,), np.int32)
    for g in range(shape.group):  # their weights are exact: nothing is left to estimate
        weights = array_at(scores_address(head, g), (end,), np.float32)
        for i in range(n_selected):
            weights[rows[i]] = float32(0)
        rest[1, g] = sum_floats(scores_address(head, g), end)
    spans = spans_to_fill(spans_address)
    n_spans = add_listed_rows(shape, head, listed, n_selected, spans, 0)
    return add_tail(shape, head, end, 0, spans, n_spans)


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
    least = find_covering(importance, end, wanted)
    fill(importance, 0, SINKS, float32(np.inf))
    n_selected = list_from(importance, end, least, listed)
    fewest = end // FEWEST
    return n_selected if n_selected >= fewest else list_top(importance, end, fewest, listed)


@kernel
def estimate_rest(shape, head_address, partial, part, n_parts):
    """Add a share of the rows that are not attended exactly to a partial result: an `estimate` hook (see hooks.py)."""
    head = head_at(head_address)
    state, n_blocks = record_at(head.state, STATE), used_blocks(head, 1)
    first, stop = n_blocks * part // n_parts, n_blocks * (part + 1) // n_parts
    if first == stop:
        return 0
    means, rest = array_at(head.state + _VALUES, (shape.head_dim, CODES), np.float32), rest_of(shape, head)
    sums = array_at(stack_floats(shape), (2, CODES), np.float32)
    all_values, totals, highest = (
        weighted_values(shape, partial),
        weight_sums(shape, partial),
        largest_scores(shape, partial),
    )
    for g in range(shape.group):
        if rest[1, g] <= 0:
            continue
        sums[:] = float32(0)
        for block in range(first, stop):
            codes = codes_of(shape, chunk_at(head, block // BLOCKS), block % BLOCKS, state.n_codes)
            both = array_at(codes + state.n_codes * HALF_BLOCK, (HALF_BLOCK,), np.uint8)
            weights = array_at(scores_address(head, g) + block * BLOCK_ROWS * 4, (2, HALF_BLOCK), np.float32)
            for i in range(HALF_BLOCK):  # into two rows of sums, so that no addition waits for the one before
                sums[0, both[i] & 15] += weights[0, i]
                sums[1, both[i] >> 4] += weights[1, i]
        for code in range(CODES):
            sums[0, code] += sums[1, code]
        total = sums[0].sum()
        if total <= 0:
            continue
        values, new = all_values[g], max(highest[g], rest[0, g])
        before, factor = float32(math.exp(highest[g] - new)), float32(math.exp(rest[0, g] - new))
        highest[g] = new
        totals[g] = totals[g] * before + total * factor
        for i in range(shape.head_dim):
            value = float32(0)
            for code in range(CODES):
                value += sums[0, code] * means[i, code]
            values[i] = values[i] * before + value * factor
    return 0


@kernel
def tend_codes(shape, head_address, n_tokens, _unused):
    """Find codebooks where they are due, and write the codes of blocks: an `after_step` hook (see hooks.py)."""
    head = head_at(head_address)
    state, n_ready = record_at(head.state, STATE), ready_blocks(head.n_tail)
    due, rows = 0, TRAINED
    while rows <= n_ready * BLOCK_ROWS:
        due, rows = rows, rows * 2
    state.n_coded = min(state.n_coded, ready_blocks(head.n_tail - n_tokens))  # later rows are new
    if due != state.trained:
        state.trained, state.n_coded = due, 0
        if due > 0:
            _find_codebooks(shape, head, due)
    while due > 0 and state.n_coded < n_ready:
        _write_codes(shape, head, state.n_coded)
        state.n_coded += 1
    return 0


@kernel
def _find_mean(shape, head, block, floats):
    """Write the mean of a block's keys. `floats` is the address of 2 * head_dim f32 to work in."""
    total = array_at(floats, (shape.head_dim,), np.float32)
    key = array_at(floats + 4 * shape.head_dim, (shape.head_dim,), np.float32)
    total[:] = float32(0)
    for row in range(block * BLOCK_ROWS, (block + 1) * BLOCK_ROWS):
        widen_row(shape, tail_key(shape, head, row), floats + 4 * shape.head_dim)
        for i in range(shape.head_dim):
            total[i] += key[i]
    for i in range(shape.head_dim):
        total[i] *= float32(1 / BLOCK_ROWS)
    means = means_of(shape, chunk_at(head, block // BLOCKS))
    narrow_row(shape, floats, means + block % BLOCKS * 2 * shape.head_dim)


@kernel
def _dealt_key(shape, head, row, n_codes, floats):
    """Write what is left of a key without its block's mean, columns in the order of the parts.

    `floats` is the address of head_dim f32, and of 2 * head_dim more to work in.
    """
    head_dim, block = shape.head_dim, row // BLOCK_ROWS
    columns = array_at(head.state + _ORDER, (head_dim,), np.int32)
    dealt, raw = array_at(floats, (head_dim,), np.float32), array_at(floats + 4 * head_dim, (2, head_dim), np.float32)
    means = means_of(shape, chunk_at(head, block // BLOCKS))
    widen_row(shape, tail_key(shape, head, row), floats + 4 * head_dim)
    widen_row(shape.of_halves, means + block % BLOCKS * 2 * head_dim, floats + 8 * head_dim)
    for i in range(head_dim):
        dealt[i] = raw[0, columns[i]] - raw[1, columns[i]]


@kernel
def _find_codebooks(shape, head, n_rows):
    """Find the codebooks and the mean values of the first n_rows rows."""
    head_dim, state, floats, samples = (
        shape.head_dim,
        record_at(head.state, STATE),
        stack_floats(shape),
        _stack_samples(shape),
    )
    n_codes, size = state.n_codes, shape.head_dim // state.n_codes
    dealt, variances = (
        array_at(floats, (head_dim,), np.float32),
        array_at(floats + 12 * head_dim, (head_dim,), np.float32),
    )
    order = array_at(head.state + _ORDER, (head_dim,), np.int32)
    weights, importance = (
        array_at(head.state + _WEIGHTS, (head_dim,), np.float32),
        array_at(samples, (head_dim,), np.float32),
    )
    for i in range(head_dim):
        importance[i], variances[i], order[i] = float32(0), float32(0), i
    for block in range(n_rows // BLOCK_ROWS):
        _find_mean(shape, head, block, floats)
        for i in range(head_dim):
            importance[i] += dealt[i]
    for i in range(head_dim):
        importance[i] *= importance[i]
    least, step = float32(_LEAST_WEIGHT) * importance.sum() / float32(head_dim), max(n_rows // KEY_SAMPLE, 1)
    for i in range(head_dim):
        importance[i] = (importance[i] + least) / least if least > 0 else float32(1)
    for row in range(0, n_rows, step):
        _dealt_key(shape, head, row, n_codes, floats)
        for i in range(head_dim):
            variances[i] += importance[i] * dealt[i] * dealt[i]
    deal_columns(head_dim, n_codes, floats + 12 * head_dim, head.state + _ORDER)
    for i in range(head_dim):
        weights[i] = importance[order[i]]
    points, room = array_at(samples, (KEY_SAMPLE, size), np.float32), samples + KEY_SAMPLE * size * 4
    for part in range(n_codes):
        n = 0
        for row in range(0, n_rows, step):
            _dealt_key(shape, head, row, n_codes, floats)
            for i in range(size):
                points[n, i] = dealt[part * size + i]
            n += 1
        codebook = head.state + _CODEBOOKS + part * size * CODES * 4
        train(samples, n, size, head.state + _WEIGHTS + part * size * 4, codebook, room)
    _measure_errors(shape, head, n_rows, n_codes, floats)
    n, step = 0, max(n_rows // VALUE_SAMPLE, 1)
    for row in range(0, n_rows, step):
        widen_row(shape, tail_value(shape, head, row), samples + n * head_dim * 4)
        n += 1
    dealt[:] = float32(1)
    train(samples, n, head_dim, floats, head.state + _VALUES, samples + n * head_dim * 4)


@kernel
def _measure_errors(shape, head, n_rows, n_codes, floats):
    """Measure the mean square of what codes miss of each column, in the first n_rows rows."""
    errors, size = array_at(head.state + _ERRORS, (shape.head_dim,), np.float32), shape.head_dim // n_codes
    codebooks = array_at(head.state + _CODEBOOKS, (n_codes, size, CODES), np.float32)
    dealt, step = array_at(floats, (shape.head_dim,), np.float32), max(n_rows // ERROR_SAMPLE, 1)
    for i in range(shape.head_dim):
        errors[i] = float32(0)
    for row in range(0, n_rows, step):
        _dealt_key(shape, head, row, n_codes, floats)
        for part in range(n_codes):
            first = part * size * 4
            codebook = head.state + _CODEBOOKS + first * CODES
            code = nearest(floats + first, size, head.state + _WEIGHTS + first, codebook)
            for i in range(size):
                missed = dealt[part * size + i] - codebooks[part, i, code]
                errors[part * size + i] += missed * missed
    for i in range(shape.head_dim):
        errors[i] /= float32(-(-n_rows // step))


@intrinsic
def _stack_samples(typing: Any, shape: Any) -> Any:
    """Allocate room to find codebooks in, on the stack of the calling function."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        head_dim = shape.shape.head_dim
        of_keys, of_values = (
            KEY_SAMPLE * MOST_COLUMNS + (MOST_COLUMNS + 1) * CODES,
            (VALUE_SAMPLE + CODES) * head_dim + CODES,
        )
        room = cgutils.alloca_once(builder, FLOAT, max(of_keys, of_values))
        room.align = 64
        return builder.ptrtoint(room, INT64)

    return types.int64(shape), generate


@kernel
def _write_codes(shape, head, block):
    """Write the mean and the codes of a full block."""
    head_dim, state, floats = shape.head_dim, record_at(head.state, STATE), stack_floats(shape)
    n_codes, ones = state.n_codes, array_at(floats + 12 * head_dim, (head_dim,), np.float32)
    size, codes = head_dim // n_codes, codes_of(shape, chunk_at(head, block // BLOCKS), block % BLOCKS, n_codes)
    ones[:] = float32(1)
    _find_mean(shape, head, block, floats)
    for within in range(BLOCK_ROWS):
        row = block * BLOCK_ROWS + within
        _dealt_key(shape, head, row, n_codes, floats)
        for part in range(n_codes):
            first = part * size * 4
            codebook = head.state + _CODEBOOKS + first * CODES
            write_code(codes, within, part, nearest(floats + first, size, head.state + _WEIGHTS + first, codebook))
        widen_row(shape, tail_value(shape, head, row), floats)
        write_code(codes, within, n_codes, nearest(floats, head_dim, floats + 12 * head_dim, head.state + _VALUES))


HOOKS = Hooks(select=select_coded, score=score_codes, estimate=estimate_rest, after_step=tend_codes)
