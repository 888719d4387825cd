"""Spans: which stored rows a KV head attends. What selectors write and attention kernels read.

A selector is a compiled function `select(head, query, n_tokens, spans) -> n_spans`, all int64:
  head : address of a HEAD record, which says what is stored and where
  query : address of (n_tokens * group, head_dim) f32, scaled; rows of a token lie together
  spans : address of SPAN records to fill, with room for one for each cluster, or selected page, two for the rest of
      the document, and three for each chunk of the tail
One selection serves all query heads of the group and, in prefill, all tokens of the batch.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from .compile import kernel
from .memory import pointer, read_int64

#: Rows in a chunk of the tail: what the cache grows by.
CHUNK_ROWS = 256

#: A span without positions: every token sees all of its rows.
ANY_ORDER = -1

#: Stored rows, in a run or in a list. keys, values : addresses of the first of them (see rows.py).
#: rows : 0 for n_rows rows that lie one after another; else the address of n_rows int32, their numbers from there.
#: position : of its first row in the sequence, for the causal mask and the window; or ANY_ORDER.
#: window : newest rows that a token sees of a span with a position, the token's own included; 0 for all
SPAN = np.dtype(
    [("keys", "i8"), ("values", "i8"), ("n_rows", "i8"), ("position", "i8"), ("window", "i8"), ("rows", "i8")]
)

#: What one KV head of one layer stores, and how it is selected.
HEAD = np.dtype(
    [
        ("select", "i8"),  # address of the compiled selector
        ("score", "i8"),  # of what scores its items before that, or 0 (see select.py)
        ("settle", "i8"),  # of what tends what is stored after a step, or 0
        ("document_keys", "i8"),  # n_document rows, in any order
        ("document_values", "i8"),
        ("n_document", "i8"),  # rows stored of the document
        ("document_position", "i8"),  # of its first row, or ANY_ORDER
        ("tail_chunks", "i8"),  # address of the chunks' addresses; 0 for a chunk that was dropped
        ("key_offset", "i8"),  # from a chunk's address to this head's keys, bytes
        ("value_offset", "i8"),
        ("page_offset", "i8"),  # to the bounds of its pages (see pages.py), or 0; and so on
        ("column_offset", "i8"),  # to the transposed copy of its keys (see partial.py)
        ("moment_offset", "i8"),  # to the sums of its keys and of their squares (see partial.py)
        ("sum_offset", "i8"),  # to the sum of its values (see partial.py)
        ("cluster_offset", "i8"),  # to its clusters (see online.py)
        ("slot_offset", "i8"),  # to its rows' positions and the attention they got (see heavy.py)
        ("tail_position", "i8"),  # position of the first row of the tail; where rows were evicted, of as many rows
        #                           that end with the newest
        ("n_tail", "i8"),  # rows of the tail, those of this step included
        ("n_dropped", "i8"),  # rows of the tail that are gone, from the first on that is no sink
        ("window", "i8"),  # newest rows that a token sees, itself included; 0 sees all
        ("centroids", "i8"),  # (n_clusters, head_dim) f16
        ("cluster_starts", "i8"),  # (n_clusters + 1,) int32: rows of the document, sorted by cluster
        ("n_clusters", "i8"),
        ("coarse_centroids", "i8"),  # (n_coarse, head_dim) f16
        ("coarse_starts", "i8"),  # (n_coarse + 1,) int32: clusters, sorted by coarse cluster
        ("n_coarse", "i8"),
        ("n_clustered", "i8"),  # chunks of the tail, from the first on, that are clustered
        ("n_selected", "i8"),  # pages or rows to select, rows to keep, or rows selected of the tail's clusters for
        #                           one token, -1 after a batch
        ("n_recent", "i8"),  # newest rows that are always among them
        ("n_sinks", "i8"),  # oldest rows that are always among them
        ("n_components", "i8"),  # of a query that score rows
        ("scratch", "i8"),  # selection_scratch_bytes(group, scratch_items)
        ("scratch_items", "i8"),
        ("threshold", "f4"),  # of the share of attention that an average key of a cluster gets
        ("coarse_threshold", "f4"),  # the same of a coarse cluster
        ("softcap", "f4"),  # of the scores, 0 for none
        ("reallocation", "i8"),  # address of (group + head_dim) f32: what left out rows get (see partial.py), or 0
        ("bytes_read", "i8"),  # counted: by selection and attention since it was last set to 0
    ],
    align=True,
)


@kernel
def head_at(address):
    """The HEAD record at an address, as an array of one."""
    return carray(pointer(address), (1,), HEAD)


@kernel
def spans_at(address, n_spans):
    """The SPAN records at an address."""
    return carray(pointer(address), (n_spans,), SPAN)


@kernel
def add_run(row_bytes, keys, values, n_rows, position, window, spans, n_spans):
    """Append a span of neighbours in any order, or lengthen the last span where they follow it."""
    if n_rows <= 0:
        return n_spans
    if n_spans > 0 and position == ANY_ORDER:
        last = spans[n_spans - 1]
        length = last.n_rows * row_bytes
        if last.position == ANY_ORDER and last.keys + length == keys and last.values + length == values:
            last.n_rows += n_rows
            return n_spans
    spans[n_spans].keys = keys
    spans[n_spans].values = values
    spans[n_spans].n_rows = n_rows
    spans[n_spans].position = position
    spans[n_spans].window = window
    spans[n_spans].rows = 0
    return n_spans + 1


@kernel
def add_tail(head, row_bytes, row, window, spans, n_spans):
    """Append spans of all of the tail's rows from one on, with their positions."""
    while row < head.n_tail:
        stop = min((row // CHUNK_ROWS + 1) * CHUNK_ROWS, head.n_tail)
        n_spans = add_tail_rows(head, row_bytes, row, stop, head.tail_position + row, window, spans, n_spans)
        row = stop
    return n_spans


@kernel
def add_tail_rows(head, row_bytes, start, stop, position, window, spans, n_spans):
    """Append a span of the tail's rows start to stop, which lie in one chunk."""
    chunk = read_int64(head.tail_chunks + start // CHUNK_ROWS * 8)
    within = start % CHUNK_ROWS * row_bytes
    keys, values = chunk + head.key_offset + within, chunk + head.value_offset + within
    return add_run(row_bytes, keys, values, stop - start, position, window, spans, n_spans)


@kernel
def add_document_rows(head, row_bytes, start, stop, position, spans, n_spans):
    """Append a span of the document's rows start to stop."""
    keys, values = head.document_keys + start * row_bytes, head.document_values + start * row_bytes
    return add_run(row_bytes, keys, values, stop - start, position, head.window, spans, n_spans)


@kernel
def first_visible_row(head, n_tokens, window):
    """The oldest row of the tail that the first of the step's n_tokens tokens sees, below 0 for one before the tail.

    window : newest rows that it sees, 0 for all
    """
    return head.n_tail - n_tokens - window + 1 if window > 0 else -head.tail_position
