"""Compute one layer's attention, from queries to output: score, select, attend, merge. All threads run it together.

Each part divides the work anew, behind a barrier at which all threads wait. For one token:

    score             each thread scores its share of every head's items
    -- barrier --
    rank              each thread ranks its share of every head's items     (only methods with `rank` and `pick`)
    -- barrier --
    pick, or select   each thread picks from its share; or one thread selects for a whole head
    -- barrier --
    decode, estimate  the threads take equal shares of all heads' rows (decode.py), and estimate the rest
    -- barrier --
    merge             one thread merges the partial results of a whole head, and finishes its output

For a batch: select, barrier, then threads take tiles of queries one by one, the longest first. The heads' methods
define scores and selections (hooks.py).
"""

from __future__ import annotations

import math

import numpy as np
from numba import int64

from .attend import decode
from .attend.decode import attend_share, merge_shares, partial_of
from .attend.read_ahead import ask_for_rows
from .layout.head import HEAD, head_at, tail_key, tail_value
from .layout.hooks import split_counts
from .layout.scores import rest_address
from .layout.spans import SPAN, count_rows, spans_at
from .numba_support.compile import kernel, layout
from .numba_support.memory import barrier, call_native, copy_bytes, fetch_add, read_int64, write_int64
from .numba_support.shape import Shape
from .numba_support.views import record_at
from .prefill.attend_batch import attend_tile
from .prefill.sparse_prefill import FEWEST_BLOCKS, choose_blocks, count_blocks, count_groups, count_samples, sample_tile
from .prefill.tile_scratch import scratch_parts, tile_queries
from .rows.rows import quantise_halves, query_bytes

#: Shared by the threads while they attend, layer after layer.
WORK = np.dtype(
    [
        ("arrived", "i8"),  # threads that reached a barrier in this step
        ("next_tile", "i8"),  # first prefill tile that no thread has taken
        ("next_sample", "i8"),  # first tile of sampled queries that no thread has taken
        ("queries", "i8"),  # (n_kv_head, n_tokens * group, head_dim) f32, scaled
        ("spans", "i8"),  # (n_kv_head, span_capacity) SPANs
        ("span_capacity", "i8"),
        ("n_spans", "i8"),  # (n_kv_head,) int64
        ("n_rows", "i8"),  # (n_kv_head,) int64
        ("partials", "i8"),  # (n_threads, n_kv_head) partial results
        ("scratch", "i8"),  # (n_threads, scratch_bytes)
        ("scratch_bytes", "i8"),
        ("rounds", "i8"),  # 1 if a batch may round to integers where their products are faster
        # For a batch that reads only the blocks of keys with most of its attention (sparse_prefill.py).
        ("covers", "f8"),  # share of the attention that they must hold; 0 to read everything
        ("n_kv_head", "i8"),  # these three describe the layer that chooses
        ("n_tokens", "i8"),
        ("softcap", "f4"),
        ("n_blocks", "i8"),  # (n_kv_head,) int64; 0 for a head that reads everything
        ("most_blocks", "i8"),  # capacity in blocks
        ("samples", "i8"),  # (n_kv_head, sample_bytes)
        ("sample_bytes", "i8"),
        ("chosen", "i8"),  # (n_kv_head, most groups, most_blocks) bytes
        ("chosen_bytes", "i8"),  # bytes of one head
    ],
    align=True,
)

#: Stored rows of a layer below which one thread attends a token alone: barriers would cost more than half of the work.
SHORT = 256

_HEAD_BYTES, _SPAN_BYTES = HEAD.itemsize, SPAN.itemsize
_NEXT_TILE, _NEXT_SAMPLE = 8, 16  # their offsets in WORK
_OFFSETS = {name: place[1] for name, place in (HEAD.fields or {}).items()}
_SCORE, _RANK = _OFFSETS["score"], _OFFSETS["rank"]


def scratch_bytes(shape: Shape) -> int:
    """Return the scratch of one thread, for decode and prefill, in bytes."""
    return max(int(scratch_parts(shape, 0).end), int(decode.scratch_parts(shape, 0).query) + int(query_bytes(shape)))


@kernel
def threads_for(heads, n_kv_head, n_threads):
    """Return how many of n_threads threads should attend a token in a layer: one, while few rows are stored."""
    n_rows = 0
    for i in range(n_kv_head):
        head = head_at(heads + i * _HEAD_BYTES)
        n_rows += head.n_document + head.n_tail
    return 1 if n_rows < SHORT else n_threads


@kernel
def _which_hooks(heads, n_kv_head):
    """Return whether any head's method scores before it selects, and whether any ranks."""
    scores = ranks = False
    for i in range(n_kv_head):
        head = head_at(heads + i * _HEAD_BYTES)
        scores, ranks = scores or head.score != 0, ranks or head.rank != 0
    return scores, ranks


@kernel
def attend_layer(
    shape, heads, n_kv_head, n_tokens, softcap, work_address, sinks, out, token_step, head_step, ith, n_threads
):
    """Compute one thread's part of a layer's attention.

    The scaled queries of head i, and its new rows, must be in place when thread i % n_threads calls this. llama.cpp's
    graph calls `attend_token` or `attend_batch`, which compile separately.

    Parameters
    ----------
    heads : int64
        Address of n_kv_head HEAD records.
    softcap : float32
        Soft cap of the scores; 0 for none.
    work_address : int64
        Address of the WORK record, shared by the threads.
    sinks : int64
        Address of a score for each query head that takes part in the softmax without a value, or 0.
    out : int64
        Address of the first query head's output for the first token, value_dim f32.
    token_step, head_step : int64
        Bytes to the next token's and to the next query head's output.
    """
    if n_tokens == 1:
        attend_token(shape, heads, n_kv_head, softcap, work_address, sinks, out, head_step, ith, n_threads)
    else:
        steps = token_step, head_step
        attend_batch(shape, heads, n_kv_head, n_tokens, softcap, work_address, 0, sinks, out, steps, ith, n_threads)


@kernel
def attend_token(shape, heads, n_kv_head, softcap, work_address, sinks, out, head_step, ith, n_threads):
    """Compute one thread's part of a layer's attention for one token; the parameters are those of `attend_layer`."""
    work = record_at(work_address, WORK)
    scores, ranks = _which_hooks(heads, n_kv_head)
    if scores:
        barrier(work_address, n_threads)
        _call_for_shares(shape, heads, n_kv_head, work, _SCORE, ith, n_threads)
        barrier(work_address, n_threads)
    if ranks:
        _rank_and_pick(shape, heads, n_kv_head, work_address, ith, n_threads)
    for i in range(ith, n_kv_head, n_threads):
        if head_at(heads + i * _HEAD_BYTES).pick == 0:
            _select(shape, 1, i, heads, work)
    barrier(work_address, n_threads)
    _decode(shape, heads, n_kv_head, softcap, work_address, sinks, out, head_step, ith, n_threads)


@kernel
def attend_batch(shape, heads, n_kv_head, n_tokens, softcap, work_address, choose, sinks, out, steps, ith, n_threads):
    """Compute one thread's part of a layer's attention for a batch.

    Parameters
    ----------
    choose : int64
        Address of the native `choose_in_layer`, which chooses the blocks of keys with most of the batch's attention; or
        0 to read everything.
    steps : tuple of two int64
        `token_step` and `head_step` of `attend_layer`.
    """
    work = record_at(work_address, WORK)
    sparse = choose != 0 and work.covers > 0
    if ith == 0:
        work.next_tile = work.next_sample = 0
        work.n_kv_head, work.n_tokens, work.softcap = n_kv_head, n_tokens, softcap
    for i in range(ith, n_kv_head, n_threads):
        _select(shape, n_tokens, i, heads, work)
        if sparse:
            _count_blocks(i, work)
    barrier(work_address, n_threads)
    if sparse:
        call_native(choose, heads, work_address, ith, n_threads)
    _prefill(shape, heads, n_kv_head, n_tokens, softcap, work_address, sparse, sinks, out, steps, ith, n_threads)


@layout
def part_of_head(i, n_heads, ith, n_threads):
    """Return which part of head i a thread computes, and the number of its parts: 0 if the thread computes none.

    Each thread gets whole heads, and only the leftover heads are split, since every extra thread of a head computes the
    tables of the query again.
    """
    n_whole = n_heads // n_threads * n_threads
    if i < n_whole:
        return 0, 1 if i % n_threads == ith else 0
    n_left = n_heads - n_whole
    first, stop = (i - n_whole) * n_threads // n_left, (i - n_whole + 1) * n_threads // n_left
    return ith - first, stop - first if first <= ith < stop else 0


@kernel
def _call_for_shares(shape, heads, n_kv_head, work, hook, ith, n_threads):
    """Call the hook at this offset in HEAD, `score` or `rank`, for one thread's share of each head that has it."""
    for i in range(n_kv_head):
        head_address = heads + i * _HEAD_BYTES
        address = read_int64(head_address + hook)
        part, n_parts = part_of_head(i, n_kv_head, ith, n_threads)
        if address != 0 and n_parts > 0:
            query = work.queries + i * shape.group * shape.head_dim * 4
            call_native(address, head_address, query, part, n_parts)


@kernel
def _rank_and_pick(shape, heads, n_kv_head, work_address, ith, n_threads):
    """Call the `rank` and `pick` hooks for one thread's share of each head, and count the spans and rows."""
    work = record_at(work_address, WORK)
    for i in range(ith, n_kv_head, n_threads):
        write_int64(work.n_spans + i * 8, 0)
        write_int64(work.n_rows + i * 8, 0)
    _call_for_shares(shape, heads, n_kv_head, work, _RANK, ith, n_threads)
    barrier(work_address, n_threads)
    for i in range(n_kv_head):
        head_address = heads + i * _HEAD_BYTES
        pick = head_at(head_address).pick
        part, n_parts = part_of_head(i, n_kv_head, ith, n_threads)
        if pick != 0 and n_parts > 0:
            spans_address = work.spans + i * work.span_capacity * _SPAN_BYTES
            n_spans, n_rows = split_counts(call_native(pick, head_address, spans_address, part, n_parts))
            fetch_add(work.n_spans + i * 8, n_spans)
            fetch_add(work.n_rows + i * 8, n_rows)


@kernel
def _select(shape, n_tokens, i, heads, work):
    """Call a KV head's `select` hook, and count the rows that attention will read."""
    head_address = heads + i * _HEAD_BYTES
    head = head_at(head_address)
    query = work.queries + i * n_tokens * shape.group * shape.head_dim * 4
    spans_address = work.spans + i * work.span_capacity * _SPAN_BYTES
    n_spans = call_native(head.select, head_address, query, n_tokens, spans_address)
    n_rows = count_rows(spans_address, n_spans)
    write_int64(work.n_spans + i * 8, n_spans)
    write_int64(work.n_rows + i * 8, n_rows)
    if n_tokens > 1:
        head.bytes_read += n_rows * shape.token_bytes
    elif head.document_pages != 0:
        ask_for_rows(shape, head.document_pages, spans_address, n_spans)


@kernel
def _count_blocks(i, work):
    """Count the blocks that a KV head's batch chooses from; 0 if it reads everything."""
    n_spans = read_int64(work.n_spans + i * 8)
    spans = spans_at(work.spans + i * work.span_capacity * _SPAN_BYTES, n_spans)
    n_blocks = count_blocks(spans, n_spans)
    sparse = FEWEST_BLOCKS <= n_blocks <= work.most_blocks and spans[0].queries == 0
    write_int64(work.n_blocks + i * 8, n_blocks if sparse else 0)


@kernel
def _decode(shape, heads, n_kv_head, softcap, work_address, sinks, out, head_step, ith, n_threads):
    work = record_at(work_address, WORK)
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
    for i in range(n_kv_head):
        estimate = head_at(heads + i * _HEAD_BYTES).estimate
        part, n_parts = part_of_head(i, n_kv_head, ith, n_threads)
        if estimate != 0 and n_parts > 0:
            partial = partial_of(shape, work.partials, n_kv_head, ith, i)
            call_native(estimate, heads + i * _HEAD_BYTES, partial, part, n_parts)
    barrier(work_address, n_threads)
    for i in range(ith, n_kv_head, n_threads):
        head = head_at(heads + i * _HEAD_BYTES)
        head.bytes_read += read_int64(work.n_rows + i * 8) * shape.token_bytes
        rest = rest_address(shape, head) if head.estimate != 0 else 0
        covered = merge_shares(shape, i, n_kv_head, work.partials, n_threads, sinks, out, head_step, rest)
        if rest != 0 and not math.isnan(covered):
            head.n_covered += 1
            head.covered += int64(covered * 1e6)
        if head.finish != 0:
            call_native(head.finish, heads + i * _HEAD_BYTES, out + i * shape.group * head_step, head_step, 0)


@kernel
def choose_in_layer(shape, heads, work_address, ith, n_threads):
    """Choose the blocks that a batch reads, in every head that has enough of them. All threads call it together.

    It is called by address, so that it can compile while the first part of a document is read without it.
    """
    work = record_at(work_address, WORK)
    n_kv_head, n_tokens, softcap = work.n_kv_head, work.n_tokens, work.softcap
    n_groups = count_groups(_first_position(heads, 0, n_tokens), n_tokens)
    n_rows = count_samples(shape, n_groups)
    size = tile_queries(shape, n_rows, n_kv_head, n_threads)
    while True:
        item = fetch_add(work_address + _NEXT_SAMPLE, 1)
        i, first = item % n_kv_head, item // n_kv_head * size
        if first >= n_rows:
            break
        n_blocks, n_spans = read_int64(work.n_blocks + i * 8), read_int64(work.n_spans + i * 8)
        if n_blocks > 0:
            sample_tile(
                shape,
                first,
                min(size, n_rows - first),
                n_tokens,
                work.queries + i * n_tokens * shape.group * shape.head_dim * 4,
                _first_position(heads, i, n_tokens),
                spans_at(work.spans + i * work.span_capacity * _SPAN_BYTES, n_spans),
                n_spans,
                softcap,
                work.scratch + ith * work.scratch_bytes,
                work.samples + i * work.sample_bytes,
                n_blocks,
            )
    barrier(work_address, n_threads)
    for item in range(ith, n_groups * n_kv_head, n_threads):
        i, group = item % n_kv_head, item // n_kv_head
        n_blocks, n_spans = read_int64(work.n_blocks + i * 8), read_int64(work.n_spans + i * 8)
        if n_blocks > 0:
            choose_blocks(
                shape,
                group,
                n_tokens,
                _first_position(heads, i, n_tokens),
                spans_at(work.spans + i * work.span_capacity * _SPAN_BYTES, n_spans),
                n_spans,
                work.covers,
                work.samples + i * work.sample_bytes,
                n_blocks,
                work.chosen + i * work.chosen_bytes + group * n_blocks,
            )
    barrier(work_address, n_threads)
    return 0


@kernel
def _first_position(heads, i, n_tokens):
    """Return the position of a step's first token, in the rows of head i."""
    head = head_at(heads + i * _HEAD_BYTES)
    return head.tail_position + head.n_tail - n_tokens


@kernel
def _prefill(shape, heads, n_kv_head, n_tokens, softcap, work_address, sparse, sinks, out, steps, ith, n_threads):
    token_step, head_step = steps
    work = record_at(work_address, WORK)
    group, n_rows = shape.group, n_tokens * shape.group
    size = tile_queries(shape, n_rows, n_kv_head, n_threads)
    tiles = -(-n_rows // size)
    while True:
        item = fetch_add(work_address + _NEXT_TILE, 1)
        if item >= tiles * n_kv_head:
            break
        i, first = item % n_kv_head, (tiles - 1 - item // n_kv_head) * size
        n_spans, n_blocks = read_int64(work.n_spans + i * 8), 0
        if sparse:
            n_blocks = read_int64(work.n_blocks + i * 8)
        attend_tile(
            shape,
            first,
            min(size, n_rows - first),
            work.queries + i * n_tokens * group * shape.head_dim * 4,
            _first_position(heads, i, n_tokens),
            work.spans + i * work.span_capacity * _SPAN_BYTES,
            n_spans,
            work.chosen + i * work.chosen_bytes if n_blocks > 0 else 0,
            n_blocks,
            work.rounds,
            softcap,
            sinks + i * group * 4 if sinks != 0 else 0,
            work.scratch + ith * work.scratch_bytes,
            out + i * group * head_step,
            token_step,
            head_step,
        )


@kernel
def after_step(heads, n_heads, n_tokens):
    """Call the `after_step` hooks of n_heads heads, HEAD records at an address, after a step of n_tokens tokens."""
    for i in range(n_heads):
        head_address = heads + i * _HEAD_BYTES
        hook = head_at(head_address).after_step
        if hook != 0:
            call_native(hook, head_address, n_tokens, 0, 0)


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
        _store_row(shape, keys + token * key_stride, tail_key(shape, head, first + token))
        if not shape.latent:
            _store_row(shape.of_values, values + token * value_stride, tail_value(shape, head, first + token))
    if head.append != 0:
        call_native(head.append, head_address, first, head.n_tail, 0)


@kernel
def _store_row(shape, source, target):
    """Store head_dim f16 as a row."""
    if shape.quantised:
        quantise_halves(shape, source, target)
    else:
        copy_bytes(target, source, shape.row_bytes)


@kernel
def step_alone(shape, heads, n_kv_head, n_tokens, keys, values, softcap, work_address, out):
    """Compute one layer's step on this thread alone, without llama.cpp: store the new rows, then attend.

    Parameters
    ----------
    keys, values : int64
        Addresses of the new rows, (n_kv_head, n_tokens, head_dim) and (n_kv_head, n_tokens, value_dim) f16.
    out : int64
        Address of the output, (n_tokens, query heads, value_dim) f32.
    """
    key_step, value_step = shape.head_dim * 2, shape.value_dim * 2
    for i in range(n_kv_head):
        key, value = keys + i * n_tokens * key_step, values + i * n_tokens * value_step
        append_rows(shape, heads + i * _HEAD_BYTES, key, key_step, value, value_step, n_tokens)
    head_step = shape.value_dim * 4
    token_step = n_kv_head * shape.group * head_step
    attend_layer(shape, heads, n_kv_head, n_tokens, softcap, work_address, 0, out, token_step, head_step, 0, 1)


@kernel
def attend_layers(
    shape, heads, n_layers, n_kv_head, n_tokens, work_address, out, token_step, head_step, ith, n_threads
):
    """Compute the attention of n_layers layers one after another, without a model between them: for benchmarks.

    The parameters are those of `attend_layer`; `heads` is the address of n_layers * n_kv_head HEAD records.
    """
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
