"""Determine the number of queries in a prefill tile, and the layout of a thread's scratch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..numba_support.amx import CONFIGURATION_BYTES
from ..numba_support.compile import kernel, layout
from ..numba_support.machine_features import HAS_AMX
from .bf16_tiles import STRIP
from .f32_tiles import TILE

#: Rows of a block of keys.
BLOCK = TILE

#: Most queries of a tile with AMX or integers, whose fast products make widening and rounding count: more queries share
#: them, and what they need takes two thirds of an L2 cache of 512 KiB. Widening a block takes as long as attending with
#: it for so many queries on AMX.
_LARGE_TILE, _WIDENING = 512, 64

_MOST_COST = np.iinfo(np.int64).max


@layout
def most_queries(shape):
    """Return the most queries of a tile, which share the widening of a block."""
    return _LARGE_TILE if (HAS_AMX and shape.on_amx) or shape.on_integers else TILE


@kernel
def tile_queries(shape, n_rows, n_kv_head, n_threads):
    """Return the queries of a tile, such that threads that take tiles in turn end soonest."""
    width = strip_queries(shape)
    n_strips, most = -(-n_rows // width), most_queries(shape) // width
    best, least = most, _MOST_COST
    for n_tiles in range(-(-n_strips // most), n_strips + 1):
        own = -(-n_strips // n_tiles)
        turns = -(-n_kv_head * -(-n_strips // own) // n_threads)
        cost = turns * (own * width + _WIDENING)
        if cost < least:
            best, least = own, cost
    return best * width


@layout
def strip_queries(shape):
    """Return the queries of a strip."""
    return STRIP if HAS_AMX and shape.on_amx else TILE


class _Scratch(NamedTuple):
    """Addresses of the parts of a thread's scratch: f32, or if faster bf16 or integers: see what fills them."""

    queries: int  # strip by strip (head_dim, strip); see `split_pairs`, `round_columns`
    keys: int  # (BLOCK, head_dim); see `split_keys`, `round_keys`
    values: int  # (BLOCK, value_dim); see `split_values`, `round_columns`
    widened: int  # (BLOCK, the longer of both), or (head_dim, strip): rows to split for AMX, or to round
    sums: int  # strip by strip (strip, value_dim): weighted values of each query; with AMX (value_dim, strip). Or
    #    queries, (tile, head_dim), before they are loaded
    scores: int  # (BLOCK, strip): of a block's keys with the queries of a strip, then weights
    weights: int  # (BLOCK, strip): weights that are split for AMX, or rounded
    query_scales: int  # (tile,): of queries in integers, with `key_scales` (BLOCK,), `value_scales` (value_dim,)
    query_sums: int  # (tile,): see `sum_queries`
    key_scales: int
    value_scales: int
    factors: int  # (strip,): of weights in integers
    largest: int  # (tile,): the largest score of each query so far
    totals: int  # (tile,): its sum of weights
    newest: int  # (tile,): the position of its token, the newest that it sees
    shrinks: int  # (strip,): factors that scale sums to a new largest score
    row: int  # (the longer of head_dim and value_dim,): one query or its sums; (strip,): memory to round in
    configuration: int  # AMX's earlier configuration
    end: int


@layout
def scratch_parts(shape, scratch):
    """Return the addresses of the parts of a thread's scratch."""
    row_bytes, strip_bytes = most_queries(shape) * 4, BLOCK * strip_queries(shape) * 4
    keys = scratch + most_queries(shape) * shape.head_dim * 4
    values = keys + BLOCK * shape.head_dim * 4
    widened = values + BLOCK * shape.value_dim * 4
    sums = widened + BLOCK * shape.longest * 4
    scores = sums + most_queries(shape) * shape.longest * 4
    weights = scores + strip_bytes
    query_scales = weights + strip_bytes
    query_sums = query_scales + row_bytes
    key_scales = query_sums + row_bytes
    value_scales = key_scales + BLOCK * 4
    factors = value_scales + shape.value_dim * 4
    largest = factors + strip_queries(shape) * 4
    totals = largest + row_bytes
    newest = totals + row_bytes
    shrinks = newest + row_bytes
    row = shrinks + strip_queries(shape) * 4
    configuration = row + max(shape.longest, strip_queries(shape)) * 4
    end = configuration + CONFIGURATION_BYTES
    return _Scratch(
        scratch,
        keys,
        values,
        widened,
        sums,
        scores,
        weights,
        query_scales,
        query_sums,
        key_scales,
        value_scales,
        factors,
        largest,
        totals,
        newest,
        shrinks,
        row,
        configuration,
        end,
    )
