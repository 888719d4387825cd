"""Define the partial result of a thread: the contribution of its rows to the output of one KV head.

This file owns its layout: for each query head the sum of weighted values, the largest score, and the sum of weights,
which are relative to the largest score.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32

from ..numba_support.compile import kernel, layout
from ..numba_support.views import array_at

#: Below any score, but finite, so that the difference of two such scores is a number.
LOWEST_SCORE = -1e30


@layout
def partial_size(shape):
    """Return the number of f32 in a partial result."""
    return shape.group * (shape.value_dim + 2)


@kernel
def partial_of(shape, partials, n_kv_head, thread, head):
    """Return the address of a thread's partial result of a KV head."""
    return partials + (thread * n_kv_head + head) * partial_size(shape) * 4


@kernel
def weighted_values(shape, partial):
    """View the sums of weighted values of a partial result, (group, value_dim)."""
    return array_at(partial, (shape.group, shape.value_dim), np.float32)


@kernel
def largest_scores(shape, partial):
    """View the largest scores of a partial result, (group,): weights are relative to them."""
    return array_at(partial + shape.group * shape.value_dim * 4, (shape.group,), np.float32)


@kernel
def weight_sums(shape, partial):
    """View the sums of weights of a partial result, (group,)."""
    return array_at(partial + shape.group * (shape.value_dim + 1) * 4, (shape.group,), np.float32)


@kernel
def clear_partial(shape, partial):
    """Make a partial result empty: without attended rows."""
    values = array_at(partial, (partial_size(shape),), np.float32)
    for i in range(partial_size(shape)):
        values[i] = float32(0)
    largest = largest_scores(shape, partial)
    for g in range(shape.group):
        largest[g] = float32(LOWEST_SCORE)


@kernel
def add_to_partial(shape, partial, g, largest, total, values):
    """Add weighted values, (value_dim,) f32, to query head g of a partial result, by log-sum-exp.

    Parameters
    ----------
    largest : float32
        Score that the weights are relative to.
    total : float32
        Sum of the weights; 0 adds nothing.
    """
    if total == 0:
        return
    sums, totals, highest = (
        weighted_values(shape, partial)[g],
        weight_sums(shape, partial),
        largest_scores(shape, partial),
    )
    new = max(highest[g], largest)
    before, factor = float32(math.exp(highest[g] - new)), float32(math.exp(largest - new))
    highest[g], totals[g] = new, totals[g] * before + total * factor
    for i in range(shape.value_dim):
        sums[i] = sums[i] * before + values[i] * factor
