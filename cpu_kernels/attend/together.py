"""Attend the rows of other heads with a head's own: of several documents at once.

A head may name others, of other caches, each of which holds a document and the state of its own method. A step of the
head scores and selects in each of them, as it would if that document was attended alone, and attends to all that was
selected in one softmax. There the scores of another head's rows are raised by a bias. With the logarithms of weights
that sum up to 1 a key that is in all documents counts once; and the same document several times is that document.

Documents end where they end, and the step's queries stand behind the longest. For another head they are turned, so that
they stand right behind its document: RoPE makes that exact.

The others take no rows, so their `append` and `after_step` hooks are never called. Methods with a `finish` hook, and
those that turn queries themselves, cannot have others.
"""

from __future__ import annotations

import numpy as np
from numba import float32

from ..numba_support.compile import kernel
from ..numba_support.memory import call_native
from ..numba_support.views import array_at, record_at
from ..select.scores import rest_of
from .head import head_at
from .read_ahead import ask_for_rows
from .spans import SPAN, spans_at

#: Another head whose rows a head attends.
OTHER = np.dtype(
    [
        ("head", "i8"),  # address of its HEAD record
        ("bias", "f8"),  # added to the scores of its rows
        ("queries", "i8"),  # address of room for the queries of a step, turned; 0 if they need not be
        ("turn", "i8"),  # address of (2, n_pairs) f32: cosine and sine of the angle by which a pair is turned
        ("n_pairs", "i8"),
        ("interleaved", "i8"),  # whether pair j is the elements 2 j and 2 j + 1; else it is j and n_pairs + j
    ]
)

_OTHER_BYTES, _SPAN_BYTES = OTHER.itemsize, SPAN.itemsize


@kernel
def _other_at(head, number):
    """View the OTHER record of one of a head's others."""
    return record_at(head.others + number * _OTHER_BYTES, OTHER)


@kernel
def turn_for_others(shape, head, query, n_tokens):
    """Turn the queries of a step for each of a head's others. `query` is that of a `select` hook (hooks.py)."""
    for i in range(head.n_others):
        other = _other_at(head, i)
        if other.queries != 0:
            _turn_queries(shape, other, query, n_tokens * shape.group)


@kernel
def _turn_queries(shape, other, query, n_rows):
    """Write rows of queries as they are right behind another head's document."""
    size = (n_rows, shape.head_dim)
    source, target = array_at(query, size, np.float32), array_at(other.queries, size, np.float32)
    turn = array_at(other.turn, (2, other.n_pairs), np.float32)
    for r in range(n_rows):
        for i in range(shape.head_dim):
            target[r, i] = source[r, i]
        for j in range(other.n_pairs):
            i, k = (2 * j, 2 * j + 1) if other.interleaved else (j, other.n_pairs + j)
            x, y, c, s = source[r, i], source[r, k], turn[0, j], turn[1, j]
            target[r, i], target[r, k] = x * c - y * s, x * s + y * c


@kernel
def _query_for(other, query):
    """Return the address of the queries that attend another head's rows."""
    return other.queries if other.queries != 0 else query


@kernel
def score_others(head, query, part, n_parts):
    """Score a share of the items of a head's others, as a `score` hook does (hooks.py)."""
    for i in range(head.n_others):
        other = _other_at(head, i)
        call_native(head_at(other.head).score, other.head, _query_for(other, query), part, n_parts)


@kernel
def select_others(shape, head, query, n_tokens, spans_address, n_spans):
    """Append what a head's others select.

    Parameters
    ----------
    shape : Shape
        What the heads' kernels are compiled for.
    head : HEAD record
        The head.
    query, n_tokens, spans_address : int64
        As in a `select` hook.
    n_spans : int64
        Spans that are there.

    Returns
    -------
    int64
        Spans that are there now.
    """
    for i in range(head.n_others):
        other = _other_at(head, i)
        its, own = head_at(other.head), spans_address + n_spans * _SPAN_BYTES
        its.bytes_read = 0
        n_own = call_native(its.select, other.head, _query_for(other, query), n_tokens, own)
        head.bytes_read += its.bytes_read
        spans = spans_at(own, n_own)
        for s in range(n_own):
            spans[s].bias, spans[s].queries = other.bias, other.queries
        if n_tokens == 1 and its.estimate != 0:
            rest = rest_of(shape, its)
            for g in range(shape.group):
                rest[0, g] += float32(other.bias)
        if n_tokens == 1 and its.document_pages != 0:
            ask_for_rows(shape, its.document_pages, own, n_own)
        n_spans += n_own
    return n_spans


@kernel
def estimate_others(head, partial, part, n_parts):
    """Add a share of what a head's others did not select to a partial result, as an `estimate` hook does (hooks.py)."""
    for i in range(head.n_others):
        address = _other_at(head, i).head
        call_native(head_at(address).estimate, address, partial, part, n_parts)
