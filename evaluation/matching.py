"""Find the budget with which a method reads a given share of the bytes of dense attention, selection included.

Budgets mean different things: H2O reads keys twice. Matching the bytes makes the comparison fair.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

#: Relative distance from the target at which the search ends.
_NEAR = 0.02

#: Largest relative distance of an accepted share from the target.
_FAR = 0.1

#: Largest number of measurements.
_TRIES = 8

#: Shares with a smaller relative difference count as equal ...
_SAME = 0.005

#: ... and if budgets that differ by more than this factor read equal shares, the share does not depend on the budget.
_SMALLER = 0.7

#: The smallest budget to try.
_LEAST = 1 / 1024


class Unreachable(Exception):
    """A method reads more than the target with every budget.

    Parameters
    ----------
    share : float
        Smallest share that was measured.
    """

    def __init__(self, share: float) -> None:
        super().__init__(share)
        self.share = share


def matched(measure: Callable[[float], float], target: float, start: float) -> float:
    """Find the budget with which a method reads nearest to a share.

    Parameters
    ----------
    measure : callable
        Returns the share that a budget reads; it rises with the budget.
    target : float
        Share to read, above 0.

    Raises
    ------
    Unreachable
        If no budget reads a share near the target.
    """
    low, high = _LEAST, 1.0
    shares: dict[float, float] = {}
    budget = min(max(start, low), high)
    while len(shares) < _TRIES and high / low > 1 + _NEAR / 4:
        share = measure(budget)
        if share < target:
            low = budget
        else:
            high = budget
        larger = [other for other in shares if shares[other] > target and budget < _SMALLER * other]
        is_constant = any(share > (1 - _SAME) * shares[other] for other in larger)
        shares[budget] = share
        if is_constant and share > target:
            break  # a smaller budget reads no less: the rows that are always read exceed the target
        if abs(share / target - 1) <= _NEAR:
            return budget
        guess = budget * target / share
        budget = guess if low < guess < high else sqrt(low * high)
    best = min(shares, key=lambda candidate: abs(shares[candidate] / target - 1))
    if abs(shares[best] / target - 1) > _FAR:
        raise Unreachable(min(shares.values()))
    return best
