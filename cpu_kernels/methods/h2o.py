"""Heavy hitters: keep the rows that got most attention so far, and the newest (H2O, section 4.2, algorithm 1).

Beside each chunk's rows lie, at `slot_offset`, their positions, CHUNK_ROWS int32, and the attention they got, as many
f32: its sum over all queries since they came, and over the query heads of the group. Rows lie in any order but those of
the step, which are the last, in order. All that is kept is attended; `settle` then forgets what is over n_selected.

Reads the keys of what is kept once more than attention does.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import carray, float32, int32, int64

from ..compile import LANES, Shape, kernel, native_callback
from ..memory import copy_bytes, pointer, read_int64, stack_floats
from ..rows import dot, load_query
from ..scores import MANY, SIGNATURE, add_shares, cap_scores, exp_scores, fill, list_of, scores_of, share_of
from ..spans import ANY_ORDER, CHUNK_ROWS, add_tail, add_tail_rows, head_at, spans_at
from ..top_k import list_top

#: A position and a sum of attention.
SLOT_BYTES = 8

#: More attention than any row gets.
_MOST = np.finfo(np.float32).max


def slots_of(part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Views of a chunk's positions and attention, from its bytes at `slot_offset` on."""
    positions, masses = part[: CHUNK_ROWS * SLOT_BYTES].reshape(2, -1)
    return positions.view(np.int32), masses.view(np.float32)


@kernel
def _slots(head, chunk):
    """The positions and the attention of a chunk's rows."""
    address = read_int64(head.tail_chunks + chunk * 8) + head.slot_offset
    positions = carray(pointer(address), (CHUNK_ROWS,), np.int32)
    return positions, carray(pointer(address + CHUNK_ROWS * 4), (CHUNK_ROWS,), np.float32)


@kernel
def _score(shape, head, query, start, stop):
    """q . k of the rows start to stop."""
    row = start
    while row < stop:
        end = min((row // CHUNK_ROWS + 1) * CHUNK_ROWS, stop)
        keys = read_int64(head.tail_chunks + row // CHUNK_ROWS * 8) + head.key_offset
        scores = scores_of(head) + row * 4
        dot(shape, query, keys + row % CHUNK_ROWS * shape.row_bytes, end - row, scores, head.scratch_items)
        row = end


@kernel
def score_kept(shape, head_address, query, part, n_parts):
    """The scores of this thread's share of what is kept, for one token."""
    head = head_at(head_address)[0]
    query = load_query(shape, query, stack_floats(shape))
    _score(shape, head, query, *share_of(head.n_tail, part, n_parts))
    return 0


@kernel
def select_kept(shape, head_address, query, n_tokens, spans_address):
    """All that is kept, and the step's own rows; counts the attention that each of them gets."""
    head, spans = head_at(head_address)[0], spans_at(spans_address, MANY)
    first_new = head.n_tail - n_tokens
    fill(head.scratch, 0, -(-head.n_tail // LANES) * LANES, float32(0))
    room = stack_floats(shape)
    for token in range(n_tokens):
        n_visible = first_new + token + 1
        if n_tokens > 1:
            loaded = load_query(shape, query + token * shape.group * shape.head_dim * 4, room)
            _score(shape, head, loaded, 0, n_visible)
        _add_attention(shape, head, n_visible)
    _fill_slots(head, first_new)
    head.bytes_read += head.n_tail * shape.row_bytes

    n_spans = 0
    for row in range(0, first_new, CHUNK_ROWS):
        stop = min(row + CHUNK_ROWS, first_new)
        n_spans = add_tail_rows(head, shape.row_bytes, row, stop, ANY_ORDER, 0, spans, n_spans)
    return add_tail(head, shape.row_bytes, first_new, 0, spans, n_spans)


@kernel
def _add_attention(shape, head, n):
    """Turn the scores of n rows into attention, and add it up in the head's scratch."""
    stop = -(-n // LANES) * LANES
    for g in range(shape.group):
        scores = scores_of(head) + g * head.scratch_items * 4
        cap_scores(scores, n, head.softcap)
        fill(scores, n, stop, float32(-np.inf))
        exp_scores(scores, stop)
        add_shares(scores, stop, head.scratch)


@kernel
def _fill_slots(head, first_new):
    """Number the step's rows, and add the attention in the head's scratch to what each row got before."""
    shares = carray(pointer(head.scratch), (head.n_tail,), np.float32)
    for start in range(0, head.n_tail, CHUNK_ROWS):
        positions, masses = _slots(head, start // CHUNK_ROWS)
        n_rows = min(CHUNK_ROWS, head.n_tail - start)
        n_old = min(max(first_new - start, 0), n_rows)
        for i in range(n_old):
            masses[i] += shares[start + i]
        for i in range(n_old, n_rows):
            positions[i] = int32(head.tail_position + start + i)
            masses[i] = shares[start + i]


@kernel
def settle_heavy(shape, head_address):
    """Forget all but n_selected rows: the newest n_recent stay, and of the others those with most attention.

    Beside the newest, what is not a number counts as most: it stays, where it shows.
    """
    head = head_at(head_address)[0]
    n_rows, kept = head.n_tail, min(max(head.n_selected, head.n_recent), head.n_tail)
    if kept == n_rows:
        return
    newest = head.tail_position + n_rows - 1
    last_old = int32(max(newest - head.n_recent, -1))
    values = carray(pointer(head.scratch), (n_rows,), np.float32)
    for start in range(0, n_rows, CHUNK_ROWS):
        positions, masses = _slots(head, start // CHUNK_ROWS)
        for i in range(min(CHUNK_ROWS, n_rows - start)):
            mass = masses[i] if masses[i] < _MOST else _MOST
            values[start + i] = mass if positions[i] <= last_old else float32(np.inf)
    stop = -(-n_rows // LANES) * LANES
    fill(head.scratch, n_rows, stop, float32(-1))
    listed = list_of(shape, head)
    list_top(head.scratch, stop, kept, listed)
    _close_gaps(shape, head, carray(pointer(listed), (kept,), np.int32))
    head.n_tail = kept
    head.tail_position = newest + 1 - kept


@kernel
def _close_gaps(shape, head, rows):
    """Have these rows, rising, be the first: those behind take the places that others leave."""
    n_staying = 0
    while n_staying < len(rows) and rows[n_staying] < len(rows):
        n_staying += 1
    moving, gap = n_staying, 0
    for i in range(n_staying + 1):
        end = int64(rows[i]) if i < n_staying else len(rows)
        while gap < end:
            _move(shape, head, int64(rows[moving]), gap)
            moving += 1
            gap += 1
        gap = end + 1


@kernel
def _move(shape, head, source, target):
    """Store row `source` of the tail as row `target` as well."""
    from_chunk = read_int64(head.tail_chunks + source // CHUNK_ROWS * 8)
    to_chunk = read_int64(head.tail_chunks + target // CHUNK_ROWS * 8)
    from_row, to_row = source % CHUNK_ROWS, target % CHUNK_ROWS
    for offset in (head.key_offset, head.value_offset):
        stored = from_chunk + offset + from_row * shape.row_bytes
        copy_bytes(to_chunk + offset + to_row * shape.row_bytes, stored, shape.row_bytes)
    positions, masses = _slots(head, source // CHUNK_ROWS)
    to_positions, to_masses = _slots(head, target // CHUNK_ROWS)
    to_positions[to_row], to_masses[to_row] = positions[from_row], masses[from_row]


@cache
def native_score_kept(shape: Shape) -> Any:
    """`score_kept` for one shape as a native function."""

    @native_callback(SIGNATURE)
    def call(head, query, part, n_parts):
        return score_kept(shape, head, query, part, n_parts)

    return call


@cache
def native_select_kept(shape: Shape) -> Any:
    """`select_kept` for one shape as a native function."""

    @native_callback(SIGNATURE)
    def call(head, query, n_tokens, spans):
        return select_kept(shape, head, query, n_tokens, spans)

    return call


@cache
def native_settle_heavy(shape: Shape) -> Any:
    """`settle_heavy` for one shape as a native function."""

    @native_callback(SIGNATURE)
    def call(head, n_tokens, _, __):
        settle_heavy(shape, head)
        return 0

    return call
