"""Hook into llama.cpp's graph: llama.cpp computes everything but attention, and calls octavo's kernels for that.

With flash attention on, every attention of every architecture is one GGML_OP_FLASH_ATTN_EXT node. llama.cpp calls its
public callback `cb_eval` twice for each node: before computing it, to ask whether the callback needs the result; and
after computing a node that the callback needs.

On the CPU, the callback is a native function. Asked about an attention node, it turns the node into a GGML_OP_CUSTOM
node that calls `run_token` or `run_batch`, and answers that it needs nothing. So the graph still runs in one piece, on
ggml's own threads, which run octavo's kernels: without a second thread pool, and without Python inside a step.

On another device (`STEP.attend`), the callback answers that it needs the node. llama.cpp computes the graph up to and
including the node, with attention over the batch alone, and calls back. Then the device computes the node again and
overwrites the result.

An attention node has these inputs, all views:
  src[0] : queries, f32, ne = [head_dim, n_tokens, n_head, 1]
  src[1], src[2] : keys and values, f16, ne = [head_dim, n_cells, n_kv_head, 1]. The batch's rows are the first cells,
      because octavo clears llama.cpp's own cache before each batch
  src[4] : sinks, f32 for each query head, or null
Its output is f32, ne = [head_dim, n_head, n_tokens, 1].
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import int64, types

from ...cpu_kernels.layer import WORK, append_rows, attend_batch, attend_token, threads_for
from ...cpu_kernels.layout.head import HEAD
from ...cpu_kernels.numba_support.compile import kernel, native_callback
from ...cpu_kernels.numba_support.machine_features import HAS_AMX, MULTIPLIES_WEIGHTS
from ...cpu_kernels.numba_support.memory import address_of, barrier, call_native, copy_bytes, read_int64
from ...cpu_kernels.numba_support.shape import unpacked_shape
from ...cpu_kernels.numba_support.views import array_at, record_at
from ...cpu_kernels.products.product_table import ProductTable
from . import ggml
from .ggml import ALL_THREADS, TENSOR
from .product_nodes import compiled_product, finder, replace_product

#: The callback's record of a step, which is one computation of the graph. `replace_attention` gets its address.
STEP = np.dtype(
    [
        ("next_layer", "i8"),  # number of the attention node that llama.cpp asks about next
        ("layers", "i8"),  # address of the LAYER records, in the order of the graph's attention nodes
        ("n_layers", "i8"),
        ("flash_attention", "i8"),  # ggml's numbers of these operations
        ("product", "i8"),
        ("expert_product", "i8"),
        ("custom", "i8"),
        ("attend", "i8"),  # address of a C function of (node, number of its layer, 0, 0) that computes a node after
        #                    llama.cpp did, and returns whether to continue; or 0 to replace nodes before that
        ("products", "i8"),  # address of the PRODUCT records of all types (see product_nodes.py), or 0
        ("prepare_product", "i8"),  # addresses of the native functions `prepare` and `run_product`
        ("find_weights", "i8"),  # address of the C function of a `finder`, or 0
        ("run_product", "i8"),
        ("observer", "i8"),  # address of a C function of (node, ask, 0, 0) that answers instead; or 0
    ],
    align=True,
)

#: The record of a replaced attention node, whose `run_token` or `run_batch` gets the record's address.
LAYER = np.dtype(
    [
        ("work", "i8"),  # address of the WORK record that all layers share (see layer.py)
        ("shape", "i8"),  # `packed`, of the layer's Shape
        ("run_token", "i8"),  # address of the native `run_token`
        ("run_batch", "i8"),  # and of `run_batch`
        ("choose", "i8"),  # address of the native `choose_in_layer` (layer.py), or 0
        ("heads", "i8"),  # address of n_kv_head HEAD records
        (
            "together",
            "i8",
        ),  # address of the native `attend_together` in a step of a token each of several sequences; or 0
        ("sequences", "i8"),  # in such a step, address of the addresses of their HEAD records, int64 each
        ("n_kv_head", "i8"),
        ("appends", "i8"),  # 0 if it reads the keys and values that another layer stores
        ("captured_queries", "i8"),  # address that receives a copy of the scaled queries, or 0
        ("scale", "f4"),
        ("softcap", "f4"),
    ],
    align=True,
)

_HEAD_BYTES, _LAYER_BYTES = HEAD.itemsize, LAYER.itemsize


def new_step(n_layers: int) -> np.ndarray:
    """Make the record of a step.

    Returns
    -------
    STEP array, shape (1,)
        The record, without layers.

    Raises
    ------
    OctavoError
        llama-cpp-python has a version that octavo does not know.
    """
    step = np.zeros(1, STEP)
    step["n_layers"] = n_layers
    for name, number in ggml.check_layout()._asdict().items():
        step[name] = number
    return step


def multiply_weights(
    step: np.ndarray, n_threads: int, stored: Callable[[bytes], int] | None = None
) -> tuple[ProductTable, Any]:
    """Let octavo compute the products of a step, on a CPU that its kernels are for.

    Parameters
    ----------
    stored : callable, optional
        Says where the weights of a name are stored (see `finder`), which llama.cpp has laid out.

    Returns
    -------
    ProductTable
        Their memory, which the step refers to, and which has to start before each step.
    object
        What has to live as long as the step.
    """
    products = ProductTable(n_threads)
    if MULTIPLIES_WEIGHTS:
        step["products"], step["prepare_product"] = products.address, products.prepare_address
        step["run_product"] = compiled_product().address
    find = finder(stored) if stored is not None and HAS_AMX else None
    step["find_weights"] = 0 if find is None else ctypes.cast(find, ctypes.c_void_p).value
    return products, find


@native_callback(types.boolean(types.voidptr, types.boolean, types.voidptr))
def replace_attention(node_pointer, ask, step_pointer):
    """Replace attention nodes by octavo's: llama.cpp's callback `cb_eval`.

    A graph that llama.cpp reuses for the next batch still has octavo's nodes, which are no longer attention nodes.

    Parameters
    ----------
    node_pointer : void pointer
        The node, a ggml_tensor.
    ask : bool
        True before the node is computed: does the callback need its result? False afterwards: shall the graph continue?
    step_pointer : void pointer
        The STEP record.

    Returns
    -------
    bool
        The answer.
    """
    step = record_at(address_of(step_pointer), STEP)
    node_address = address_of(node_pointer)
    node = record_at(node_address, TENSOR)
    is_attention = node.op == step.flash_attention
    if is_attention and not ask and step.attend != 0:
        return call_native(step.attend, node_address, step.next_layer - 1, 0, 0) != 0
    if is_attention and ask:
        if step.next_layer < step.n_layers and step.attend == 0:
            layer_address = step.layers + step.next_layer * _LAYER_BYTES
            node.op = step.custom
            layer, n_tokens = record_at(layer_address, LAYER), record_at(node.src[0], TENSOR).ne[1]
            node.custom_function = layer.run_token if n_tokens == 1 else layer.run_batch
            node.custom_n_tasks = ALL_THREADS
            node.custom_user_data = layer_address
        step.next_layer += 1
        if step.attend != 0:  # the observer does not see nodes that the device computes
            return True
    if step.products != 0 and ask and (node.op == step.product or node.op == step.expert_product):
        find, run = step.find_weights, step.run_product
        replace_product(node_address, step.products, step.prepare_product, find, step.custom, run)
    if step.observer != 0:
        return call_native(step.observer, node_address, int64(ask), 0, 0) != 0
    return not ask


def is_attention(step: np.ndarray, node: ggml.Tensor) -> bool:
    """Return whether a node is an attention: as the graph has it, or replaced. Products are custom nodes, too."""
    if node.op != step["custom"]:
        return bool(node.op == step["flash_attention"])
    layer = ctypes.c_int64.from_address(ctypes.addressof(node) + ggml.CUSTOM_USER_DATA).value
    return bool(0 <= layer - step["layers"] < step["n_layers"] * _LAYER_BYTES)


@cache
def compiled_token() -> Any:
    """Compile `run_token`: a ggml_custom_op_t, whose `address` goes into LAYER records."""

    @native_callback(types.void(types.voidptr, types.int32, types.int32, types.voidptr))
    def token(node, ith, n_threads, layer):
        run_token(address_of(node), ith, n_threads, address_of(layer))

    return token


@cache
def compiled_batch() -> Any:
    """Compile `run_batch`, as in `compiled_token`."""

    @native_callback(types.void(types.voidptr, types.int32, types.int32, types.voidptr))
    def batch(node, ith, n_threads, layer):
        run_batch(address_of(node), ith, n_threads, address_of(layer))

    return batch


@kernel
def run_token(node_address, ith, n_threads, layer_address):
    """Compute one layer's attention for one token: all threads call this together.

    Parameters
    ----------
    node_address : int64
        Address of the node, a ggml_tensor.
    layer_address : int64
        Address of the LAYER record.
    """
    layer, node = record_at(layer_address, LAYER), record_at(node_address, TENSOR)
    shape = unpacked_shape(layer.shape)
    n_threads = threads_for(layer.heads, layer.n_kv_head, n_threads)
    if ith >= n_threads:
        return
    for i in range(ith, layer.n_kv_head, n_threads):
        _load_head(shape, node, 0, 1, i, layer.heads, layer)
    sinks = record_at(node.src[4], TENSOR).data if node.src[4] != 0 else 0
    rest = sinks, node.data, node.nb[1], ith, n_threads
    attend_token(shape, layer.heads, layer.n_kv_head, layer.softcap, layer.work, *rest)


@kernel
def run_batch(node_address, ith, n_threads, layer_address):
    """Compute one layer's attention for a batch; see `run_token`."""
    layer, node = record_at(layer_address, LAYER), record_at(node_address, TENSOR)
    if layer.together != 0:
        call_native(layer.together, node_address, layer_address, ith, n_threads)
        return
    shape, n_tokens = unpacked_shape(layer.shape), record_at(node.src[0], TENSOR).ne[1]
    for i in range(ith, layer.n_kv_head, n_threads):
        _load_head(shape, node, 0, n_tokens, i, layer.heads, layer)
    sinks = record_at(node.src[4], TENSOR).data if node.src[4] != 0 else 0
    rest = layer.choose, sinks, node.data, (node.nb[2], node.nb[1]), ith, n_threads
    attend_batch(shape, layer.heads, layer.n_kv_head, n_tokens, layer.softcap, layer.work, *rest)


@kernel
def attend_together(node_address, layer_address, ith, n_threads):
    """Compute one layer's attention for one token of each of several sequences, one after another, on all threads.

    It is called by address, because most contexts have one sequence. See `run_token` for the parameters.
    """
    layer, node = record_at(layer_address, LAYER), record_at(node_address, TENSOR)
    shape, sinks = unpacked_shape(layer.shape), record_at(node.src[4], TENSOR).data if node.src[4] != 0 else 0
    for token in range(record_at(node.src[0], TENSOR).ne[1]):
        heads = read_int64(layer.sequences + token * 8)
        if token > 0:  # sequences share the working memory
            barrier(layer.work, n_threads)
        n_own = threads_for(heads, layer.n_kv_head, n_threads)
        if ith < n_own:
            for i in range(ith, layer.n_kv_head, n_own):
                _load_head(shape, node, token, 1, i, heads, layer)
            rest = sinks, node.data + token * node.nb[2], node.nb[1], ith, n_own
            attend_token(shape, heads, layer.n_kv_head, layer.softcap, layer.work, *rest)


@cache
def compiled_together() -> Any:
    """Compile `attend_together` as a native function."""

    @native_callback(types.void(*[types.int64] * 4))
    def together(node_address, layer_address, ith, n_threads):
        attend_together(node_address, layer_address, ith, n_threads)

    return together


@kernel
def _load_head(shape, node, first, n_tokens, i, heads, layer):
    """Store the new rows of KV head i, and load its group's queries of n_tokens tokens, from the first on."""
    if layer.appends:
        keys, values = record_at(node.src[1], TENSOR), record_at(node.src[2], TENSOR)
        key, value = keys.data + i * keys.nb[2], values.data + i * values.nb[2]
        key, value = key + first * keys.nb[1], value + first * values.nb[1]
        append_rows(shape, heads + i * _HEAD_BYTES, key, keys.nb[1], value, values.nb[1], n_tokens)
    queries, token_bytes = record_at(node.src[0], TENSOR), shape.group * shape.head_dim * 4
    query = record_at(layer.work, WORK).queries + i * n_tokens * token_bytes
    _load_queries(shape, queries, i, first, n_tokens, layer.scale, query)
    if layer.captured_queries != 0:
        captured = layer.captured_queries + (i * queries.ne[1] + first) * token_bytes
        copy_bytes(captured, query, n_tokens * token_bytes)


@kernel
def _load_queries(shape, queries, i, first_token, n_tokens, scale, target_address):
    """Scale the queries of KV head i's group, and place those of a token together: (n_tokens, group, head_dim)."""
    token_step, head_step = queries.nb[1], queries.nb[2]
    first = queries.data + first_token * token_step + i * shape.group * head_step
    target = array_at(target_address, (n_tokens, shape.group, shape.head_dim), np.float32)
    for token in range(n_tokens):
        for g in range(shape.group):
            source = array_at(first + token * token_step + g * head_step, (shape.head_dim,), np.float32)
            for j in range(shape.head_dim):
                target[token, g, j] = source[j] * scale
