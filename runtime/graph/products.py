"""Compute llama.cpp's products of quantised weights with octavo's kernels, inside its graph (see hook.py).

A product is a GGML_OP_MUL_MAT node, whose inputs are:
  src[0] : weights, ne = [n_columns, n_rows, 1, 1]
  src[1] : the batch, f32, ne = [n_columns, n_tokens, 1, 1]
Its output is f32, ne = [n_rows, n_tokens, 1, 1].

Weights that llama.cpp has laid out for the CPU, with an `extra`, stay llama.cpp's.
"""

from __future__ import annotations

import ctypes
import traceback
from functools import cache
from typing import Any

import numpy as np
from numba import types

from ...cpu_kernels.numba_support import background_compile
from ...cpu_kernels.numba_support.compile import kernel, native_callback
from ...cpu_kernels.numba_support.memory import address_of, call_native
from ...cpu_kernels.numba_support.vector import CACHE_LINE
from ...cpu_kernels.numba_support.views import record_at
from ...cpu_kernels.products.multiply import PRODUCT, SHARED, fits, multiply_batch
from ...cpu_kernels.products.weights import KERNELS
from .ggml import ALL_THREADS, TENSOR, TYPE_F32

#: Types of ggml that a table of products has a place for.
N_TYPES = max(KERNELS) + 1

_PRODUCT_BYTES = PRODUCT.itemsize

#: The Python type of a function that C calls as `call_native` does.
_Callback = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 5)


@kernel
def replace_product(node_address, products, prepare, custom, run):
    """Turn a product into a custom node that calls octavo's kernels, if these can compute it.

    Parameters
    ----------
    node_address : int64
        Address of the node, of the operation MUL_MAT.
    products : int64
        Address of N_TYPES records PRODUCT.
    prepare : int64
        Address of the native function `prepare` of Products.
    custom : int32
        ggml's number of the operation CUSTOM.
    run : int64
        Address of the native `run_product`.
    """
    node = record_at(node_address, TENSOR)
    weights, batch = record_at(node.src[0], TENSOR), record_at(node.src[1], TENSOR)
    if weights.type >= N_TYPES or weights.extra != 0 or batch.type != TYPE_F32 or batch.nb[0] != 4:
        return
    product_address = products + weights.type * _PRODUCT_BYTES
    n_tokens, fewest = batch.ne[1], record_at(product_address, PRODUCT).fewest
    if fewest == 0 or n_tokens < fewest or node.ne[2] != 1 or node.ne[3] != 1 or node.nb[0] != 4:
        return
    if not fits(product_address, batch.ne[0], n_tokens):
        call_native(prepare, weights.type, batch.ne[0], n_tokens, 0)
        if not fits(product_address, batch.ne[0], n_tokens):
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
    out = node.data, node.nb[1]
    multiply_batch(
        product_address, weights.data, matrix, batch.data, batch.nb[1], batch.ne[1], *out, ith, n_threads
    )


class Products:
    """The records that products read, and their working memory.

    Memory grows, and kernels are compiled, when a graph first needs them, between its nodes.
    """

    def __init__(self, n_threads: int) -> None:
        self._n_threads = n_threads
        self.shared = np.zeros(1, SHARED)
        self.table = np.zeros(N_TYPES, PRODUCT)
        self.table["shared"] = self.shared.ctypes.data
        for number, kernels in KERNELS.items():
            own = self.table[number]
            own["columns"], own["input_bytes"] = kernels.of.columns, kernels.of.input_bytes
            own["panel_bytes"], own["factor"], own["fewest"] = kernels.of.panel_bytes, kernels.factor, kernels.fewest
        self._room: dict[str, np.ndarray] = {}
        self.prepare = _Callback(self._prepare)

    def _prepare(self, number: int, n_columns: int, n_tokens: int, _: int) -> int:
        """Compile a type's kernels, and make room for a product: C calls this, and would lose an exception."""
        try:
            own, kernels = self.table[number], KERNELS[number]
            own["round"] = background_compile.compiled(kernels.round).address
            own["multiply"] = background_compile.compiled(kernels.multiply).address
            n_blocks = n_columns // kernels.of.columns
            self._make_room("inputs", n_blocks * kernels.of.input_bytes * n_tokens, 1)
            self._make_room("panel", n_blocks * kernels.of.panel_bytes, self._n_threads)
        except BaseException:  # llama.cpp computes the product
            traceback.print_exc()
        return 0

    def _make_room(self, name: str, n_bytes: int, count: int) -> None:
        """Make room for so many parts of n_bytes each, unless there is."""
        n_bytes = -(-n_bytes // CACHE_LINE) * CACHE_LINE
        if n_bytes > self.shared[f"{name}_bytes"][0]:
            room = np.empty(n_bytes * count + CACHE_LINE, np.uint8)
            self._room[name] = room
            self.shared["panels" if name == "panel" else name] = -(-room.ctypes.data // CACHE_LINE) * CACHE_LINE
            self.shared[f"{name}_bytes"] = n_bytes
