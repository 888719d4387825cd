"""Define hooks: the compiled functions of a method, which the generic kernels call by address.

A method's file in `methods/` defines up to eight of them. The generic kernels find their addresses in a HEAD record,
and know none by name. Each is a kernel whose first argument is the `Shape`, whose other arguments are int64, and which
returns an int64. `head` is the address of a HEAD record.

score(shape, head, query, part, n_parts)
    Score one share of the head's items (pages, rows, clusters) for one token, into the head's scratch. All threads
    score all heads together. `query` is the address of (group, head_dim) f32, scaled.
select(shape, head, query, n_tokens, spans) -> number of spans
    Write the SPAN records that a step of n_tokens tokens attends. One thread serves a head. For one token the scores
    exist already; for more tokens this hook scores. `query` is the address of (n_tokens, group, head_dim) f32, scaled.
    One selection serves all tokens of a batch and all query heads of the group, unless spans name query heads: then
    each query head of one token attends only to its own rows, at least one. A batch ignores these names.
rank(shape, head, query, part, n_parts)
    Rank one share of the head's items for one token, once all are scored. All threads rank all heads together.
pick(shape, head, spans, part, n_parts) -> `counts_of` spans and rows
    Write the SPAN records of one share of the head's items for one token, once all are ranked: from part to part side
    by side, some perhaps empty. A method with this hook has `rank` too, and `select` for batches only.
finish(shape, head, out, out_stride)
    Complete the output of one token. `out` is the address of the first query head's (head_dim,) f32, and `out_stride`
    the bytes to the next query head's.
append(shape, head, start, stop)
    Add the stored rows start to stop of the tail to the chunks' extras. The first row of a chunk starts its extras.
after_step(shape, head, n_tokens)
    Update the stored rows after an uninterrupted step: evict rows, or cluster them.
estimate(shape, head, partial, part, n_parts)
    Add one share of the rows that were not selected to a thread's partial result of one token (see decode.py), as
    estimated from their scores. The head's scratch is as `select` or `pick` left it. It has the size of the remainder
    (`rest_of` in scores.py), from which the exact share of the attention is counted: `select` or this hook's first part
    tells it. All threads estimate all heads together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..numba_support.compile import layout

#: Bits of a number of rows in `counts_of`.
_ROWS_BITS = 32


class Hooks(NamedTuple):
    """The kernels of a method. Only `select` is required."""

    select: Any
    score: Any = None
    finish: Any = None
    append: Any = None
    after_step: Any = None
    estimate: Any = None
    rank: Any = None
    pick: Any = None


@layout
def counts_of(n_spans, n_rows):
    """Return a number of spans, and of the rows in them, as one int64."""
    return n_spans << _ROWS_BITS | n_rows


@layout
def split_counts(counts):
    """Return the number of spans and the number of rows of `counts_of`."""
    return counts >> _ROWS_BITS, counts & ((1 << _ROWS_BITS) - 1)
