"""Select the items with the highest scores, for methods that only score.

An item is a row of the tail, or a page: `item_rows` neighbouring rows, a divisor of CHUNK_ROWS. A method's `score` hook
writes a score of each item for each query head. Each query head's scores become shares by a softmax over all items, and
the sums of the shares rank the items, so that no head's scale outweighs another's. Alternatively, each query head
selects and attends to its own items.

If a query head's softmax is NaN, everything is attended, so that the NaN reaches the output. It is NaN if a score is
NaN or inf, or if all are -inf.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32, int64

from ..layout.head import ANY_ORDER, head_at
from ..layout.scores import choices_of, fill, importance_address, list_address, scores_address, sum_attention
from ..layout.spans import ALL_HEADS, add_listed_rows, add_tail_rows, spans_to_fill
from ..numba_support.compile import kernel
from ..numba_support.machine_features import LANES
from ..numba_support.memory import read_float
from ..numba_support.views import array_at, record_at
from ..select.top_k import list_top
from .dense import select_all

#: The fields that `select_top` reads: the first ones of the STATE of a method with this hook.
SELECTION = np.dtype(
    [
        ("n_selected", "i8"),  # items to select, for all query heads of the group
        ("n_own", "i8"),  # most items that a query head selects for itself; 0 if the group selects together
        ("n_recent", "i8"),  # newest items, always among them
        ("item_rows", "i8"),  # rows of an item
        ("item_bytes", "i8"),  # bytes that scoring an item reads
    ]
)


@kernel
def select_top(shape, head_address, query, n_tokens, spans_address):
    """Select the items with the highest scores: a `select` hook (see hooks.py).

    A batch of more than one token attends to everything.
    """
    if n_tokens > 1:
        return select_all(shape, head_address, query, n_tokens, spans_address)
    head, spans = head_at(head_address), spans_to_fill(spans_address)
    state = record_at(head.state, SELECTION)
    n_items = -(-head.n_tail // state.item_rows)
    sum_attention(shape, head, n_items)
    if math.isnan(read_float(importance_address(head))):  # all are NaN
        return select_all(shape, head_address, query, n_tokens, spans_address)
    head.bytes_read += n_items * state.item_bytes
    if state.n_own > 0:
        choose_best(shape, head, n_items, state.n_recent, state.n_own, state.n_selected)
        return add_choices(shape, head, n_items, state.item_rows, spans)
    n_listed = list_best(shape, head, n_items, state.n_recent, state.n_selected)
    if state.item_rows == 1:
        return add_listed_rows(shape, head, list_address(shape, head), n_listed, spans, 0)
    items, n_spans = array_at(list_address(shape, head), (n_listed,), np.int32), 0
    for i in range(n_listed):
        n_spans = _add_item(shape, head, int64(items[i]), state.item_rows, spans, n_spans, ALL_HEADS)
    return n_spans


@kernel
def list_best(shape, head, n_items, n_recent, n_selected):
    """List the most important items in rising order: n_selected of them, including the n_recent newest.

    `sum_attention` has computed the importance. Return the number of items in the head's list.
    """
    importance = importance_address(head)
    _take_recent(importance, n_items, n_recent)
    return list_top(importance, -(-n_items // LANES) * LANES, max(n_selected, n_recent), list_address(shape, head))


@kernel
def choose_best(shape, head, n_items, n_recent, n_own, n_all):
    """Let each query head choose its highest-scoring items, the newest among them (see `choose_apart`)."""
    for g in range(shape.group):
        _take_recent(scores_address(head, g), n_items, n_recent)
    choose_apart(shape, head, -(-n_items // LANES) * LANES, n_own, n_all)


@kernel
def _take_recent(numbers, n_items, n_recent):
    """Make the newest of n_items f32 at an address the largest, and the padding of their last vector the smallest."""
    fill(numbers, max(n_items - n_recent, 0), n_items, float32(np.inf))
    fill(numbers, n_items, -(-n_items // LANES) * LANES, float32(-1))


@kernel
def add_choices(shape, head, n_items, item_rows, spans):
    """Append the items of each query head, for these heads only. Return the new number of spans."""
    choices, n_spans = choices_of(head), 0
    for item in range(n_items):
        if choices[item] != 0:
            is_all = choices[item] == (int64(1) << shape.group) - 1
            heads = ALL_HEADS if is_all else choices[item]
            n_spans = _add_item(shape, head, item, item_rows, spans, n_spans, heads)
    return n_spans


@kernel
def _add_item(shape, head, item, item_rows, spans, n_spans, heads):
    """Append the rows of an item, for some query heads. Return the new number of spans."""
    first = item * item_rows
    last = min(first + item_rows, head.n_tail)
    return add_tail_rows(shape, head, first, last, ANY_ORDER, 0, spans, n_spans, heads)


@kernel
def choose_apart(shape, head, n, n_own, n_all):
    """Let each query head choose its n_own highest-scoring items, or fewer if their union would exceed n_all.

    In that case all choose equally many, or the first query heads one more. Each chooses at least one.

    Parameters
    ----------
    head : HEAD record
        Receives the choices, in place of importance and sizes, and their list.
    n : int64
        Items, a multiple of LANES. Negative and NaN scores are never chosen.
    n_own : int64
        Most items of a query head.
    n_all : int64
        Most items in the union.

    Returns
    -------
    int64
        Number of items in the union.
    """
    count = _choose_top(shape, head, n, n_own)
    if count <= n_all:
        return count
    low, high = max(n_all // shape.group, 1), n_own  # `low` items each are never too many, `high` are
    while high - low > 1:
        middle = (low + high) // 2
        if _choose_top(shape, head, n, middle) <= n_all:
            low = middle
        else:
            high = middle
    count = _choose_top(shape, head, n, low)
    for g in range(shape.group):
        if count < n_all:
            count += _add_choices(shape, head, g, n, low + 1)
    return count


@kernel
def _choose_top(shape, head, n, k):
    """Let each query head choose the k highest-scoring of n items. Return the number of items in the union."""
    choices, count = choices_of(head), 0
    for i in range(n):
        choices[i] = 0
    for g in range(shape.group):
        count += _add_choices(shape, head, g, n, k)
    return count


@kernel
def _add_choices(shape, head, g, n, k):
    """Add query head g's k highest-scoring of n items to the choices. Return how many are new."""
    listed, choices, n_new = list_address(shape, head), choices_of(head), 0
    n_chosen = list_top(scores_address(head, g), n, k, listed)
    items = array_at(listed, (n_chosen,), np.int32)
    for i in range(n_chosen):
        n_new += choices[items[i]] == 0
        choices[items[i]] |= int64(1) << g
    return n_new
