"""Append to the cache: store new keys and values, and let the head's method add them to the chunks' extras."""

from __future__ import annotations

from ..layout.head import head_at, tail_key, tail_value
from ..numba_support.compile import kernel
from ..numba_support.memory import call_native, copy_bytes
from ..rows.rows import quantise_halves


@kernel
def append_rows(shape, head_address, keys, key_stride, values, value_stride, n_tokens):
    """Store a head's newest rows, for which the cache has allocated memory and which `n_tail` counts already.

    Parameters
    ----------
    keys, values : int64
        Addresses of the first key's head_dim f16 and of the first value's value_dim, as llama.cpp computes them.
    key_stride, value_stride : int64
        Bytes from one row to the next.
    """
    head = head_at(head_address)
    first = head.n_tail - n_tokens
    for token in range(n_tokens):
        _store(shape, keys + token * key_stride, tail_key(shape, head, first + token))
        if not shape.latent:
            _store(shape.of_values, values + token * value_stride, tail_value(shape, head, first + token))
    if head.append != 0:
        call_native(head.append, head_address, first, head.n_tail, 0)


@kernel
def _store(shape, source, target):
    """Store head_dim f16 as a row."""
    if shape.quantised:
        quantise_halves(shape, source, target)
    else:
        copy_bytes(target, source, shape.row_bytes)
