"""What one KV head stores, and where: the HEAD record, and the chunks that its tail lies in.

A chunk is one piece of memory that holds CHUNK_ROWS rows: first their keys, then their values, then what the head's
method keeps of them for selection, its extras. This file owns that layout; a method's file owns its extras'.
"""

from __future__ import annotations

import numpy as np

from ..numba_support.compile import Shape, kernel
from ..numba_support.memory import read_int64
from ..numba_support.views import record_at

#: Rows of a chunk: what a tail grows by.
CHUNK_ROWS = 256

#: In place of a position: rows lie in no order, and every token sees all of them.
ANY_ORDER = -1

#: Storage of one KV head of one layer. All methods have it in common; what a method needs besides is in its own record.
HEAD = np.dtype(
    [
        # Hooks of the head's method: addresses of compiled functions, 0 for none (see hooks.py).
        ("score", "i8"),
        ("select", "i8"),
        ("finish", "i8"),
        ("append", "i8"),
        ("after_step", "i8"),
        ("estimate", "i8"),
        ("state", "i8"),  # address of the method's own record, its STATE; 0 if it has none
        # The document, if the head reads one where its index maps it.
        ("document_keys", "i8"),  # address of n_document rows
        ("document_values", "i8"),
        ("n_document", "i8"),
        ("document_position", "i8"),  # position of the first row, or ANY_ORDER
        ("document_pages", "i8"),  # address of the file's PAGES, if a step asks for what it selects (read_ahead.py)
        # The tail: rows that came after the document.
        ("tail_chunks", "i8"),  # address of the chunks' addresses; 0 for a chunk that was dropped
        ("tail_position", "i8"),  # position of the first row, as if all n_tail rows ended with the newest
        ("n_tail", "i8"),  # rows, those of this step included
        ("n_dropped", "i8"),  # rows that were dropped, not counting sinks
        ("window", "i8"),  # newest rows that a token sees, its own included; 0 for all
        ("scratch", "i8"),  # memory that selection works in (see scores.py)
        ("scratch_items", "i8"),  # items that it has room for
        ("bytes_read", "i8"),  # counter: what selection and attention have read
        ("n_covered", "i8"),  # counter: steps that say what share of the attention they covered
        ("covered", "i8"),  # counter: these shares, in millionths
        ("softcap", "f4"),  # of the scores; 0 for none
    ],
    align=True,
)


def chunk_bytes(shape: Shape, extras_bytes: int) -> int:
    """Return the size of a chunk, a multiple of 64 bytes."""
    return -(-(2 * CHUNK_ROWS * shape.row_bytes + extras_bytes) // 64) * 64


def extras_offset(shape: Shape) -> int:
    """Return where in a chunk its extras begin, in bytes."""
    return 2 * CHUNK_ROWS * shape.row_bytes


@kernel
def head_at(address):
    """View the HEAD record at an address."""
    return record_at(address, HEAD)


@kernel
def chunk_at(head, number):
    """Return the address of a chunk of the tail."""
    return read_int64(head.tail_chunks + number * 8)


@kernel
def chunk_keys(shape, chunk):
    """Return the address of a chunk's first key."""
    return chunk


@kernel
def chunk_values(shape, chunk):
    """Return the address of a chunk's first value."""
    return chunk + CHUNK_ROWS * shape.row_bytes


@kernel
def chunk_extras(shape, chunk):
    """Return the address of a chunk's extras."""
    return chunk + 2 * CHUNK_ROWS * shape.row_bytes


@kernel
def tail_key(shape, head, row):
    """Return the address of a stored key of the tail."""
    return chunk_keys(shape, chunk_at(head, row // CHUNK_ROWS)) + row % CHUNK_ROWS * shape.row_bytes


@kernel
def tail_value(shape, head, row):
    """Return the address of a stored value of the tail."""
    return chunk_values(shape, chunk_at(head, row // CHUNK_ROWS)) + row % CHUNK_ROWS * shape.row_bytes


@kernel
def count_chunks(head):
    """Return how many chunks the tail lies in."""
    return -(-head.n_tail // CHUNK_ROWS)
