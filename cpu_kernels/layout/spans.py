"""Define spans: the stored rows that a KV head attends. Methods write them, and attention kernels read them."""

from __future__ import annotations

import numpy as np
from numba import int32, int64

from ..numba_support.compile import kernel
from ..numba_support.views import array_at
from ..rows.tiles import CHUNK_ROWS
from .head import ANY_ORDER, chunk_at, chunk_keys, chunk_values, tail_key, tail_value

#: Stored rows, in a run or in a list.
SPAN = np.dtype(
    [
        ("keys", "i8"),  # address of the first key (see rows.py)
        ("values", "i8"),  # address of the first value
        ("n_rows", "i8"),
        ("position", "i8"),  # of the first row in the sequence, for the causal mask and the window; or ANY_ORDER
        ("window", "i8"),  # newest rows that a token sees of a span with a position, including its own; 0 for all.
        #    Below 0: it sees the rows of its own chunk, which has as many positions and begins at a multiple of them
        ("rows", "i8"),  # 0 for a run; else address of n_rows int32: row numbers, relative to `keys` and `values`
        ("heads", "i8"),  # bit g is set if query head g of the group attends the rows; ALL_HEADS for all of them
        ("queries", "i8"),  # 0, or address of the queries for this span that replace the step's, of the same
        #      shape. Only the first span of a head may have them
    ]
)

#: In place of a set of query heads: the whole group.
ALL_HEADS = 0

#: More spans than any head has: methods do not know in advance how many they will write.
_MANY = 1 << 40


@kernel
def spans_at(address, n_spans):
    """View n_spans SPAN records at an address."""
    return array_at(address, (n_spans,), SPAN)


@kernel
def spans_to_fill(address):
    """View the SPAN records from an address on, for a method to fill."""
    return spans_at(address, _MANY)


@kernel
def count_rows(address, n_spans):
    """Count the rows of n_spans SPAN records at an address."""
    spans, n_rows = spans_at(address, n_spans), 0
    for i in range(n_spans):
        n_rows += spans[i].n_rows
    return n_rows


@kernel
def add_run(shape, keys, values, n_rows, position, window, spans, n_spans, heads=ALL_HEADS):
    """Append a run of rows, or extend the last span if the run follows it.

    Parameters
    ----------
    keys, values : int64
        Addresses of the first key and value.
    n_rows : int64
        Rows of the run; nothing happens below 1.
    position, window : int64
        As in SPAN. Only runs in ANY_ORDER are joined.
    spans : SPAN array
        Receives the span at index n_spans.
    heads : int64
        As in SPAN. Only runs of the same heads are joined.

    Returns
    -------
    int64
        The new number of spans.
    """
    if n_rows <= 0:
        return n_spans
    if n_spans > 0 and position == ANY_ORDER:
        last = spans[n_spans - 1]
        keys_end = last.keys + last.n_rows * shape.row_bytes
        values_end = last.values + last.n_rows * shape.value_bytes
        follows = keys_end == keys and values_end == values
        if follows and last.position == ANY_ORDER and last.rows == 0 and last.heads == heads:
            last.n_rows += n_rows
            return n_spans
    spans[n_spans].keys = keys
    spans[n_spans].values = values
    spans[n_spans].n_rows = n_rows
    spans[n_spans].position = position
    spans[n_spans].window = window
    spans[n_spans].rows = 0
    spans[n_spans].heads = heads
    spans[n_spans].queries = 0
    return n_spans + 1


@kernel
def add_list(keys, values, n_rows, rows, spans, n_spans, heads=ALL_HEADS):
    """Append n_rows rows of one chunk by their numbers, int32 at the address `rows`. Return the new number of spans."""
    spans[n_spans].keys = keys
    spans[n_spans].values = values
    spans[n_spans].n_rows = n_rows
    spans[n_spans].position = ANY_ORDER
    spans[n_spans].window = 0
    spans[n_spans].rows = rows
    spans[n_spans].heads = heads
    spans[n_spans].queries = 0
    return n_spans + 1


@kernel
def add_listed_rows(shape, head, listed, n_rows, spans, n_spans):
    """Append rows of the tail, listed in rising order, one list for each chunk. Return the new number of spans.

    `listed` is the address of n_rows int32, which become row numbers within their chunks.
    """
    rows, i = array_at(listed, (n_rows,), np.int32), 0
    while i < n_rows:
        number, start = int64(rows[i]) // CHUNK_ROWS, i
        while i < n_rows and rows[i] < (number + 1) * CHUNK_ROWS:
            rows[i] = int32(int64(rows[i]) % CHUNK_ROWS)
            i += 1
        chunk = chunk_at(head, number)
        keys, values = chunk_keys(chunk), chunk_values(chunk)
        n_spans = add_list(keys, values, i - start, listed + start * 4, spans, n_spans)
    return n_spans


@kernel
def add_tail(shape, head, row, window, spans, n_spans):
    """Append all rows of the tail from `row` on, with their positions. Return the new number of spans."""
    while row < head.n_tail:
        stop = min((row // CHUNK_ROWS + 1) * CHUNK_ROWS, head.n_tail)
        n_spans = add_tail_rows(shape, head, row, stop, head.tail_position + row, window, spans, n_spans)
        row = stop
    return n_spans


@kernel
def add_tail_rows(shape, head, start, stop, position, window, spans, n_spans, heads=ALL_HEADS):
    """Append the tail's rows start to stop, which must be in one chunk. Return the new number of spans."""
    keys, values = tail_key(shape, head, start), tail_value(shape, head, start)
    return add_run(shape, keys, values, stop - start, position, window, spans, n_spans, heads)


@kernel
def add_document_rows(shape, head, start, stop, position, spans, n_spans, heads=ALL_HEADS):
    """Append the document's rows start to stop. Return the new number of spans."""
    keys, values = head.document_keys + start * shape.row_bytes, head.document_values + start * shape.value_bytes
    return add_run(shape, keys, values, stop - start, position, window_of(head), spans, n_spans, heads)


@kernel
def window_of(head):
    """Return the window of a head, as in SPAN."""
    return -head.window if head.chunked != 0 else head.window


@kernel
def oldest_seen(position, window):
    """Return the oldest position in the window of a token at a position; a window of 0 shows all positions."""
    if window < 0:
        return position // -window * -window
    return position - window + 1 if window > 0 else 0


@kernel
def first_visible_row(head, n_tokens, window):
    """Return the oldest row of the tail, with this step's rows, in the window of its first token.

    It is negative if the window starts before the tail; a window of 0 shows all rows.
    """
    return oldest_seen(head.tail_position + head.n_tail - n_tokens, window) - head.tail_position
