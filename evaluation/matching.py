"""Which budget to give a method so that it reads a certain share of what dense attention reads, selection included.

Methods mean different things by their budget (Quest's first two layers are dense, H2O reads keys twice), so they
compete on what they really read.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

#: How near a share must come, how far it may be off where it comes no nearer, and how often it is measured at most.
_NEAR, _FAR, _TRIES = 0.02, 0.1, 8

#: A budget that is as much smaller should read less; shares that are as near as this are the same.
_LESS, _SAME = 0.7, 0.005

#: The smallest budget that is tried.
_LEAST = 1 / 1024


class Unreachable(Exception):
    """A method reads more with any budget that it takes. `share` : the least that it was seen to read, if any."""

    def __init__(self, share: float | None) -> None:
        super().__init__(share)
        self.share = share


def matched(measure: Callable[[float], float | None], target: float, start: float) -> float:
    """The budget that reads a share nearest to `target`.

    measure(budget) : the share that it reads, rising with the budget; None where it is refused as too small
    start : the budget to try first. Raises Unreachable where none comes near.
    """
    low, high = _LEAST, 1.0
    shares: dict[float, float] = {}
    budget = min(max(start, low), high)
    while len(shares) < _TRIES and high / low > 1 + _NEAR / 4:
        share = measure(budget)
        if share is None or share < target:
            low = budget
        else:
            high = budget
        if share is None:
            budget = sqrt(low * high)
            continue
        over = [other for other in shares if shares[other] > target and budget < _LESS * other]
        stays = any(share > (1 - _SAME) * shares[other] for other in over)
        shares[budget] = share
        if stays and share > target:
            break  # a smaller budget reads no less: what is always read takes up all of it
        if abs(share / target - 1) <= _NEAR:
            return budget
        guess = budget * target / share
        budget = guess if low < guess < high else sqrt(low * high)
    best = min(shares, key=lambda each: abs(shares[each] / target - 1), default=None)
    if best is None or abs(shares[best] / target - 1) > _FAR:
        raise Unreachable(min(shares.values(), default=None))
    return best
