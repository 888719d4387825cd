"""Multiply a batch of tokens by a matrix of weights, or each token by some of many matrices, on all threads together.

The tokens that a matrix multiplies are a group. The threads round the inputs, each some tokens of each group. Then each
takes panels of the weights, a few at a time, as long as there are any: cores may be of different speed. Who computes a
panel makes no difference to its results.
"""

from __future__ import annotations

import numpy as np

from ..numba_support.amx import TILE_ROWS
from ..numba_support.compile import kernel
from ..numba_support.machine_features import HAS_AMX
from ..numba_support.memory import barrier, call_native, fetch_add, read_int32, stack_bytes, write_int64
from ..numba_support.vector import CACHE_LINE
from ..numba_support.views import record_at
from .activations import round_to_bf16
from .multiplier import JOB_ROWS
from .panel_tiles import FEWEST_TILED, MOST_TILED
from .panels import JOB, MOST_TOKENS, TOKEN

#: What the products of a context share.
SHARED = np.dtype(
    [
        ("arrived", "i8"),  # arrivals at barriers: 0 before a graph is computed
        ("next_panel", "i8"),  # the first that no thread has taken, of the panels of all groups
        ("n_groups", "i8"),
        ("inputs", "i8"),  # address of room for the rounded inputs of a batch
        ("inputs_bytes", "i8"),
        ("panels", "i8"),  # address of room for sums and unpacked weights of each thread
        ("panels_bytes", "i8"),  # of one thread
        ("tokens", "i8"),  # address of room for TOKEN records, in the order of the groups
        ("tokens_bytes", "i8"),
        ("groups", "i8"),  # address of room for GROUP records
        ("groups_bytes", "i8"),
    ],
    align=True,
)

#: A matrix, and the tokens that it multiplies.
GROUP = np.dtype(
    [
        ("weights", "i8"),  # address of the first row
        ("n_tokens", "i8"),
        ("stop", "i8"),  # number of the token behind its last one
    ],
    align=True,
)

#: The products of weights of one type in a context.
PRODUCT = np.dtype(
    [
        ("shared", "i8"),  # address of the SHARED record
        ("round", "i8"),  # address of the native function that rounds inputs, or 0 as long as it is not compiled
        ("multiply", "i8"),  # and of the one that multiplies panels
        ("columns", "i8"),  # of a block, or 0 for a type that llama.cpp multiplies
        ("input_bytes", "i8"),  # of a block of rounded inputs
        ("room_bytes", "i8"),  # that a thread needs for sums and unpacked weights
        ("factor", "i8"),  # of the sums of rounded inputs
    ],
    align=True,
)

_SHARED_NEXT = {name: place[1] for name, place in (SHARED.fields or {}).items()}["next_panel"]
_JOB_BYTES, _TOKEN_BYTES, _GROUP_BYTES = JOB.itemsize, TOKEN.itemsize, GROUP.itemsize

#: Tokens for which there is room, but no inputs: the last tile of tokens may reach so far behind them.
_UNUSED_TOKENS = TILE_ROWS - 1

#: Parts of the panels that each thread takes, one after another.
_PARTS = 8


@kernel
def _token_bytes(product, n_columns):
    """Return the bytes of a token's rounded inputs. Rows of bf16 are so far apart that their cache sets differ."""
    rounded = n_columns // product.columns * product.input_bytes
    return max(rounded, 2 * n_columns + CACHE_LINE) if HAS_AMX else rounded


@kernel
def inputs_bytes(product, n_columns, n_tokens):
    """Return the bytes of room for the rounded inputs of a batch."""
    return _token_bytes(product, n_columns) * (n_tokens + (_UNUSED_TOKENS if HAS_AMX else 0))


@kernel
def fits(product_address, n_columns, n_tokens, n_groups):
    """Return whether there is room for the inputs, the panels and the groups of a product."""
    product = record_at(product_address, PRODUCT)
    shared = record_at(product.shared, SHARED)
    inputs, room = inputs_bytes(product, n_columns, n_tokens), product.room_bytes
    has_records = n_tokens * _TOKEN_BYTES <= shared.tokens_bytes and n_groups * _GROUP_BYTES <= shared.groups_bytes
    return product.multiply != 0 and inputs <= shared.inputs_bytes and room <= shared.panels_bytes and has_records


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
    shared = record_at(record_at(product_address, PRODUCT).shared, SHARED)
    group = record_at(shared.groups, GROUP)  # each thread writes the same, and reads it without waiting for another
    group.weights, group.n_tokens, group.stop, shared.n_groups = weights, n_tokens, n_tokens, 1
    for t in range(ith, n_tokens, n_threads):  # those that this thread rounds
        token = record_at(shared.tokens + t * _TOKEN_BYTES, TOKEN)
        token.source, token.out = source + t * source_bytes, out + t * out_bytes
    _multiply_groups(product_address, matrix, ith, n_threads)


@kernel
def multiply_experts(product_address, experts, matrix, ids, sources, outs, sizes, ith, n_threads):
    """Compute out[t, s, r] = the sum over columns c of experts[ids[t, s], r, c] * source[t, s, c], as `multiply_batch`.

    Parameters
    ----------
    experts : tuple of two int64
        Address of the first expert's weights, and bytes from one expert's to the next one's.
    ids : tuple of two int64
        Address of the numbers of a token's experts, int32 side by side, and bytes to the next token's.
    sources : tuple of four int64
        Address of the inputs of the first token, rows of f32; how many rows a token has, which its experts take in
        turns; bytes from one to the next, and to the next token's.
    outs : tuple of three int64
        Address of the results, and bytes from one expert's to the next one's, and to the next token's.
    sizes : tuple of three int64
        Experts, tokens, and experts of a token.

    See `multiply_batch` for the others.
    """
    product = record_at(product_address, PRODUCT)
    if ith == 0:
        shared = record_at(product.shared, SHARED)
        shared.n_groups = _group_by_expert(shared, experts, ids, sources, outs, sizes)
    barrier(product.shared, n_threads)
    _multiply_groups(product_address, matrix, ith, n_threads)


@kernel
def _group_by_expert(shared, experts, ids, sources, outs, sizes):
    """Write the groups of the experts that have tokens, and the records of these; return how many groups there are."""
    n_experts, n_tokens, n_used = sizes
    for e in range(n_experts):
        group = record_at(shared.groups + e * _GROUP_BYTES, GROUP)
        group.weights, group.n_tokens = experts[0] + e * experts[1], 0
    for t in range(n_tokens):
        for s in range(n_used):
            record_at(shared.groups + read_int32(ids[0] + t * ids[1] + 4 * s) * _GROUP_BYTES, GROUP).n_tokens += 1
    n_before = 0
    for e in range(n_experts):
        group = record_at(shared.groups + e * _GROUP_BYTES, GROUP)
        group.stop = n_before
        n_before += group.n_tokens
    for t in range(n_tokens):
        for s in range(n_used):
            group = record_at(shared.groups + read_int32(ids[0] + t * ids[1] + 4 * s) * _GROUP_BYTES, GROUP)
            token = record_at(shared.tokens + group.stop * _TOKEN_BYTES, TOKEN)
            token.source = sources[0] + s % sources[1] * sources[2] + t * sources[3]
            token.out = outs[0] + s * outs[1] + t * outs[2]
            group.stop += 1
    n_groups = 0
    for e in range(n_experts):
        group = record_at(shared.groups + e * _GROUP_BYTES, GROUP)
        if group.n_tokens > 0:
            place = record_at(shared.groups + n_groups * _GROUP_BYTES, GROUP)
            place.weights, place.n_tokens, place.stop = group.weights, group.n_tokens, group.stop
            n_groups += 1
    return n_groups


@kernel
def _is_on_tiles(group):
    """Return whether the tokens of a group are multiplied on AMX tiles."""
    return HAS_AMX and group.n_tokens >= FEWEST_TILED


@kernel
def _multiply_groups(product_address, matrix, ith, n_threads):
    """Multiply the tokens of all groups, whose records are written: a token's by the thread that rounds it."""
    product, (n_rows, n_columns, row_bytes) = record_at(product_address, PRODUCT), matrix
    shared, n_blocks = record_at(product.shared, SHARED), n_columns // product.columns
    token_bytes = _token_bytes(product, n_columns)
    for number in range(shared.n_groups):
        group = record_at(shared.groups + number * _GROUP_BYTES, GROUP)
        first = group.stop - group.n_tokens
        for t in range(first + (ith - first) % n_threads, group.stop, n_threads):
            source = record_at(shared.tokens + t * _TOKEN_BYTES, TOKEN).source
            if _is_on_tiles(group):
                round_to_bf16(source, n_columns, shared.inputs + t * token_bytes)
            else:
                call_native(product.round, source, n_blocks, shared.inputs + t * token_bytes, product.factor)
    if ith == 0:
        write_int64(product.shared + _SHARED_NEXT, 0)
    barrier(product.shared, n_threads)
    job_address = stack_bytes(_JOB_BYTES)
    job = record_at(job_address, JOB)
    job.row_bytes, job.n_rows, job.n_blocks, job.token_bytes = row_bytes, n_rows, n_blocks, token_bytes
    job.panel = shared.panels + ith * shared.panels_bytes
    n_panels = -(-n_rows // JOB_ROWS)  # of a group
    n_all = shared.n_groups * n_panels
    n_own = max(n_all // (n_threads * _PARTS), 1)
    panel = fetch_add(product.shared + _SHARED_NEXT, n_own)
    while panel < n_all:
        own_stop = min(panel + n_own, n_all)
        while panel < own_stop:  # they may be of several groups
            group = record_at(shared.groups + panel // n_panels * _GROUP_BYTES, GROUP)
            first = panel % n_panels
            stop = min(first + own_stop - panel, n_panels)
            job.weights = group.weights
            job.on_tiles = _is_on_tiles(group)
            most = MOST_TILED if job.on_tiles else MOST_TOKENS
            for t in range(group.stop - group.n_tokens, group.stop, most):
                job.n_tokens = min(most, group.stop - t)
                job.inputs, job.tokens = shared.inputs + t * token_bytes, shared.tokens + t * _TOKEN_BYTES
                call_native(product.multiply, job_address, first, stop, 0)
            panel += stop - first
        panel = fetch_add(product.shared + _SHARED_NEXT, n_own)
