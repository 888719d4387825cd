"""Distribute a budget over the heads, so that a step of the whole model reads the budget. One rule for all methods.

A budget is a share of the bytes that dense attention reads in the layers that see everything; for methods that evict,
the share of these layers' rows that the cache keeps. Sliding layers do not count: their reads do not grow.

Some heads read the same whatever the budget: a method's dense layers, and the streaming heads of a plan. The others
share the remainder equally, or by a plan's layer budgets, which scale the part after the lookup. Heads that reach the
whole of their rows pass their surplus on.

A method always reads, or keeps, some rows (`least_rows`), which are much of a short sequence. With its lookup and the
dense layers they may exceed the budget. Then `minimum_share` is the share that a step reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..document.index import Index
from .method import Heads, Method

#: Largest relative distance of a step's bytes from the budget.
_NEAR = 0.05

#: Digits of shares and factors, so that sums that are 1 on paper are 1.
_DIGITS = 9
_ROUND = 10.0**-_DIGITS


@dataclass(frozen=True, eq=False)  # `==` on arrays is ambiguous
class MethodHeads:
    """A method with the heads that it serves.

    Parameters
    ----------
    layer_scale : float64 array, shape (n_heads,)
        Factor of each head's budget, by a plan's layer budgets; 1 without them.
    """

    method: Method
    heads: Heads
    layer_scale: np.ndarray

    @cached_property
    def kept_state(self) -> dict[str, int]:
        """Return the fields of the state that an index keeps, and how many first numbers of each a head has at most."""
        kept = [self.method.kept_state(shape) for shape in dict.fromkeys(self.heads.shapes)]
        return {name: max(of_shape[name] for of_shape in kept) for name in kept[0]} if kept else {}


def distribute_budget(groups: Sequence[MethodHeads], n_tokens: int, index: Index | None) -> None:
    """Set `scale` of all heads: the factors with which a step reads the budget.

    Parameters
    ----------
    n_tokens : int
        Tokens in the cache after the step.
    """
    for group in groups:
        method, heads = group.method, group.heads
        weight = heads.counted_bytes
        if not method.has_budget or not weight.any():
            continue
        if method.takes_budget:
            asked: float = method.budget  # type: ignore[attr-defined]
            alone = len(groups) == 1
            share = asked if alone else (asked * _whole(groups) - _spent(groups, n_tokens)) / weight.sum()
            lookup, least = _lookup_and_least(group, n_tokens, index)
        else:  # a number of tokens, if any: the lookup is not counted
            asked = share = min(method.asked_tokens / n_tokens, 1.0)
            lookup = least = np.zeros(len(weight))
        if asked > 0:
            if (lookup == lookup[0]).all() and (group.layer_scale == group.layer_scale[0]).all():
                bounded = min(max(share, least[0]), 1.0)  # the fast path, which most steps take
                heads.scale[:] = 1 / asked + _ROUND if bounded >= 1 - _ROUND else round(bounded / asked, _DIGITS)
                continue
            shares = scaled(share, group.layer_scale, lookup, least, weight)
            heads.scale[:] = np.where(shares >= 1 - _ROUND, 1 / asked + _ROUND, np.round(shares / asked, _DIGITS))


def scaled(share: float, scale: np.ndarray, lookup: np.ndarray, least: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return lookup + c * scale, clipped to `least` and 1, with the c that gives the requested mean.

    Parameters
    ----------
    share : float
        Requested mean.
    scale, lookup, least, weight : float64 arrays, shape (n_heads,)
        Of each head: factor, share of its lookup, smallest possible share, and weight in the mean.

    Returns
    -------
    float64 array, shape (n_heads,)
        Shares of the heads. Their mean is at least that of `least`.
    """
    scale = np.maximum(scale, 1e-6)
    factors = np.concatenate([(least - lookup) / scale, (1 - lookup) / scale])  # where each head's share begins to grow
    order = factors.argsort()  # and where it ends: between them the sum is linear
    factors, slopes = factors[order], np.cumsum(np.concatenate([weight * scale, -weight * scale])[order])
    sums = weight @ least + np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(factors))])
    factor = np.interp(share * weight.sum(), sums, factors)
    shares: np.ndarray = np.clip(lookup + factor * scale, least, 1.0)
    return shares


def minimum_share(groups: Sequence[MethodHeads], n_tokens: int, index: Index | None) -> float:
    """Return the share of the budget's bytes that a step reads, or keeps, even with the smallest budget.

    The parameters are those of `distribute_budget`.
    """
    selecting = (group for group in groups if group.method.takes_budget)
    least = sum(float(group.heads.counted_bytes @ _lookup_and_least(group, n_tokens, index)[1]) for group in selecting)
    return (_spent(groups, n_tokens) + least) / max(_whole(groups), 1.0)


def budget_warning(groups: Sequence[MethodHeads], n_tokens: int, index: Index | None) -> str:
    """Return a warning about a budget below the bytes that are always read, or above all that can be read; else "".

    The parameters are those of `distribute_budget`.
    """
    least = minimum_share(groups, n_tokens, index)
    for group in groups:
        method = group.method
        name, verb, asked = method.name, "keep" if method.evicts else "read", getattr(method, "budget", 1.0)
        tokens, fewest = method.asked_tokens, min(method.least_tokens(index), n_tokens)
        if 0 < tokens < fewest:
            verb = "keep" if method.evicts else "attend"
            return f"{name} cannot {verb} as few as {tokens} tokens here: it always {verb}s {fewest}."
        if method.takes_budget and asked < least * (1 - _NEAR):
            refused = f"{name} cannot {verb} as little as {asked:g} of {n_tokens:,} tokens here"
            return f"{refused}: what it always {verb}s is {least:.3f} of them."
        most = method.most_share(group.heads, index, n_tokens)
        if method.takes_budget and most < asked * (1 - _NEAR) and asked < 1:
            refused = f"{name} cannot {verb} as much as {asked:g} of {n_tokens:,} tokens here"
            return f"{refused}: it {verb}s {most:.3f} of them."
    return ""


def _lookup_and_least(each: MethodHeads, n_tokens: int, index: Index | None) -> tuple[np.ndarray, np.ndarray]:
    """Return each head's share of its lookup, and the share that it always reads or keeps."""
    lookup = each.method.lookup_share(each.heads, index, n_tokens)
    return lookup, np.minimum(lookup + each.method.least_selected(index, n_tokens), 1.0)


def _whole(groups: Sequence[MethodHeads]) -> float:
    """Return the bytes of dense attention for each token."""
    return sum(float(group.heads.counted_bytes.sum()) for group in groups)


def _spent(groups: Sequence[MethodHeads], n_tokens: int) -> float:
    """Return the bytes for each token that heads read whatever the budget."""
    fixed = (group for group in groups if not group.method.takes_budget)
    return sum(float(group.heads.counted_bytes @ group.method.fixed_share(group.heads, n_tokens)) for group in fixed)
