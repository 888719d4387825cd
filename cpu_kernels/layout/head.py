"""Define the storage of one KV head: the HEAD record, and the chunks of its tail.

A chunk has CHUNK_ROWS rows: their keys, their values, and the extras, data that the head's method needs for selection.
Most chunks are one piece of memory, in this order; the rows of a chunk may also lie in a document's index. Values that
are the first part of their keys have no memory of their own. This file owns that layout; a method's file owns its
extras' layout.
"""

from __future__ import annotations

import numpy as np

from ..numba_support.compile import kernel
from ..numba_support.memory import read_int64
from ..numba_support.views import record_at
from ..rows.tiles import CHUNK_ROWS

#: Addresses of a chunk: of its first key, of its first value, and of its extras. All are 0 for a dropped chunk.
CHUNK = np.dtype([("keys", "i8"), ("values", "i8"), ("extras", "i8")])

_CHUNK_BYTES = CHUNK.itemsize

#: In place of a position: rows are unordered, and every token sees all of them.
ANY_ORDER = -1

#: Storage of one KV head of one layer, common to all methods. Each method has a record of its own besides.
HEAD = np.dtype(
    [
        ("shape", "i8"),  # `packed`, of the head's Shape; first, as `native` (compile.py) knows no more of HEAD
        # Hooks of the head's method: addresses of compiled functions, 0 for none (see hooks.py).
        ("score", "i8"),
        ("select", "i8"),
        ("finish", "i8"),
        ("append", "i8"),
        ("after_step", "i8"),
        ("estimate", "i8"),
        ("rank", "i8"),
        ("pick", "i8"),
        ("state", "i8"),  # address of the method's own record, its STATE; or 0
        # The document, if the head reads it in place in its index.
        ("document_keys", "i8"),  # address of n_document rows
        ("document_values", "i8"),
        ("n_document", "i8"),
        ("document_position", "i8"),  # position of the first row, or ANY_ORDER
        ("document_pages", "i8"),  # address of the file's PAGES, if a step asks for its rows (read_ahead.py)
        # The tail: rows after the document.
        ("tail_chunks", "i8"),  # address of a CHUNK for each chunk
        ("tail_position", "i8"),  # position of the first row, as if all n_tail rows ended with the newest
        ("n_tail", "i8"),  # rows, including those of this step
        ("n_dropped", "i8"),  # dropped rows, without sinks
        ("window", "i8"),  # newest rows that a token sees, including its own; 0 for all
        ("scratch", "i8"),  # working memory of selection (see scores.py)
        ("scratch_items", "i8"),  # its capacity in items
        ("bytes_read", "i8"),  # counter: bytes read by selection and attention
        ("n_covered", "i8"),  # counter: steps that report the share of attention they covered
        ("covered", "i8"),  # counter: these shares, in millionths
        ("softcap", "f4"),  # of the scores; 0 for none
        ("chunked", "i4"),  # 1 if the window is a chunk: its first row is at a multiple of its length
    ],
    align=True,
)


@kernel
def head_at(address):
    """View the HEAD record at an address."""
    return record_at(address, HEAD)


@kernel
def chunk_at(head, number):
    """Return the address of the CHUNK of a chunk of the tail."""
    return head.tail_chunks + number * _CHUNK_BYTES


@kernel
def chunk_keys(chunk):
    """Return the address of a chunk's first key."""
    return read_int64(chunk)


@kernel
def chunk_values(chunk):
    """Return the address of a chunk's first value."""
    return read_int64(chunk + 8)


@kernel
def chunk_extras(chunk):
    """Return the address of a chunk's extras."""
    return read_int64(chunk + 16)


@kernel
def tail_key(shape, head, row):
    """Return the address of a stored key of the tail."""
    return chunk_keys(chunk_at(head, row // CHUNK_ROWS)) + row % CHUNK_ROWS * shape.row_bytes


@kernel
def tail_value(shape, head, row):
    """Return the address of a stored value of the tail."""
    return chunk_values(chunk_at(head, row // CHUNK_ROWS)) + row % CHUNK_ROWS * shape.value_bytes


@kernel
def count_chunks(head):
    """Return the number of chunks of the tail."""
    return -(-head.n_tail // CHUNK_ROWS)
