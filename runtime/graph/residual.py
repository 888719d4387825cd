"""Compare the residual stream before and after each layer's attention, while llama.cpp computes a batch.

SqueezeAttention (Wang et al. 2024, algorithm 1, lines 1 to 8) averages their cosine similarity over a prompt's tokens.
llama.cpp adds what attention gives to the stream in one node, named `ffn_inp-LAYER` or `sa_out-LAYER`:
  src[0] : what attention gives, f32, ne = [n_embd, n_tokens, 1, 1]
  src[1] : the stream before attention
The hook turns it into a GGML_OP_CUSTOM node, which adds the same and sums up similarities on the way. The rows are in
the CPU's caches then, so that this costs next to nothing. In the last layer llama.cpp computes only the tokens whose
logits are wanted.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import float32, types

from ...cpu_kernels.numba_support.compile import kernel, native_callback
from ...cpu_kernels.numba_support.memory import address_of, copy_bytes
from ...cpu_kernels.numba_support.views import array_at, record_at
from .ggml import ALL_THREADS, MAX_NAME, TENSOR

#: What a layer's node adds to: the custom node's user data.
RESIDUAL = np.dtype(
    [
        ("sums", "i8"),  # address of a sum of similarities and a number of tokens for each thread, (n_threads, 2) f64
        ("n_threads", "i8"),
    ]
)

_RESIDUAL_BYTES = RESIDUAL.itemsize
_FFN_INPUT, _ATTENTION_SUM = (np.frombuffer(name, np.uint8) for name in (b"ffn_inp-", b"sa_out-"))
_ZERO, _NINE = ord("0"), ord("9")


class ResidualSums:
    """Receives the similarities of all layers.

    Parameters
    ----------
    n_layers : int
        Layers of the graph.
    n_threads : int
        Most threads that compute a node.
    """

    def __init__(self, n_layers: int, n_threads: int) -> None:
        self._sums = np.zeros((n_layers, n_threads, 2))
        self._records = np.zeros(n_layers, RESIDUAL)
        self._records["sums"] = self._sums.ctypes.data + np.arange(n_layers) * self._sums.strides[0]
        self._records["n_threads"] = n_threads

    @property
    def address(self) -> int:
        """Return the address of the RESIDUAL records, for STEP's `residuals`."""
        return self._records.ctypes.data

    def clear(self) -> None:
        """Begin anew."""
        self._sums[...] = 0

    @property
    def means(self) -> np.ndarray:
        """Return the mean similarity of each layer, shape (n_layers,); shape (0,) if a layer has none."""
        sums, counts = self._sums.sum(axis=1).T
        means: np.ndarray = sums / counts if np.all(counts) else np.empty(0)
        return means


@kernel
def _number_after(name, prefix):
    """Return the number that follows a prefix in a tensor's name, or -1."""
    for i in range(len(prefix)):
        if name[i] != prefix[i]:
            return -1
    number = 0
    for i in range(len(prefix), MAX_NAME):
        if not _ZERO <= name[i] <= _NINE:
            break
        number = 10 * number + name[i] - _ZERO
    return number


@kernel
def watch_sum(node, custom, function, residuals, n_layers):
    """Have a node that adds to the residual stream after attention compare it too; leave any other node alone.

    Parameters
    ----------
    node : TENSOR record
        A node that adds two tensors.
    custom : int64
        ggml's number of the operation GGML_OP_CUSTOM.
    function : int64
        Address of the native `add_and_compare`.
    residuals : int64
        Address of the RESIDUAL records.
    n_layers : int64
        Number of them.
    """
    layer = max(_number_after(node.name, _FFN_INPUT), _number_after(node.name, _ATTENTION_SUM))
    if layer < 0 or layer >= n_layers:
        return
    added, before = record_at(node.src[0], TENSOR), record_at(node.src[1], TENSOR)
    for i in range(4):
        same = node.ne[i] == added.ne[i] == before.ne[i] and node.nb[i] == added.nb[i] == before.nb[i]
        if not same or node.nb[0] != 4:
            return
    node.op = custom
    node.custom_function = function
    node.custom_n_tasks = ALL_THREADS
    node.custom_user_data = residuals + layer * _RESIDUAL_BYTES


@kernel
def _similarity(stream, gain):
    """Return the cosine similarity of the stream before and after something is added."""
    product, before, after = float32(0), float32(0), float32(0)
    for i in range(len(stream)):
        x = stream[i]
        y = x + gain[i]
        product += x * y
        before += x * x
        after += y * y
    return product / max(np.sqrt(np.float64(before) * after), 1e-30)


@kernel
def _add(target, other):
    """Add one array to another."""
    for i in range(len(target)):
        target[i] += other[i]


@kernel
def add_and_compare(node, ith, n_threads, residual):
    """Compute one thread's rows of a node's sum, and add up how similar they are to the stream before.

    Parameters
    ----------
    node : TENSOR record
        The node.
    ith, n_threads : int64
        Number of this thread, and of all threads.
    residual : RESIDUAL record
        Receives the similarities.
    """
    added, before = record_at(node.src[0], TENSOR), record_at(node.src[1], TENSOR)
    size, total, count = node.ne[0], 0.0, 0
    for row in range(ith, node.ne[1], n_threads):
        target = node.data + row * node.nb[1]
        gain_address, stream_address = added.data + row * added.nb[1], before.data + row * before.nb[1]
        gain = array_at(gain_address, (size,), np.float32)
        stream = array_at(stream_address, (size,), np.float32)
        total += _similarity(stream, gain)
        count += 1
        if target == stream_address:  # llama.cpp lets a sum overwrite one of its parts
            _add(stream, gain)
        elif target == gain_address:
            _add(gain, stream)
        else:
            copy_bytes(target, gain_address, 4 * size)
            _add(array_at(target, (size,), np.float32), stream)
    if ith < residual.n_threads:
        sums = array_at(residual.sums, (residual.n_threads, 2), np.float64)
        sums[ith, 0] += total
        sums[ith, 1] += count


def watch_residual(step: np.ndarray, sums: ResidualSums | None) -> None:
    """Have the steps from now on compare the residual stream; None stops that.

    Parameters
    ----------
    step : STEP array, shape (1,)
        What the hook follows (see hook.py).
    sums : ResidualSums, optional
        Receives the similarities, and has to outlive the context.
    """
    step["residuals"] = sums.address if sums else 0
    if sums:
        step["compare"] = compiled_comparison().address


@cache
def compiled_comparison() -> Any:
    """Compile `add_and_compare`.

    Returns
    -------
    Numba cfunc
        A function of the type ggml_custom_op_t.
    """

    @native_callback(types.void(types.voidptr, types.int32, types.int32, types.voidptr))
    def compare(node, ith, n_threads, residual):
        node_record, own = record_at(address_of(node), TENSOR), record_at(address_of(residual), RESIDUAL)
        add_and_compare(node_record, ith, n_threads, own)

    return compare
