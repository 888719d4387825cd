"""Compute llama.cpp's products of quantised weights with octavo's kernels, inside its graph (see hook.py).

A product is a GGML_OP_MUL_MAT node, whose inputs are:
  src[0] : weights, ne = [n_columns, n_rows, 1, 1]
  src[1] : the batch, f32, ne = [n_columns, n_tokens, 1, 1]
Its output is f32, ne = [n_rows, n_tokens, 1, 1].

A product with experts is a GGML_OP_MUL_MAT_ID node, whose inputs are:
  src[0] : weights, ne = [n_columns, n_rows, n_experts, 1]
  src[1] : the batch, f32, ne = [n_columns, n_inputs, n_tokens, 1]; a token's experts take its inputs in turns
  src[2] : the numbers of a token's experts, i32, ne = [n_used, n_tokens, 1, 1], a view
Its output is f32, ne = [n_rows, n_used, n_tokens, 1].

With AMX llama.cpp lays out most weights for itself, which then have an `extra`: so it multiplies few tokens faster.
octavo multiplies many by the weights as they are stored, in the model's files. On other CPUs they stay llama.cpp's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from numba import types

from ...cpu_kernels.numba_support.compile import kernel, native_callback
from ...cpu_kernels.numba_support.memory import Callback, address_of, call_native
from ...cpu_kernels.numba_support.views import record_at
from ...cpu_kernels.products.multiply import PRODUCT, fits, multiply_batch, multiply_experts
from ...cpu_kernels.products.panel_tiles import FEWEST_TILED
from ...cpu_kernels.products.product_table import N_TYPES
from .ggml import ALL_THREADS, STORED, TENSOR, TYPE_F32, Tensor

_PRODUCT_BYTES = PRODUCT.itemsize


def finder(stored: Callable[[bytes], int]) -> Any:
    """Return a C function of a tensor's address that notes where its weights are stored.

    Parameters
    ----------
    stored : callable
        Takes the name of a tensor, and returns an address, or 0.
    """

    def find(address: int, *_: int) -> int:
        place = ctypes.c_int64.from_address(address + STORED)
        place.value = -1
        place.value = stored(Tensor.from_address(address).name) or -1
        return 0

    return Callback(find)


@kernel
def replace_product(node_address, products, prepare, find, custom, run):
    """Turn a product into a custom node that calls octavo's kernels, if these can compute it.

    Parameters
    ----------
    node_address : int64
        Address of the node, of the operation MUL_MAT or MUL_MAT_ID.
    products : int64
        Address of N_TYPES records PRODUCT.
    prepare : int64
        Address of the native function `prepare` of a ProductTable.
    find : int64
        Address of the C function of a `finder`, or 0.
    custom : int32
        ggml's number of the operation CUSTOM.
    run : int64
        Address of the native `run_product`.
    """
    node = record_at(node_address, TENSOR)
    weights, batch = record_at(node.src[0], TENSOR), record_at(node.src[1], TENSOR)
    if weights.type >= N_TYPES or batch.type != TYPE_F32 or batch.nb[0] != 4:
        return
    if (node.src[2] == 0 and node.ne[2] != 1) or node.ne[3] != 1 or node.nb[0] != 4:
        return
    n_tokens, n_matrices = node.ne[1] * node.ne[2], weights.ne[2]
    product_address = products + weights.type * _PRODUCT_BYTES
    if record_at(product_address, PRODUCT).columns == 0:
        return
    if weights.extra != 0:
        if find == 0 or n_tokens < FEWEST_TILED:
            return
        if weights.stored == 0:
            call_native(find, node.src[0], 0, 0, 0)
        if weights.stored < 0:
            return
    if not fits(product_address, batch.ne[0], n_tokens, n_matrices):
        call_native(prepare, weights.type, batch.ne[0], n_tokens, n_matrices)
        if not fits(product_address, batch.ne[0], n_tokens, n_matrices):
            return
    node.op, node.custom_function, node.custom_n_tasks = custom, run, ALL_THREADS
    node.custom_user_data = product_address


@cache
def compiled_product() -> Any:
    """Compile the function of a custom node: a ggml_custom_op_t."""

    @native_callback(types.void(types.voidptr, types.int32, types.int32, types.voidptr))
    def product(node, ith, n_threads, product):
        run_product(address_of(node), ith, n_threads, address_of(product))

    return product


@kernel
def run_product(node_address, ith, n_threads, product_address):
    """Compute a product: all threads call this together."""
    node = record_at(node_address, TENSOR)
    weights, batch = record_at(node.src[0], TENSOR), record_at(node.src[1], TENSOR)
    matrix = weights.ne[1], weights.ne[0], weights.nb[1]
    rows = weights.data if weights.extra == 0 else weights.stored
    if node.src[2] == 0:
        inputs, out = (batch.data, batch.nb[1], batch.ne[1]), (node.data, node.nb[1])
        multiply_batch(product_address, rows, matrix, *inputs, *out, ith, n_threads)
        return
    chosen = record_at(node.src[2], TENSOR)
    multiply_experts(
        product_address,
        (rows, weights.nb[2]),
        matrix,
        (chosen.data, chosen.nb[1]),
        (batch.data, batch.ne[1], batch.nb[1], batch.nb[2]),
        (node.data, node.nb[1], node.nb[2]),
        (weights.ne[2], chosen.ne[1], chosen.ne[0]),
        ith,
        n_threads,
    )
