"""Appending to the cache: a new key and value, and what each structure that selects by keys makes of the key.

Rows come as f16, as llama.cpp computes them. A document's structures are built offline; the tail's grow here, inside
the chunks that hold its rows. Clusters are of documents only: the tail is always attended.
"""

from __future__ import annotations

from .compile import kernel
from .memory import copy_bytes, read_int64
from .pages import append_to_page
from .partial import append_to_columns
from .rows import quantise_halves
from .spans import CHUNK_ROWS


@kernel
def append_keys(shape, head, source, stride, n_tokens):
    """Store the keys of a head's newest n_tokens rows, and take them into its pages and columns where it has them.

    source : address of the first row's head_dim f16, `stride` bytes from one row to the next
    """
    _store(shape, head, source, stride, n_tokens, head.key_offset)
    for row in range(head.n_tail - n_tokens, head.n_tail):
        chunk = _chunk(head, row)
        within = row % CHUNK_ROWS
        key = chunk + head.key_offset + within * shape.row_bytes
        if head.page_offset != 0:
            append_to_page(shape, key, chunk + head.page_offset, within)
        if head.column_offset != 0:
            append_to_columns(shape, key, chunk + head.column_offset, within)


@kernel
def append_values(shape, head, source, stride, n_tokens):
    """Store the values of a head's newest n_tokens rows."""
    _store(shape, head, source, stride, n_tokens, head.value_offset)


@kernel
def _store(shape, head, source, stride, n_tokens, offset):
    for token in range(n_tokens):
        row = head.n_tail - n_tokens + token
        target = _chunk(head, row) + offset + row % CHUNK_ROWS * shape.row_bytes
        if shape.quantised:
            quantise_halves(shape, source + token * stride, target)
        else:
            copy_bytes(target, source + token * stride, shape.row_bytes)


@kernel
def _chunk(head, row):
    """Address of the chunk that holds a row of the tail."""
    return read_int64(head.tail_chunks + row // CHUNK_ROWS * 8)
