"""Streaming: attend to the sink tokens and to a recent window (StreamingLLM, Xiao et al. 2023, section 3.2)."""

from __future__ import annotations

import numpy as np

from ..compile import kernel
from ..head import head_at
from ..hooks import Hooks
from ..spans import add_tail, add_tail_rows, first_visible_row, spans_to_fill
from ..views import record_at

#: What a streaming head keeps besides its rows.
STATE = np.dtype(
    [
        ("n_sinks", "i8"),  # first rows of the sequence that every token sees, at most a chunk
        ("n_recent", "i8"),  # newest rows that a token sees, its own included
    ]
)


@kernel
def select_recent(shape, head_address, query, n_tokens, spans_address):
    """Select the sinks, and for each token its newest rows: a `select` hook (see hooks.py).

    A batch attends to just what its tokens would attend to one by one, as far as it is still stored. A window that
    grows with the sequence may reach farther back than the window before.
    """
    head, spans = head_at(head_address), spans_to_fill(spans_address)
    state = record_at(head.state, STATE)
    n_sinks = min(state.n_sinks, head.n_tail)
    n_spans = 0
    if n_sinks > 0:
        n_spans = add_tail_rows(shape, head, 0, n_sinks, head.tail_position, 0, spans, 0)
    first = max(n_sinks, head.n_dropped, first_visible_row(head, n_tokens, state.n_recent))
    return add_tail(shape, head, first, state.n_recent, spans, n_spans)


HOOKS = Hooks(select=select_recent)
