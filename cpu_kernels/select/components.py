"""Choose the components of a query that score rows: those with the largest magnitude.

A magnitude is |q|, times a weight of the component. Kernels here write flags, (group, head_dim) f32: 1 for a component
that scores rows for a query head, else 0.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32

from ..layout.scores import fill
from ..numba_support.compile import kernel
from ..numba_support.machine_features import LANES
from ..numba_support.views import array_at
from .top_k import list_top


@kernel
def choose_together(shape, query, weights, n, room, flags):
    """Choose the n components with the largest magnitudes, summed over the group: the first of equal ones.

    Parameters
    ----------
    query : int64
        Address of (group, head_dim) f32.
    weights : float32 array, shape (head_dim,)
        Factors of |q|.
    room : int64
        Address of twice head_dim f32, each padded to a multiple of LANES.
    flags : float32 array, shape (group, head_dim)
        Receives 1 or 0. A NaN counts as the largest magnitude.
    """
    head_dim = shape.head_dim
    padded_dim = -(-head_dim // LANES) * LANES
    listed = room + padded_dim * 4
    queries = array_at(query, (shape.group, head_dim), np.float32)
    magnitudes = array_at(room, (head_dim,), np.float32)
    fill(room, 0, padded_dim, float32(-1))
    for i in range(head_dim):
        total = float32(0)
        for g in range(shape.group):
            total += abs(queries[g, i])
        magnitude = total * weights[i]
        magnitudes[i] = magnitude if magnitude < float32(np.inf) else float32(np.inf)  # `list_top` lists no NaN
    n_chosen = list_top(room, padded_dim, n, listed)
    chosen = array_at(listed, (n_chosen,), np.int32)
    _clear(flags)
    for i in range(n_chosen):
        for g in range(shape.group):
            flags[g, chosen[i]] = float32(1)


@kernel
def _clear(flags):
    """Set all flags to 0."""
    for g in range(flags.shape[0]):
        for i in range(flags.shape[1]):
            flags[g, i] = float32(0)


@kernel
def choose_apart(shape, query, weights, n_own, n_all, flags):
    """Choose the n_own largest components of each query head, or fewer if their union would exceed n_all.

    Query heads choose in turn, each its next largest, until one needs a component more than n_all.

    Parameters
    ----------
    n_own, n_all : int64
        Most components of a query head, and of the union.
    """
    queries = array_at(query, (shape.group, shape.head_dim), np.float32)
    _clear(flags)
    n_chosen = 0
    for _ in range(min(n_own, shape.head_dim)):
        for g in range(shape.group):
            best, largest = 0, float32(-1)
            for i in range(shape.head_dim):
                magnitude = abs(queries[g, i]) * weights[i]
                if flags[g, i] == 0 and not magnitude <= largest:  # a NaN is chosen, so that it shows
                    best, largest = i, magnitude
            if not _is_chosen(shape, flags, best):
                if n_chosen == n_all:
                    return
                n_chosen += 1
            flags[g, best] = float32(1)


@kernel
def list_chosen(shape, flags, components):
    """Write the components that any query head chose, rising; return their number."""
    n = 0
    for i in range(shape.head_dim):
        if _is_chosen(shape, flags, i):
            components[n] = i
            n += 1
    return n


@kernel
def _is_chosen(shape, flags, component):
    """Return whether any query head chose a component."""
    for g in range(shape.group):  # noqa: SIM110, as Numba compiles no generator here
        if flags[g, component] != 0:
            return True
    return False


@kernel
def weigh(shape, query, deviations, by_coverage, components, n, weights):
    """Multiply each query head's chosen elements by a factor that compensates for the other elements.

    Parameters
    ----------
    query : int64
        Address of (group, head_dim) f32.
    deviations : float32 array, shape (head_dim,)
        Spread of each component.
    by_coverage : bool
        Whether the factor depends on |q|, as in equation 9 of SparQ; else on the squares of |q| times the spread.
    components : int64 array
        The n components that any query head chose, rising.
    weights : float32 array, shape (group, head_dim)
        Flags. Receives, in the first n columns, the elements times the factor; 0 for those that a head did not choose.
    """
    queries = array_at(query, (shape.group, shape.head_dim), np.float32)
    for g in range(shape.group):
        whole, part = float32(0), float32(0)
        for i in range(shape.head_dim):
            product = queries[g, i] * deviations[i]
            own = abs(queries[g, i]) if by_coverage else product * product
            whole += own
            if weights[g, i] != 0:
                part += own
        factor = float32(1) if part == 0 else float32(math.sqrt(whole / part))
        for i in range(n):  # a component's place in the list is never after the component
            chosen = components[i]
            weights[g, i] = queries[g, chosen] * factor if weights[g, chosen] != 0 else float32(0)
