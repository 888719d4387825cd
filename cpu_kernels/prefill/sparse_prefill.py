"""Choose the blocks of keys that a batch reads: those with most of its attention, according to a sample.

The tokens of a batch are in groups of QUERY_TOKENS. Every SAMPLE_STEP-th token is scored with all keys, exactly. The
sampled tokens alternate between two halves, and each half chooses for the other: a block is read if it has at least a
certain share of the attention of either half; that share is the largest with which the blocks that one half chose hold
the required share of the other half's attention. So if each token attends to different places, which no sample can
predict, the halves disagree, and the group reads more, if necessary everything. The first block, which holds the sink
tokens, and those nearest to a group are always read.

MInference (Jiang et al. 2024, arXiv 2407.02490) and XAttention (Xu et al. 2025, arXiv 2503.16428) also choose blocks by
a sample of the scores: of the last queries for all others, and of scores along antidiagonals. Checking the choice on
queries that did not choose is octavo's own.

Sampled scores only choose, and blocks are left out, so both use less exact arithmetic if the CPU has it
(bf16_tiles.py), which changes the output by a tenth of what leaving blocks out does.

Groups begin at multiples of QUERY_TOKENS in the sequence. So the blocks that a token reads do not depend on its batch,
if batches begin there. In other batches a strip of queries may be in two groups, and reads the blocks of both.
"""

from __future__ import annotations

import numpy as np
from numba import float32, int64

from ..attend.decode import LOWEST_SCORE
from ..layout.head import ANY_ORDER
from ..layout.scores import cap_scores, fill
from ..layout.spans import oldest_seen
from ..numba_support.amx import enter_tiles, leave_tiles
from ..numba_support.compile import kernel, layout
from ..numba_support.machine_features import HAS_AMX, LANES
from ..numba_support.memory import copy_bytes
from ..numba_support.shape import Shape
from ..numba_support.vector import add, exp_difference, load, maximum, multiply, splat, store
from ..numba_support.views import array_at
from .strips import load_keys, load_queries, mask_strip, score_strip_of, sum_strip
from .tile_scratch import BLOCK, scratch_parts, strip_queries

#: Tokens of a group, which reads the same blocks; distance of sampled tokens; and number of sampled tokens.
QUERY_TOKENS, SAMPLE_STEP = 64, 8
_SAMPLES = QUERY_TOKENS // SAMPLE_STEP

#: Blocks of keys before a group below which it reads all of them: a sample would cost more than it saves.
FEWEST_BLOCKS = 32

#: Steps of the bisection for the least share of a chosen block.
_HALVINGS = 30


def most_groups(n_tokens: int) -> int:
    """Return the most groups that a batch of n_tokens tokens can overlap."""
    return (n_tokens - 2) // QUERY_TOKENS + 2 if n_tokens > 1 else 1


def sample_bytes(shape: Shape, n_tokens: int, n_blocks: int) -> int:
    """Return the memory of a KV head's sample, in bytes."""
    return 2 * 4 * n_blocks * int(sample_width(shape, most_groups(n_tokens)))


@layout
def group_of(position, token):
    """Return the group of a token, relative to the batch's first group, in a batch that begins at a position."""
    return (position + token) // QUERY_TOKENS - position // QUERY_TOKENS


@layout
def reads_all(position, group):
    """Return whether a group of a batch that begins at a position is so early that it reads all blocks."""
    return (position // QUERY_TOKENS + group) * QUERY_TOKENS < FEWEST_BLOCKS * BLOCK


@kernel
def count_groups(position, n_tokens):
    """Return how many groups a batch of n_tokens tokens from a position on overlaps."""
    return group_of(position, n_tokens - 1) + 1


@kernel
def count_blocks(spans, n_spans):
    """Return how many blocks of keys some spans have; each span begins a new block."""
    n_blocks = 0
    for i in range(n_spans):
        n_blocks += -(-spans[i].n_rows // BLOCK)
    return n_blocks


@layout
def count_samples(shape, n_groups):
    """Return the number of queries in the sample of n_groups groups."""
    return n_groups * _SAMPLES * shape.group


@layout
def sample_width(shape, n_groups):
    """Return the sample's capacity in queries: whole strips."""
    return -(-count_samples(shape, n_groups) // strip_queries(shape)) * strip_queries(shape)


@kernel
def _sampled_token(position, n_tokens, number):
    """Return a sampled token of a batch, counted back from its group's last token, within its group."""
    group, back = number // _SAMPLES, number % _SAMPLES
    start = (position // QUERY_TOKENS + group) * QUERY_TOKENS - position
    stop = min(start + QUERY_TOKENS, n_tokens)
    return max(stop - 1 - back * SAMPLE_STEP, start, 0)


@kernel
def sample_tile(
    shape, first_row, n_rows, n_tokens, query, position, spans, n_spans, softcap, scratch, sample, n_blocks
):
    """Compute the share of each block in the attention of a tile of sampled queries.

    Parameters
    ----------
    first_row, n_rows : int64
        The tile's first query among the sampled ones, which begins a strip, and its number, at most `most_queries`.
    sample : int64
        Address of (2, n_blocks, `sample_width`) f32. Receives the shares in its first half.
    """
    room, head_dim, group = scratch_parts(shape, scratch), shape.head_dim, shape.group
    step = sample_width(shape, count_groups(position, n_tokens)) * 4
    half, size = n_blocks * step, -(-n_rows // strip_queries(shape)) * strip_queries(shape)
    newest = array_at(room.newest, (size,), np.float32)
    for r in range(size):
        row = first_row + min(r, n_rows - 1)
        token = _sampled_token(position, n_tokens, row // group)
        newest[r] = float32(position + token)
        copy_bytes(room.sums + r * head_dim * 4, query + (token * group + row % group) * head_dim * 4, head_dim * 4)
    if HAS_AMX and shape.on_amx:
        enter_tiles(room.configuration)
    load_queries(shape, room.sums, n_rows, True, scratch)
    first_token, last_token = int64(newest[0]), int64(newest[0])
    for r in range(n_rows):
        first_token, last_token = min(first_token, int64(newest[r])), max(last_token, int64(newest[r]))

    shares, number = sample + first_row * 4, 0
    for i in range(n_spans):
        span = spans[i]
        window = span.window
        for row in range(0, span.n_rows, BLOCK):
            n, place = min(BLOCK, span.n_rows - row), shares + number * step
            number += 1
            masked, block = False, span.position + row
            if span.position != ANY_ORDER:
                if block > last_token or block + n - 1 < oldest_seen(first_token, window):
                    fill(place, 0, size, float32(0))
                    fill(place + half, 0, size, float32(LOWEST_SCORE))
                    continue
                masked = block + n - 1 > first_token or block < oldest_seen(last_token, window)
            load_keys(shape, span.keys, span.rows, row, n, True, scratch)
            for strip in range(0, n_rows, strip_queries(shape)):
                score_strip_of(shape, strip, n, True, room)
                cap_scores(room.scores, n * strip_queries(shape), softcap)
                if masked:
                    mask_strip(shape, strip, n, block, window, room)
                sum_strip(shape, n, room, place + half + strip * 4, place + strip * 4)
    if HAS_AMX and shape.on_amx:
        leave_tiles(room.configuration)
    for strip in range(0, size, LANES):
        _normalise(shares + strip * 4, half, step, n_blocks, room.shrinks)


@kernel
def _normalise(sums, half, step, n_blocks, totals):
    """Turn blocks' sums of exp(score - largest) into shares, for LANES queries; `totals` is an address to work at."""
    highest = splat(float32(LOWEST_SCORE))
    for i in range(n_blocks):
        highest = maximum(highest, load(sums + half + i * step))
    total = splat(float32(0))
    for i in range(n_blocks):
        place = sums + i * step
        weight = multiply(load(place), exp_difference(load(place + half), highest))
        store(place, weight)
        total = add(total, weight)
    store(totals, total)
    factors = array_at(totals, (LANES,), np.float32)
    for q in range(LANES):
        factors[q] = float32(1) / factors[q]
    factor = load(totals)
    for i in range(n_blocks):
        store(sums + i * step, multiply(load(sums + i * step), factor))


@kernel
def choose_blocks(shape, group_number, n_tokens, position, spans, n_spans, covers, sample, n_blocks, chosen_address):
    """Choose the blocks that a group of tokens reads (see the top of this file).

    Parameters
    ----------
    group_number : int64
        Number of the group in the batch.
    covers : float64
        Share of the sampled attention that the blocks must hold.
    chosen_address : int64
        Address of n_blocks bytes, which become 1 for a block to read, and 0 for others.
    """
    n_rows, width = _SAMPLES * shape.group, sample_width(shape, count_groups(position, n_tokens))
    start = (position // QUERY_TOKENS + group_number) * QUERY_TOKENS
    sampled, chosen = array_at(sample, (n_blocks, width), np.float32), array_at(chosen_address, (n_blocks,), np.uint8)
    if reads_all(position, group_number):
        chosen[:] = 1
        return
    # The largest scores are no longer needed: the columns of the group's first two queries get the shares.
    shares = array_at(sample + n_blocks * width * 4, (n_blocks, width), np.float32)[:, group_number * n_rows :]
    number, covered = 0, float32(0)
    for i in range(n_spans):
        span = spans[i]
        for row in range(0, span.n_rows, BLOCK):
            for half in range(2):
                total = float32(0)
                for number_of_token in range(half, _SAMPLES, 2):
                    first = group_number * n_rows + number_of_token * shape.group
                    for r in range(first, first + shape.group):
                        total += sampled[number, r]
                shares[number, half] = 2 * total / float32(n_rows)
            newest = span.position + min(row + BLOCK, span.n_rows) - 1
            near = span.position != ANY_ORDER and newest >= start - QUERY_TOKENS
            chosen[number] = near or number == 0
            if chosen[number]:
                covered += (shares[number, 0] + shares[number, 1]) / 2
            number += 1
    if covered >= covers:
        return

    low, high = float32(0), float32(1)
    for _ in range(_HALVINGS):
        middle, total = (low + high) / 2, float32(0)
        for i in range(n_blocks):
            if chosen[i] == 0:
                if shares[i, 0] >= middle:
                    total += shares[i, 1]
                if shares[i, 1] >= middle:
                    total += shares[i, 0]
        if covered + total / 2 >= covers:
            low = middle
        else:
            high = middle
    for i in range(n_blocks):
        if not (shares[i, 0] < low and shares[i, 1] < low):  # a NaN must reach the output, too
            chosen[i] = 1


@kernel
def any_chosen(chosen, n_blocks, first_group, last_group, number):
    """Return whether any of some groups reads a block; all do if `chosen` is 0."""
    if chosen == 0:
        return True
    bits = array_at(chosen, (last_group + 1, n_blocks), np.uint8)
    for group in range(first_group, last_group + 1):  # noqa: SIM110, as Numba compiles no generator here
        if bits[group, number] != 0:
            return True
    return False
