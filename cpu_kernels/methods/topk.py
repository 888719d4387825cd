"""Top-k: attend to the rows whose keys score highest exactly, the upper bound of a look-up.

Squeezed Attention (table 6), SparQ (figure 7a) and Quest (figure 3) compare with it. A step scores all keys.
"""

from __future__ import annotations

from ..layout.head import head_at
from ..layout.hooks import Hooks
from ..layout.scores import score_tail_rows, share_of
from ..numba_support.compile import kernel
from ..numba_support.memory import borrow, give_back
from ..rows.rows import load_query, query_bytes
from .select_top import select_top


@kernel
def score_rows(shape, head_address, query, part, n_parts):
    """Score a share of the rows by their keys: a `score` hook (see hooks.py)."""
    head = head_at(head_address)
    start, stop = share_of(head.n_tail, part, n_parts)
    room = borrow(query_bytes(shape))
    score_tail_rows(shape, head, load_query(shape, query, room), start, stop)
    give_back(room, query_bytes(shape))
    return 0


HOOKS = Hooks(select=select_top, score=score_rows)
