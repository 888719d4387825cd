"""H2O: keep the rows with most attention so far, and the newest (Zhang et al. 2023, algorithm 1).

A chunk's extras are its rows' positions, (CHUNK_ROWS,) int32, their attention, (CHUNK_ROWS,) f32: the sum over all
queries since the row arrived, and over the query heads of the group, and the part of the current step, which counts
once the step is complete. Rows are unordered, except that the current step's rows are the last ones, in order. A step
attends to all stored rows. Then `evict` forgets those beyond the number to keep.

Selection reads the stored keys once more than attention does.
"""

from __future__ import annotations

import numpy as np
from numba import float32, int32, int64

from ..layout.head import ANY_ORDER, chunk_at, chunk_extras, head_at, tail_key, tail_value
from ..layout.hooks import Hooks
from ..layout.scores import add_attention, fill, importance_address, list_address, score_rows, score_tail_rows
from ..layout.spans import add_tail, add_tail_rows, spans_to_fill
from ..numba_support.compile import kernel
from ..numba_support.machine_features import LANES
from ..numba_support.memory import borrow, copy_bytes, give_back
from ..numba_support.shape import Shape
from ..numba_support.views import array_at, record_at
from ..rows.rows import load_query, query_bytes
from ..rows.tiles import CHUNK_ROWS
from ..select.top_k import list_top

#: Per-head state, besides rows and their extras.
STATE = np.dtype(
    [
        ("n_rows", "i8"),  # rows to keep
        ("n_recent", "i8"),  # newest rows that are always kept
    ]
)

#: More attention than any row gets.
_MOST = np.finfo(np.float32).max


def extras_bytes(shape: Shape) -> int:
    """Return the size of a chunk's extras: a position, a sum of attention and the step's part for each row."""
    return CHUNK_ROWS * 12


def positions_and_attention(shape: Shape, extras: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """View the positions and the attention in a chunk's extras, and the current step's part.

    Returns
    -------
    positions : int32 array, shape (CHUNK_ROWS,)
        Position of each row in the sequence.
    attention : float32 array, shape (CHUNK_ROWS,)
        Attention that each row got before the current step.
    got : float32 array, shape (CHUNK_ROWS,)
        Attention that it gets in the step.
    """
    positions, attention, got = extras[: extras_bytes(shape)].reshape(3, -1)
    return positions.view(np.int32), attention.view(np.float32), got.view(np.float32)


@kernel
def _positions_and_attention(shape, head, number):
    """View the positions and the attention of a chunk's rows."""
    extras = chunk_extras(chunk_at(head, number))
    positions = array_at(extras, (CHUNK_ROWS,), np.int32)
    return positions, array_at(extras + CHUNK_ROWS * 4, (CHUNK_ROWS,), np.float32)


@kernel
def _step_attention(head, number):
    """View the current step's part of the attention of a chunk's rows."""
    return array_at(chunk_extras(chunk_at(head, number)) + CHUNK_ROWS * 8, (CHUNK_ROWS,), np.float32)


@kernel
def select_kept(shape, head_address, query, n_tokens, spans_address):
    """Select all stored rows, and note the attention that each gets: a `select` hook (see hooks.py)."""
    head, spans = head_at(head_address), spans_to_fill(spans_address)
    first_new = head.n_tail - n_tokens
    fill(importance_address(head), 0, -(-head.n_tail // LANES) * LANES, float32(0))
    room = borrow(query_bytes(shape))
    for token in range(n_tokens):
        n_visible = first_new + token + 1
        if n_tokens > 1:
            loaded = load_query(shape, query + token * shape.group * shape.head_dim * 4, room)
            score_tail_rows(shape, head, loaded, 0, n_visible)
        for g in range(shape.group):
            add_attention(head, g, n_visible)
    give_back(room, query_bytes(shape))
    _count_attention(shape, head, first_new)
    head.bytes_read += head.n_tail * shape.row_bytes

    n_spans = 0
    for row in range(0, first_new, CHUNK_ROWS):
        stop = min(row + CHUNK_ROWS, first_new)
        n_spans = add_tail_rows(shape, head, row, stop, ANY_ORDER, 0, spans, n_spans)
    return add_tail(shape, head, first_new, 0, spans, n_spans)


@kernel
def _count_attention(shape, head, first_new):
    """Set the positions of the step's rows, and note each row's importance."""
    shares = array_at(importance_address(head), (head.n_tail,), np.float32)
    for start in range(0, head.n_tail, CHUNK_ROWS):
        positions, attention = _positions_and_attention(shape, head, start // CHUNK_ROWS)
        got, n_rows = _step_attention(head, start // CHUNK_ROWS), min(CHUNK_ROWS, head.n_tail - start)
        for i in range(n_rows):
            got[i] = shares[start + i]
        for i in range(min(max(first_new - start, 0), n_rows), n_rows):
            positions[i] = int32(head.tail_position + start + i)
            attention[i] = float32(0)


@kernel
def _end_step(shape, head):
    """Add the step's attention to each row's. A step that is interrupted before leaves the rows as they were."""
    for start in range(0, head.n_tail, CHUNK_ROWS):
        _, attention = _positions_and_attention(shape, head, start // CHUNK_ROWS)
        got = _step_attention(head, start // CHUNK_ROWS)
        for i in range(min(CHUNK_ROWS, head.n_tail - start)):
            attention[i] += got[i]


@kernel
def evict(shape, head_address, n_tokens):
    """Forget all but the newest rows and those with most attention: an `after_step` hook (see hooks.py).

    A row whose attention is not a number, apart from the newest, counts as having most: it stays, so that the NaN
    reaches the output.
    """
    head = head_at(head_address)
    state = record_at(head.state, STATE)
    if n_tokens > 0:
        _end_step(shape, head)
    n_rows, n_kept = head.n_tail, min(max(state.n_rows, state.n_recent), head.n_tail)
    if n_kept == n_rows:
        return 0
    newest = head.tail_position + n_rows - 1
    last_old = int32(max(newest - state.n_recent, -1))
    importance = array_at(importance_address(head), (n_rows,), np.float32)
    for start in range(0, n_rows, CHUNK_ROWS):
        positions, attention = _positions_and_attention(shape, head, start // CHUNK_ROWS)
        for i in range(min(CHUNK_ROWS, n_rows - start)):
            value = attention[i] if attention[i] < _MOST else _MOST
            importance[start + i] = value if positions[i] <= last_old else float32(np.inf)
    stop = -(-n_rows // LANES) * LANES
    fill(importance_address(head), n_rows, stop, float32(-1))
    listed = list_address(shape, head)
    list_top(importance_address(head), stop, n_kept, listed)
    _close_gaps(shape, head, array_at(listed, (n_kept,), np.int32))
    head.n_tail = n_kept
    head.tail_position = newest + 1 - n_kept
    return 0


@kernel
def _close_gaps(shape, head, rows):
    """Move these rows, rising, to the front: those behind take the places of the others."""
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
    """Copy row `source` of the tail to row `target`."""
    copy_bytes(tail_key(shape, head, target), tail_key(shape, head, source), shape.row_bytes)
    if not shape.latent:
        copy_bytes(tail_value(shape, head, target), tail_value(shape, head, source), shape.value_bytes)
    positions, attention = _positions_and_attention(shape, head, source // CHUNK_ROWS)
    to_positions, to_attention = _positions_and_attention(shape, head, target // CHUNK_ROWS)
    to_positions[target % CHUNK_ROWS] = positions[source % CHUNK_ROWS]
    to_attention[target % CHUNK_ROWS] = attention[source % CHUNK_ROWS]


HOOKS = Hooks(select=select_kept, score=score_rows, after_step=evict)
