"""Multiply a batch of tokens by a matrix of weights, on all threads together.

The threads round the inputs, each some tokens. Then each takes panels of the weights, a few at a time, as long as there
are any: cores may be of different speed. Who computes a panel makes no difference to its results.
"""

from __future__ import annotations

import numpy as np

from ..numba_support.compile import kernel
from ..numba_support.memory import barrier, call_native, fetch_add, stack_bytes, write_int64
from ..numba_support.views import record_at
from .integers import LANES
from .panels import JOB, TOKENS

#: What the products of a context share.
SHARED = np.dtype(
    [
        ("arrived", "i8"),  # arrivals at barriers: 0 before a graph is computed
        ("next_panel", "i8"),  # the first that no thread has taken
        ("inputs", "i8"),  # address of room for the rounded inputs of a batch
        ("inputs_bytes", "i8"),
        ("panels", "i8"),  # address of room for an unpacked panel of each thread
        ("panels_bytes", "i8"),  # of one thread
    ],
    align=True,
)

#: The products of weights of one type in a context.
PRODUCT = np.dtype(
    [
        ("shared", "i8"),  # address of the SHARED record
        ("round", "i8"),  # address of the native function that rounds inputs, or 0 as long as it is not compiled
        ("multiply", "i8"),  # and of the one that multiplies panels
        ("columns", "i8"),  # of a block
        ("input_bytes", "i8"),  # of a block of rounded inputs
        ("panel_bytes", "i8"),  # of a block in a panel
        ("factor", "i8"),  # of the sums of rounded inputs
        ("fewest", "i8"),  # tokens of a batch that octavo multiplies
    ],
    align=True,
)

_SHARED_NEXT = {name: place[1] for name, place in (SHARED.fields or {}).items()}["next_panel"]
_JOB_BYTES = JOB.itemsize

#: Bytes of rounded inputs that a panel meets before the next one is unpacked: half of a small L2 cache. Most tokens of
#: them: then unpacking takes little of the time.
_TILE_BYTES, _TILE_TOKENS = 1 << 18, 128

#: Parts of the panels that each thread takes, one after another.
_PARTS = 8


@kernel
def fits(product_address, n_columns, n_tokens):
    """Return whether there is room for the inputs and the panels of a product."""
    product = record_at(product_address, PRODUCT)
    shared, n_blocks = record_at(product.shared, SHARED), n_columns // product.columns
    inputs, panel = n_blocks * product.input_bytes * n_tokens, n_blocks * product.panel_bytes
    return product.multiply != 0 and inputs <= shared.inputs_bytes and panel <= shared.panels_bytes


@kernel
def multiply_batch(product_address, weights, matrix, source, source_bytes, n_tokens, out, out_bytes, ith, n_threads):
    """Compute out[t, r] = the sum over columns c of weights[r, c] * source[t, c]: all threads call this together.

    Parameters
    ----------
    product_address : int64
        Address of the PRODUCT record.
    weights : int64
        Address of the first row of the weights.
    matrix : tuple of three int64
        Rows of the weights, their columns, and the bytes of a row.
    source : int64
        Address of the inputs, rows of f32 that lie source_bytes apart.
    out : int64
        Address of the results, rows of f32 that lie out_bytes apart.
    """
    product, (n_rows, n_columns, row_bytes) = record_at(product_address, PRODUCT), matrix
    shared, n_blocks = record_at(product.shared, SHARED), n_columns // product.columns
    token_bytes = n_blocks * product.input_bytes
    for t in range(ith, n_tokens, n_threads):
        target = shared.inputs + t * token_bytes
        call_native(product.round, source + t * source_bytes, n_blocks, target, product.factor)
    if ith == 0:
        write_int64(product.shared + _SHARED_NEXT, 0)
    barrier(product.shared, n_threads)
    job_address = stack_bytes(_JOB_BYTES)
    job = record_at(job_address, JOB)
    job.weights, job.row_bytes, job.n_rows, job.n_blocks = weights, row_bytes, n_rows, n_blocks
    job.panel = shared.panels + ith * shared.panels_bytes
    job.token_bytes, job.out_bytes = token_bytes, out_bytes
    at_once = max(min(_TILE_BYTES // token_bytes, _TILE_TOKENS) // TOKENS * TOKENS, TOKENS)
    n_panels = -(-n_rows // LANES)
    n_own = max(n_panels // (n_threads * _PARTS), 1)
    first = fetch_add(product.shared + _SHARED_NEXT, n_own)
    while first < n_panels:
        for t in range(0, n_tokens, at_once):
            job.n_tokens = min(at_once, n_tokens - t)
            job.inputs, job.out = shared.inputs + t * token_bytes, out + t * out_bytes
            call_native(product.multiply, job_address, first, min(first + n_own, n_panels), 0)
        first = fetch_add(product.shared + _SHARED_NEXT, n_own)
