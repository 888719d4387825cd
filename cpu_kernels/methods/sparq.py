"""SparQ: attend to the rows that score highest by a few of the query's components (Ribar et al. 2024, algorithm 1).

A chunk's extras are
  moments : the sums of its keys' components and of their squares: (2, head_dim) f32
  value sum : the sum of its values: (value_dim,) f32
  copy : a transposed copy of its keys, in which a component's elements are adjacent (see columns.py); without it
      (HOOKS_OF_ONE_COPY) components are read from the rows, by column

The components with the largest spread * |q|, summed over the group, score the rows. The spread is a component's
standard deviation over keys. The paper ranks by |q| alone; if keys have a large mean, those components may be nearly
equal in all keys, and then they do not distinguish rows. Alternatively, each query head of the group has its own
components and rows.

Scores become shares by a softmax whose temperature compensates for the components that were left out: it gives the
scores the variance that all components, were they independent, would give them. (Where equation 9 has |q|, this has the
square of |q| times the spread.) The rows with the largest shares, summed over the group, are selected, always including
the newest. The attention of the other rows, by their scores, can go to the mean of all values (step 3).

Selection reads, for each row, 2 bytes for each component, or with q8_0 and q4_0 1 and 2 for the scale. Without the copy
it reads the cache lines that hold the components. Each chunk whose spread is measured adds 8 * head_dim bytes, and each
chunk of the mean value 4 * value_dim.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32, int64

from ..layout.head import chunk_at, chunk_extras, chunk_keys, count_chunks, head_at, tail_key, tail_value
from ..layout.hooks import Hooks
from ..layout.scores import (
    choices_of,
    fill,
    importance_address,
    list_address,
    scores_address,
    scores_of,
    sum_attention,
    sum_floats,
)
from ..layout.spans import add_listed_rows, spans_to_fill
from ..numba_support.compile import kernel, layout
from ..numba_support.machine_features import LANES
from ..numba_support.memory import borrow, give_back, read_float
from ..numba_support.shape import Shape
from ..numba_support.vector import CACHE_LINE
from ..numba_support.views import array_at, record_at
from ..rows.columns import (
    copy_bytes,
    count_lines,
    dot_columns,
    dot_rows_by_column,
    element_bytes,
    offset_in_copy,
    offset_in_row,
    scale_bytes,
    transpose_key,
)
from ..rows.rows import widen_row, widen_value
from ..rows.tiles import CHUNK_ROWS
from ..select.components import choose_apart as choose_components_apart
from ..select.components import choose_together, list_chosen, weigh
from .dense import select_all
from .select_top import add_choices, choose_best, list_best

#: Per-head state, besides rows and their extras.
STATE = np.dtype(
    [
        ("n_rows", "i8"),  # rows to select; all, without scoring, if there are no more
        ("n_recent", "i8"),  # newest rows, always among them
        ("n_components", "i8"),  # components of a query that score rows
        ("reallocates", "i8"),  # whether the attention of the other rows goes to the mean value
        ("by_query", "i8"),  # whether |q| alone ranks components
        ("by_coverage", "i8"),  # whether the temperature is that of equation 9
        ("n_bytes", "i8"),  # bytes of a step, for more rows than n_rows if scoring took less; 0 for no more
        ("n_own", "i8"),  # most rows that a query head selects for itself
        ("n_own_components", "i8"),  # most components of one query head; 0 if the group selects together
    ]
)

#: Full chunks, evenly spaced, over which the spread is measured. One does not suffice: components that RoPE turns
#: slowly hardly vary inside it. Eight are as good as all.
MEASURED_CHUNKS = 8


def moments_bytes(shape: Shape) -> int:
    """Return the size of a chunk's extras without a copy of the keys: moments and the sum of the values."""
    return 4 * (2 * shape.head_dim + shape.value_dim)


def extras_bytes(shape: Shape) -> int:
    """Return the size of a chunk's extras."""
    return moments_bytes(shape) + copy_bytes(shape)


@kernel
def moments_of(shape, chunk):
    """View a chunk's moments, (2, head_dim) f32."""
    return array_at(chunk_extras(chunk), (2, shape.head_dim), np.float32)


@kernel
def value_sum_of(shape, chunk):
    """View the sum of a chunk's values, (value_dim,) f32."""
    return array_at(chunk_extras(chunk) + 8 * shape.head_dim, (shape.value_dim,), np.float32)


@kernel
def copy_address(shape, chunk):
    """Return the address of a chunk's transposed copy."""
    return chunk_extras(chunk) + 4 * (2 * shape.head_dim + shape.value_dim)


@kernel
def append_to_sums(shape, head_address, start, stop):
    """Add stored rows to the sums of their chunks: an `append` hook (see hooks.py)."""
    head, floats = head_at(head_address), borrow(4 * shape.longest)
    row_floats = array_at(floats, (shape.longest,), np.float32)
    for row in range(start, stop):
        chunk = chunk_at(head, row // CHUNK_ROWS)
        moments, value_sum = moments_of(shape, chunk), value_sum_of(shape, chunk)
        if row % CHUNK_ROWS == 0:
            fill(chunk_extras(chunk), 0, 2 * shape.head_dim + shape.value_dim, float32(0))
        widen_row(shape, tail_key(shape, head, row), floats)
        for i in range(shape.head_dim):
            moments[0, i] += row_floats[i]
            moments[1, i] += row_floats[i] * row_floats[i]
        widen_value(shape, tail_value(shape, head, row), floats)
        for i in range(shape.value_dim):
            value_sum[i] += row_floats[i]
    give_back(floats, 4 * shape.longest)
    return 0


@kernel
def append_to_extras(shape, head_address, start, stop):
    """Add stored rows to the sums and the copies of their chunks: an `append` hook (see hooks.py)."""
    head = head_at(head_address)
    append_to_sums(shape, head_address, start, stop)
    for row in range(start, stop):
        copy = copy_address(shape, chunk_at(head, row // CHUNK_ROWS))
        transpose_key(shape, tail_key(shape, head, row), copy, row % CHUNK_ROWS)
    return 0


@kernel
def measured_chunks(head):
    """Return how many chunks the spread is measured over, and among how many first ones: full ones, if any."""
    n_chunks = max(head.n_tail // CHUNK_ROWS, 1)
    return min(n_chunks, MEASURED_CHUNKS), n_chunks


@kernel
def _measure_spread(shape, head, totals, spread):
    """Write the standard deviation of each component over the keys of some chunks: head_dim f32, to an address.

    `totals` is the address of (2, head_dim) f32 to work in. The spread is NaN if a component of these keys is not
    finite.
    """
    head_dim = shape.head_dim
    n_measured, n_chunks = measured_chunks(head)
    total = array_at(totals, (2, head_dim), np.float32)
    fill(totals, 0, 2 * head_dim, float32(0))
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
        deviations[i] = math.sqrt(
            float32(0) if variance < 0 else variance
        )  # rounding may make it negative; a NaN stays


@kernel
def uses_spread(state):
    """Return whether components or temperature depend on the spread of the keys."""
    return state.by_query == 0 or state.by_coverage == 0


@layout
def _room_bytes(shape):
    """Return the working memory to choose components, in bytes."""
    return 4 * shape.head_dim * (shape.group + 3) + 8 * (shape.head_dim + LANES)


@kernel
def _choose_components(shape, head, query, room):
    """Choose the components that score rows, and weigh them for each query head.

    `room` is the address of `_room_bytes` bytes. Return the address of the weights, (group, head_dim) f32, with n
    columns in use; the address of n int64, the components, rising; and n. A NaN in a spread makes all weights NaN, a
    NaN in a query its own.
    """
    group, head_dim, state = shape.group, shape.head_dim, record_at(head.state, STATE)
    spread = room + group * head_dim * 4
    listed = spread + head_dim * 4
    if uses_spread(state):
        _measure_spread(shape, head, listed, spread)
    else:
        fill(spread, 0, head_dim, float32(1))
    deviations = array_at(spread, (head_dim,), np.float32)
    factors = array_at(listed, (head_dim,), np.float32)  # of |q|, while components are chosen
    for i in range(head_dim):
        factors[i] = deviations[i] if state.by_query == 0 else float32(1)
    weights = array_at(room, (group, head_dim), np.float32)  # at first, flags of each query head's components
    n_components = min(state.n_components, head_dim)
    if state.n_own_components > 0:
        choose_components_apart(shape, query, factors, state.n_own_components, n_components, weights)
    else:
        choose_together(shape, query, factors, n_components, listed + head_dim * 8, weights)
    components = array_at(listed, (head_dim,), np.int64)
    n = list_chosen(shape, weights, components)
    weigh(shape, query, deviations, state.by_coverage != 0, components, n, weights)
    return room, listed, n


@kernel
def _selects_all(head):
    """Return whether all rows are selected, without scoring."""
    state = record_at(head.state, STATE)
    n_rows = state.n_rows if state.n_own_components == 0 else min(state.n_own, state.n_rows)
    return n_rows >= head.n_tail


@kernel
def score_rows(shape, head_address, query, part, n_parts):
    """Compute the partial scores of a share of the rows, for one token: a `score` hook (see hooks.py)."""
    head = head_at(head_address)
    if _selects_all(head):
        return 0
    n_chunks = count_chunks(head)
    room = borrow(_room_bytes(shape))
    weights, offsets, n = _choose_components(shape, head, query, room)
    components = array_at(offsets, (n,), np.int64)
    for i in range(n):
        components[i] = offset_in_copy(shape, components[i])
    stop = n_chunks * (part + 1) // n_parts
    for number in range(n_chunks * part // n_parts, stop):
        copy = copy_address(shape, chunk_at(head, number))
        wanted = copy_address(shape, chunk_at(head, min(number + 1, stop - 1)))
        scores = scores_address(head, 0) + number * CHUNK_ROWS * 4
        dot_columns(shape, weights, offsets, n, copy, wanted, scores, head.scratch_items)
    give_back(room, _room_bytes(shape))
    return 0


@kernel
def score_rows_by_column(shape, head_address, query, part, n_parts):
    """Do what `score_rows` does, with components from the keys' rows: a `score` hook (see hooks.py)."""
    head = head_at(head_address)
    if _selects_all(head):
        return 0
    n_chunks = count_chunks(head)
    room = borrow(_room_bytes(shape))
    weights, offsets, n = _components_in_rows(shape, head, query, room)
    for number in range(n_chunks * part // n_parts, n_chunks * (part + 1) // n_parts):
        scores = scores_address(head, 0) + number * CHUNK_ROWS * 4
        keys = chunk_keys(chunk_at(head, number))
        dot_rows_by_column(shape, weights, offsets, n, keys, scores, head.scratch_items)
    give_back(room, _room_bytes(shape))
    return 0


@kernel
def _components_in_rows(shape, head, query, room):
    """Choose components as `_choose_components`, but return their offsets in a row."""
    weights, offsets, n = _choose_components(shape, head, query, room)
    components = array_at(offsets, (n,), np.int64)
    for i in range(n):
        components[i] = offset_in_row(shape, components[i])
    return weights, offsets, n


@kernel
def select_rows(shape, head_address, query, n_tokens, spans_address):
    """Select the best rows, always including the newest: a `select` hook (see hooks.py).

    A batch of more than one token attends to everything.
    """
    head = head_at(head_address)
    state = record_at(head.state, STATE)
    n = min(state.n_components, shape.head_dim)
    if n_tokens == 1 and state.n_own_components > 0:
        room = borrow(_room_bytes(shape))
        n = _choose_components(shape, head, query, room)[2]
        give_back(room, _room_bytes(shape))
    n_bytes = head.n_tail * (n * element_bytes(shape) + scale_bytes(shape))
    return _select(shape, head_address, query, n_tokens, spans_address, n_bytes)


@kernel
def select_rows_by_column(shape, head_address, query, n_tokens, spans_address):
    """Do what `select_rows` does, counting the cache lines that hold components in the keys' rows."""
    head, n_bytes = head_at(head_address), int64(0)
    if n_tokens == 1:
        room = borrow(_room_bytes(shape))
        _weights, offsets, n = _components_in_rows(shape, head, query, room)
        n_bytes = count_lines(shape, offsets, n, head.n_tail) * CACHE_LINE
        give_back(room, _room_bytes(shape))
    return _select(shape, head_address, query, n_tokens, spans_address, n_bytes)


@kernel
def _bytes_of_sums(shape, head):
    """Return the bytes of the moments and value sums that a step reads."""
    state, n_bytes = record_at(head.state, STATE), 0
    if uses_spread(state):
        n_bytes += measured_chunks(head)[0] * shape.head_dim * 8
    if state.reallocates != 0:
        n_bytes += count_chunks(head) * shape.value_dim * 4
    return n_bytes


@kernel
def _select(shape, head_address, query, n_tokens, spans_address, n_bytes):
    """Select rows by their scores, which took n_bytes bytes to compute. Return the number of spans."""
    head, spans = head_at(head_address), spans_to_fill(spans_address)
    if n_tokens > 1:
        return select_all(shape, head_address, query, n_tokens, spans_address)
    if _selects_all(head):
        _keep_everything(shape, head)
        return select_all(shape, head_address, query, n_tokens, spans_address)
    state, end = record_at(head.state, STATE), head.n_tail
    sum_attention(shape, head, end)
    n_bytes += _bytes_of_sums(shape, head)
    head.bytes_read += n_bytes
    if math.isnan(read_float(importance_address(head))):  # all are NaN (see select_top.py)
        _keep_everything(shape, head)
        return select_all(shape, head_address, query, n_tokens, spans_address)
    n_recent = min(state.n_recent, end)
    n_rows = max(state.n_rows, (state.n_bytes - n_bytes) // shape.token_bytes, n_recent)
    if state.n_own_components > 0:
        return _select_apart(shape, head, n_rows, n_recent, spans)
    n_selected, listed = list_best(shape, head, end, n_recent, n_rows), list_address(shape, head)
    rows = array_at(listed, (n_selected,), np.int32)
    if state.reallocates != 0:
        room = borrow(8 * shape.group)
        sums = array_at(room, (2, shape.group), np.float32)
        for g in range(shape.group):
            scores = scores_of(head, g)
            sums[0, g], sums[1, g] = float32(0), _sum_scores(head, g)
            for i in range(n_selected):
                sums[0, g] += scores[rows[i]]
        _keep_mean(shape, head, sums)
        give_back(room, 8 * shape.group)
    return add_listed_rows(shape, head, listed, n_selected, spans, 0)


@kernel
def _sum_scores(head, g):
    """Return the sum of query head g's scores, after `sum_attention`, whose scores are 0 after the last row."""
    return sum_floats(scores_address(head, g), -(-head.n_tail // LANES) * LANES)


@kernel
def _select_apart(shape, head, n_rows, n_recent, spans):
    """Select the best rows of each query head, with n_rows in their union. Return the number of spans."""
    state, end, room = record_at(head.state, STATE), head.n_tail, borrow(8 * shape.group)
    sums = array_at(room, (2, shape.group), np.float32)  # of the scores of selected rows, and of all
    for g in range(shape.group):
        scores = scores_of(head, g)
        sums[0, g], sums[1, g] = float32(0), _sum_scores(head, g)
        for i in range(end - n_recent, end):
            sums[0, g] += scores[i]
    choose_best(shape, head, end, n_recent, state.n_own, n_rows)
    n_spans = add_choices(shape, head, end, 1, spans)
    if state.reallocates != 0:
        choices = choices_of(head)
        for g in range(shape.group):
            scores = scores_of(head, g)
            for i in range(end - n_recent):
                if (choices[i] >> g) & 1 != 0:
                    sums[0, g] += scores[i]
        _keep_mean(shape, head, sums)
    give_back(room, 8 * shape.group)
    return n_spans


@kernel
def _kept_shares(shape, head):
    """View the share of each query head's attention in the selected rows, (group,) f32.

    After selection the head's importance is no longer needed: these shares and the mean value take its place.
    """
    return array_at(importance_address(head), (shape.group,), np.float32)


@kernel
def _mean_value(shape, head):
    """View the mean of all values, (value_dim,) f32, behind the shares."""
    return array_at(importance_address(head) + shape.group * 4, (shape.value_dim,), np.float32)


@kernel
def _keep_everything(shape, head):
    """Note that all rows are attended: query heads give no attention to the mean value."""
    shares = _kept_shares(shape, head)
    for g in range(shape.group):
        shares[g] = float32(1)


@kernel
def _keep_mean(shape, head, sums):
    """Store each query head's share of its scores in the selected rows, from two sums, and the mean of all values."""
    kept, mean = _kept_shares(shape, head), _mean_value(shape, head)
    for g in range(shape.group):
        kept[g] = sums[0, g] / sums[1, g]
    n_chunks = count_chunks(head)
    for i in range(shape.value_dim):
        mean[i] = float32(0)
    for number in range(n_chunks):
        value_sum = value_sum_of(shape, chunk_at(head, number))
        for i in range(shape.value_dim):
            mean[i] += value_sum[i]
    factor = float32(1) / float32(head.n_tail)
    for i in range(shape.value_dim):
        mean[i] *= factor


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
            result = array_at(out + g * out_stride, (shape.value_dim,), np.float32)
            for i in range(shape.value_dim):
                result[i] = shares[g] * result[i] + (float32(1) - shares[g]) * mean[i]
    return 0


HOOKS = Hooks(select=select_rows, score=score_rows, finish=reallocate, append=append_to_extras)
HOOKS_OF_ONE_COPY = Hooks(
    select=select_rows_by_column, score=score_rows_by_column, finish=reallocate, append=append_to_sums
)
