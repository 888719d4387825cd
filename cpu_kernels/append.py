"""Appending to the cache: new keys and values, and what each structure that selects by them makes of a row.

Rows come as f16, as llama.cpp computes them. A document's clusters are made offline; all that is kept beside the
tail's rows grows here, in the chunks that hold them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from .compile import Shape, kernel, native_callback
from .memory import copy_bytes, read_int64
from .methods.quest import append_to_page
from .methods.sparq import append_to_columns, append_to_moments, append_to_sum
from .rows import quantise_halves
from .scores import SIGNATURE
from .spans import CHUNK_ROWS, head_at


@kernel
def append_rows(shape, head, keys, key_stride, values, value_stride, n_tokens):
    """Store a head's newest n_tokens rows, and take them into what is kept beside them.

    keys, values : addresses of the first row's head_dim f16, a stride in bytes from one row to the next
    """
    first = head.n_tail - n_tokens
    for token in range(n_tokens):
        row = first + token
        chunk, within = _chunk(head, row), row % CHUNK_ROWS * shape.row_bytes
        _store(shape, keys + token * key_stride, chunk + head.key_offset + within)
        _store(shape, values + token * value_stride, chunk + head.value_offset + within)
    take_in(shape, head, first, head.n_tail)


@kernel
def take_in(shape, head, start, stop):
    """Take the stored rows start to stop of the tail into the structures that the head has."""
    if head.page_offset == 0 and head.column_offset == 0 and head.moment_offset == 0 and head.sum_offset == 0:
        return
    for row in range(start, stop):
        chunk, within = _chunk(head, row), row % CHUNK_ROWS
        key = chunk + head.key_offset + within * shape.row_bytes
        if head.page_offset != 0:
            append_to_page(shape, key, chunk + head.page_offset, within)
        if head.column_offset != 0:
            append_to_columns(shape, key, chunk + head.column_offset, within)
        if head.moment_offset != 0:
            append_to_moments(shape, key, chunk + head.moment_offset, within)
        if head.sum_offset != 0:
            append_to_sum(shape, chunk + head.value_offset + within * shape.row_bytes, chunk + head.sum_offset, within)


@cache
def native_take_in(shape: Shape) -> Any:
    """`take_in` for one shape as a native function: of a HEAD record's address, start, stop, and a 0."""

    @native_callback(SIGNATURE)
    def call(head, start, stop, _):
        take_in(shape, head_at(head)[0], start, stop)
        return 0

    return call


@kernel
def _store(shape, source, target):
    if shape.quantised:
        quantise_halves(shape, source, target)
    else:
        copy_bytes(target, source, shape.row_bytes)


@kernel
def _chunk(head, row):
    """Address of the chunk that holds a row of the tail."""
    return read_int64(head.tail_chunks + row // CHUNK_ROWS * 8)
