"""The seam in llama.cpp: its graph computes everything but attention, and calls us for that.

With flash attention on, every attention of every architecture is one GGML_OP_FLASH_ATTN_EXT node. llama.cpp's public
`cb_eval` asks about each node before it is computed: there, a native function turns an attention node into a
GGML_OP_CUSTOM node that calls `run_layer`, and answers "not needed". So the graph still runs in one piece on ggml's own
threads, which run our kernels too: no second thread pool, and no Python inside a step.

An attention node's inputs, all views:
  src[0] queries, f32, ne = [head_dim, n_tokens, n_head, 1]    src[4] sinks, f32 for each query head, or null
  src[1], src[2] keys and values, f16, ne = [head_dim, n_cells, n_kv_head, 1]: the batch's rows are the first cells,
  because llama.cpp's own cache is cleared before each batch
and its output is f32, ne = [head_dim, n_head, n_tokens, 1].
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import carray, types

from octavo.cpu_kernels.compile import Shape, kernel, native_callback
from octavo.cpu_kernels.decode import BLOCK, attend_share, merge_shares, partial_size
from octavo.cpu_kernels.memory import (
    address_of,
    barrier,
    call_selector,
    copy_bytes,
    fetch_add,
    pointer,
    read_int32,
    read_int64,
    write_int32,
    write_int64,
)
from octavo.cpu_kernels.prefill import attend_tile, n_tiles, tile_scratch_size
from octavo.cpu_kernels.spans import CHUNK_ROWS, HEAD, SPAN, head_at, spans_at

from . import ggml

#: What all layers of a context share, in one step.
STEP = np.dtype(
    [
        ("arrived", "i8"),  # threads that came to a barrier in this step
        ("next_tile", "i8"),  # prefill tile that no thread has taken yet
        ("next_layer", "i8"),  # attention node that was asked about last, plus one
        ("layers", "i8"),  # address of the LAYER records, in the order of the graph's attention nodes
        ("n_layers", "i8"),
        ("flash_attention", "i8"),  # numbers of these operations
        ("custom", "i8"),
        ("queries", "i8"),  # (n_kv_head, n_tokens * group, head_dim) f32
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

#: One attention node.
LAYER = np.dtype(
    [
        ("step", "i8"),  # address of the STEP record
        ("run", "i8"),  # address of the compiled `run_layer` for its shape
        ("heads", "i8"),  # address of n_kv_head HEAD records
        ("n_kv_head", "i8"),
        ("appends", "i8"),  # 0 where it reads another layer's keys and values
        ("captured_queries", "i8"),  # where to leave a copy of the scaled queries, or 0
        ("scale", "f4"),
        ("softcap", "f4"),
    ],
    align=True,
)

_HEAD_BYTES, _SPAN_BYTES, _LAYER_BYTES = HEAD.itemsize, SPAN.itemsize, LAYER.itemsize
_NE, _NB, _OP, _SRC, _DATA = ggml.NE, ggml.NB, ggml.OP, ggml.SRC, ggml.DATA
_FUNCTION, _N_TASKS, _USER_DATA = ggml.CUSTOM_FUNCTION, ggml.CUSTOM_N_TASKS, ggml.CUSTOM_USER_DATA
_ALL_THREADS = ggml.ALL_THREADS


def scratch_bytes(shape: Shape) -> int:
    """Scratch of one thread, for decode and prefill."""
    return 4 * max(tile_scratch_size(shape), shape.group * BLOCK)


def partial_bytes(shape: Shape) -> int:
    """Bytes of one partial result."""
    return 4 * partial_size(shape)


@native_callback(types.boolean(types.voidptr, types.boolean, types.voidptr))
def take_over(node_pointer, ask, step_pointer):
    """cb_eval: make the attention nodes ours. A reused graph has them already."""
    step = carray(step_pointer, (1,), STEP)[0]
    node = address_of(node_pointer)
    if ask and read_int32(node + _OP) == step.flash_attention:
        if step.next_layer < step.n_layers:
            layer_address = step.layers + step.next_layer * _LAYER_BYTES
            layer = carray(pointer(layer_address), (1,), LAYER)[0]
            write_int32(node + _OP, step.custom)
            write_int64(node + _FUNCTION, layer.run)
            write_int32(node + _N_TASKS, _ALL_THREADS)
            write_int64(node + _USER_DATA, layer_address)
        step.next_layer += 1
    return not ask


@cache
def compiled_layer(shape: Shape) -> Any:
    """`run_layer` for one shape as a native function, of the type ggml_custom_op_t."""

    @native_callback(types.void(types.voidptr, types.int32, types.int32, types.voidptr))
    def run(node, ith, n_threads, layer):
        run_layer(shape, address_of(node), ith, n_threads, address_of(layer))

    return run


@kernel
def run_layer(shape, node, ith, n_threads, layer_address):
    """One layer's attention on one of n_threads threads, which all run this together."""
    layer = carray(pointer(layer_address), (1,), LAYER)[0]
    step = carray(pointer(layer.step), (1,), STEP)[0]
    queries = read_int64(node + _SRC)
    n_tokens = read_int64(queries + _NE + 8)
    if ith == 0:
        step.next_tile = 0
    for i in range(ith, layer.n_kv_head, n_threads):
        _prepare_head(shape, node, queries, n_tokens, i, layer, step)
    barrier(layer.step, n_threads)
    if n_tokens == 1:
        _decode(shape, node, ith, n_threads, layer, step)
    else:
        _prefill(shape, node, n_tokens, ith, layer, step)


@kernel
def _prepare_head(shape, node, queries, n_tokens, i, layer, step):
    """Take one KV head's new rows and queries, and select what they attend."""
    head_address = layer.heads + i * _HEAD_BYTES
    head = head_at(head_address)[0]
    row_bytes = shape.head_dim * 2
    if layer.appends:
        _append(row_bytes, read_int64(node + _SRC + 8), i, n_tokens, head, head.key_offset)
        _append(row_bytes, read_int64(node + _SRC + 16), i, n_tokens, head, head.value_offset)
    query_bytes = n_tokens * shape.group * shape.head_dim * 4
    query = step.queries + i * query_bytes
    _load_queries(shape, queries, i, n_tokens, layer.scale, query)
    if layer.captured_queries != 0:
        copy_bytes(layer.captured_queries + i * query_bytes, query, query_bytes)
    spans_address = step.spans + i * step.span_capacity * _SPAN_BYTES
    n_spans = call_selector(head.select, head_address, query, n_tokens, spans_address)
    spans = spans_at(spans_address, n_spans)
    n_rows = 0
    for s in range(n_spans):
        n_rows += spans[s].n_rows
    write_int64(step.n_spans + i * 8, n_spans)
    write_int64(step.n_rows + i * 8, n_rows)
    head.bytes_read += n_rows * 2 * row_bytes


@kernel
def _append(row_bytes, rows, i, n_tokens, head, offset):
    """Copy KV head i's new rows of a key or value tensor to the tail."""
    source = read_int64(rows + _DATA) + i * read_int64(rows + _NB + 16)
    stride = read_int64(rows + _NB + 8)
    for token in range(n_tokens):
        row = head.n_tail - n_tokens + token
        chunk = read_int64(head.tail_chunks + row // CHUNK_ROWS * 8)
        copy_bytes(chunk + offset + row % CHUNK_ROWS * row_bytes, source + token * stride, row_bytes)


@kernel
def _load_queries(shape, queries, i, n_tokens, scale, target_address):
    """Scale the queries of KV head i's group and lay each token's together: (n_tokens, group, head_dim)."""
    data = read_int64(queries + _DATA)
    token_step, head_step = read_int64(queries + _NB + 8), read_int64(queries + _NB + 16)
    target = carray(pointer(target_address), (n_tokens, shape.group, shape.head_dim), np.float32)
    for token in range(n_tokens):
        for g in range(shape.group):
            address = data + token * token_step + (i * shape.group + g) * head_step
            source = carray(pointer(address), (shape.head_dim,), np.float32)
            for j in range(shape.head_dim):
                target[token, g, j] = source[j] * scale


@kernel
def _sinks(node):
    """Address of the sinks' scores, or 0."""
    sinks = read_int64(node + _SRC + 32)
    return read_int64(sinks + _DATA) if sinks != 0 else 0


@kernel
def _decode(shape, node, ith, n_threads, layer, step):
    scratch = step.scratch + ith * step.scratch_bytes
    attend_share(
        shape,
        step.queries,
        layer.n_kv_head,
        step.spans,
        step.span_capacity,
        step.n_spans,
        step.n_rows,
        layer.softcap,
        scratch,
        step.partials,
        ith,
        n_threads,
    )
    barrier(layer.step, n_threads)
    out, head_step = read_int64(node + _DATA), read_int64(node + _NB + 8)
    for i in range(ith, layer.n_kv_head, n_threads):
        merge_shares(shape, i, layer.n_kv_head, step.partials, n_threads, _sinks(node), out, head_step)


@kernel
def _prefill(shape, node, n_tokens, ith, layer, step):
    head_step, token_step = read_int64(node + _NB + 8), read_int64(node + _NB + 16)
    tiles = n_tiles(shape, n_tokens)
    scratch = step.scratch + ith * step.scratch_bytes
    sinks, group = _sinks(node), shape.group
    next_tile = layer.step + 8
    while True:
        item = fetch_add(next_tile, 1)
        if item >= tiles * layer.n_kv_head:
            break
        i, tile = item % layer.n_kv_head, tiles - 1 - item // layer.n_kv_head  # the longest tiles first
        head = head_at(layer.heads + i * _HEAD_BYTES)[0]
        n_spans = read_int64(step.n_spans + i * 8)
        spans = spans_at(step.spans + i * step.span_capacity * _SPAN_BYTES, n_spans)
        query = step.queries + i * n_tokens * group * shape.head_dim * 4
        position = head.tail_position + head.n_tail - n_tokens
        attend_tile(
            shape,
            tile,
            n_tokens,
            query,
            position,
            spans,
            n_spans,
            head.window,
            layer.softcap,
            sinks + i * group * 4 if sinks != 0 else 0,
            scratch,
            read_int64(node + _DATA) + i * group * head_step,
            token_step,
            head_step,
        )
