"""Layer budgets: a measured factor of each layer's budget (SqueezeAttention, Wang et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from ..store.plan import Plan
from .parameters import Parameters, parameter

#: Sources of the factors: values of the parameter `by`.
SENSITIVITY, IMPORTANCE = "sensitivity", "importance"

#: Groups of layers in algorithm 1, line 9.
N_GROUPS = 3


@dataclass(frozen=True)
class LayerBudgets(Parameters):
    """Have the plan's layer budgets scale the budget of the method it stands with. Alone, run the plan's attention.

    Parameters
    ----------
    by : str
        What layers get their budgets by. "sensitivity": by the change of the model's output as the layer's budget
        shrinks, if `octavo profile` found that better for the method than equal budgets; else equal budgets.
        "importance": by the similarity of the residual stream before and after attention, in the texts of the profile
        (SqueezeAttention, algorithm 1, which takes the prompt).
    squeeze : float
        Share of their budget that the least important layers keep, by importance.
    """

    by: str = parameter(SENSITIVITY, choices=(SENSITIVITY, IMPORTANCE))
    squeeze: float = parameter(0.35, above=0, most=1)

    name = "plan"

    def scales(self, plan: Plan | None, method: str, n_layers: int) -> list[float]:
        """Return the factor of each layer's budget."""
        if plan is None:
            return [1.0] * n_layers
        if self.by == IMPORTANCE:
            return budget_scales(plan.groups, self.squeeze)
        return list(plan.layer_scale.get(method, [1.0] * n_layers))


def importance_groups(similarity: Sequence[float], slides: Sequence[bool]) -> list[int | None]:
    """Group the layers by K-means over their mean cosine similarities (algorithm 1, line 9).

    In one dimension the best groups are runs of the sorted numbers: all of these are tried.

    Returns
    -------
    list of int or None
        Group of each layer, 0 for the most important one; None for a sliding layer.
    """
    full_layers = [i for i, sliding in enumerate(slides) if not sliding]
    order = sorted(full_layers, key=lambda i: similarity[i])
    values = np.array([similarity[i] for i in order], np.float64)
    groups: list[int | None] = [None] * len(slides)
    n_groups = min(N_GROUPS, len(np.unique(values)))
    if n_groups == 0:
        return groups
    values -= values.mean()
    sums, squares = (np.concatenate([[0.0], np.cumsum(powers)]) for powers in (values, values**2))

    def spread(start: int, stop: int) -> float:
        return float(squares[stop] - squares[start] - (sums[stop] - sums[start]) ** 2 / (stop - start))

    def cost(splits: tuple[int, ...]) -> float:
        return sum(spread(start, stop) for start, stop in pairwise((0, *splits, len(order))))

    best = min(combinations(range(1, len(order)), n_groups - 1), key=cost)
    for number, (start, stop) in enumerate(pairwise((0, *best, len(order)))):
        for i in order[start:stop]:
            groups[i] = number
    return groups


def budget_scales(groups: Sequence[int | None], squeeze: float) -> list[float]:
    """Compute the factor of each layer's budget from its group (algorithm 1, lines 10 and 11).

    The last group keeps the share `squeeze` of its budget. The others divide the rest evenly, so that the factors of
    all grouped layers average to 1. Layers without a group have the factor 1.
    """
    last = max((group for group in groups if group is not None), default=0)
    loses = [group == last for group in groups]
    gains = [group is not None and group < last for group in groups]
    if not any(gains):
        return [1.0] * len(groups)
    more = 1 + (1 - squeeze) * sum(loses) / sum(gains)
    return [squeeze if less else more if gain else 1.0 for less, gain in zip(loses, gains, strict=True)]
