"""Streaming: attend to the sink tokens and to a recent window (StreamingLLM, Xiao et al. 2023, section 3.2).

Stored keys are rotated by their positions in the sequence (RoPE). Recent rows are as far from a token in the cache as
in the sequence. Sinks are not: in the cache they come just before the window. So the queries that attend the sinks are
rotated to the sinks' places in the cache, and stored rows never change.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32

from ..layout.head import head_at
from ..layout.hooks import Hooks
from ..layout.spans import add_tail, add_tail_rows, first_visible_row, spans_to_fill
from ..numba_support.compile import kernel
from ..numba_support.views import array_at, record_at

#: Per-head state, besides rows.
STATE = np.dtype(
    [
        ("n_sinks", "i8"),  # first rows of the sequence that every token sees, at most a chunk
        ("n_recent", "i8"),  # newest rows that a token sees, including its own
        ("n_turned", "i8"),  # tokens of the step whose queries are rotated to attend the sinks: all, or none
        ("origin", "i8"),  # token of the sequence from which the step's positions are counted
        ("frequencies", "i8"),  # address of n_pairs f64: radians by which RoPE rotates a pair for each position
        ("n_pairs", "i8"),
        ("interleaved", "i8"),  # whether pair j is the elements 2 j and 2 j + 1; else it is j and n_pairs + j
        ("whole_batch", "i8"),  # 1: tokens of a batch see all of it that came before them, and n_recent rows before it
    ]
)


@kernel
def select_recent(shape, head_address, query, n_tokens, spans_address):
    """Select the sinks, and for each token its newest rows: a `select` hook (see hooks.py).

    A batch attends to the same stored rows as its tokens would one by one, unless `whole_batch` is set: then all its
    tokens see the same rows before it (DuoAttention, Xiao et al. 2024, section 2.3). A window that grows with the
    sequence may reach farther back than the window before.
    """
    head, spans = head_at(head_address), spans_to_fill(spans_address)
    state = record_at(head.state, STATE)
    n_sinks = min(state.n_sinks, head.n_tail)
    n_spans = 0
    if n_sinks > 0:
        n_spans = add_tail_rows(shape, head, 0, n_sinks, head.tail_position, 0, spans, 0)
        if state.n_turned > 0:
            _turn_queries(shape, head, state, query, n_tokens)
            spans[0].queries = head.scratch
    if state.whole_batch and n_tokens > 1:
        first = max(n_sinks, head.n_dropped, head.n_tail - n_tokens - state.n_recent)
        return add_tail(shape, head, first, 0, spans, n_spans)
    first = max(n_sinks, head.n_dropped, first_visible_row(head, n_tokens, state.n_recent))
    return add_tail(shape, head, first, state.n_recent, spans, n_spans)


@kernel
def _turn_queries(shape, head, state, query, n_tokens):
    """Write the queries into the scratch as RoPE would have them at their tokens' positions in the cache."""
    size = (n_tokens, shape.group, shape.head_dim)
    source, target = array_at(query, size, np.float32), array_at(head.scratch, size, np.float32)
    frequencies = array_at(state.frequencies, (state.n_pairs,), np.float64)
    first_token = head.tail_position + head.n_tail - n_tokens
    for token in range(n_tokens):
        place = min(first_token + token, state.n_sinks + state.n_recent - 1)
        turn = place - (first_token + token - state.origin)
        for g in range(shape.group):
            for i in range(shape.head_dim):
                target[token, g, i] = source[token, g, i]
        for j in range(state.n_pairs):
            angle = turn * frequencies[j]
            c, s = float32(math.cos(angle)), float32(math.sin(angle))
            i, k = (2 * j, 2 * j + 1) if state.interleaved else (j, state.n_pairs + j)
            for g in range(shape.group):
                x, y = source[token, g, i], source[token, g, k]
                target[token, g, i], target[token, g, k] = x * c - y * s, x * s + y * c


HOOKS = Hooks(select=select_recent)
