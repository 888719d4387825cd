"""Spans: which stored rows a KV head attends. What selectors write and attention kernels read.

A selector is a compiled function `select(head, query, n_tokens, spans) -> n_spans`, all int64:
  head : address of a HEAD record, which says what is stored and where
  query : address of (n_tokens * group, head_dim) f32, scaled; rows of a token lie together
  spans : address of SPAN records to fill, with room for `head.n_clusters + 2 + chunks of the tail`
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

#: A run of rows that lie one after another. keys, values : addresses of (n_rows, head_dim) f16.
#: position : of its first row in the sequence, for the causal mask and the window; or ANY_ORDER.
SPAN = np.dtype([("keys", "i8"), ("values", "i8"), ("n_rows", "i8"), ("position", "i8")])

#: What one KV head of one layer stores.
HEAD = np.dtype(
    [
        ("select", "i8"),  # address of the compiled selector
        ("document_keys", "i8"),  # (n_document, head_dim) f16, in any order
        ("document_values", "i8"),
        ("n_document", "i8"),  # rows stored of the document
        ("document_position", "i8"),  # of its first row, or ANY_ORDER
        ("tail_chunks", "i8"),  # address of the chunks' addresses
        ("key_offset", "i8"),  # from a chunk's address to this head's keys, bytes
        ("value_offset", "i8"),
        ("tail_position", "i8"),  # position of the first row of the tail
        ("n_tail", "i8"),  # rows of the tail, those of this step included
        ("window", "i8"),  # newest rows that a token sees, itself included; 0 sees all
        ("centroids", "i8"),  # (n_clusters, head_dim) f16
        ("cluster_starts", "i8"),  # (n_clusters + 1,) int32: rows of the document, sorted by cluster
        ("n_clusters", "i8"),
        ("scratch", "i8"),  # f32, room for n_clusters + group * padded_clusters(n_clusters)
        ("threshold", "f4"),  # of the share of attention that an average key of a cluster gets
        ("softcap", "f4"),  # of the scores, 0 for none
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
def add_tail(head, head_dim, first_visible, spans, n_spans):
    """Append a span for each chunk of the tail that holds a row at or after position first_visible."""
    row = max(0, first_visible - head.tail_position)
    while row < head.n_tail:
        chunk = row // CHUNK_ROWS
        stop = min((chunk + 1) * CHUNK_ROWS, head.n_tail)
        address = read_int64(head.tail_chunks + chunk * 8)
        within = (row - chunk * CHUNK_ROWS) * head_dim * 2
        spans[n_spans].keys = address + head.key_offset + within
        spans[n_spans].values = address + head.value_offset + within
        spans[n_spans].n_rows = stop - row
        spans[n_spans].position = head.tail_position + row
        n_spans += 1
        row = stop
    return n_spans


@kernel
def add_document_rows(head, head_dim, start, stop, position, spans, n_spans):
    """Append a span of the document's rows start to stop, or lengthen the last span where they follow it."""
    if start >= stop:
        return n_spans
    keys = head.document_keys + start * head_dim * 2
    if n_spans > 0 and position == ANY_ORDER:
        last = spans[n_spans - 1]
        if last.position == ANY_ORDER and last.keys + last.n_rows * head_dim * 2 == keys:
            last.n_rows += stop - start
            return n_spans
    spans[n_spans].keys = keys
    spans[n_spans].values = head.document_values + start * head_dim * 2
    spans[n_spans].n_rows = stop - start
    spans[n_spans].position = position
    return n_spans + 1


@kernel
def first_visible_position(head, n_tokens):
    """The oldest position that the first of the step's n_tokens tokens sees."""
    if head.window == 0:
        return 0
    return max(0, head.tail_position + head.n_tail - n_tokens - head.window + 1)
