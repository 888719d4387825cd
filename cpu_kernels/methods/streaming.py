"""Sinks and a recent window: the tail's first rows, and the newest that each token sees (StreamingLLM, section 3.2)."""

from __future__ import annotations

from functools import cache
from typing import Any

from ..compile import Shape, kernel, native_callback
from ..scores import MANY, SIGNATURE
from ..spans import add_tail, add_tail_rows, first_visible_row, head_at, spans_at


@kernel
def select_recent(shape, head_address, query, n_tokens, spans_address):
    """The first n_sinks rows, at most a chunk, and of the others for each token the newest n_recent, its own included.

    A batch selects just what its tokens would select one by one, as far as it is still there: a window that grows with
    the sequence may reach farther back than the one before.
    """
    head, spans = head_at(head_address)[0], spans_at(spans_address, MANY)
    n_sinks = min(head.n_sinks, head.n_tail)
    n_spans = 0
    if n_sinks > 0:
        n_spans = add_tail_rows(head, shape.row_bytes, 0, n_sinks, head.tail_position, 0, spans, 0)
    first = max(n_sinks, head.n_dropped, first_visible_row(head, n_tokens, head.n_recent))
    return add_tail(head, shape.row_bytes, first, head.n_recent, spans, n_spans)


@cache
def native_select_recent(shape: Shape) -> Any:
    """`select_recent` for one shape as a native function."""

    @native_callback(SIGNATURE)
    def call(head, query, n_tokens, spans):
        return select_recent(shape, head, query, n_tokens, spans)

    return call
