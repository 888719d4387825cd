"""One layer's attention, from queries to output: score, select, attend, merge; run by all threads together.

The work of a step is shared out anew in each part. Scoring: every thread scores its share of every head's items.
Selecting: a head is one thread's. Decoding: all heads' rows in equal shares (decode.py). Prefill: tiles of queries,
which threads take one by one, the longest first.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from .append import append_rows
from .compile import Shape, kernel
from .decode import attend_share, decode_scratch_bytes, merge_shares
from .memory import barrier, call_native, fetch_add, pointer, read_int64, write_int64
from .methods.sparq import reallocate
from .prefill import attend_tile, n_tiles, tile_scratch_size
from .spans import HEAD, SPAN, head_at, spans_at

#: What threads share while they attend, layer after layer.
WORK = np.dtype(
    [
        ("arrived", "i8"),  # threads that came to a barrier in this step
        ("next_tile", "i8"),  # prefill tile that no thread has taken yet
        ("queries", "i8"),  # (n_kv_head, n_tokens * group, head_dim) f32, scaled
        ("spans", "i8"),  # (n_kv_head, span_capacity) SPANs
        ("span_capacity", "i8"),
        ("n_spans", "i8"),  # (n_kv_head,) int64
        ("n_rows", "i8"),  # (n_kv_head,) int64
        ("partials", "i8"),  # (n_threads, n_kv_head) partial results
        ("scratch", "i8"),  # (n_threads, scratch_bytes)
        ("scratch_bytes", "i8"),
    ],
    align=True,
)

#: Stored rows of a layer below which a token is left to one thread: barriers cost more than half of the work.
SHORT = 256

_HEAD_BYTES, _SPAN_BYTES = HEAD.itemsize, SPAN.itemsize
_NEXT_TILE = 8  # where `next_tile` lies in WORK


def scratch_bytes(shape: Shape) -> int:
    """Scratch of one thread, for decode and prefill."""
    return max(4 * tile_scratch_size(shape), decode_scratch_bytes(shape))


@kernel
def threads_for(heads, n_kv_head, n_tokens, n_threads):
    """How many of n_threads threads a layer is worth: one, while little is stored."""
    n_rows = 0
    for i in range(n_kv_head):
        head = head_at(heads + i * _HEAD_BYTES)[0]
        n_rows += head.n_document + head.n_tail
    return 1 if n_tokens == 1 and n_rows < SHORT else n_threads


@kernel
def _any_scores(heads, n_kv_head):
    """Whether the selector of any head scores before it selects."""
    for i in range(n_kv_head):  # noqa: SIM110, as Numba compiles no generator here
        if head_at(heads + i * _HEAD_BYTES)[0].score != 0:
            return True
    return False


@kernel
def attend_layer(
    shape, heads, n_kv_head, n_tokens, softcap, work_address, sinks, out, token_step, head_step, ith, n_threads
):
    """The attention of n_tokens tokens on one of n_threads threads.

    The scaled queries of head i, and its new rows, are to be in place when thread i % n_threads calls this.
    heads : address of n_kv_head HEAD records    sinks : address of a score for each query head (see decode.py), or 0
    out : address of query head 0's output for the first token, head_dim f32; token_step and head_step : bytes to the
    next token's and the next head's
    """
    work = carray(pointer(work_address), (1,), WORK)[0]
    if ith == 0:
        work.next_tile = 0
    if n_tokens == 1 and _any_scores(heads, n_kv_head):
        barrier(work_address, n_threads)
        for i in range(n_kv_head):
            head_address = heads + i * _HEAD_BYTES
            score = head_at(head_address)[0].score
            if score != 0:
                query = work.queries + i * shape.group * shape.head_dim * 4
                call_native(score, head_address, query, ith, n_threads)
        barrier(work_address, n_threads)
    for i in range(ith, n_kv_head, n_threads):
        _select(shape, n_tokens, i, heads, work)
    barrier(work_address, n_threads)
    if n_tokens == 1:
        _decode(shape, heads, n_kv_head, softcap, work_address, sinks, out, head_step, ith, n_threads)
    else:
        _prefill(shape, heads, n_kv_head, n_tokens, softcap, work_address, sinks, out, token_step, head_step, ith)


@kernel
def _select(shape, n_tokens, i, heads, work):
    """Select what one KV head attends."""
    head_address = heads + i * _HEAD_BYTES
    head = head_at(head_address)[0]
    query = work.queries + i * n_tokens * shape.group * shape.head_dim * 4
    spans_address = work.spans + i * work.span_capacity * _SPAN_BYTES
    n_spans = call_native(head.select, head_address, query, n_tokens, spans_address)
    spans = spans_at(spans_address, n_spans)
    n_rows = 0
    for s in range(n_spans):
        n_rows += spans[s].n_rows
    write_int64(work.n_spans + i * 8, n_spans)
    write_int64(work.n_rows + i * 8, n_rows)
    head.bytes_read += n_rows * 2 * shape.row_bytes


@kernel
def _decode(shape, heads, n_kv_head, softcap, work_address, sinks, out, head_step, ith, n_threads):
    work = carray(pointer(work_address), (1,), WORK)[0]
    attend_share(
        shape,
        work.queries,
        n_kv_head,
        work.spans,
        work.span_capacity,
        work.n_spans,
        work.n_rows,
        softcap,
        work.scratch + ith * work.scratch_bytes,
        work.partials,
        ith,
        n_threads,
    )
    barrier(work_address, n_threads)
    for i in range(ith, n_kv_head, n_threads):
        merge_shares(shape, i, n_kv_head, work.partials, n_threads, sinks, out, head_step)
        head = head_at(heads + i * _HEAD_BYTES)[0]
        if head.reallocation != 0:
            reallocate(shape, head.reallocation, out + i * shape.group * head_step, head_step)


@kernel
def _prefill(shape, heads, n_kv_head, n_tokens, softcap, work_address, sinks, out, token_step, head_step, ith):
    work = carray(pointer(work_address), (1,), WORK)[0]
    tiles, group = n_tiles(shape, n_tokens), shape.group
    while True:
        item = fetch_add(work_address + _NEXT_TILE, 1)
        if item >= tiles * n_kv_head:
            break
        i, tile = item % n_kv_head, tiles - 1 - item // n_kv_head
        head = head_at(heads + i * _HEAD_BYTES)[0]
        n_spans = read_int64(work.n_spans + i * 8)
        attend_tile(
            shape,
            tile,
            n_tokens,
            work.queries + i * n_tokens * group * shape.head_dim * 4,
            head.tail_position + head.n_tail - n_tokens,
            spans_at(work.spans + i * work.span_capacity * _SPAN_BYTES, n_spans),
            n_spans,
            softcap,
            sinks + i * group * 4 if sinks != 0 else 0,
            work.scratch + ith * work.scratch_bytes,
            out + i * group * head_step,
            token_step,
            head_step,
        )


@kernel
def settle_heads(heads, n_heads, n_tokens):
    """After a step of n_tokens tokens: have each head's selector tend what is stored.

    heads : address of n_heads HEAD records
    """
    for i in range(n_heads):
        head_address = heads + i * _HEAD_BYTES
        settle = head_at(head_address)[0].settle
        if settle != 0:
            call_native(settle, head_address, n_tokens, 0, 0)


@kernel
def step_alone(shape, heads, n_kv_head, n_tokens, keys, values, softcap, work_address, out):
    """One layer's step on this thread alone, without llama.cpp: store the new rows, then attend.

    keys, values : addresses of (n_kv_head, n_tokens, head_dim) f16    out : of (n_tokens, query heads, head_dim) f32
    """
    stride = shape.head_dim * 2
    for i in range(n_kv_head):
        first = i * n_tokens * stride
        head = head_at(heads + i * _HEAD_BYTES)[0]
        append_rows(shape, head, keys + first, stride, values + first, stride, n_tokens)
    head_step = shape.head_dim * 4
    token_step = n_kv_head * shape.group * head_step
    attend_layer(shape, heads, n_kv_head, n_tokens, softcap, work_address, 0, out, token_step, head_step, 0, 1)


@kernel
def attend_layers(
    shape, heads, n_layers, n_kv_head, n_tokens, work_address, out, token_step, head_step, ith, n_threads
):
    """n_layers layers one after another, without a model between them: what benchmarks time."""
    barrier(work_address, n_threads)
    for layer in range(n_layers):
        first = heads + layer * n_kv_head * _HEAD_BYTES
        attend_layer(
            shape,
            first,
            n_kv_head,
            n_tokens,
            np.float32(0),
            work_address,
            0,
            out,
            token_step,
            head_step,
            ith,
            n_threads,
        )
        barrier(work_address, n_threads)
