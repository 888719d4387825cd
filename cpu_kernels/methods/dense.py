"""Dense: attend to all rows in the layer's window. The reference for every other method."""

from __future__ import annotations

from ..layout.head import ANY_ORDER, head_at
from ..layout.hooks import Hooks
from ..layout.spans import add_document_rows, add_tail, first_visible_row, spans_to_fill, window_of
from ..numba_support.compile import kernel


@kernel
def select_all(shape, head_address, query, n_tokens, spans_address):
    """Select every row that the step's tokens may see: a `select` hook (see hooks.py)."""
    head, spans = head_at(head_address), spans_to_fill(spans_address)
    first_visible = first_visible_row(head, n_tokens, window_of(head))
    position, first_row = head.document_position, 0
    if position != ANY_ORDER:
        first_row = max(0, first_visible + head.tail_position - position)
        position += first_row
    n_spans = add_document_rows(shape, head, first_row, head.n_document, position, spans, 0)
    return add_tail(shape, head, max(0, first_visible), window_of(head), spans, n_spans)


HOOKS = Hooks(select=select_all)
