"""Define the storage of one KV head: the HEAD record, and the chunks of its tail.

A chunk is one piece of memory with CHUNK_ROWS rows: first their keys, then their values, then the extras, data that the
head's method needs for selection. Values that are the first part of their keys have no memory of their own. This file
owns that layout; a method's file owns its extras' layout.
"""

from __future__ import annotations

import numpy as np

from ..numba_support.compile import kernel
from ..numba_support.memory import read_int64
from ..numba_support.shape import Shape, unpacked_shape
from ..numba_support.views import record_at

#: Rows of a chunk, by which a tail grows.
CHUNK_ROWS = 256

#: In place of a position: rows are unordered, and every token sees all of them.
ANY_ORDER = -1

#: Storage of one KV head of one layer, common to all methods. Each method has a record of its own besides.
HEAD = np.dtype(
    [
        # Hooks of the head's method: addresses of compiled functions, 0 for none (see hooks.py).
        ("score", "i8"),
        ("select", "i8"),
        ("finish", "i8"),
        ("append", "i8"),
        ("after_step", "i8"),
        ("estimate", "i8"),
        ("shape", "i8"),  # `packed`, of the head's Shape
        ("state", "i8"),  # address of the method's own record, its STATE; or 0
        # The document, if the head reads it in place in its index.
        ("document_keys", "i8"),  # address of n_document rows
        ("document_values", "i8"),
        ("n_document", "i8"),
        ("document_position", "i8"),  # position of the first row, or ANY_ORDER
        ("document_pages", "i8"),  # address of the file's PAGES, if a step asks for its rows (read_ahead.py)
        # The tail: rows after the document.
        ("tail_chunks", "i8"),  # address of the chunks' addresses; 0 for a dropped chunk
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


def chunk_bytes(shape: Shape, extras_bytes: int) -> int:
    """Return the size of a chunk, a multiple of 64 bytes."""
    return -(-(CHUNK_ROWS * shape.token_bytes + extras_bytes) // 64) * 64


def extras_offset(shape: Shape) -> int:
    """Return the offset of the extras in a chunk, in bytes."""
    return CHUNK_ROWS * shape.token_bytes


@kernel
def head_at(address):
    """View the HEAD record at an address."""
    return record_at(address, HEAD)


@kernel
def shape_of(head_address):
    """Return the shape of the HEAD record at an address."""
    return unpacked_shape(head_at(head_address).shape)


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
    return chunk if shape.latent else chunk + CHUNK_ROWS * shape.row_bytes


@kernel
def chunk_extras(shape, chunk):
    """Return the address of a chunk's extras."""
    return chunk + CHUNK_ROWS * shape.token_bytes


@kernel
def tail_key(shape, head, row):
    """Return the address of a stored key of the tail."""
    return chunk_keys(shape, chunk_at(head, row // CHUNK_ROWS)) + row % CHUNK_ROWS * shape.row_bytes


@kernel
def tail_value(shape, head, row):
    """Return the address of a stored value of the tail."""
    return chunk_values(shape, chunk_at(head, row // CHUNK_ROWS)) + row % CHUNK_ROWS * shape.value_bytes


@kernel
def count_chunks(head):
    """Return the number of chunks of the tail."""
    return -(-head.n_tail // CHUNK_ROWS)
