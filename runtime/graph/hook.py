"""The seam in llama.cpp: its graph computes everything but attention, and calls us for that.

With flash attention on, every attention of every architecture is one GGML_OP_FLASH_ATTN_EXT node. llama.cpp's public
`cb_eval` asks about each node before it is computed. On the CPU, a native function there turns an attention node into a
GGML_OP_CUSTOM node that calls `run_layer`, and answers "not needed". So the graph still runs in one piece on ggml's own
threads, which run our kernels too: no second thread pool, and no Python inside a step.

For a device of its own (`STEP.attend`), it answers "needed": llama.cpp computes the graph up to that node, attention
over the batch alone included, waits, and says so; then the device computes the node anew and overwrites it.

An attention node's inputs, all views:
  src[0] queries, f32, ne = [head_dim, n_tokens, n_head, 1]    src[4] sinks, f32 for each query head, or null
  src[1], src[2] keys and values, f16, ne = [head_dim, n_cells, n_kv_head, 1]: the batch's rows are the first cells,
  because llama.cpp's own cache is cleared before each batch
and its output is f32, ne = [head_dim, n_head, n_tokens, 1].
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numba import carray, int64, types

from ...cpu_kernels.append import append_rows
from ...cpu_kernels.compile import Shape, kernel, native_callback
from ...cpu_kernels.layer import WORK, attend_layer, threads_for
from ...cpu_kernels.memory import (
    address_of,
    call_native,
    copy_bytes,
    pointer,
    read_int32,
    read_int64,
    write_int32,
    write_int64,
)
from ...cpu_kernels.spans import HEAD, head_at
from . import ggml

#: The graph's attention nodes, as `take_over` meets them.
STEP = np.dtype(
    [
        ("next_layer", "i8"),  # attention node that was asked about last, plus one
        ("layers", "i8"),  # address of the LAYER records, in the order of the graph's attention nodes
        ("n_layers", "i8"),
        ("flash_attention", "i8"),  # numbers of these operations
        ("custom", "i8"),
        ("attend", "i8"),  # address of a C function of (node, number of its layer, 0, 0) that computes a node once
        #                    llama.cpp has, and says whether to go on; or 0 where nodes become ours before that
        ("observer", "i8"),  # address of a C function of (node, ask, 0, 0), which answers in our place; or 0
    ],
    align=True,
)

#: One attention node.
LAYER = np.dtype(
    [
        ("work", "i8"),  # address of the WORK record that all layers share (see layer.py)
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

_HEAD_BYTES, _LAYER_BYTES = HEAD.itemsize, LAYER.itemsize
_NE, _NB, _OP, _SRC, _DATA = ggml.NE, ggml.NB, ggml.OP, ggml.SRC, ggml.DATA
_FUNCTION, _N_TASKS, _USER_DATA = ggml.CUSTOM_FUNCTION, ggml.CUSTOM_N_TASKS, ggml.CUSTOM_USER_DATA
_ALL_THREADS = ggml.ALL_THREADS

#: What STEP's `attend` and `observer` are in Python.
Callback = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 5)


def new_step(n_layers: int) -> np.ndarray:
    """A STEP of n_layers attention nodes, an array of one. Raises OctavoError where llama.cpp is of another version."""
    step = np.zeros(1, STEP)
    step["n_layers"] = n_layers
    step["flash_attention"], step["custom"] = ggml.check_layout()
    return step


@native_callback(types.boolean(types.voidptr, types.boolean, types.voidptr))
def take_over(node_pointer, ask, step_pointer):
    """cb_eval: make the attention nodes ours. A reused graph has them already."""
    step = carray(step_pointer, (1,), STEP)[0]
    node = address_of(node_pointer)
    is_attention = read_int32(node + _OP) == step.flash_attention
    if is_attention and not ask and step.attend != 0:
        return call_native(step.attend, node, step.next_layer - 1, 0, 0) != 0
    if is_attention and ask:
        if step.next_layer < step.n_layers and step.attend == 0:
            layer_address = step.layers + step.next_layer * _LAYER_BYTES
            layer = carray(pointer(layer_address), (1,), LAYER)[0]
            write_int32(node + _OP, step.custom)
            write_int64(node + _FUNCTION, layer.run)
            write_int32(node + _N_TASKS, _ALL_THREADS)
            write_int64(node + _USER_DATA, layer_address)
        step.next_layer += 1
        if step.attend != 0:  # who observes is not asked about it
            return True
    if step.observer != 0:
        return call_native(step.observer, node, int64(ask), 0, 0) != 0
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
    queries = read_int64(node + _SRC)
    n_tokens = read_int64(queries + _NE + 8)
    n_threads = threads_for(layer.heads, layer.n_kv_head, n_tokens, n_threads)
    if ith >= n_threads:
        return
    for i in range(ith, layer.n_kv_head, n_threads):
        _take_in(shape, node, queries, n_tokens, i, layer)
    sinks, out = read_int64(node + _SRC + 32), read_int64(node + _DATA)
    head_step, token_step = read_int64(node + _NB + 8), read_int64(node + _NB + 16)
    attend_layer(
        shape,
        layer.heads,
        layer.n_kv_head,
        n_tokens,
        layer.softcap,
        layer.work,
        read_int64(sinks + _DATA) if sinks != 0 else 0,
        out,
        token_step,
        head_step,
        ith,
        n_threads,
    )


@kernel
def _take_in(shape, node, queries, n_tokens, i, layer):
    """Take one KV head's new rows and queries."""
    head = head_at(layer.heads + i * _HEAD_BYTES)[0]
    if layer.appends:
        keys, values = read_int64(node + _SRC + 8), read_int64(node + _SRC + 16)
        key_stride, value_stride = read_int64(keys + _NB + 8), read_int64(values + _NB + 8)
        append_rows(shape, head, _head_data(keys, i), key_stride, _head_data(values, i), value_stride, n_tokens)
    work = carray(pointer(layer.work), (1,), WORK)[0]
    query_bytes = n_tokens * shape.group * shape.head_dim * 4
    query = work.queries + i * query_bytes
    _load_queries(shape, queries, i, n_tokens, layer.scale, query)
    if layer.captured_queries != 0:
        copy_bytes(layer.captured_queries + i * query_bytes, query, query_bytes)


@kernel
def _head_data(tensor, i):
    """Address of KV head i's first row in a key or value tensor."""
    return read_int64(tensor + _DATA) + i * read_int64(tensor + _NB + 16)


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
